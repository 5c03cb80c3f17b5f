"""Annotation transfer: what is known of the exemplar that won a detection, carried onto that detection.

In: annotated training objects and detections that name them. Out: masks, parts, keypoints, poses and labels of the
detections, how good those are where the truth is known, and files.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.transfer.inheritance import Agreement, TransferredAnnotation, annotate, transfer, transfer_consensus
    from eesvm.transfer.mirroring import mirrored
    from eesvm.transfer.refinement import refine

__all__ = [
    "Agreement",
    "TransferredAnnotation",
    "annotate",
    "mirrored",
    "refine",
    "transfer",
    "transfer_consensus",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "inheritance": ("Agreement", "TransferredAnnotation", "annotate", "transfer", "transfer_consensus"),
        "mirroring": ("mirrored",),
        "refinement": ("refine",),
    },
)
