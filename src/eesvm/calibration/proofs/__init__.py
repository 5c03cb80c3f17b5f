"""Checking certificates: scores and a proof in, the bound it proves out, in exact arithmetic and without the solver."""
