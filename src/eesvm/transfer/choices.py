"""Formats of labelling tools; here, so that whoever names them need not load what writes them."""

BOX_FORMATS = ("yolo", "label-studio", "cvat", "labelme")
MASK_FORMATS = ("yolo", "yolo-seg", "label-studio", "cvat", "labelme")
