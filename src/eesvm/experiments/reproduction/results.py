"""What a reproduction has measured, as plain values: every method on every class of every split.

In: `Part`s, one per split, stage and class, as they are filed in JSON. Out: `Results`, which answers what tables and
claims ask: the `Sample` of a measure of a method, for a class or on average over the classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eesvm.experiments.tables.detections import RuleResult
from eesvm.experiments.tables.estimates import Sample, largest_sample, mean_sample

# Stages: what is trained on which images, described how. The first is tables 1 to 3, the second 4 to 6, the last 6.
SMALL, FULL, HOG = "Val1", "Val1+train", "HOG"
STAGES = (SMALL, FULL, HOG)


@dataclass(frozen=True)
class Row:
    """One method on the test images of one class."""

    method: str
    is_ours: bool  # beyond the paper
    n_exemplars: int
    n_used: int
    n_objects: int
    recall: float
    false_positives: float
    accepted: float | None  # negatives that joint thresholds accept as they are
    window_ap: float
    detection_ap: float
    n_winners: int
    n_negatives: int  # test windows that false positives are among
    search: Mapping[str, Any] = field(default_factory=dict)
    resamples: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def false_positives_share(self) -> float:
        return self.false_positives / max(1, self.n_negatives)

    @property
    def accepted_share(self) -> float | None:
        return None if self.accepted is None else self.accepted / max(1, self.n_negatives)

    @classmethod
    def of(cls, result: RuleResult, is_ours: bool) -> Row:
        return cls(
            method=result.rule,
            is_ours=is_ours,
            n_exemplars=result.n_exemplars,
            n_used=result.n_used,
            n_objects=result.n_objects,
            recall=result.recall,
            false_positives=result.false_positives,
            accepted=result.accepted,
            window_ap=result.window_ap,
            detection_ap=result.detection_ap,
            n_winners=result.n_winners,
            n_negatives=result.n_negatives,
            search=dict(result.search),
            resamples={
                name: [None if math.isnan(value) else value for value in values]
                for name, values in result.resamples.items()
            },
        )


@dataclass(frozen=True)
class Part:
    """One class of one split in one stage; without rows it could not be measured, for the reason in `skipped`."""

    split: int
    stage: str
    class_name: str
    rows: tuple[Row, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)  # counts of windows, how good transferred annotations are
    skipped: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Part:
        rows = tuple(Row(**row) for row in content["rows"])
        return cls(**{**content, "rows": rows})


@dataclass(frozen=True)
class Results:
    """All parts of a run."""

    parts: tuple[Part, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that were measured in all splits and stages; a mean over others would mix sets of classes."""
        left_out = {part.class_name for part in self.parts if part.skipped}
        return tuple(dict.fromkeys(part.class_name for part in self.parts if part.class_name not in left_out))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Sentences on classes that could not be measured."""
        reasons = {part.class_name: part for part in reversed(self.parts) if part.skipped}
        return tuple(
            f"the class {name} is left out: {part.skipped} (split {part.split + 1}, {part.stage})"
            for name, part in reasons.items()
        )

    @property
    def is_resampled(self) -> bool:
        """Whether intervals come from resamples of the test images of one split."""
        return any(row.resamples for part in self.parts for row in part.rows)

    @property
    def n_splits(self) -> int:
        return len({part.split for part in self.parts})

    def of(self, stage: str, class_name: str | None = None) -> list[Part]:
        """Parts of a stage in the order of the splits."""
        kept = self.classes if class_name is None else (class_name,)
        own = [part for part in self.parts if part.stage == stage and part.class_name in kept]
        return sorted(own, key=lambda part: part.split)

    def methods(self, stage: str) -> list[tuple[str, bool]]:
        """Names of the rows of a stage, and whether each goes beyond the paper."""
        found = {row.method: row.is_ours for part in self.of(stage) for row in part.rows}
        return list(found.items())

    def sample(self, stage: str, method: str, measure: str, class_name: str) -> Sample | None:
        """A measure of a method on one class; None where it was not measured in every split."""
        rows = [next((row for row in part.rows if row.method == method), None) for part in self.of(stage, class_name)]
        values = [None if row is None else getattr(row, measure) for row in rows]
        if not values or any(value is None for value in values):
            return None
        first = rows[0]
        drawn = first.resamples.get(measure, ()) if first is not None and len(rows) == 1 else ()
        return Sample(
            tuple(float(value) for value in values if value is not None),
            tuple(math.nan if value is None else float(value) for value in drawn),
        )

    def mean(self, stage: str, method: str, measure: str) -> Sample | None:
        """The mean over the classes, in every split."""
        samples = [self.sample(stage, method, measure, name) for name in self.classes]
        known = [sample for sample in samples if sample is not None]
        return mean_sample(known) if known and len(known) == len(samples) else None

    def redundant_share(self, stage: str, method: str, largest: bool = False) -> Sample | None:
        """Share of the exemplars that joint thresholds make redundant: mean over the classes, or the largest."""
        samples = []
        for name in self.classes:
            rows = [next((r for r in part.rows if r.method == method), None) for part in self.of(stage, name)]
            known = [row for row in rows if row is not None]
            if len(known) < len(rows):
                return None
            samples.append(Sample(tuple(1 - row.n_used / row.n_exemplars for row in known)))
        return (largest_sample if largest else mean_sample)(samples) if samples else None

    def fact(self, stage: str, name: str) -> Sample | None:
        """A number among the facts of the parts: mean over the classes that have it, in every split."""
        values = []
        for split in sorted({part.split for part in self.parts}):
            known = [part.facts[name] for part in self.of(stage) if part.split == split and name in part.facts]
            if not known:
                return None
            values.append(sum(known) / len(known))
        return Sample(tuple(values)) if values else None
