"""Words that options of calibration are chosen from; here, so that who names them need not load what they choose."""

SEARCH_METHODS = ("exact", "algorithm1", "exhaustive", "greedy")
CRITERIA = ("least_squares", "platt")  # what a sigmoid is fitted by
