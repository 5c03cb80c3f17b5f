"""Calibrations as JSON: written whole or not at all, and believed only after every field has been checked.

In: a fitted `JointCalibrator`, or a `CooccurrenceCalibrator`. Out: a small text file, and from it a calibrator that
scores as the saved one.
The numbers survive exactly: thresholds are kept with all their digits together with the dtype they belong to.
Not here: pickle, which can run code from the file; the training scores, so a loaded calibrator
carries the summary of its result (loss, bound, status, history, ...) but not who was responsible for which positive.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.documents import Document, is_number, plain, write_json
from eesvm._support.files import atomic_folder, atomic_write, check_output_folder
from eesvm._support.validation import MISSING, InputError
from eesvm._support.version import __version__
from eesvm.calibration.calibrators.cooccurrence import CooccurrenceCalibrator, check_options
from eesvm.calibration.calibrators.independent import check_sigmoid_options
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.exact import check_goal, check_search_options
from eesvm.calibration.result import CalibrationResult

__all__ = [
    "atomic_folder",
    "atomic_write",
    "check_output_folder",
    "load_calibration",
    "load_cooccurrence",
    "save_calibration",
]

FORMAT = "eesvm-calibration"
COOCCURRENCE_FORMAT = "eesvm-cooccurrence"
SEARCH_FORMAT = "eesvm-search"
SEARCH_NAME = "search.json"  # beside a calibration: what depends on the clock
FORMAT_VERSION = 1

_STATUSES = ("optimal", "gap_reached", "time_limit", "node_limit", "feasible")
_BOUNDS = {"lower_thresholds": -math.inf, "upper_thresholds": math.inf}  # and what null stands for in them
_THRESHOLD_TEXTS = {math.inf: None, -math.inf: "-inf"}  # JSON has no infinities: redundant, and accepting everything
_MAX_BYTES = 1 << 28  # a million exemplars need about a tenth of it
_TIMES = ("seconds", "history")  # of a result
_MAX_MATRIX = 20_000  # exemplars of a co-occurrence matrix: 3 GiB, far beyond what anyone trains
_PARAMETERS = (
    "sigmoid",
    "method",
    "min_recall",
    "time_limit",
    "node_limit",
    "gap",
    "criterion",
    "min_positives",
    "max_negatives_per_positive",
    "random_state",
    "n_jobs",
)
_GOAL = ("max_loss", "min_precision", "max_detectors")
_NEW_ROWS = {"target_recall": None, "n_folds": 5, "n_bootstraps": 0}  # and what a file without them has
_APART = ("pos_label", "missing")  # the second of the labels that the file holds; a field that most files do not have
_COOCCURRENCE_PARAMETERS = tuple(name for name in CooccurrenceCalibrator().get_params() if name not in _APART)


def save_calibration(
    path: str | os.PathLike[str],
    calibrator: JointCalibrator | CooccurrenceCalibrator,
    exemplar_names: Sequence[str] | None = None,
    *,
    times_apart: bool = False,
) -> None:
    """Write a fitted calibrator; `load_calibration` reads a joint one, `load_cooccurrence` the other.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    calibrator : fitted.
    exemplar_names : (E,) different names. Default: those that the calibrator has from its table, its file or the
        columns of its data frame, if any.
    times_apart : write what depends on the clock (how long the search took, and its history) to `search.json` in the
        same folder, so that equal joint calibrators give equal files. `load_calibration` finds it there.
    """
    if isinstance(calibrator, CooccurrenceCalibrator) and hasattr(calibrator, "classes_"):
        write_json(path, _cooccurrence_content(calibrator, _names_to_save(calibrator, exemplar_names)))
        return
    if not isinstance(calibrator, JointCalibrator) or not hasattr(calibrator, "result_"):
        raise InputError("`calibrator` must be a fitted JointCalibrator or CooccurrenceCalibrator")
    names = _names_to_save(calibrator, exemplar_names)
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "eesvm_version": __version__,
        "exemplar_names": names,
        "fitted_on_data_frame": hasattr(calibrator, "feature_names_in_"),
        "across_groups": bool(getattr(calibrator, "across_groups_", False)),
        "classes": _plain_labels(calibrator.classes_),
        "dtype": str(calibrator.thresholds_.dtype),
        "thresholds": _threshold_texts(calibrator.thresholds_),
        **_bounds_to_save(calibrator),
        **({"scales": calibrator.scales_.tolist()} if hasattr(calibrator, "scales_") else {}),
        **_missing_to_save(calibrator),
        **_goal_to_save(calibrator),
        **_costs_to_save(calibrator),
        **_new_rows_to_save(calibrator),
        "sigmoids": calibrator.sigmoids_.tolist() if calibrator.sigmoid else None,
        "muted": calibrator.muted_.tolist() if calibrator.sigmoid else None,
        "parameters": {name: plain(getattr(calibrator, name)) for name in _PARAMETERS},
        "result": _summary(calibrator.result_),
    }
    if times_apart:
        times = {name: content["result"].pop(name) for name in _TIMES}
        write_json(Path(path).with_name(SEARCH_NAME), {"format": SEARCH_FORMAT, **times})
    write_json(path, content)


def load_calibration(path: str | os.PathLike[str]) -> JointCalibrator:
    """The calibrator that `save_calibration` wrote; its `exemplar_names_` are the names, or None.

    Its `across_groups_` says whether exemplars were kept from covering windows of their own group, and its
    `lower_thresholds_` and `upper_thresholds_` are the bounds that its thresholds had to keep.
    `path` is the file, or a folder with a file calibration.json in it.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "calibration.json"
    return _Reader(file, _load_json(file)).calibrator()


def load_cooccurrence(path: str | os.PathLike[str]) -> CooccurrenceCalibrator:
    """The co-occurrence calibrator that `save_calibration` wrote; its `exemplar_names_` are the names, or None."""
    file = Path(path)
    return _Reader(file, _load_json(file, COOCCURRENCE_FORMAT)).cooccurrence()


def fitted_calibrator(
    calibrator: JointCalibrator,
    result: CalibrationResult,
    sigmoids: NDArray[np.float64] | None = None,
    muted: NDArray[np.bool_] | None = None,
    classes: NDArray[Any] | None = None,
) -> JointCalibrator:
    """Give `calibrator` what `fit` would have learned, in place."""
    calibrator.classes_ = np.array([0, 1]) if classes is None else classes
    calibrator.n_features_in_ = len(result.thresholds)
    calibrator.result_ = result
    calibrator.thresholds_ = result.thresholds
    calibrator.active_ = result.active
    if sigmoids is not None and muted is not None:
        calibrator.sigmoids_, calibrator.muted_ = sigmoids, muted
    return calibrator


def _cooccurrence_content(calibrator: CooccurrenceCalibrator, names: list[str] | None) -> dict[str, Any]:
    rows, columns = np.nonzero(calibrator.matrix_)
    return {
        "format": COOCCURRENCE_FORMAT,
        "format_version": FORMAT_VERSION,
        "eesvm_version": __version__,
        "exemplar_names": names,
        "fitted_on_data_frame": hasattr(calibrator, "feature_names_in_"),
        "classes": _plain_labels(calibrator.classes_),
        "n_exemplars": int(calibrator.n_features_in_),
        "n_learned": int(calibrator.n_learned_),
        # Most pairs of exemplars never meet: the entries that are not 0.
        "rows": rows.tolist(),
        "columns": columns.tolist(),
        "values": calibrator.matrix_[rows, columns].tolist(),
        "parameters": {name: plain(getattr(calibrator, name)) for name in _COOCCURRENCE_PARAMETERS},
        **_missing_to_save(calibrator),
    }


def _goal_to_save(calibrator: JointCalibrator) -> dict[str, Any]:
    """What was asked for besides a recall floor."""
    goal = {name: plain(getattr(calibrator, name)) for name in _GOAL}
    return {} if all(value is None for value in goal.values()) else {"goal": goal}


def _new_rows_to_save(calibrator: JointCalibrator) -> dict[str, Any]:
    """A recall that is wanted on new rows, and the thresholds of a vote."""
    wanted = {name: plain(getattr(calibrator, name)) for name in _NEW_ROWS}
    votes = {"votes": [_threshold_texts(v) for v in calibrator.votes_]} if hasattr(calibrator, "votes_") else {}
    return {} if wanted == _NEW_ROWS else {"new_rows": wanted, **votes}


def _threshold_texts(thresholds: NDArray[np.floating[Any]]) -> list[float | str | None]:
    return [_THRESHOLD_TEXTS.get(t, t) for t in thresholds.tolist()]


def _costs_to_save(calibrator: JointCalibrator) -> dict[str, list[float]]:
    """What each exemplar costs, where any does."""
    costs = np.asarray(getattr(calibrator, "detector_cost_", []), dtype=np.float64)
    return {"detector_cost": costs.tolist()} if costs.any() else {}


def _missing_to_save(calibrator: JointCalibrator | CooccurrenceCalibrator) -> dict[str, str]:
    """What missing scores mean, where they are allowed."""
    return {} if calibrator.missing == MISSING[0] else {"missing": calibrator.missing}


def _names_to_save(
    calibrator: JointCalibrator | CooccurrenceCalibrator, exemplar_names: Sequence[str] | None
) -> list[str] | None:
    if exemplar_names is None:
        exemplar_names = getattr(calibrator, "exemplar_names_", getattr(calibrator, "feature_names_in_", None))
    if exemplar_names is None:
        return None
    names = [str(name) for name in exemplar_names]
    if len(names) != calibrator.n_features_in_ or len(set(names)) < len(names):
        raise InputError(
            f"`exemplar_names` must hold {calibrator.n_features_in_} different names, "
            f"got {len(names)} with {len(set(names))} different ones"
        )
    return names


def _bounds_to_save(calibrator: JointCalibrator) -> dict[str, list[float | str | None]]:
    """Bounds on the thresholds, where there are any; null for none, and infinities that are meant as texts."""
    sides = {name: np.asarray(getattr(calibrator, f"{name}_", [])).tolist() for name in _BOUNDS}
    if not any(value != none for name, none in _BOUNDS.items() for value in sides[name]):
        return {}
    return {
        name: [None if value == none else value if math.isfinite(value) else str(value) for value in sides[name]]
        for name, none in _BOUNDS.items()
    }


def _plain_labels(classes: NDArray[Any]) -> list[Any]:
    labels = np.asarray(classes).tolist()
    if not all(isinstance(label, str | int | float) for label in labels):
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise InputError(f"`calibrator` has labels that cannot be saved: they must be numbers or texts, got {kinds}")
    return labels


def _summary(result: CalibrationResult) -> dict[str, Any]:
    n_positives = result.statistics.get("n_positives", len(result.assignment))
    return {
        "loss": float(result.loss),
        "lower_bound": float(result.lower_bound),
        "gap": float(result.gap),
        "status": result.status,
        "method": result.method,
        "recall": float(result.recall),
        "min_recall": float(result.min_recall),
        **({} if result.goal is None else {"recall_bound": float(result.recall_bound)}),
        "n_nodes": int(result.n_nodes),
        "seconds": float(result.seconds),
        "n_exemplars": len(result.thresholds),
        "n_redundant": result.n_redundant,
        "n_positives": int(n_positives),
        "n_negatives": plain(result.statistics.get("n_negatives")),
        "history": [[float(value) for value in point] for point in result.history],
    }


def _load_json(file: Path, format_name: str = FORMAT) -> dict[str, Any]:
    """The object in the file, or a sentence about why there is none."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{file}: it is too large to be a calibration ({file.stat().st_size:,} bytes)")
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except PermissionError:
        raise InputError(f"{file}: no permission to read it") from None
    except OSError as error:
        raise InputError(f"{file}: it cannot be read ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{file}: it is not JSON (line {error.lineno}: {error.msg})") from None
    except (UnicodeDecodeError, RecursionError):
        raise InputError(f"{file}: it is not JSON text") from None
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(f"{file}: {error}") from None
    if not isinstance(content, dict) or content.get("format") != format_name:
        other = {COOCCURRENCE_FORMAT: "load_cooccurrence", FORMAT: "load_calibration"}
        found = content.get("format") if isinstance(content, dict) else None
        hint = f"; `{other[found]}` reads it" if isinstance(found, str) and found in other else ""
        raise InputError(f'{file}: it is not a calibration: there is no "format": "{format_name}"{hint}')
    return content


def _refuse_constant(text: str) -> float:
    raise ValueError(f"the number {text} has no place in it")


def _pos_label(classes: NDArray[Any]) -> Any:
    """The parameter by which `fit` would take the labels of the file again; None where it goes without saying."""
    return None if classes.tolist() in ([0, 1], [-1, 1]) else classes.tolist()[1]


class _Reader(Document):
    """The calibrator of a file."""

    def cooccurrence(self) -> CooccurrenceCalibrator:
        self.check_version(self.content.get("format_version"), FORMAT_VERSION)
        n, n_learned = self.content.get("n_exemplars"), self.content.get("n_learned")
        if type(n) is not int or not 0 < n <= _MAX_MATRIX:
            self.fail("n_exemplars", f"must be a whole number from 1 to {_MAX_MATRIX:,}, got {n!r}")
        self.check_index("n_learned", n_learned, "a whole number")
        values = self.content.get("parameters")
        self.check_object("parameters", values, _COOCCURRENCE_PARAMETERS)
        classes = self.classes()
        calibrator = CooccurrenceCalibrator(**values, pos_label=_pos_label(classes), missing=self.missing())
        with self.usable("parameters"):
            check_options(calibrator)
        calibrator.matrix_, calibrator.n_learned_ = self.matrix(n), n_learned
        calibrator.n_features_in_, calibrator.classes_ = n, classes
        calibrator.exemplar_names_ = self.names(n)
        if self.content.get("fitted_on_data_frame") is True and calibrator.exemplar_names_ is not None:
            calibrator.feature_names_in_ = np.array(calibrator.exemplar_names_, dtype=object)
        return calibrator

    def matrix(self, n: int) -> NDArray[np.float64]:
        """The (n, n) matrix of entries that are not 0."""
        lists = {name: self.content.get(name) for name in ("rows", "columns", "values")}
        rows, columns, values = (
            each if isinstance(each, list) else self.fail(name, "must be a list") for name, each in lists.items()
        )
        for name, places in (("rows", rows), ("columns", columns)):
            if not all(type(each) is int and 0 <= each < n for each in places):
                self.fail(name, f"must hold whole numbers from 0 to {n - 1}")
        if not all(is_number(value) and value >= 0 for value in values):
            self.fail("values", "must hold numbers >= 0")
        if not len(rows) == len(columns) == len(values):
            self.fail("values", f"must be as many as rows and columns, {len(rows)} and {len(columns)}")
        matrix = np.zeros((n, n))
        matrix[np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp)] = values
        return matrix

    def calibrator(self) -> JointCalibrator:
        self.check_version(self.content.get("format_version"), FORMAT_VERSION)
        thresholds = self.thresholds()
        n = len(thresholds)
        classes = self.classes()
        scales = self.scales(n)
        scale = "none" if scales is None else "spread"
        calibrator = JointCalibrator(
            **self.parameters(),
            pos_label=_pos_label(classes),
            scale=scale,
            missing=self.missing(),
            **self.goal(),
            **self.new_rows(),
        )
        options = ("method", "time_limit", "gap", "min_recall", "random_state", "n_jobs", "node_limit")
        with self.usable("parameters"):
            check_search_options(**{name: getattr(calibrator, name) for name in options})
            check_goal(calibrator.max_loss, calibrator.min_precision, calibrator.min_recall, calibrator.method)
            check_sigmoid_options(calibrator)
        sigmoids, muted = self.sigmoids(n) if calibrator.sigmoid else (None, None)
        fitted_calibrator(calibrator, self.result(thresholds), sigmoids, muted, classes)
        if scales is not None:
            calibrator.scales_ = scales
        if calibrator.n_bootstraps:
            calibrator.votes_ = self.votes(n, calibrator.n_bootstraps)
        names = self.names(n)
        calibrator.exemplar_names_ = names
        calibrator.across_groups_ = self.across_groups()
        calibrator.lower_thresholds_, calibrator.upper_thresholds_ = self.bounds(thresholds)
        calibrator.detector_cost_ = self.detector_cost(n)
        if self.content.get("fitted_on_data_frame") is True and names is not None:
            calibrator.feature_names_in_ = np.array(names, dtype=object)
        return calibrator

    def thresholds(self) -> NDArray[np.floating[Any]]:
        dtype = self.content.get("dtype")
        if dtype not in ("float32", "float64"):
            self.fail("dtype", f"must be float32 or float64, got {dtype!r}")
        return self.threshold_list("thresholds", self.content.get("thresholds"), dtype)

    def threshold_list(self, field: str, values: Any, dtype: str) -> NDArray[np.floating[Any]]:
        """One threshold per exemplar."""
        if not isinstance(values, list) or not values:
            self.fail(field, "must be a list with one entry per detector")
        if not all(value is None or value == "-inf" or is_number(value) for value in values):
            self.fail(field, 'must hold finite numbers, "-inf", and null for redundant detectors')
        return self.narrow(field, [math.inf if value is None else float(value) for value in values], dtype)

    def votes(self, n: int, n_bootstraps: int) -> NDArray[np.floating[Any]]:
        """(B, n) thresholds of the refits that vote."""
        rows = self.content.get("votes")
        if not isinstance(rows, list) or len(rows) != n_bootstraps:
            self.fail("votes", f"must be a list of {n_bootstraps} lists of thresholds")
        votes = [self.threshold_list(f"votes[{k}]", row, self.content["dtype"]) for k, row in enumerate(rows)]
        if any(len(vote) != n for vote in votes):
            self.fail("votes", f"must hold lists of {n} thresholds")
        return np.stack(votes)

    def new_rows(self) -> dict[str, Any]:
        """What was wanted of new rows."""
        values = self.content.get("new_rows")
        if values is None:
            return dict(_NEW_ROWS)
        self.check_object("new_rows", values, tuple(_NEW_ROWS))
        if values["target_recall"] is not None and not (
            is_number(values["target_recall"]) and 0 < values["target_recall"] <= 1
        ):
            self.fail(
                "new_rows.target_recall", f"must be null or a number > 0 and <= 1, got {values['target_recall']!r}"
            )
        for name, least in (("n_folds", 2), ("n_bootstraps", 0)):
            if type(values[name]) is not int or values[name] < least:
                self.fail(f"new_rows.{name}", f"must be a whole number >= {least}, got {values[name]!r}")
        return values

    def bounds(self, thresholds: NDArray[np.floating[Any]]) -> list[NDArray[np.floating[Any]]]:
        """Lower and upper; a file without them has none."""
        n, sides = len(thresholds), []
        for name, none in _BOUNDS.items():
            values = self.content.get(name, [None] * n)
            if not isinstance(values, list) or len(values) != n:
                self.fail(name, f"must be a list of {n} entries")
            if not all(value is None or value in ("inf", "-inf") or is_number(value) for value in values):
                self.fail(name, 'must hold finite numbers, "inf", "-inf", and null for no bound')
            sides.append(self.narrow(name, [none if v is None else float(v) for v in values], str(thresholds.dtype)))
        if (sides[0] > sides[1]).any():
            self.fail("lower_thresholds", "holds a number above the one in `upper_thresholds`")
        return sides

    def scales(self, n: int) -> NDArray[np.float64] | None:
        """The units of the margins; a file without them has margins as they are."""
        values = self.content.get("scales")
        if values is None:
            return None
        if not isinstance(values, list) or len(values) != n or not all(is_number(v) and v > 0 for v in values):
            self.fail("scales", f"must be a list of {n} numbers > 0")
        return np.array(values, dtype=np.float64)

    def narrow(self, field: str, values: list[float], dtype: str) -> NDArray[np.floating[Any]]:
        """The numbers in the dtype of the scores, which they must have been of."""
        wide = np.array(values)
        with np.errstate(over="ignore"):
            narrowed = wide.astype(dtype)
        if not np.array_equal(narrowed, wide):
            self.fail(field, f"holds a number that is not a {dtype}")
        return narrowed

    def sigmoids(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        rows, muted = self.content.get("sigmoids"), self.content.get("muted")
        if not isinstance(rows, list) or len(rows) != n:
            self.fail("sigmoids", f"must be a list of {n} pairs of finite numbers")
        if not all(isinstance(row, list) and len(row) == 2 and all(map(is_number, row)) for row in rows):
            self.fail("sigmoids", f"must be a list of {n} pairs of finite numbers")
        if not isinstance(muted, list) or len(muted) != n or not all(isinstance(value, bool) for value in muted):
            self.fail("muted", f"must be a list of {n} booleans")
        return np.array(rows, dtype=np.float64), np.array(muted, dtype=bool)

    def parameters(self) -> dict[str, Any]:
        values = self.content.get("parameters")
        self.check_object("parameters", values, _PARAMETERS)
        if not isinstance(values["sigmoid"], bool):
            self.fail("parameters.sigmoid", f"must be true or false, got {values['sigmoid']!r}")
        for name, value in values.items():
            if not (value is None or isinstance(value, str | bool) or is_number(value)):
                self.fail(f"parameters.{name}", "must be a number, a text, true, false or null")
        return values

    def result(self, thresholds: NDArray[np.floating[Any]]) -> CalibrationResult:
        values = self.content.get("result")
        if not isinstance(values, dict):
            self.fail("result", "must be an object")
        if "seconds" not in values:
            values = values | self.times()
        for name in ("loss", "lower_bound", "recall", "n_nodes", "seconds", "n_positives"):
            if not is_number(values.get(name)) or values[name] < 0:
                self.fail(f"result.{name}", f"must be a number >= 0, got {values.get(name)!r}")
        for name in ("n_nodes", "n_positives", "n_negatives"):
            self.check_index(f"result.{name}", values.get(name), "a whole number")
        if values["recall"] > 1 or values["lower_bound"] > values["loss"]:
            self.fail("result", "must have recall <= 1 and lower_bound <= loss")
        min_recall = values.get("min_recall", self.content["parameters"]["min_recall"])
        if not is_number(min_recall) or not 0 < min_recall <= 1:
            self.fail("result.min_recall", f"must be a number > 0 and <= 1, got {min_recall!r}")
        if values.get("status") not in _STATUSES:
            self.fail("result.status", f"must be one of {', '.join(_STATUSES)}, got {values.get('status')!r}")
        self.check_text("result.method", values.get("method"))
        return CalibrationResult(
            thresholds=thresholds,
            loss=float(values["loss"]),
            lower_bound=float(values["lower_bound"]),
            status=values["status"],
            method=values["method"],
            assignment=np.empty(0, dtype=np.intp),
            recall=float(values["recall"]),
            n_nodes=int(values["n_nodes"]),
            seconds=float(values["seconds"]),
            history=self.history(values.get("history", [])),
            statistics={name: values.get(name) for name in ("n_positives", "n_negatives")},
            min_recall=float(min_recall),
            recall_bound=self.recall_bound(values),
            **self.goal(),
        )

    def times(self) -> dict[str, Any]:
        """Seconds and history, from the file beside; none where there is no such file."""
        file = Path(self.file).with_name(SEARCH_NAME)
        content: dict[str, Any] = {"seconds": 0.0, "history": []}
        if file.exists():
            content = _load_json(file, SEARCH_FORMAT)
        reader = _Reader(file, content)
        seconds: Any = content.get("seconds")
        if not is_number(seconds) or seconds < 0:
            reader.fail("seconds", f"must be a number >= 0, got {seconds!r}")
        reader.history(content.get("history"), "history")
        return {name: content[name] for name in _TIMES}

    def history(self, points: Any, field: str = "result.history") -> list[tuple[float, float, float]]:
        """Seconds, loss and lower bound; files of earlier versions have none."""
        is_list = isinstance(points, list) and all(isinstance(point, list) and len(point) == 3 for point in points)
        if not is_list or not all(is_number(value) and value >= 0 for point in points for value in point):
            self.fail(field, "must be a list of triples of numbers >= 0")
        return [(float(seconds), float(loss), float(bound)) for seconds, loss, bound in points]

    def classes(self) -> NDArray[Any]:
        values = self.content.get("classes")
        if not isinstance(values, list) or len(values) != 2 or values[0] == values[1]:
            self.fail("classes", "must be a list of two different labels")
        if not all(isinstance(value, str | bool) or is_number(value) for value in values):
            self.fail("classes", "must hold numbers, texts or booleans")
        if len({isinstance(value, str) for value in values}) > 1:
            self.fail("classes", "must be two numbers or two texts")
        return np.array(values)

    def across_groups(self) -> bool:
        value = self.content.get("across_groups", False)
        if not isinstance(value, bool):
            self.fail("across_groups", f"must be true or false, got {value!r}")
        return value

    def missing(self) -> str:
        value = self.content.get("missing", MISSING[0])
        if not isinstance(value, str) or value not in MISSING:
            self.fail("missing", f"must be one of {', '.join(MISSING)}, got {value!r}")
        return value

    def goal(self) -> dict[str, Any]:
        """What was asked for besides a recall floor."""
        values = self.content.get("goal")
        if values is None:
            return dict.fromkeys(_GOAL)
        self.check_object("goal", values, _GOAL)
        for name, value in values.items():
            if value is not None and not is_number(value):
                self.fail(f"goal.{name}", f"must be a number or null, got {value!r}")
        if values["max_detectors"] is not None and type(values["max_detectors"]) is not int:
            self.fail("goal.max_detectors", f"must be a whole number or null, got {values['max_detectors']!r}")
        return values

    def detector_cost(self, n: int) -> NDArray[np.float64]:
        values = self.content.get("detector_cost", [0.0] * n)
        if not isinstance(values, list) or len(values) != n or not all(is_number(v) and v >= 0 for v in values):
            self.fail("detector_cost", f"must be a list of {n} numbers >= 0")
        return np.array(values, dtype=np.float64)

    def recall_bound(self, values: dict[str, Any]) -> float:
        """Of a result; 1 where no recall was asked for."""
        bound = values.get("recall_bound", 1.0)
        if not is_number(bound) or not values["recall"] <= bound <= 1:
            self.fail("result.recall_bound", f"must be a number from the recall to 1, got {bound!r}")
        return float(bound)

    def names(self, n: int) -> list[str] | None:
        values = self.content.get("exemplar_names")
        if values is None:
            return None
        if not isinstance(values, list) or len(values) != n or not all(isinstance(value, str) for value in values):
            self.fail("exemplar_names", f"must be null or a list of {n} texts")
        if len(set(values)) < n:
            self.fail("exemplar_names", "holds a name twice")
        return values
