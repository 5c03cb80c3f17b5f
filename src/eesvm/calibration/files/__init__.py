"""Calibrations and certificates as files that are checked when they are read; never pickle."""
