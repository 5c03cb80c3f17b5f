"""Figures 1 to 7 of the paper, drawn from a real run."""
