"""Measurements in, the tables of the paper out, beside the paper's own figures."""
