"""Calibrators as scikit-learn estimators: score table and labels in, comparable scores out."""
