"""Exemplar SVMs: one linear SVM per object, its own descriptor the only positive, trained together."""

from eesvm.exemplars.svms import (
    ExemplarSVMs,
    LinearExemplars,
    TrainingProgress,
    check_both_groups,
    check_prior,
    check_someone_is_left,
    check_training,
)

__all__ = [
    "ExemplarSVMs",
    "LinearExemplars",
    "TrainingProgress",
    "check_both_groups",
    "check_prior",
    "check_someone_is_left",
    "check_training",
]
