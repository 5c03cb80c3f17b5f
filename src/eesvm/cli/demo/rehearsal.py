"""The demos in small, for a process that compiles ahead what they will need.

In: nothing. Out: nothing but compiled code. Kernels that call the same inner functions are compiled by one process,
which compiles those functions once. So the demo of scores compiles the depth-first search (`compile_dive`), algorithm 1
and the sigmoids itself, and the helper meanwhile the neighbourhood search and the rest of the exact method.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np

from eesvm._support.threads import workers
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
    """What `eesvm demo --scores` does not compile itself."""
    problem = _small_problem()
    NeighbourhoodSearch(_ranked(problem)).step(1)
    _solve(problem)


def scenes() -> None:
    """What `eesvm demo` needs once it has windows: thresholds first, then everything on a few scenes."""
    problem = _small_problem()
    NeighbourhoodSearch(_ranked(problem)).step(1)
    compile_dive()
    compile_sigmoids()
    _solve(problem)
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


def compile_sigmoids() -> None:
    """What fits a sigmoid to each detector."""
    from eesvm.calibration.calibrators.independent import SigmoidCalibrator  # it loads scikit-learn

    problem = _small_problem()
    rows = np.concatenate([problem.positive_scores, problem.negative_scores])
    SigmoidCalibrator().fit(rows, (np.arange(len(rows)) < problem.n_positives).astype(int))


def _small_problem() -> CalibrationProblem:
    rows, is_positive = np.random.default_rng(0).normal(size=_TABLE), np.arange(_TABLE[0]) % 10 == 0
    return CalibrationProblem(rows[is_positive], rows[~is_positive])


def _ranked(problem: CalibrationProblem) -> RankedProblem:
    return rank_whole(problem, 1.0, only_useful=True)[0]


def _solve(problem: CalibrationProblem) -> None:
    from eesvm.calibration.exact import solve

    solve(problem, time_limit=0.2)
