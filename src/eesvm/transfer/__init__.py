"""Annotation transfer: what is known of the exemplar that won a detection, carried onto that detection."""

from eesvm.transfer.inheritance import (
    Agreement,
    TransferredAnnotation,
    annotate,
    is_hashable,
    numbered_parts,
    transfer,
    transfer_consensus,
    weighted_median,
)

__all__ = [
    "Agreement",
    "TransferredAnnotation",
    "annotate",
    "is_hashable",
    "numbered_parts",
    "transfer",
    "transfer_consensus",
    "weighted_median",
]
