"""Readers of score tables, one per format: bytes on disk become arrays, believed only after a check."""
