"""Words that options of calibration may be; alone, so that a parser that lists them loads nothing of what they name."""

SEARCH_METHODS = ("exact", "algorithm1", "exhaustive", "greedy")
CRITERIA = ("least_squares", "platt")  # what a sigmoid is fitted by
