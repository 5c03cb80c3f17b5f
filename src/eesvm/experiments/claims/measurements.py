"""What the claims of the paper are measured by.

In: `Evidence`: the results of a reproduction and its pruning study. Out: functions that look one thing up in it and
have it judged by a rule of `rules`. A reproduction that did not measure something says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eesvm._support.amounts import rough_duration
from eesvm.experiments.claims.rules import (
    CONFIRMED,
    NOT_CONFIRMED,
    NUMBER,
    PROOF,
    Finding,
    judge_at_least,
    judge_classes,
    judge_difference,
    judge_fewer,
    judge_level,
    judge_number,
    untested,
)
from eesvm.experiments.paper import (
    DEPTH_REDUCTION,
    EXHAUSTIVE_SECONDS,
    ORDERING_SPEEDUP,
    PAPER_TABLES,
    PRUNED_SHARE,
    RECALL,
    REDUNDANT_SHARE,
)
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL, Results
from eesvm.experiments.search_study.pruning import ALGORITHM1, TINY, PruningStudy
from eesvm.experiments.tables.estimates import Estimate, Sample, log_ratio, split_estimate
from eesvm.experiments.tables.windows import Method

LEVEL_MARGIN = 1.0  # points of AP within which two methods are level
FEW_SECONDS = 60.0  # "just a few seconds"

_POINTS = " points of AP"
_TIMES = " times as many"


@dataclass(frozen=True)
class Evidence:
    """What claims are judged by."""

    results: Results
    study: PruningStudy
    has_cnn: bool = True  # descriptors of a network; else all of them are HOG
    n_mined: int = 0  # training images that negatives come from


Find = Callable[[Evidence], Finding]


def fewer(stage: str, method: str, other: str) -> Find:
    """False positives of a method over those of another; the joint thresholds count as they are."""

    def find(evidence: Evidence) -> Finding:
        own, reference = (_false_positives(evidence.results, stage, each) for each in (method, other))
        found = None if own is None or reference is None else log_ratio(own, reference).estimate()
        return judge_fewer(found, _TIMES)

    return find


def _false_positives(results: Results, stage: str, method: str) -> Sample | None:
    return results.mean(stage, method, "accepted" if method == Method.JOINT else "false_positives")


def gain(stage: str, method: str, other: str, measure: str, other_stage: str | None = None) -> Find:
    def find(evidence: Evidence) -> Finding:
        return judge_difference(_points(evidence, stage, method, other, measure, other_stage), _POINTS)

    return find


def level(stage: str, method: str, other: str, measure: str) -> Find:
    def find(evidence: Evidence) -> Finding:
        return judge_level(_points(evidence, stage, method, other, measure), _POINTS, LEVEL_MARGIN)

    return find


def _points(
    evidence: Evidence, stage: str, method: str, other: str, measure: str, other_stage: str | None = None
) -> Estimate | None:
    own = evidence.results.mean(stage, method, measure)
    reference = evidence.results.mean(other_stage or stage, other, measure)
    return None if own is None or reference is None else (own - reference).estimate().scaled(100.0)


def in_classes(measure: str, allowed_share: float) -> Find:
    def find(evidence: Evidence) -> Finding:
        results = evidence.results
        differences = {}
        for name in results.classes:
            own, other = (
                results.sample(SMALL, method, measure, name) for method in (Method.JOINT_SIGMOID, Method.SIGMOID)
            )
            if own is not None and other is not None:
                differences[name] = 100 * (own - other).estimate().value
        return judge_classes(differences, "", allowed_share)

    return find


def recall(stage: str) -> Find:
    def find(evidence: Evidence) -> Finding:
        sample = evidence.results.mean(stage, Method.JOINT, "recall")
        estimate = None if sample is None else sample.estimate().scaled(100.0)
        return judge_at_least(estimate, " %", PAPER_TABLES[4].rows[RECALL].mean)

    return find


def of_features(find: Find) -> Find:
    """A claim about CNN descriptors."""
    missing = untested("there are no descriptors of a network in this run")
    return lambda evidence: find(evidence) if evidence.has_cnn else missing


def twice_as_good(evidence: Evidence) -> Finding:
    """The mean with CNN descriptors less twice that with HOG: claimed not to be negative."""
    cnn, hog = (evidence.results.mean(stage, Method.SIGMOID, "detection_ap") for stage in (FULL, HOG))
    if cnn is None or hog is None:
        return judge_at_least(None, "", 0.0)
    found = judge_at_least((cnn - hog - hog).estimate().scaled(100.0), f"{_POINTS}, CNN less twice HOG", 0.0)
    means = " and ".join(f"{100 * sample.estimate().value:.1f}" for sample in (cnn, hog))
    return replace(found, note=f"{found.note}; means {means}")


def redundant(evidence: Evidence) -> Finding:
    sample = evidence.results.redundant_share(SMALL, Method.JOINT_SIGMOID, largest=True)
    estimate = None if sample is None else sample.estimate().scaled(100.0)
    return judge_at_least(estimate, " % in the class with the most", 100 * REDUNDANT_SHARE)


def transfer(evidence: Evidence) -> Finding:
    winner, drawn = (evidence.results.fact(SMALL, f"transfer_{name}") for name in ("winner", "random"))
    if winner is None or drawn is None:
        return untested("the objects have no masks to transfer")
    return judge_difference((winner - drawn).estimate().scaled(100.0), " points of mask IoU over random exemplars")


def global_optimum(evidence: Evidence) -> Finding:
    searches = [
        row.search
        for part in evidence.results.of(SMALL)
        for row in part.rows
        if row.method == Method.JOINT_SIGMOID and row.search
    ]
    if not searches:
        return untested("there was no joint search")
    n_proven = sum(search["status"] == "optimal" for search in searches)
    gap = max(search["gap"] for search in searches)
    verdict = CONFIRMED if n_proven == len(searches) else NOT_CONFIRMED
    note = "by the solver of this package, not by Algorithm 1" + (f"; largest gap {100 * gap:.2g} %" if gap else "")
    return Finding(verdict, PROOF, f"{n_proven} of {len(searches)} searches proven optimal", note)


def depth(evidence: Evidence) -> Finding:
    searches = [search for search in evidence.study.of(ALGORITHM1) if search.is_largest]
    shares = [search.depth_reduction for search in searches if search.depth_reduction is not None]
    if not shares:
        return untested("no table was searched")
    if len(shares) == 1:
        return judge_number(100 * shares[0], f"{100 * shares[0]:.0f} %", 100 * DEPTH_REDUCTION, "one table")
    found = judge_at_least(split_estimate(shares).scaled(100.0), " %", 100 * DEPTH_REDUCTION)
    return replace(found, note=f"{found.note}; interval over tables")


def ordering(evidence: Evidence) -> Finding:
    """By visited nodes, which depend neither on the machine nor on what both searches do before the first of them."""
    study = evidence.study
    ratio = study.ordering_node_ratio
    if ratio is None or study.ordering_speedup is None:
        return untested("Algorithm 1 proved no table of this run by more than its first solution within its time limit")
    more = "more than " if study.ordering_is_lower_bound else ""
    sizes = sorted({ordered.n_exemplars for ordered, _ in study.orderings})
    note = (
        f"at {' and '.join(map(str, sizes))} E-SVMs, median over tables; {more}{study.ordering_speedup:,.1f} times in "
        "seconds, ranking of the scores included"
    )
    if more:
        note += f"; searches in random order were stopped after {study.time_limit:g} s"
    return judge_number(ratio, f"{more}{ratio:,.0f} times the nodes in random order", ORDERING_SPEEDUP, note)


def pruned(n_exemplars: int) -> Find:
    def find(evidence: Evidence) -> Finding:
        """On real tables of half to twice that size."""
        known = evidence.study.pruned_share or {}
        near = [n for n in known if n_exemplars / 2 <= n <= 2 * n_exemplars]
        if not near:
            largest = max(known, default=0)
            generated = (evidence.study.generated_pruned_share or {}).get(n_exemplars)
            also = "" if generated is None else f"; on a generated one of that size {100 * generated:.0f} % are pruned"
            return untested(f"the largest score table of this run has {largest} E-SVMs{also}")
        n = min(near, key=lambda each: abs(each - n_exemplars))
        number = 100 * PRUNED_SHARE[n_exemplars]
        return judge_number(100 * known[n], f"{100 * known[n]:.0f} % at {n} E-SVMs", number)

    return find


def exhaustive(evidence: Evidence) -> Finding:
    """Confirmed when the full tree takes as long as the paper says, or longer, and Algorithm 1 a few seconds."""
    estimate = evidence.study.exhaustive_estimate
    tiny = [s for s in evidence.study.of(ALGORITHM1) if (s.n_exemplars, s.n_positives) == TINY]
    if estimate is None or not tiny:
        return untested(f"no score table of this run has {TINY[0]} E-SVMs and {TINY[1]} positives")
    slowest = max(search.seconds for search in tiny)
    is_so = estimate >= EXHAUSTIVE_SECONDS and slowest <= FEW_SECONDS and all(s.is_finished for s in tiny)
    note = (
        f"at least {rough_duration(EXHAUSTIVE_SECONDS)} against at most {FEW_SECONDS:g} s; the whole tree is an "
        "estimate by nodes per second, and nobody could wait for it: the paper's search of 15 h must have been cut "
        "short somehow"
    )
    measured = f"{rough_duration(estimate)} against {rough_duration(slowest)}"
    return Finding(CONFIRMED if is_so else NOT_CONFIRMED, NUMBER, measured, note)


def too_small(size: str) -> Find:
    def find(evidence: Evidence) -> Finding:
        parts = evidence.results.of(FULL) or evidence.results.of(SMALL)
        largest = max((part.facts for part in parts), key=lambda each: each["n_exemplars"])
        here = f"{largest['n_exemplars']} E-SVMs and {largest['n_calibration_positives']:,} positives"
        return untested(f"{size}; the largest problem of this run has {here}, and searches end after seconds")

    return find


def mining(evidence: Evidence) -> Finding:
    return untested(f"it needs thousands of training images; here negatives come from {evidence.n_mined} of them")


def figures_themselves(evidence: Evidence) -> Finding:
    return untested(
        "they need those datasets whole, and a network that is fine-tuned for detection on them; of other data only "
        "orders and differences of rows can be compared"
    )
