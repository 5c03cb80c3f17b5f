"""Score tables in, thresholds and a proof out.

Imports `_support` and nothing else of the package: those who have a score matrix need no images. `search` finds
thresholds, `proofs` checks them, `calibrators` are the estimators, `tables` and `files` read and write.
"""
