"""Negatives shared out among a few hundred hard positives, so that what these pay at least is much.

In: sets of negatives as bits, and a box of thresholds. Out: shares, which need not be trusted: what they prove is
worked out by those who use them, the search and the checker of its proofs each for itself.
"""
