"""Words that options of training are chosen from; here, so that whoever names them need not load what they choose."""

LOSSES = ("hinge", "squared_hinge")
