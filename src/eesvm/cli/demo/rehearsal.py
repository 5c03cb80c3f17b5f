"""The demos in small, for a process that compiles ahead what they will need.

In: nothing. Out: nothing but compiled code. What the demo itself needs first comes last here.
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
    """What `eesvm demo --scores` comes to after its first solution, in the order in which it does."""
    generator = np.random.default_rng(0)
    rows, is_positive = generator.normal(size=_TABLE), np.arange(_TABLE[0]) % 10 == 0
    problem = CalibrationProblem(rows[is_positive], rows[~is_positive])
    ranked, _ = rank_whole(problem, 1.0, only_useful=True)
    _Unstarted(ranked).step(1)
    _dive(ranked)
    from eesvm.calibration.calibrators.independent import SigmoidCalibrator  # it loads scikit-learn
    from eesvm.calibration.exact import solve

    SigmoidCalibrator().fit(rows, is_positive.astype(int))
    solve(problem, time_limit=0.2)


def scenes() -> None:
    """What `eesvm demo` needs once it has windows: thresholds first, then everything on a few scenes."""
    scores()
    from eesvm.cli.console import Screen
    from eesvm.cli.demo.scenes import show
    from eesvm.datasets.scenes import make_scenes
    from eesvm.detector.options import DetectorOptions

    options = DetectorOptions.make(changes={"calibration.time_limit": 0.5, "n_jobs": 1})
    with tempfile.TemporaryDirectory(prefix="eesvm-demo-") as folder:
        show(make_scenes(*_SCENES), options, str(Path(folder) / "demo"), False, Screen(quiet=True), quiet=True)


class _Unstarted(NeighbourhoodSearch):
    """Only its moves are wanted here; whoever is waited for compiles what makes the first solution."""

    def _cover_start(self, levels: NDArray[np.int32] | None, run: Run | None) -> None:
        pass


def _dive(ranked: RankedProblem) -> None:
    """The depth-first search of the exact method, which it comes to when its first solutions are good."""
    leaf = Proof(cheap_box(ranked, math.inf)).leaves[0]
    with workers(1) as threads:
        ascent = Ascent(reduce(ranked, leaf.box), ranked.quantum, threads)
        Dive(ranked, leaf, ascent, ascent.evaluate(), ranked.quantum).search(math.inf, 1.0, 1.0)
