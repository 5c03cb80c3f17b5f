"""How good scores, decisions and detections are: the names of all metrics.

In: labels and scores of windows, or annotated images and detections in them. Out: numbers, curves, reports.
`windows` knows no boxes (tables 1 and 2 of the paper); `detections` is average precision as VOC, ILSVRC and COCO define
it, and `errors` says what went wrong where.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.metrics.choices import PROTOCOLS
    from eesvm.metrics.detections import (
        ClassReport,
        Curve,
        DetectionReport,
        evaluate_detections,
    )
    from eesvm.metrics.errors import (
        ERROR_KINDS,
        ErrorBreakdown,
        ErrorCounts,
        FalsePositive,
        MissedObject,
        break_down_errors,
    )
    from eesvm.metrics.windows import (
        Interval,
        Metric,
        average_precision,
        bootstrap_interval,
        false_positives,
        false_positives_at_recall,
        precision_recall_curve,
        recall_at,
    )

__all__ = [
    "ERROR_KINDS",
    "PROTOCOLS",
    "ClassReport",
    "Curve",
    "DetectionReport",
    "ErrorBreakdown",
    "ErrorCounts",
    "FalsePositive",
    "Interval",
    "Metric",
    "MissedObject",
    "average_precision",
    "bootstrap_interval",
    "break_down_errors",
    "evaluate_detections",
    "false_positives",
    "false_positives_at_recall",
    "precision_recall_curve",
    "recall_at",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "choices": ("PROTOCOLS",),
        "detections": ("ClassReport", "Curve", "DetectionReport", "evaluate_detections"),
        "errors": (
            "ERROR_KINDS",
            "ErrorBreakdown",
            "ErrorCounts",
            "FalsePositive",
            "MissedObject",
            "break_down_errors",
        ),
        "windows": (
            "Interval",
            "Metric",
            "average_precision",
            "bootstrap_interval",
            "false_positives",
            "false_positives_at_recall",
            "precision_recall_curve",
            "recall_at",
        ),
    },
)
