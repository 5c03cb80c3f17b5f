"""Ensembles of Exemplar SVMs and their joint calibration: the public names.

Each is imported when it is first asked for: a command that is interrupted in its first moment, or only asked for its
version, need not wait for numba and scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eesvm._support.version import __version__

if TYPE_CHECKING:
    from eesvm import metrics
    from eesvm._support.validation import InputError
    from eesvm.calibration.calibrators.cooccurrence import CooccurrenceCalibrator
    from eesvm.calibration.calibrators.independent import (
        AffineCalibrator,
        IsotonicCalibrator,
        SigmoidCalibrator,
        Uncalibrated,
    )
    from eesvm.calibration.calibrators.joint import JointCalibrator
    from eesvm.calibration.certificate import Certificate
    from eesvm.calibration.exact import solve
    from eesvm.calibration.files.calibrations import load_calibration, load_cooccurrence, save_calibration
    from eesvm.calibration.files.certificates import load_certificate, save_certificate
    from eesvm.calibration.frontier import RecallFrontier, recall_frontier
    from eesvm.calibration.problem import CalibrationProblem
    from eesvm.calibration.proofs.verify import verify
    from eesvm.calibration.result import CalibrationResult
    from eesvm.detector.detector import ExemplarDetector
    from eesvm.exemplars.lda import ExemplarLDA
    from eesvm.exemplars.single_svm import LinearSVM
    from eesvm.exemplars.svms import ExemplarSVMs

__all__ = [
    "AffineCalibrator",
    "CalibrationProblem",
    "CalibrationResult",
    "Certificate",
    "CooccurrenceCalibrator",
    "ExemplarDetector",
    "ExemplarLDA",
    "ExemplarSVMs",
    "InputError",
    "IsotonicCalibrator",
    "JointCalibrator",
    "LinearSVM",
    "RecallFrontier",
    "SigmoidCalibrator",
    "Uncalibrated",
    "__version__",
    "load_calibration",
    "load_certificate",
    "load_cooccurrence",
    "metrics",
    "recall_frontier",
    "save_calibration",
    "save_certificate",
    "solve",
    "verify",
]

_HOMES = {
    "_support.validation": ("InputError",),
    "exemplars.single_svm": ("LinearSVM",),
    "calibration.certificate": ("Certificate",),
    "calibration.calibrators.cooccurrence": ("CooccurrenceCalibrator",),
    "calibration.exact": ("solve",),
    "calibration.frontier": ("RecallFrontier", "recall_frontier"),
    "calibration.calibrators.independent": (
        "AffineCalibrator",
        "IsotonicCalibrator",
        "SigmoidCalibrator",
        "Uncalibrated",
    ),
    "calibration.calibrators.joint": ("JointCalibrator",),
    "calibration.problem": ("CalibrationProblem",),
    "calibration.proofs.verify": ("verify",),
    "calibration.result": ("CalibrationResult",),
    "calibration.files.certificates": ("load_certificate", "save_certificate"),
    "detector.detector": ("ExemplarDetector",),
    "exemplars.lda": ("ExemplarLDA",),
    "exemplars.svms": ("ExemplarSVMs",),
    "calibration.files.calibrations": ("load_calibration", "load_cooccurrence", "save_calibration"),
}
_MODULES = ("boxes", "calibration", "datasets", "descriptors", "metrics", "report")


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package, when it is first asked for."""
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"eesvm.{home}"), name)
            return found
    if name in _MODULES:
        return import_module(f"eesvm.{name}")
    raise AttributeError(f"module 'eesvm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
