"""The detector: images in, detections with the exemplar that won each of them out.

In: a dataset to learn from; images to look at. Out: a model that can be trained part by part, written, read, applied.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.detector.box_regression import BoxRegressor, regress_boxes
    from eesvm.detector.class_calibration import calibrate_class
    from eesvm.detector.class_training import CalibrationScores, SingleSVM, TrainedClass, score_class, train_class
    from eesvm.detector.detector import ExemplarDetector
    from eesvm.detector.model import ClassModel, Ensemble, score_image
    from eesvm.detector.options import DetectorOptions
    from eesvm.detector.training_descriptor import training_windows
    from eesvm.detector.training_table import TrainingWindows

__all__ = [
    "BoxRegressor",
    "CalibrationScores",
    "ClassModel",
    "DetectorOptions",
    "Ensemble",
    "ExemplarDetector",
    "SingleSVM",
    "TrainedClass",
    "TrainingWindows",
    "calibrate_class",
    "regress_boxes",
    "score_class",
    "score_image",
    "train_class",
    "training_windows",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "box_regression": ("BoxRegressor", "regress_boxes"),
        "class_calibration": ("calibrate_class",),
        "class_training": ("CalibrationScores", "SingleSVM", "TrainedClass", "score_class", "train_class"),
        "detector": ("ExemplarDetector",),
        "model": ("ClassModel", "Ensemble", "score_image"),
        "options": ("DetectorOptions",),
        "training_descriptor": ("training_windows",),
        "training_table": ("TrainingWindows",),
    },
)
