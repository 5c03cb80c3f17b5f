"""The paper again: its tables, claims, figures and search statistics, measured on any dataset."""
