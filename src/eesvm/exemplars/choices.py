"""Words that options of training may be; alone, so that a parser that lists them loads nothing of what they name."""

LOSSES = ("hinge", "squared_hinge")
