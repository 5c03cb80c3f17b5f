"""Files of a reproduction: what each part leaves in the folder, and how it is read again.

In: parts, score tables, a pruning study, figures. Out: JSON, npz and PNG files below the folder, and the same things
back. A folder that holds the run of another command, or a reproduction on another dataset, is refused.
Not here: tables for people (`tables.files`), and keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.documents import write_json
from eesvm._support.files import atomic_write
from eesvm._support.run_folder import NAME as RUN_NAME
from eesvm._support.validation import InputError
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.experiments.figures.paper_figures import PaperFigure
from eesvm.experiments.reproduction.results import Part
from eesvm.experiments.search_study.pruning import PruningStudy, Search

KIND = "reproduction"  # in the inputs of a run folder

_SCORES = ("positive_scores", "negative_scores")


def check_folder(path: Path, dataset: str) -> None:
    """Refuse a folder of another command or of another dataset, whose files would be swept away in the end."""
    try:
        inputs = json.loads((path / RUN_NAME).read_text(encoding="utf-8"))["inputs"]
        kind, name = inputs.get("kind"), inputs.get("name")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # not there, or for `RunFolder` to complain about
    if kind != KIND:
        raise InputError(f"{path} is not written to: it holds the run of another command")
    if name != dataset:
        raise InputError(f"{path} holds a reproduction on {name}, not on {dataset}: choose another folder")


def write_part(root: Path, name: str, part: Part, table: ScoreTable | None = None) -> list[str]:
    """The part as JSON; with its score table beside it where that is wanted later."""
    _write_json(root / f"{name}.json", part.as_dict())
    if table is None:
        return [f"{name}.json"]
    is_positive = np.asarray(table.labels) == 1
    with atomic_write(root / f"{name}.npz") as handle:
        tables = (table.scores[is_positive], table.scores[~is_positive])
        np.savez_compressed(handle, **dict(zip(_SCORES, tables, strict=True)))
    return [f"{name}.json", f"{name}.npz"]


def read_part(root: Path, name: str) -> Part:
    return Part.from_dict(_read_json(root / f"{name}.json"))


def read_problem(root: Path, name: str) -> CalibrationProblem:
    """The calibration problem of a part that was written with its scores."""
    with np.load(root / f"{name}.npz", allow_pickle=False) as table:
        return CalibrationProblem(*(table[each] for each in _SCORES))


def write_study(root: Path, name: str, study: PruningStudy) -> list[str]:
    _write_json(root / f"{name}.json", asdict(study))
    return [f"{name}.json"]


def read_study(root: Path, name: str) -> PruningStudy:
    content = _read_json(root / f"{name}.json")
    searches = tuple(Search(**search) for search in content["searches"])
    return PruningStudy(**{**content, "searches": searches, "notes": tuple(content["notes"])})


def write_figures(root: Path, name: str, figures: Sequence[PaperFigure]) -> list[str]:
    """Pictures as figures/NAME.png, and what is said about them as JSON."""
    files = [f"{name}.json"]
    facts = [{key: getattr(one, key) for key in ("number", "name", "caption", "alt")} for one in figures]
    _write_json(root / files[0], [{**own, "png": one.png is not None} for own, one in zip(facts, figures, strict=True)])
    (root / "figures").mkdir(exist_ok=True)
    for figure in figures:
        if figure.png is not None:
            files.append(f"figures/{figure.name}.png")
            with atomic_write(root / files[-1]) as handle:
                handle.write(figure.png)
    return files


def read_figures(root: Path, name: str) -> list[PaperFigure]:
    figures = []
    for facts in _read_json(root / f"{name}.json"):
        png = (root / "figures" / f"{facts['name']}.png").read_bytes() if facts["png"] else None
        figures.append(PaperFigure(**{**facts, "png": png}))
    return figures


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
