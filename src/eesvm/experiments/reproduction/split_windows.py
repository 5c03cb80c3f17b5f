"""The described windows of one split, made when they are first asked for.

In: a `Split`, and options. Out: `TrainingWindows` of its training and test images. Windows are proposed once for each
kind of options; described tables are large, so they are kept only until another kind of descriptor is asked for.
Scaling and PCA are fitted to training images alone.
"""

from __future__ import annotations

from eesvm.descriptors import DescriptorCache
from eesvm.detector.options import DescriptorOptions, DetectorOptions, WindowOptions
from eesvm.detector.training_descriptor import fit_descriptor
from eesvm.detector.training_table import StageProgress, TrainingWindows, describe_windows, propose_windows
from eesvm.experiments.reproduction.results import SMALL
from eesvm.experiments.reproduction.splits import Split
from eesvm.structures import Problem, Windows

Tables = tuple[TrainingWindows, TrainingWindows]  # of training and of test images


class SplitWindows:
    """Windows of the training and test images of a split."""

    def __init__(
        self, split: Split, cache: DescriptorCache | None, problems: list[Problem], progress: StageProgress | None
    ) -> None:
        self.split, self.cache, self.problems, self.progress = split, cache, problems, progress
        self._proposals: tuple[WindowOptions, list[Windows], list[Windows]] | None = None
        self._tables: dict[tuple[WindowOptions, DescriptorOptions, bool], Tables] = {}
        self._small: dict[tuple[WindowOptions, DescriptorOptions, bool], TrainingWindows] = {}  # what is Val1 of them

    def of(self, stage: str, options: DetectorOptions) -> Tables:
        """Training windows of a stage, Val1 alone or all, and test windows."""
        kind = options.windows, options.descriptor, options.training.mirror
        if kind not in self._tables:
            self._make_room(options.descriptor.name)
            self._tables[kind] = self._describe(options)
        train, test = self._tables[kind]
        if stage != SMALL:
            return train, test
        if kind not in self._small:
            small = {record.image_id for record in self.split.train[: self.split.n_small]}
            self._small[kind] = train.of_images([k for k, each in enumerate(train.records) if each.image_id in small])
        return self._small[kind], test

    def _make_room(self, name: str) -> None:
        """Before tables of a descriptor are made, let go those of others: there is not always room for both."""
        for kind in [kind for kind in self._tables if kind[1].name != name]:
            del self._tables[kind]
            self._small.pop(kind, None)

    def _describe(self, options: DetectorOptions) -> Tables:
        train, test = self._proposed(options)
        descriptor = fit_descriptor(self.split.train, train, options, progress=self.progress)
        return (
            describe_windows(
                self.split.train,
                train,
                descriptor,
                progress=self.progress,
                problems=self.problems,
                mirror=options.training.mirror,
            ),
            describe_windows(self.split.test, test, descriptor, progress=self.progress, problems=self.problems),
        )

    def _proposed(self, options: DetectorOptions) -> tuple[list[Windows], list[Windows]]:
        if self._proposals is None or self._proposals[0] != options.windows:
            train, test = (
                list(
                    propose_windows(
                        images, options.windows, options.n_jobs, with_truth, self.cache, self.progress, self.problems
                    )
                )
                for images, with_truth in ((self.split.train, True), (self.split.test, False))
            )
            self._proposals = options.windows, train, test
        return self._proposals[1:]
