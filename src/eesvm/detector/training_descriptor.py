"""The descriptor of a training, with a PCA, a kernel map and a scaling that are fitted to its images.

In: a dataset, its windows and options. Out: a descriptor that is ready, and with `training_windows` the whole table of
described windows. All three are fitted to proposals of some random images, and belong to the descriptor from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.descriptors import (
    PCA,
    DescriptorCache,
    KernelMap,
    MeanNormScaler,
    Transformed,
    describe_dataset,
    make_descriptor,
)
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.transforms import Transform
from eesvm.detector.options import DescriptorOptions, DetectorOptions
from eesvm.detector.training_table import (
    StageProgress,
    TrainingWindows,
    describe_windows,
    of_stage,
    propose_windows,
)
from eesvm.structures import Dataset, ImageRecord, Problem, Windows

_SAMPLE_IMAGES = 150  # that scaling and PCA are fitted on
_SAMPLE_WINDOWS = 80  # of each

_logger = logging.getLogger("eesvm")


def training_windows(
    dataset: Dataset | Sequence[ImageRecord],
    options: DetectorOptions | None = None,
    *,
    cache: DescriptorCache | None = None,
    descriptor: Descriptor | None = None,
    progress: StageProgress | None = None,
    problems: list[Problem] | None = None,
) -> TrainingWindows:
    """Propose and describe the windows of all images.

    Parameters
    ----------
    dataset : images with their annotated objects.
    options : of the detector; those of windows and descriptor count, `training.mirror`, `random_state` and `n_jobs`.
        Default: the default preset.
    cache : where windows and descriptors are kept, and taken from.
    descriptor : a descriptor that is ready; default: `fit_descriptor` makes one.
    progress : called with a stage, "windows", "scaling" or "descriptors", images done, and their number.
    problems : a list that receives a `Problem` for each skipped image; without one they are logged.
    """
    options = DetectorOptions() if options is None else options
    windows = list(propose_windows(dataset, options.windows, options.n_jobs, True, cache, progress, problems))
    if not windows:
        raise InputError("none of the images can be read: there is nothing to train on")
    if descriptor is None:
        descriptor = fit_descriptor(dataset, windows, options, cache=cache, progress=progress)
    return describe_windows(
        dataset,
        windows,
        descriptor,
        cache=cache,
        progress=progress,
        problems=problems,
        mirror=options.training.mirror,
        n_jobs=options.n_jobs,
    )


def plain_descriptor(options: DescriptorOptions) -> Descriptor:
    """The descriptor that the options name, before scaling and PCA."""
    extra: dict[str, Any] = {} if options.size is None else {"size": options.size}
    return make_descriptor(options.name, options.mode, options.backbone, options.layer, **extra)


def fit_descriptor(
    dataset: Dataset | Sequence[ImageRecord],
    windows: Sequence[Windows],
    options: DetectorOptions,
    *,
    plain: Descriptor | None = None,
    cache: DescriptorCache | None = None,
    progress: StageProgress | None = None,
) -> Transformed:
    """The descriptor, followed by a PCA, a kernel map and a scaling that are fitted to proposals of random images."""
    plain = plain_descriptor(options.descriptor) if plain is None else plain
    wanted = options.descriptor
    if not wanted.is_fitted:
        return Transformed(plain)
    sample = sample_windows(windows, options.random_state)
    described = describe_dataset(
        dataset,
        sample,
        plain,
        cache=cache,
        n_jobs=-1 if options.n_jobs is None else options.n_jobs,
        progress=of_stage(progress, "scaling", len(sample)),
        problems=[],
    )
    tables = [np.asarray(item.descriptors) for item in described]
    if not tables:
        raise InputError("none of the images can be described: there is nothing to train on")
    rows = np.concatenate(tables)
    return Transformed(plain, *_fit_transforms(rows, wanted, options.random_state))


def sample_windows(windows: Sequence[Windows], random_state: int) -> list[Windows]:
    """What scaling and PCA are fitted to: some proposals of some images.

    Ground truth stays out, so that annotations do not change the descriptor.
    """
    random = np.random.default_rng(random_state)
    order = np.sort(random.permutation(len(windows))[:_SAMPLE_IMAGES])
    sample = []
    for k in order.tolist():
        proposals = np.flatnonzero(windows[k].instance < 0)
        chosen = np.sort(random.permutation(proposals)[:_SAMPLE_WINDOWS])
        if len(chosen):
            sample.append(windows[k][chosen])
    return sample


def _fit_transforms(rows: NDArray[np.float32], options: DescriptorOptions, random_state: int = 0) -> list[Transform]:
    transforms: list[Transform] = []
    if options.n_components is not None and options.n_components < rows.shape[1]:
        n = min(options.n_components, len(rows) - 1)
        if n < options.n_components:
            _logger.warning(
                "a PCA with %d components needs more windows: there are %d, which give that many components",
                options.n_components,
                n,
            )
        pca = PCA(max(1, n)).fit(rows)
        rows = pca.transform(rows)
        transforms.append(pca)
    if options.kernel_map is not None:
        n = min(options.kernel_map, len(rows))  # a few small photographs have fewer windows: all are landmarks
        n_components = min(options.kernel_components or n, n)
        kernel_map = KernelMap(n, random_state=random_state, n_components=n_components).fit(rows)
        rows = kernel_map.transform(rows)
        transforms.append(kernel_map)
    if options.mean_norm is not None:
        transforms.append(MeanNormScaler(options.mean_norm).fit(rows))
    return transforms
