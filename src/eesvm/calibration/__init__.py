"""Score tables in, thresholds and a proof out.

Imports `_support` and nothing else of the package: whoever has a score matrix needs no images. `search` finds
thresholds, `proofs` checks them, `calibrators` are the estimators, `tables` and `files` read and write.
"""
