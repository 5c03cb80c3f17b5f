"""Exemplars: one linear detector per training object, all trained together against shared negatives.

In: descriptors of objects and of negative windows. Out: weights with the evidence of how far from optimal they can be,
hard negatives, scores of windows, and files.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.exemplars.lda import ExemplarLDA
    from eesvm.exemplars.single_svm import LinearSVM
    from eesvm.exemplars.svms import ExemplarSVMs, LinearExemplars, TrainingProgress

__all__ = [
    "ExemplarLDA",
    "ExemplarSVMs",
    "LinearExemplars",
    "LinearSVM",
    "TrainingProgress",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "lda": ("ExemplarLDA",),
        "single_svm": ("LinearSVM",),
        "svms": ("ExemplarSVMs", "LinearExemplars", "TrainingProgress"),
    },
)
