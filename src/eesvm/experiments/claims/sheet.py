"""What the paper claims, what was measured, and whether that confirms it.

In: `Evidence` of a reproduction. Out: a `Finding` for each claim of the abstract, the introduction and sections 2 to
6, by the rules of `rules`, and all of them as a table. The paper's figures come from `experiments.paper`; no verdict
is written down anywhere.
Not here: measuring (`measurements`), and files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eesvm._support.amounts import thousands
from eesvm.experiments.claims.measurements import (
    Evidence,
    Find,
    depth,
    exhaustive,
    fewer,
    figures_themselves,
    gain,
    global_optimum,
    in_classes,
    level,
    mining,
    of_features,
    ordering,
    pruned,
    recall,
    redundant,
    too_small,
    transfer,
    twice_as_good,
)
from eesvm.experiments.claims.rules import CONFIRMED, NOT_CONFIRMED, RULES, UNTESTED, Finding
from eesvm.experiments.paper import (
    CNN_INDEPENDENT,
    CNN_JOINT,
    DEPTH_REDUCTION,
    HOG_INDEPENDENT,
    ORDERING_SPEEDUP,
    PAPER_TABLES,
    PRUNED_SHARE,
    RECALL,
    REDUNDANT_SHARE,
)
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL
from eesvm.experiments.search_study.pruning import TINY
from eesvm.experiments.tables.files import Cell, Column, ResultTable, TableRow
from eesvm.experiments.tables.windows import Method

VERDICTS = (CONFIRMED, NOT_CONFIRMED, UNTESTED)


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and how to find out."""

    section: str
    text: str
    paper: str  # its figure
    find: Find


Judged = Sequence[tuple[Claim, Finding]]


def judge_claims(evidence: Evidence) -> Judged:
    """Every claim and what became of it."""
    return [(claim, claim.find(evidence)) for claim in CLAIMS]


def summary(judged: Judged) -> str:
    """How many have which verdict."""
    counts = (f"{sum(found.verdict == verdict for _, found in judged)} {verdict}" for verdict in VERDICTS)
    return f"Of {len(judged)} claims: {', '.join(counts)}."


def claims_table(judged: Judged, with_values: bool = False) -> ResultTable:
    """The claims as a table; `with_values` adds the bare numbers, for programs."""
    columns = [Column(name, is_text=True) for name in ("section", "paper", "measured", "verdict", "rule", "note")]
    if with_values:
        columns.append(Column("value", has_interval=True))
    rows = []
    for claim, found in judged:
        texts = (claim.section, claim.paper, found.measured, found.verdict, found.rule, found.note)
        values = (Cell(found.estimate),) if with_values else ()
        rows.append(TableRow(claim.text, (*(Cell(each) for each in texts), *values)))
    notes = (summary(judged), *(f"Rule {name}: {rule}." for name, rule in RULES.items()))
    return ResultTable("claims", "What the paper claims", "claim", tuple(columns), tuple(rows), notes)


def _paper_fewer(number: int, method: str, other: str) -> str:
    own, reference = (PAPER_TABLES[number].rows[each].mean for each in (method, other))
    return f"{own / reference:.2f} times as many ({thousands(own)} against {thousands(reference)})"


def _paper_gain(number: int, method: str, other: str) -> str:
    own, reference = (PAPER_TABLES[number].rows[each].mean for each in (method, other))
    return f"{own - reference:+.1f} ({own:g} against {reference:g})"


def _claims() -> Iterator[Claim]:
    yield from _window_claims()
    yield from _detection_claims()
    yield from _approximate_claims()
    yield from _search_claims()
    yield from _other_claims()


def _window_claims() -> Iterator[Claim]:
    for text, method, other, where in (
        ("Independent sigmoids give far fewer false positives than no calibration",
         Method.SIGMOID, Method.NO_CALIBRATION, "5.3, table 1"),
        ("Joint thresholds give fewer false positives than independent sigmoids",
         Method.JOINT, Method.SIGMOID, "abstract (i), 5.3, table 1"),
        ("Joint calibration with sigmoid gives fewer false positives than independent sigmoids",
         Method.JOINT_SIGMOID, Method.SIGMOID, "abstract (i), 5.3, table 1"),
        ("The sigmoid brings joint calibration another small boost",
         Method.JOINT_SIGMOID, Method.JOINT, "5.3, table 1"),
        ("Joint calibration gives fewer false positives than isotonic regression",
         Method.JOINT_SIGMOID, Method.ISOTONIC, "5.3, table 1"),
        ("Joint calibration gives fewer false positives than affine calibration",
         Method.JOINT_SIGMOID, Method.AFFINE, "5.3, table 1"),
        ("Joint calibration gives fewer false positives than a single SVM",
         Method.JOINT_SIGMOID, Method.SINGLE_SVM, "5.3, table 1"),
    ):  # fmt: skip
        yield Claim(where, text, _paper_fewer(1, method, other), fewer(SMALL, method, other))
    yield Claim(
        "5.3, table 1",
        "Joint thresholds generalise: recall on test windows is high (the paper calls 85.2 % high, too)",
        f"{PAPER_TABLES[1].rows[RECALL].mean:g} %",
        recall(SMALL),
    )
    for name, other in (
        ("independent sigmoids", Method.SIGMOID),
        ("isotonic regression", Method.ISOTONIC),
        ("affine calibration", Method.AFFINE),
        ("a single SVM", Method.SINGLE_SVM),
    ):
        yield Claim(
            "5.3, table 2",
            f"Joint calibration has a higher window AP than {name}",
            _paper_gain(2, Method.JOINT_SIGMOID, other),
            gain(SMALL, Method.JOINT_SIGMOID, other, "window_ap"),
        )
    yield Claim(
        "5.3, table 2",
        "Its window AP is higher than that of independent sigmoids in all classes",
        "10 of 10 classes",
        in_classes("window_ap", 0.0),
    )


def _detection_claims() -> Iterator[Claim]:
    where = "5.3, table 3"
    yield Claim(
        "abstract (ii), 5.3, table 3, 6",
        "Joint calibration detects better than independent sigmoids",
        _paper_gain(3, Method.JOINT_SIGMOID, Method.SIGMOID),
        gain(SMALL, Method.JOINT_SIGMOID, Method.SIGMOID, "detection_ap"),
    )
    yield Claim(
        where,
        "It detects equally well or better in all classes but one of ten",
        "all but koala in the text; bagel and bear are lower in the table, too",
        in_classes("detection_ap", 0.1),
    )
    yield Claim(
        where,
        "Isotonic regression detects about as well as independent sigmoids",
        _paper_gain(3, Method.ISOTONIC, Method.SIGMOID),
        level(SMALL, Method.ISOTONIC, Method.SIGMOID, "detection_ap"),
    )
    yield Claim(
        where,
        "Affine calibration detects about as well as joint calibration",
        _paper_gain(3, Method.AFFINE, Method.JOINT_SIGMOID),
        level(SMALL, Method.AFFINE, Method.JOINT_SIGMOID, "detection_ap"),
    )
    yield Claim(
        where,
        "A single SVM (R-CNN) detects considerably better than joint calibration on CNN descriptors",
        _paper_gain(3, Method.SINGLE_SVM, Method.JOINT_SIGMOID),
        of_features(gain(SMALL, Method.SINGLE_SVM, Method.JOINT_SIGMOID, "detection_ap")),
    )
    yield Claim(
        "5.3, citing the original EE-SVM",
        "On HOG descriptors an EE-SVM detects better than a single SVM",
        "much better",
        gain(HOG, Method.SIGMOID, Method.SINGLE_SVM, "detection_ap"),
    )
    yield Claim(
        "5.3, figure 7",
        "Joint calibration is good at transferring annotations: winners transfer better masks than chance",
        "pictures",
        transfer,
    )


def _approximate_claims() -> Iterator[Claim]:
    where = "5.4, table 4"
    yield Claim(
        where,
        "With more exemplars and the search stopped early, test recall is still high",
        f"{PAPER_TABLES[4].rows[RECALL].mean:g} %",
        recall(FULL),
    )
    for text, method, other in (
        ("Approximate joint calibration gives fewer false positives than no calibration",
         Method.JOINT, Method.NO_CALIBRATION),
        ("Approximate joint calibration gives fewer false positives than independent sigmoids",
         Method.JOINT, Method.SIGMOID),
        ("Adding a sigmoid to it improves by a good margin", Method.JOINT_SIGMOID, Method.JOINT),
    ):  # fmt: skip
        yield Claim(where, text, _paper_fewer(4, method, other), fewer(FULL, method, other))
    yield Claim(
        "5.4, table 5",
        "Approximate joint calibration has a higher window AP than independent sigmoids",
        _paper_gain(5, Method.JOINT_SIGMOID, Method.SIGMOID),
        gain(FULL, Method.JOINT_SIGMOID, Method.SIGMOID, "window_ap"),
    )
    yield Claim(
        "5.4, table 6",
        "With all training images, too, joint calibration detects better than independent calibration",
        _paper_gain(6, CNN_JOINT, CNN_INDEPENDENT),
        of_features(gain(FULL, Method.JOINT_SIGMOID, Method.SIGMOID, "detection_ap")),
    )
    yield Claim(
        "5.4, table 6",
        "CNN descriptors improve an EE-SVM hugely over HOG",
        _paper_gain(6, CNN_INDEPENDENT, HOG_INDEPENDENT),
        of_features(gain(FULL, Method.SIGMOID, Method.SIGMOID, "detection_ap", other_stage=HOG)),
    )
    yield Claim("5.4, table 6", "They double its mAP", "2.1 times", of_features(twice_as_good))


def _search_claims() -> Iterator[Claim]:
    yield Claim(
        "abstract, 4.3, 5.3",
        "The global optimum of the calibration problem can be found (30 to 140 E-SVMs)",
        "all ten classes",
        global_optimum,
    )
    yield Claim(
        "2",
        "Up to 25 % of the E-SVMs turn out redundant and can be removed",
        f"up to {100 * REDUNDANT_SHARE:g} %",
        redundant,
    )
    yield Claim(
        "5.5",
        "Observation 3 reduces the depth of the tree by 20 % on average",
        f"{100 * DEPTH_REDUCTION:g} %",
        depth,
    )
    yield Claim(
        "5.5",
        "Observation 4 saves most of the time: two hours in random order, two minutes sorted",
        f"{ORDERING_SPEEDUP:g} times as long in random order, at 100 E-SVMs",
        ordering,
    )
    for n, share in PRUNED_SHARE.items():
        yield Claim(
            "5.5",
            f"Observations 1 and 2 prune {100 * share:g} % of the nodes met at {n} E-SVMs",
            f"{100 * share:g} %",
            pruned(n),
        )
    yield Claim(
        "5.5",
        f"Exhaustive search of {TINY[0]} E-SVMs and {TINY[1]} positives takes 15 h, the algorithm a few seconds",
        "15 h against a few seconds",
        exhaustive,
    )
    yield Claim(
        "1, 5.5",
        "The exact algorithm scales to about 200 E-SVMs and 4,000 positives in a few hours",
        "a few hours",
        too_small("it needs problems of that size and hours"),
    )
    yield Claim(
        "5.5",
        "The loss of the approximate search stops decreasing after a few minutes in most cases",
        "a few minutes",
        too_small("it needs thousands of E-SVMs and hours"),
    )


def _other_claims() -> Iterator[Claim]:
    yield Claim(
        "5.2",
        "Mining hard negatives in more than 2,000 images brings no significant improvement",
        "no improvement",
        mining,
    )
    yield Claim(
        "5.2 to 5.4",
        "The figures themselves: means of ten classes of ILSVRC 2014 and of PASCAL VOC 2007",
        "tables 1 to 6",
        figures_themselves,
    )


CLAIMS: tuple[Claim, ...] = tuple(_claims())
