"""Names of the formats of labelling tools; alone, so that a parser that lists them does not load what writes them."""

BOX_FORMATS = ("yolo", "label-studio", "cvat", "labelme")
MASK_FORMATS = ("yolo", "yolo-seg", "label-studio", "cvat", "labelme")
