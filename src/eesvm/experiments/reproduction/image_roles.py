"""Who looks at which images in a reproduction: the network, exemplars and calibration, the test.

In: splits, and the images that the network was tuned on, where they are known. Out: what `Roles.summary` says of them,
after every split was found without a test image among the others; and how separable the calibration windows are, from
the searches that a run makes anyway. The embedded scenes are drawn apart and need no check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eesvm.datasets.roles import PictureCodes, Roles
from eesvm.experiments.reproduction.recipes import ACROSS_IMAGES
from eesvm.experiments.reproduction.results import SMALL, Results
from eesvm.experiments.reproduction.splits import Splits
from eesvm.experiments.tables.windows import Method
from eesvm.structures import ImageRecord


def check_roles(
    splits: Splits,
    network: PictureCodes | None,
    progress: Callable[[int, int], object] | None = None,
    untuned: str | None = None,
) -> dict[str, Any] | None:
    """Refuse test images among the others, in every split; None where there is nothing to say.

    `untuned` names what describes windows, where no images have tuned it.
    """
    if splits.is_scenes:
        return None
    records = {record.image_id: record for one in splits.splits for part in (one.train, one.test) for record in part}
    codes = PictureCodes.of(records.values(), splits.name, progress)
    rows = {name: row for row, name in enumerate(codes.names)}
    found = []
    for split in splits.splits:
        own, test = (_some(codes, rows, part) for part in (split.train, split.test))
        roles = Roles(own, network, test, untuned)
        roles.check()
        found.append(roles.summary())
    return max(found, key=lambda summary: summary["n_shared"] or 0)


def _some(codes: PictureCodes, rows: Mapping[str, int], images: Sequence[ImageRecord]) -> PictureCodes:
    chosen = [rows[record.image_id] for record in images if record.image_id in rows]
    return PictureCodes(codes.source, tuple(codes.names[row] for row in chosen), codes.codes[np.array(chosen, int)])


def search_separability(results: Results) -> dict[str, float] | None:
    """Shares of the calibration negatives that joint thresholds accept: own pairs as in the paper, and across images.

    Means over the classes and splits of tables 1 to 3; None where no class has both searches.
    """
    shares: list[tuple[float, float]] = []
    for part in results.of(SMALL):
        losses = {row.method: row.search.get("loss") for row in part.rows}
        pair = losses.get(Method.JOINT), losses.get(ACROSS_IMAGES)
        n_negatives = part.facts.get("n_calibration_negatives")
        if n_negatives and pair[0] is not None and pair[1] is not None:
            shares.append((pair[0] / n_negatives, pair[1] / n_negatives))
    if not shares:
        return None
    own, across = np.mean(shares, axis=0)
    return {"own": float(own), "across": float(across)}
