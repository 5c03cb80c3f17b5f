"""The pruning study of section 5.5: what it searches, what it says of it, and its named numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from eesvm import CalibrationProblem, InputError
from eesvm._support.amounts import rough_duration
from eesvm.calibration.ranks import rank
from eesvm.calibration.search.exhaustive import tree_size
from eesvm.calibration.tables.examples import digit_score_table
from eesvm.experiments.search_study.cuts import random_cut
from eesvm.experiments.search_study.pruning import (
    ALGORITHM1,
    EXACT,
    EXHAUSTIVE,
    LITERAL,
    WITHOUT,
    PruningStudy,
    Search,
    generated_table,
    pruning_study,
)

LIMIT = 0.25


@pytest.fixture(scope="module")
def digits():
    """A real table: 60 exemplars of the handwritten 9."""
    problem = digit_score_table(9).train.problem()
    return random_cut(problem, 60, 300, 2000).problem


@pytest.fixture(scope="module")
def study(digits):
    return pruning_study([("digit 9", digits)], generated=[generated_table(30)], time_limit=LIMIT)


def search(kind, table="a", **values):
    """A search that finished; (15, 50) unless said otherwise."""
    found = Search(
        table=table,
        is_generated=False,
        is_largest=True,
        n_exemplars=15,
        n_positives=50,
        n_negatives=100,
        search=kind,
        status="optimal",
        seconds=2.0,
        time_limit=10.0,
        loss=7.0,
        lower_bound=7.0,
        n_nodes=100,
        n_redundant=3,
        depth=40,
        depth_removed=10,
        n_by_bound=50,
        n_by_equivalence=10,
        first_seconds=0.5,
        first_loss=9.0,
        first_nodes=41,
        n_tree_nodes=1000 if kind == EXHAUSTIVE else None,
    )
    return replace(found, **values)


def of_searches(*searches):
    return PruningStudy(searches, 10.0, 0, ())


def test_every_cut_is_searched_by_both_and_the_smallest_in_every_way(study):
    real = [s for s in study.searches if not s.is_generated]
    sizes = [(s.n_exemplars, s.n_positives) for s in study.of(ALGORITHM1)]
    assert sizes == [(15, 50), (50, 250), (60, 300)]
    assert sizes == [(s.n_exemplars, s.n_positives) for s in study.of(EXACT)]
    tiny = [s.search for s in real if s.n_exemplars == 15]
    assert tiny == [ALGORITHM1, EXACT, EXHAUSTIVE, *WITHOUT.values(), LITERAL]
    assert [s.is_largest for s in study.of(EXACT)] == [False, False, True]
    assert study.notes[0] == "digit 9 has 60 E-SVMs and 300 positives: there are no larger cuts of it."


def test_searches_agree_where_they_finished(study):
    for found in study.searches:
        assert found.lower_bound <= found.loss
        assert found.is_finished == (found.loss == found.lower_bound)
        if found.is_finished:
            best = study.beside(found, EXACT)
            assert best.lower_bound <= found.loss <= best.loss
    assert any(s.is_finished for s in study.of(ALGORITHM1))


def test_numbers_of_the_study_are_those_of_the_problem(study, digits):
    free = rank(digits).difficulty == 0
    assert study.depth_reduction == pytest.approx(free.mean())
    largest = study.of(ALGORITHM1)[-1]
    assert (largest.depth, largest.depth_removed) == (int((~free).sum()), int(free.sum()))
    walked = study.of(EXHAUSTIVE)[0]
    assert walked.n_tree_nodes == tree_size(15, 50)
    assert study.exhaustive_estimate == pytest.approx(tree_size(15, 50) / (walked.n_nodes / walked.seconds))
    assert set(study.pruned_share) <= {15, 50, 60}
    assert set(study.generated_pruned_share) <= {15, 30}
    assert all(0 <= share <= 1 for share in study.pruned_share.values())


def test_csv_has_a_row_for_every_search(study):
    header, *rows = study.to_csv_rows()
    assert len(rows) == len(study.searches)
    for row, found in zip(rows, study.searches, strict=True):
        cells = dict(zip(header, row, strict=True))
        assert cells["loss"] == found.loss
        assert cells["n_tree_nodes"] == ("" if found.n_tree_nodes is None else found.n_tree_nodes)
        assert cells["pruned_share"] == ("" if found.pruned_share is None else found.pruned_share)


def test_markdown_says_what_was_stopped_and_what_is_an_estimate(study):
    text = study.to_markdown()
    assert f"| > {LIMIT:g}" in text  # the search without observation 1
    assert "years (estimate)" in text
    assert text.count("### ") == 6
    assert "generated, 30 E-SVMs" in text
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("| ")]
    assert all(len({line.count("|") for line in lines}) == 1 for lines in tables)


def test_named_numbers_by_hand():
    slow = {"status": "time_limit", "lower_bound": 1.0}
    study = of_searches(
        search(ALGORITHM1, "a"),
        search(WITHOUT[4], "a", seconds=8.0, n_nodes=300),
        search(ALGORITHM1, "b", depth=50, depth_removed=0, n_by_bound=0, n_by_equivalence=0),
        search(WITHOUT[4], "b", seconds=20.0, n_nodes=900, **slow),
        search(ALGORITHM1, "c", depth=25, depth_removed=25, n_nodes=41),
        search(WITHOUT[4], "c", seconds=2.0),
        search(ALGORITHM1, "g", is_generated=True, depth=1, depth_removed=99),
    )
    assert study.depth_reduction == pytest.approx((0.2 + 0.0 + 0.5) / 3)
    assert [ordered.table for ordered, _ in study.orderings] == ["a", "b"]  # c had nothing to search
    assert study.ordering_speedup == pytest.approx((4 + 10) / 2)
    assert study.ordering_node_ratio == pytest.approx((3 + 9) / 2)
    assert study.ordering_is_lower_bound
    assert study.pruned_share == {15: pytest.approx((60 / 119 + 0 + 1) / 3)}
    assert study.generated_pruned_share == {15: pytest.approx(60 / 119)}
    assert not of_searches(*study.searches[:2]).ordering_is_lower_bound


def test_orders_are_compared_on_the_largest_cut_that_was_finished():
    study = of_searches(
        search(ALGORITHM1),
        search(WITHOUT[4], seconds=6.0),
        search(ALGORITHM1, n_exemplars=50),
        search(WITHOUT[4], n_exemplars=50, seconds=10.0),
    )
    assert study.ordering_speedup == 5
    unfinished = of_searches(search(ALGORITHM1, status="time_limit"), search(WITHOUT[4], status="time_limit"))
    assert unfinished.ordering_speedup is None
    assert unfinished.ordering_node_ratio is None


def test_redundant_exemplars_count_at_a_proven_optimum_only():
    study = of_searches(
        search(EXACT, "a"),
        search(EXACT, "a", n_exemplars=50, n_redundant=5),
        search(EXACT, "a", n_exemplars=100, n_redundant=90, status="time_limit"),
        search(EXACT, "b", n_redundant=6),
    )
    assert study.redundant_share == pytest.approx((0.1 + 0.4) / 2)
    assert of_searches(search(EXACT, status="time_limit")).redundant_share is None


def test_the_exhaustive_tree_is_estimated_at_the_papers_size_only():
    half = search(EXHAUSTIVE, status="time_limit", seconds=2.0, n_nodes=100)
    assert half.estimate == pytest.approx(20.0)
    assert search(EXHAUSTIVE, seconds=2.0).estimate == 2.0
    assert of_searches(half).exhaustive_estimate == pytest.approx(20.0)
    assert of_searches(replace(half, n_exemplars=14)).exhaustive_estimate is None


def test_a_tiny_table_is_walked_to_the_end():
    random = np.random.default_rng(0)
    problem = CalibrationProblem(random.normal(size=(4, 3)), random.normal(size=(30, 3)))
    study = pruning_study([("tiny | one", problem)], time_limit=5.0)
    (walked,) = study.of(EXHAUSTIVE)
    assert walked.is_finished
    assert walked.n_nodes == walked.n_tree_nodes == tree_size(3, 4)
    assert study.exhaustive_estimate is None
    text = study.to_markdown()
    assert "(measured)" in text
    assert "not measured at that size" in text
    assert "tiny \\| one" in text
    assert {s.loss for s in study.searches} == {walked.loss}


def test_tables_with_which_there_is_little_to_do():
    random = np.random.default_rng(0)
    alone = CalibrationProblem(random.normal(size=(5, 1)), random.normal(size=(30, 1)))
    barred = CalibrationProblem(np.ones((3, 2)), np.zeros((4, 2)), forbidden=np.ones((3, 2), dtype=bool))
    partly = CalibrationProblem(
        np.ones((3, 2)), np.zeros((4, 2)), forbidden=[[True, True], [True, False], [False, False]]
    )
    study = pruning_study([("alone", alone), ("barred", barred), ("partly", partly)], time_limit=1.0)
    assert {s.table for s in study.searches} == {"alone", "partly"}
    assert "barred: no positive may be covered by any E-SVM, so nothing is searched." in study.notes
    (walked,) = (s for s in study.of(EXHAUSTIVE) if s.table == "partly")
    assert (walked.n_positives, walked.n_tree_nodes, walked.n_nodes) == (2, 1 + 1 + 2, 4)
    nothing = pruning_study([("barred", barred)], time_limit=1.0)
    assert nothing.searches == ()
    numbers = ("depth_reduction", "ordering_speedup", "pruned_share", "redundant_share", "exhaustive_estimate")
    assert [getattr(nothing, name) for name in numbers] == [None] * 5
    assert nothing.to_markdown().count("No search of the tables at hand tells.") == 6


def test_progress_counts_up_to_what_it_promised():
    random = np.random.default_rng(0)
    problem = CalibrationProblem(random.normal(size=(6, 2)), random.normal(size=(20, 2)))
    calls = []
    pruning_study([("a", problem), ("b", problem)], time_limit=1.0, progress=lambda *call: calls.append(call))
    counts = [done for _, done, _ in calls]
    assert counts == sorted(set(counts))
    assert len({total for *_, total in calls}) == 1
    assert counts[-1] < calls[0][2]
    assert calls[0][0] == "a, 2 x 6, Algorithm 1"


def test_what_cannot_be_studied(digits):
    with pytest.raises(InputError, match=r"`tables` must hold at least one \(name, problem\), and each name once"):
        pruning_study([])
    with pytest.raises(InputError, match=r"`tables` must hold at least one \(name, problem\), and each name once"):
        pruning_study([("a", digits), ("a", digits)])
    with pytest.raises(InputError, match="`time_limit` must be > 0, got 0"):
        pruning_study([("a", digits)], time_limit=0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (54_000, "15 h"), (3e6, "35 days"), (4e54, "1.3e47 years")],
)
def test_durations_in_words(seconds, text):
    assert rough_duration(seconds) == text
