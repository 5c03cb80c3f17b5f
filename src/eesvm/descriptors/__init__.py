"""Descriptors: windows of an image as rows of numbers.

In: an RGB image and (n, 4) boxes. Out: float32 (n, d). `make_descriptor` makes one by name; `describe_dataset` runs it
over many images, with a `DescriptorCache` if wanted; `MeanNormScaler` and `PCA` may follow, put together by
`Transformed`.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.descriptors.backbones import Backbone, Normalisation
    from eesvm.descriptors.base import Descriptor
    from eesvm.descriptors.by_name import make_descriptor
    from eesvm.descriptors.cache import CacheInfo, DescriptorCache
    from eesvm.descriptors.cnn import CropCNN, PooledCNN
    from eesvm.descriptors.hog import HOG
    from eesvm.descriptors.stream import Described, describe_dataset
    from eesvm.descriptors.transforms import PCA, KernelMap, MeanNormScaler, Transformed

__all__ = [
    "HOG",
    "PCA",
    "Backbone",
    "CacheInfo",
    "CropCNN",
    "Described",
    "Descriptor",
    "DescriptorCache",
    "KernelMap",
    "MeanNormScaler",
    "Normalisation",
    "PooledCNN",
    "Transformed",
    "describe_dataset",
    "make_descriptor",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "backbones": ("Backbone", "Normalisation"),
        "base": ("Descriptor",),
        "by_name": ("make_descriptor",),
        "cache": ("CacheInfo", "DescriptorCache"),
        "cnn": ("CropCNN", "PooledCNN"),
        "hog": ("HOG",),
        "stream": ("Described", "describe_dataset"),
        "transforms": ("PCA", "KernelMap", "MeanNormScaler", "Transformed"),
    },
)
