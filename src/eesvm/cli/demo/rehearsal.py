"""The demos in small, for a process that compiles ahead what they will need.

In: nothing. Out: nothing but compiled code. What the demo itself needs first comes last here. The demo of scores
compiles the depth-first search (`compile_dive`) itself meanwhile.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import workers
from eesvm.calibration.anytime import Run
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.quanta import rank_whole
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.ascent import Ascent
from eesvm.calibration.search.dives import Dive
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import cheap_box, reduce

_TABLE = 2000, 20  # windows and exemplars: enough for ranks of the same dtypes as in the demos
_SCENES = 6, 3  # to train on, to test on


def scores() -> None:
    """What `eesvm demo --scores` does not compile itself, in the order in which it comes to it."""
    from eesvm.calibration.exact import solve

    problem = _small_problem()
    _moves(problem)
    solve(problem, method="algorithm1", time_limit=0.2)
    _rest(problem)


def scenes() -> None:
    """What `eesvm demo` needs once it has windows: thresholds first, then everything on a few scenes."""
    problem = _small_problem()
    _moves(problem)
    compile_dive()
    _rest(problem)
    from eesvm.cli.console import Screen
    from eesvm.cli.demo.scenes import show
    from eesvm.datasets.scenes import make_scenes
    from eesvm.detector.options import DetectorOptions

    options = DetectorOptions.make(changes={"calibration.time_limit": 0.5, "n_jobs": 1})
    with tempfile.TemporaryDirectory(prefix="eesvm-demo-") as folder:
        show(make_scenes(*_SCENES), options, str(Path(folder) / "demo"), False, Screen(quiet=True), quiet=True)


def compile_dive() -> None:
    """The depth-first search of the exact method, which it comes to when its first solutions are good."""
    ranked = _ranked(_small_problem())
    leaf = Proof(cheap_box(ranked, math.inf)).leaves[0]
    with workers(1) as threads:
        ascent = Ascent(reduce(ranked, leaf.box), ranked.quantum, threads)
        Dive(ranked, leaf, ascent, ascent.evaluate(), ranked.quantum).search(math.inf, 1.0, 1.0)


def _small_problem() -> CalibrationProblem:
    rows, is_positive = np.random.default_rng(0).normal(size=_TABLE), np.arange(_TABLE[0]) % 10 == 0
    return CalibrationProblem(rows[is_positive], rows[~is_positive])


def _ranked(problem: CalibrationProblem) -> RankedProblem:
    return rank_whole(problem, 1.0, only_useful=True)[0]


def _moves(problem: CalibrationProblem) -> None:
    _Unstarted(_ranked(problem)).step(1)


def _rest(problem: CalibrationProblem) -> None:
    from eesvm.calibration.calibrators.independent import SigmoidCalibrator  # it loads scikit-learn
    from eesvm.calibration.exact import solve

    rows = np.concatenate([problem.positive_scores, problem.negative_scores])
    SigmoidCalibrator().fit(rows, (np.arange(len(rows)) < problem.n_positives).astype(int))
    solve(problem, time_limit=0.2)


class _Unstarted(NeighbourhoodSearch):
    """Only its moves are wanted here; whoever is waited for compiles what makes the first solution."""

    def _cover_start(self, levels: NDArray[np.int32] | None, run: Run | None) -> None:
        pass
