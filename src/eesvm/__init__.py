"""Ensembles of Exemplar SVMs and their joint calibration: the public names."""

from typing import TYPE_CHECKING, Any

from eesvm import metrics
from eesvm._validation import InputError
from eesvm._version import __version__
from eesvm.baseline import LinearSVM
from eesvm.calibration.certificate import Certificate, verify
from eesvm.calibration.cooccurrence import CooccurrenceCalibrator
from eesvm.calibration.exact import solve
from eesvm.calibration.frontier import RecallFrontier, recall_frontier
from eesvm.calibration.independent import AffineCalibrator, IsotonicCalibrator, SigmoidCalibrator, Uncalibrated
from eesvm.calibration.joint import JointCalibrator
from eesvm.calibration.problem import CalibrationProblem, CalibrationResult
from eesvm.certificate_files import load_certificate, save_certificate
from eesvm.exemplar_lda import ExemplarLDA
from eesvm.exemplars import ExemplarSVMs
from eesvm.persistence import load_calibration, load_cooccurrence, save_calibration

if TYPE_CHECKING:
    from eesvm.detector import ExemplarDetector

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


def __getattr__(name: str) -> Any:
    """The detector is imported when it is asked for: a score table needs none of what it imports."""
    if name == "ExemplarDetector":
        from eesvm.detector import ExemplarDetector

        return ExemplarDetector
    raise AttributeError(f"module 'eesvm' has no attribute {name!r}")
