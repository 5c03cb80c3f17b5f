"""Words that options of metrics may be; alone, so that a parser that lists them loads nothing of what they name."""

PROTOCOLS = ("voc07", "voc10", "ilsvrc", "coco")
