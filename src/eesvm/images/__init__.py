"""Pixels: image files, masks of objects, and pixels of one box warped onto another.

In: files of any kind, polygons, run lengths. Out: RGB arrays and boolean masks, and files again.
"""

from eesvm.images.files import (
    IMAGE_SUFFIXES,
    MAX_PIXELS,
    ImageError,
    image_header,
    image_size,
    read_image,
    read_index_image,
    write_image,
    write_picture,
)

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "ImageError",
    "image_header",
    "image_size",
    "read_image",
    "read_index_image",
    "write_image",
    "write_picture",
]
