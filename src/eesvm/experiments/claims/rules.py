"""How a claim is judged: the rules that turn a measurement into a verdict, stated once.

In: estimates, and what the paper says. Out: `Finding`s: what was measured, the verdict, and why. Nothing here knows a
claim; the same numbers always give the same verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from eesvm.experiments.tables.estimates import Estimate
from eesvm.experiments.tables.files import GAIN, PERCENT, Cell, text
from eesvm.experiments.tables.files import RATIO as RATIO_KIND

CONFIRMED, NOT_CONFIRMED, UNTESTED = "confirmed", "not confirmed", "cannot be tested here"

DIFFERENCE, RATIO, LEVEL, AT_LEAST, NUMBER, CLASSES, PROOF, NONE = (
    "difference",
    "ratio",
    "level",
    "at least",
    "number",
    "classes",
    "proof",
    "",
)
RULES = {
    DIFFERENCE: "confirmed when the 95 % interval of the paired difference excludes zero in the claimed direction",
    RATIO: "the same for the logarithm of the ratio of two counts, one added to each",
    LEVEL: "confirmed when the whole interval of the paired difference lies within the margin given with the claim",
    AT_LEAST: "confirmed when the lower end of the interval reaches the number given with the claim",
    NUMBER: "a single number without an interval: confirmed when it reaches the number given with the claim",
    CLASSES: "confirmed when the mean difference over splits has the claimed direction in as many classes as claimed",
    PROOF: "confirmed when every search ended with a proof of optimality",
}

_NO_INTERVAL = "one split gives no interval: more splits would"
_NOT_MEASURED = "it was not measured in this run"


@dataclass(frozen=True)
class Finding:
    """What was measured for a claim, and what follows."""

    verdict: str
    rule: str = NONE
    measured: str = ""
    note: str = ""
    estimate: Estimate | None = None


def untested(reason: str) -> Finding:
    return Finding(UNTESTED, note=reason)


def judge_difference(estimate: Estimate | None, unit: str, claimed_sign: int = 1) -> Finding:
    """A paired difference, claimed to be above zero, or below it for a sign of -1."""
    if estimate is None:
        return untested(_NOT_MEASURED)
    measured = f"{text(Cell(estimate, GAIN))}{unit}"
    if not estimate.has_interval:
        return Finding(UNTESTED, DIFFERENCE, measured, _NO_INTERVAL, estimate)
    low, high = sorted((claimed_sign * estimate.low, claimed_sign * estimate.high))
    if low > 0:
        return Finding(CONFIRMED, DIFFERENCE, measured, "", estimate)
    if high < 0:
        note = "the opposite was measured"
    elif claimed_sign * estimate.value > 0:
        note = "points the same way, but the interval includes zero"
    else:
        note = "points the other way or nowhere; the interval includes zero"
    return Finding(NOT_CONFIRMED, DIFFERENCE, measured, note, estimate)


def judge_fewer(estimate: Estimate | None, unit: str) -> Finding:
    """The logarithm of a ratio of counts, claimed to be below zero: fewer than the other."""
    found = judge_difference(estimate, unit, -1)
    if estimate is None:
        return found
    ratio = Estimate(math.exp(estimate.value), math.exp(estimate.low), math.exp(estimate.high), estimate.n)
    note = found.note.replace("includes zero", "includes 1")
    return Finding(found.verdict, RATIO, f"{text(Cell(ratio, RATIO_KIND))}{unit}", note, ratio)


def judge_level(estimate: Estimate | None, unit: str, margin: float) -> Finding:
    """A paired difference that is claimed to be about nothing."""
    if estimate is None:
        return untested(_NOT_MEASURED)
    measured = f"{text(Cell(estimate, GAIN))}{unit}"
    said = f"margin {margin:g}"
    if not estimate.has_interval:
        return Finding(UNTESTED, LEVEL, measured, f"{said}; {_NO_INTERVAL}", estimate)
    if -margin <= estimate.low and estimate.high <= margin:
        return Finding(CONFIRMED, LEVEL, measured, said, estimate)
    is_apart = estimate.low > 0 or estimate.high < 0
    why = "the interval excludes zero" if is_apart else "the interval includes zero, but is wider than the margin"
    return Finding(NOT_CONFIRMED, LEVEL, measured, f"{said}; {why}", estimate)


def judge_at_least(estimate: Estimate | None, unit: str, number: float) -> Finding:
    """A share or factor that is claimed to reach a number."""
    if estimate is None:
        return untested(_NOT_MEASURED)
    measured, said = f"{text(Cell(estimate, PERCENT))}{unit}", f"at least {number:g}"
    if not estimate.has_interval:
        return Finding(UNTESTED, AT_LEAST, measured, f"{said}; {_NO_INTERVAL}", estimate)
    if _reaches(estimate.low, number):
        return Finding(CONFIRMED, AT_LEAST, measured, said, estimate)
    why = "its mean reaches it, the interval does not" if _reaches(estimate.value, number) else "it stays below"
    return Finding(NOT_CONFIRMED, AT_LEAST, measured, f"{said}; {why}", estimate)


def judge_number(value: float | None, measured: str, number: float, note: str = "") -> Finding:
    """One number, claimed to reach another."""
    if value is None or math.isnan(value):
        return untested(note or _NOT_MEASURED)
    verdict = CONFIRMED if _reaches(value, number) else NOT_CONFIRMED
    return Finding(verdict, NUMBER, measured, "; ".join(part for part in (f"at least {number:g}", note) if part))


def judge_classes(differences: Mapping[str, float] | None, unit: str, allowed_share: float = 0.0) -> Finding:
    """Differences by class, claimed not to be negative in any, or in a share of them at most."""
    if not differences:
        return untested(_NOT_MEASURED)
    worse = {name: value for name, value in differences.items() if value < 0}
    n = len(differences)
    measured = f"{n - len(worse)} of {n} classes"
    listed = ", ".join(f"{name} {value:+.1f}{unit}" for name, value in worse.items())
    verdict = CONFIRMED if len(worse) <= allowed_share * n else NOT_CONFIRMED
    return Finding(verdict, CLASSES, measured, f"worse: {listed}" if listed else "")


def _reaches(value: float, number: float) -> bool:
    """With room for rounding: 0.852 as per cent reaches 85.2."""
    return value >= number - 1e-9 * abs(number)
