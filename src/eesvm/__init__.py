"""Ensembles of Exemplar SVMs and their joint calibration: the public names."""

from eesvm import metrics
from eesvm._validation import InputError
from eesvm._version import __version__
from eesvm.baseline import LinearSVM
from eesvm.calibration.certificate import Certificate, verify
from eesvm.calibration.exact import solve
from eesvm.calibration.frontier import RecallFrontier, recall_frontier
from eesvm.calibration.independent import AffineCalibrator, IsotonicCalibrator, SigmoidCalibrator, Uncalibrated
from eesvm.calibration.joint import JointCalibrator
from eesvm.calibration.problem import CalibrationProblem, CalibrationResult
from eesvm.certificate_files import load_certificate, save_certificate
from eesvm.exemplar_lda import ExemplarLDA
from eesvm.exemplars import ExemplarSVMs
from eesvm.persistence import load_calibration, save_calibration

__all__ = [
    "AffineCalibrator",
    "CalibrationProblem",
    "CalibrationResult",
    "Certificate",
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
    "metrics",
    "recall_frontier",
    "save_calibration",
    "save_certificate",
    "solve",
    "verify",
]
