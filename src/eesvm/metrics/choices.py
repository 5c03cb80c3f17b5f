"""Words that options of metrics are chosen from; here, so that whoever names them need not load what they choose."""

PROTOCOLS = ("voc07", "voc10", "ilsvrc", "coco")
