"""One class of one split: what its recipes train, score and judge, each step once and only when it is asked for.

In: recipes, and where their windows come from. Out: exemplars, score tables, `RuleResult`s, and `Row`s that can be
filed. Recipes that train alike share a training; all of them are counted at the recall that the joint thresholds of
the first one reach, so that their false positives can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.detector.class_training import CalibrationScores, TrainedClass, score_class, train_class
from eesvm.detector.cross_fitting import cross_fitted
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.experiments.reproduction.recipes import Recipe
from eesvm.experiments.reproduction.results import Row
from eesvm.experiments.reproduction.split_windows import Tables
from eesvm.experiments.tables.detections import (
    RANDOM,
    WINNER,
    RuleResult,
    calibrators_on_demand,
    judge_rules,
    regressor_of,
)
from eesvm.experiments.tables.windows import Method
from eesvm.structures import ExemplarAnnotation
from eesvm.transfer.annotations import annotate_all
from eesvm.transfer.quality import MASK_IOU, NothingToCompareError, random_choice, transfer_quality

WindowsOf = Callable[[DetectorOptions], Tables]


class ClassWork:
    """The work on one class; `n_resamples` of the test images where intervals are to come from them."""

    def __init__(self, recipes: Sequence[Recipe], windows_of: WindowsOf, class_name: str, n_resamples: int = 0) -> None:
        self.recipes, self.windows_of, self.class_name = recipes, windows_of, class_name
        self.n_resamples = n_resamples
        self._trained: dict[tuple[Any, ...], tuple[TrainedClass, CalibrationScores]] = {}
        self._results: dict[int, list[RuleResult]] = {}

    def rows(self) -> Iterator[Row]:
        """What all recipes come to, in their order."""
        for number, recipe in enumerate(self.recipes):
            yield from (Row.of(result, recipe.is_ours) for result in self.results(number))

    def results(self, number: int = 0) -> list[RuleResult]:
        """The rules of a recipe on the test images."""
        if number not in self._results:
            recipe = self.recipes[number]
            trained, scores = self.trained(number), self.scores(number)
            train, test = self.windows_of(recipe.options)
            self._results[number] = judge_rules(
                test,
                self.class_name,
                trained.exemplars,
                trained.single,
                calibrators_on_demand(scores, recipe.options),
                recipe.options,
                recipe.rules,
                regressor=regressor_of(train, self.class_name, recipe.options, recipe.rules),
                recall=None if number == 0 else self.results(0)[0].recall,
                image_weights=_image_weights(len(test.records), self.n_resamples),
            )
        return self._results[number]

    def trained(self, number: int = 0) -> TrainedClass:
        return self._train(self.recipes[number].options)[0]

    def scores(self, number: int = 0) -> CalibrationScores:
        """Of the windows that the first recipe with this training calibrates on."""
        return self._train(self.recipes[number].options)[1]

    def facts(self) -> dict[str, Any]:
        """Sizes of what was trained, calibrated and judged."""
        trained, table, result = self.trained(), self.scores().table, self.results()[0]
        return {
            "n_exemplars": len(trained.instances),
            "n_training_negatives": trained.n_negatives,
            "n_calibration_positives": table.n_positives,
            "n_calibration_negatives": table.n_rows - table.n_positives,
            "n_test_positives": result.n_positives,
            "n_test_negatives": result.n_negatives,
            "n_test_objects": result.n_objects,
        }

    def transfer_gain(self) -> dict[str, float]:
        """Mask IoU that winners of the joint calibration transfer, and random exemplars; empty without masks."""
        train, _ = self.windows_of(self.recipes[0].options)
        joint = next(result for result in self.results() if result.rule == Method.JOINT_SIGMOID)
        hits = [hit for hit in joint.hits if hit.exemplars]
        if not hits:
            return {}
        annotations = self.annotations(train)
        instances = [hit.instance for hit in hits]
        choices = {
            WINNER: np.array([hit.exemplars[0] for hit in hits]),
            RANDOM: random_choice(annotations, instances),
        }
        boxes, sizes = np.array([hit.box for hit in hits]), [hit.image_size for hit in hits]
        try:
            found = transfer_quality(annotations, choices, boxes, instances, sizes, whole_box=False, n_resamples=1)
            return {f"transfer_{name}": found[choice, MASK_IOU].mean for name, choice in _CHOICES.items()}
        except (NothingToCompareError, KeyError):  # there are no masks
            return {}

    def annotations(self, train: TrainingWindows) -> tuple[ExemplarAnnotation, ...]:
        """What the exemplars of the first recipe transfer."""
        trained, records = self.trained(), {record.image_id: record for record in train.records}
        return annotate_all(trained.objects, records, mirror=trained.n_mirrored > 0)

    def _train(self, options: DetectorOptions) -> tuple[TrainedClass, CalibrationScores]:
        is_judged = options.calibration.shrink is not None  # then scores of whole images are wanted, too
        kind = options.windows, options.descriptor, options.training, is_judged, options.calibration.is_cross_fitted
        if kind not in self._trained:
            train, _ = self.windows_of(options)
            trained = train_class(train, self.class_name, options.training, random_state=options.random_state)
            scores = score_class(train, trained, options.calibration, random_state=options.random_state)
            self._trained[kind] = trained, cross_fitted(train, trained, scores, options)
        return self._trained[kind]


_CHOICES = {"winner": WINNER, "random": RANDOM}


def _image_weights(n_images: int, n_resamples: int) -> NDArray[np.float64] | None:
    """(resamples, images) how often each is drawn; the same for every class and method."""
    if not n_resamples:
        return None
    random = np.random.default_rng(0)
    drawn = [np.bincount(random.integers(n_images, size=n_images), minlength=n_images) for _ in range(n_resamples)]
    return np.array(drawn, dtype=np.float64)
