"""Section 5.5 of the paper: every search on cuts of real score tables, and small search trees."""
