"""Image files and RGB arrays."""

from eesvm.images.files import (
    IMAGE_SUFFIXES,
    MAX_PIXELS,
    Header,
    ImageError,
    PathOrBytes,
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
    "Header",
    "ImageError",
    "PathOrBytes",
    "image_header",
    "image_size",
    "read_image",
    "read_index_image",
    "write_image",
    "write_picture",
]
