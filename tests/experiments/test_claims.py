"""Verdicts follow from measurements by stated rules, in both directions."""

import csv
import io
import math
from dataclasses import replace

import pytest

from eesvm.experiments.claims import sheet as module
from eesvm.experiments.claims.measurements import Evidence
from eesvm.experiments.claims.rules import (
    CONFIRMED,
    NOT_CONFIRMED,
    RULES,
    UNTESTED,
    judge_at_least,
    judge_classes,
    judge_difference,
    judge_fewer,
    judge_level,
    judge_number,
)
from eesvm.experiments.claims.sheet import CLAIMS, claims_table, judge_claims, summary
from eesvm.experiments.paper import CLASSES, PAPER_TABLES, RECALL
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL, Part, Results, Row
from eesvm.experiments.search_study.pruning import ALGORITHM1, EXHAUSTIVE, WITHOUT, PruningStudy, Search
from eesvm.experiments.tables.detections import PAPER_RULES
from eesvm.experiments.tables.estimates import Estimate
from eesvm.experiments.tables.files import to_csv, to_markdown
from eesvm.experiments.tables.windows import Method

ABOVE, ACROSS, BELOW = Estimate(2.0, 1.0, 3.0, 3), Estimate(2.0, -1.0, 5.0, 3), Estimate(-2.0, -3.0, -1.0, 3)
BARE = Estimate(2.0)


# Rules


@pytest.mark.parametrize(
    ("estimate", "sign", "verdict", "note"),
    [
        (ABOVE, 1, CONFIRMED, ""),
        (BELOW, -1, CONFIRMED, ""),
        (BELOW, 1, NOT_CONFIRMED, "the opposite was measured"),
        (ABOVE, -1, NOT_CONFIRMED, "the opposite was measured"),
        (ACROSS, 1, NOT_CONFIRMED, "points the same way, but the interval includes zero"),
        (ACROSS, -1, NOT_CONFIRMED, "points the other way or nowhere; the interval includes zero"),
        (Estimate(0.0, 0.0, 0.0, 3), 1, NOT_CONFIRMED, "points the other way or nowhere; the interval includes zero"),
        (BARE, 1, UNTESTED, "one split gives no interval: more splits would"),
        (None, 1, UNTESTED, "it was not measured in this run"),
    ],
)
def test_a_difference_is_judged_by_its_interval(estimate, sign, verdict, note):
    found = judge_difference(estimate, " points", sign)
    assert (found.verdict, found.note) == (verdict, note)


def test_what_was_measured_is_told_with_sign_and_interval():
    assert judge_difference(ABOVE, " points of AP").measured == "+2.0 ± 1.0 points of AP"
    assert judge_difference(Estimate(2.0, 1.0, 5.0, 200), " points").measured == "+2.0 (+1.0 to +5.0) points"


@pytest.mark.parametrize(
    ("logarithm", "verdict", "measured", "note"),
    [
        (Estimate(-0.7, -1.0, -0.4, 3), CONFIRMED, "0.50 (0.37 to 0.67) times", ""),
        (
            Estimate(-0.1, -1.0, 0.8, 3),
            NOT_CONFIRMED,
            "0.90 (0.37 to 2.23) times",
            "points the same way, but the interval includes 1",
        ),
        (Estimate(0.7, 0.4, 1.0, 3), NOT_CONFIRMED, "2.01 (1.49 to 2.72) times", "the opposite was measured"),
        (Estimate(-0.7), UNTESTED, "0.50 times", "one split gives no interval: more splits would"),
    ],
)
def test_counts_are_compared_by_their_ratio(logarithm, verdict, measured, note):
    found = judge_fewer(logarithm, " times")
    assert (found.verdict, found.measured, found.note) == (verdict, measured, note)


@pytest.mark.parametrize(
    ("estimate", "verdict", "note"),
    [
        (Estimate(0.1, -0.5, 0.7, 3), CONFIRMED, "margin 1"),
        (
            Estimate(0.1, -5.0, 5.2, 3),
            NOT_CONFIRMED,
            "margin 1; the interval includes zero, but is wider than the margin",
        ),
        (Estimate(3.0, 2.0, 4.0, 3), NOT_CONFIRMED, "margin 1; the interval excludes zero"),
        (Estimate(0.6, 0.4, 0.8, 3), CONFIRMED, "margin 1"),
        (BARE, UNTESTED, "margin 1; one split gives no interval: more splits would"),
    ],
)
def test_level_means_within_the_margin(estimate, verdict, note):
    found = judge_level(estimate, "", 1.0)
    assert (found.verdict, found.note) == (verdict, note)


@pytest.mark.parametrize(
    ("estimate", "verdict", "note"),
    [
        (Estimate(90.0, 86.0, 94.0, 3), CONFIRMED, "at least 85"),
        (Estimate(90.0, 80.0, 99.0, 3), NOT_CONFIRMED, "at least 85; its mean reaches it, the interval does not"),
        (Estimate(50.0, 10.0, 90.0, 3), NOT_CONFIRMED, "at least 85; it stays below"),
    ],
)
def test_at_least_asks_the_lower_end(estimate, verdict, note):
    found = judge_at_least(estimate, " %", 85.0)
    assert (found.verdict, found.note) == (verdict, note)


def test_single_numbers_and_classes():
    assert judge_number(61.0, "61", 60.0).verdict == CONFIRMED
    assert judge_number(59.0, "59", 60.0).verdict == NOT_CONFIRMED
    assert judge_number(math.nan, "", 60.0).verdict == UNTESTED
    assert judge_number(None, "", 60.0, "no table").note == "no table"
    assert judge_classes({"a": 1.0, "b": 0.0}, "").verdict == CONFIRMED
    worse = judge_classes({"a": 1.0, "b": -0.5}, "")
    assert (worse.verdict, worse.measured, worse.note) == (NOT_CONFIRMED, "1 of 2 classes", "worse: b -0.5")
    ten = dict.fromkeys(CLASSES, 1.0) | {"koala": -4.9}
    assert judge_classes(ten, "", 0.1).verdict == CONFIRMED
    assert judge_classes(ten | {"bear": -0.5}, "", 0.1).verdict == NOT_CONFIRMED
    assert judge_classes({}, "").verdict == UNTESTED


# The whole sheet, on the paper's own numbers


def paper_row(method, position, number):
    """A row of table `number` for one of the paper's classes; what the paper does not print is 0."""

    def value(table, row=method):
        found = PAPER_TABLES[table].rows.get(row)
        if found is None:
            return 0.0
        return found.classes[position] if found.classes else found.mean

    counts, precisions = (1, 2) if number < 4 else (4, 5)
    recall = value(counts, RECALL) / 100
    return Row(
        method=method,
        is_ours=False,
        n_exemplars=100,
        n_used=70,
        n_objects=10,
        recall=recall,
        false_positives=value(counts),
        accepted=value(counts) if method in (Method.JOINT, Method.JOINT_SIGMOID) else None,
        window_ap=value(precisions) / 100,
        detection_ap=value(3) / 100 if number < 4 else 0.0,
        n_winners=1,
        n_negatives=1_000_000,
        search={"status": "optimal", "gap": 0.0, "loss": 1.0, "bound": 1.0, "seconds": 1.0}
        if method == Method.JOINT_SIGMOID
        else {},
    )


def paper_results(n_splits=3):
    """As if the paper's tables had been measured on some splits; table 6 through detections of the full stage."""
    facts = {"n_exemplars": 1000, "n_calibration_positives": 3000, "transfer_winner": 0.6, "transfer_random": 0.4}
    methods = [rule.name for rule in PAPER_RULES if rule.name in PAPER_TABLES[1].rows]
    parts = []
    for split in range(n_splits):
        for position, name in enumerate(CLASSES):
            parts.append(Part(split, SMALL, name, tuple(paper_row(m, position, 1) for m in methods), facts))
            full = [paper_row(m, position, 4) for m in methods]
            scored = {Method.SIGMOID: 0.408, Method.JOINT_SIGMOID: 0.427}
            full = tuple(replace(row, detection_ap=scored.get(row.method, 0.0)) for row in full)
            parts.append(Part(split, FULL, name, full, facts))
            hog = [paper_row(m, position, 4) for m in (Method.SIGMOID, Method.SINGLE_SVM)]
            hog = tuple(
                replace(row, detection_ap={Method.SIGMOID: 0.198, Method.SINGLE_SVM: 0.1}[row.method]) for row in hog
            )
            parts.append(Part(split, HOG, name, hog, facts))
    return Results(tuple(parts))


def search(kind, n_exemplars, seconds, **changes):
    facts = {
        "table": f"t{n_exemplars}",
        "is_generated": False,
        "is_largest": True,
        "n_exemplars": n_exemplars,
        "n_positives": 50,
        "n_negatives": 1000,
        "search": kind,
        "status": "optimal",
        "seconds": seconds,
        "time_limit": 3.0,
        "loss": 5.0,
        "lower_bound": 5.0,
        "n_nodes": 100,
        "n_redundant": 30,
        "depth": 80,
        "depth_removed": 20,
        "first_nodes": 10,
    }
    return Search(**facts | changes)


def paper_study():
    """The figures of section 5.5 as searches."""
    tree = sum(15**k for k in range(51))
    return PruningStudy(
        (
            search(ALGORITHM1, 15, 2.0, n_by_bound=60, n_by_equivalence=0),
            search(EXHAUSTIVE, 15, 1.0, status="time_limit", n_tree_nodes=tree, n_nodes=1_000_000),
            search(ALGORITHM1, 100, 120.0, n_by_bound=60, n_by_equivalence=0),
            search(WITHOUT[4], 100, 7200.0, n_nodes=6000),
            search(ALGORITHM1, 1000, 1.0, n_by_bound=210, n_by_equivalence=0),
        ),
        time_limit=3.0,
        random_state=0,
        notes=(),
    )


def verdict_of(judged, beginning):
    found = [finding.verdict for claim, finding in judged if claim.text.startswith(beginning)]
    assert len(found) == 1, beginning
    return found[0]


def test_the_papers_own_numbers_confirm_its_claims():
    """But for one that its table contradicts, and what no run can tell."""
    judged = judge_claims(Evidence(paper_results(), paper_study(), n_mined=20))
    refuted = [claim.text for claim, finding in judged if finding.verdict == NOT_CONFIRMED]
    assert refuted == ["It detects equally well or better in all classes but one of ten"]  # bagel and bear, too
    untestable = [claim.text for claim, finding in judged if finding.verdict == UNTESTED]
    assert len(untestable) == 4
    assert all(finding.note for _, finding in judged if finding.verdict == UNTESTED)
    assert (
        summary(judged)
        == f"Of {len(CLAIMS)} claims: {len(CLAIMS) - 5} confirmed, 1 not confirmed, 4 cannot be tested here."
    )


def test_the_opposite_numbers_refute_them():
    """With the joint rows and the sigmoid rows exchanged, what is said about these two turns round."""

    def exchanged(part):
        other = {Method.SIGMOID: Method.JOINT_SIGMOID, Method.JOINT_SIGMOID: Method.SIGMOID}
        rows = {row.method: row for row in part.rows}
        own = tuple(
            replace(rows[other.get(name, name)], method=name) if other.get(name) in rows else row
            for name, row in rows.items()
        )
        return replace(part, rows=own)

    results = Results(tuple(exchanged(part) for part in paper_results().parts))
    judged = judge_claims(Evidence(results, paper_study()))
    for beginning in (
        "Joint calibration with sigmoid gives fewer false positives than independent",
        "Joint calibration has a higher window AP than independent",
        "Joint calibration detects better than independent",
        "Approximate joint calibration has a higher window AP",
        "With all training images, too",
    ):
        assert verdict_of(judged, beginning) == NOT_CONFIRMED


def test_one_split_tells_nothing_that_needs_an_interval():
    judged = judge_claims(Evidence(paper_results(1), paper_study()))
    assert verdict_of(judged, "Joint calibration detects better") == UNTESTED
    assert verdict_of(judged, "The global optimum") == CONFIRMED


def test_searches_without_proof_do_not_confirm_the_optimum():
    def unproven(part):
        rows = tuple(
            replace(row, search={**row.search, "status": "node_limit", "gap": 0.1}) if row.search else row
            for row in part.rows
        )
        return replace(part, rows=rows)

    results = Results((unproven(paper_results().parts[0]), *paper_results().parts[1:]))
    judged = judge_claims(Evidence(results, paper_study()))
    found = next(finding for claim, finding in judged if claim.text.startswith("The global optimum"))
    assert found.verdict == NOT_CONFIRMED
    assert found.measured == "29 of 30 searches proven optimal"
    assert "largest gap 10 %" in found.note


def test_without_a_network_nothing_is_said_about_its_descriptors():
    judged = judge_claims(Evidence(paper_results(), paper_study(), has_cnn=False))
    about = [finding for claim, finding in judged if "CNN" in claim.text or claim.text == "They double its mAP"]
    assert len(about) == 3
    assert all(finding.verdict == UNTESTED for finding in about)


def test_without_masks_and_searches_it_says_so():
    results = paper_results()
    bare = Results(tuple(replace(p, facts={"n_exemplars": 5, "n_calibration_positives": 9}) for p in results.parts))
    judged = judge_claims(Evidence(bare, PruningStudy((), 3.0, 0, ())))
    for beginning in (
        "Joint calibration is good at transferring",
        "Observation 3",
        "Observation 4",
        "Exhaustive search",
    ):
        assert verdict_of(judged, beginning) == UNTESTED


def test_where_only_the_first_tables_were_measured_the_others_are_untested():
    small = Results(tuple(part for part in paper_results().parts if part.stage == SMALL))
    judged = judge_claims(Evidence(small, PruningStudy((), 3.0, 0, ())))
    assert verdict_of(judged, "With more exemplars and the search stopped early") == UNTESTED
    notes = [finding.note for claim, finding in judged if claim.text.startswith("The exact algorithm scales")]
    assert len(notes) == 1
    assert "the largest problem of this run has 1000 E-SVMs" in notes[0]


def test_every_verdict_has_a_rule_that_is_stated():
    judged = judge_claims(Evidence(paper_results(), paper_study()))
    table = claims_table(judged, with_values=True)
    for _, finding in judged:
        assert finding.rule in RULES or finding.verdict == UNTESTED
    text = to_markdown(table)
    assert all(rule in text for rule in RULES.values())
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["claim"] for row in rows] == [claim.text for claim in CLAIMS]
    gain = next(row for row in rows if row["claim"] == "Joint calibration detects better than independent sigmoids")
    assert float(gain["value"]) == pytest.approx(3.33, abs=0.01)
    assert (gain["paper"], gain["verdict"]) == ("+3.3 (30.6 against 27.3)", CONFIRMED)


def test_no_claim_is_told_twice():
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS) == len(module.CLAIMS)
