"""Numbers with intervals: several splits of the images, or one split whose test images are drawn again and again.

In: what was measured, once per split; for a single split optionally the same measure on resamples of its test images.
Out: `Sample`s, which can be subtracted and averaged pair by pair, and the `Estimate` of each: value and interval.
Over splits the interval is Student's t; over resamples it is their percentiles, moved by twice their bias as those of
`metrics.evaluate_detections` are. Splits share images, so their interval is a rough guide, and rather too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value and its interval, which is NaN to NaN where nothing tells how sure the value is."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 1  # splits, or resamples

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)

    def scaled(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.n)


@dataclass(frozen=True)
class Sample:
    """One measure of one thing: a value per split, and of a single split its values under resampling."""

    values: tuple[float, ...]
    resamples: tuple[float, ...] = ()  # NaN where a resample says nothing

    def __sub__(self, other: Sample) -> Sample:
        """Split by split and resample by resample: both must come from the same ones."""
        return Sample(_minus(self.values, other.values), _minus(self.resamples, other.resamples))

    def estimate(self) -> Estimate:
        if self.resamples:
            return resampled_estimate(self.values[0], self.resamples)
        return split_estimate(self.values)


def mean_sample(samples: Sequence[Sample]) -> Sample:
    """The mean of several samples, of all classes say, in every split and in every resample."""
    values = np.mean([sample.values for sample in samples], axis=0)
    resamples = np.mean([sample.resamples for sample in samples], axis=0)  # NaN where one class has no object
    return Sample(tuple(values.tolist()), tuple(resamples.tolist()))


def largest_sample(samples: Sequence[Sample]) -> Sample:
    """The largest of several samples in every split and in every resample."""
    values = np.max([sample.values for sample in samples], axis=0)
    resamples = np.max([sample.resamples for sample in samples], axis=0)
    return Sample(tuple(values.tolist()), tuple(resamples.tolist()))


def log_ratio(own: Sample, reference: Sample) -> Sample:
    """Logarithm of the ratio of two counts in every split and resample; one is added to each, as either may be 0."""

    def logarithms(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
        return tuple(math.log((a + 1) / (b + 1)) for a, b in zip(one, other, strict=True))

    return Sample(logarithms(own.values, reference.values), logarithms(own.resamples, reference.resamples))


def split_estimate(values: Sequence[float]) -> Estimate:
    """Mean over splits with Student's interval; without one for a single split."""
    known = np.asarray(values, dtype=np.float64)
    n = len(known)
    if n < 2:
        return Estimate(float(known.mean()), n=n)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * known.std(ddof=1) / math.sqrt(n)
    return Estimate(float(known.mean()), float(known.mean() - half), float(known.mean() + half), n)


def resampled_estimate(value: float, resamples: Sequence[float]) -> Estimate:
    """A value with the percentiles of its resamples, moved by twice their bias."""
    known = np.array([each for each in resamples if not math.isnan(each)])
    if not len(known):
        return Estimate(value)
    low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) - 2 * (known.mean() - value)
    return Estimate(value, float(low), float(high), len(known))


def _minus(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    return tuple(a - b for a, b in zip(one, other, strict=True))
