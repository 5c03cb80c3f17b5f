"""Exemplars: one linear detector per training object, all trained together against shared negatives.

In: descriptors of objects and of negative windows. Out: weights with the evidence of how far from optimal they can be,
hard negatives, scores of windows, and files.
"""

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
