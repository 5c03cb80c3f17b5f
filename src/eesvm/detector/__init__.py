"""The detector: images in, detections with the exemplar that won each of them out."""

from eesvm.detector.detector import (
    ExemplarDetector,
    Images,
    as_records,
    named_apart,
)

__all__ = [
    "ExemplarDetector",
    "Images",
    "as_records",
    "named_apart",
]
