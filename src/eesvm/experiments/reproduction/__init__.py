"""One dataset in the roles of the paper's Val1, train and Val2: every method on every class, part by part."""

SECONDS = 20.0  # of each search, unless told otherwise
