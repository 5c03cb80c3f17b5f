"""Searches: ranks in, the best levels and a proof of how good they can get out."""
