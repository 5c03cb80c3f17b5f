"""The recall frontier: every floor against brute force, monotone both ways, and whole after any interrupt."""

import csv
import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import CalibrationProblem, InputError, RecallFrontier, recall_frontier, solve
from eesvm.calibration.frontier import DEFAULT_FLOORS, HARDEST
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.score_table import write_score_table
from eesvm.cli import main
from helpers import reference
from helpers.examples import many
from helpers.strategies import problems

FLOORS = [1.0, 0.9, 0.75, 0.6, 0.5, 0.3, 0.05]


def random_problem(n_exemplars=8, n_positives=60, n_negatives=400, seed=1):
    table = synthetic_score_table(n_exemplars, n_positives, n_negatives, "overlapping", random_state=seed)
    return CalibrationProblem(table.scores[table.labels == 1], table.scores[table.labels == 0])


def check(problem, frontier):
    """What holds of every frontier, finished or not."""
    assert isinstance(frontier, RecallFrontier)
    n = len(frontier.floors)
    assert n > 0
    assert (np.diff(frontier.floors) < 0).all()
    assert (np.diff(frontier.losses) <= 0).all()
    assert (np.diff(frontier.lower_bounds) <= 0).all()
    assert (frontier.lower_bounds <= frontier.losses).all()
    assert (frontier.lower_bounds >= 0).all()
    assert frontier.thresholds.shape == (n, problem.n_exemplars)
    assert frontier.thresholds.dtype == problem.positive_scores.dtype
    assert len(frontier.statuses) == len(frontier.seconds) == len(frontier.n_left_out) == len(frontier.recalls) == n
    for k, thresholds in enumerate(frontier.thresholds):
        assert problem.is_feasible(thresholds, frontier.floors[k])
        assert problem.loss(thresholds) == frontier.losses[k]
        assert problem.recall(thresholds) == frontier.recalls[k]
        assert (~problem.covers(thresholds)).sum() == frontier.n_left_out[k]
        assert frontier.statuses[k] != "optimal" or frontier.lower_bounds[k] == frontier.losses[k]
    for row in frontier.table():
        assert 0 <= row["owed_low"] <= row["owed"] <= row["owed_high"] <= 1
    for owed in frontier.share_of_loss_owed_to_hardest:
        assert owed.share in HARDEST
        assert 0 <= owed.low <= owed.owed <= owed.high <= 1


def feasible_floors(problem):
    return [floor for floor in FLOORS if problem.spare_budget(floor) >= 0]


@settings(max_examples=many(120), deadline=None)
@given(problems(max_exemplars=3, max_positives=5, max_negatives=5, bounds=True), st.randoms(use_true_random=False))
def test_every_loss_is_the_optimum(problem, random):
    floors = feasible_floors(problem)
    if not floors:
        with pytest.raises(InputError, match="cannot be covered"):
            recall_frontier(problem, FLOORS[-1:])
        return
    random.shuffle(floors)
    frontier = recall_frontier(problem, floors, n_jobs=1)
    check(problem, frontier)
    assert frontier.is_complete
    assert frontier.floors.tolist() == sorted(floors, reverse=True)
    assert set(frontier.statuses) == {"optimal"}
    assert frontier.losses.tolist() == [reference.brute_force(problem, floor) for floor in frontier.floors]


@settings(max_examples=60, deadline=None)
@given(problems(max_exemplars=3, max_positives=5, max_negatives=5, bounds=True), st.data())
@pytest.mark.long
def test_what_is_known_before_changes_no_loss(problem, data):
    floors = feasible_floors(problem)
    if not floors:
        return
    cold = [solve(problem, min_recall=floor, n_jobs=1).loss for floor in floors]
    value = st.one_of(st.integers(-9, 9).map(lambda i: i / 4), st.sampled_from([-np.inf, np.inf]))
    start = data.draw(st.lists(value, min_size=problem.n_exemplars, max_size=problem.n_exemplars))
    known = [
        solve(problem, min_recall=floor, time_limit=limit, n_jobs=1)
        for floor in data.draw(st.lists(st.sampled_from(floors), max_size=2))
        for limit in (None, 0)
    ]
    frontier = recall_frontier(problem, floors, start=start, n_jobs=1)
    check(problem, frontier)
    assert frontier.losses.tolist() == cold
    unfinished = {result.min_recall for result in known}
    helped = recall_frontier(problem, floors, known=known, n_jobs=1)
    check(problem, helped)
    assert helped.losses.tolist() == cold  # each of the known ones was solved to the end as well
    assert all(second == 0 for floor, second in zip(floors, helped.seconds, strict=True) if floor in unfinished)


@settings(max_examples=60, deadline=None)
@given(problems(max_exemplars=3, max_positives=5, max_negatives=5, bounds=True))
def test_bounds_of_unfinished_searches_stay_below_the_optimum(problem):
    floors = feasible_floors(problem)
    if not floors:
        return
    frontier = recall_frontier(problem, floors, time_limit=0, n_jobs=1)
    check(problem, frontier)
    assert frontier.is_complete
    optima = np.array([reference.brute_force(problem, floor) for floor in floors])
    assert (frontier.lower_bounds <= optima).all()
    assert (optima <= frontier.losses).all()


def test_shares_owed_lie_in_their_ranges():
    problem = random_problem(n_positives=300, seed=3)
    proven, rough = recall_frontier(problem), recall_frontier(problem, [1, 0.98, 0.9], time_limit=0)
    check(problem, proven)
    check(problem, rough)
    assert [owed.share for owed in proven.share_of_loss_owed_to_hardest] == list(HARDEST)
    losses = dict(zip(proven.floors.tolist(), proven.losses.tolist(), strict=True))
    truths = [0.0, *(1 - losses[floor] / losses[1.0] for floor in (0.99, 0.95))]  # 0.1 % of 300 is nobody
    for owed, truth in zip(proven.share_of_loss_owed_to_hardest, truths, strict=True):
        assert owed.low == pytest.approx(owed.owed) == pytest.approx(owed.high)
        assert owed.owed == truth
    # The floors 0.99 and 0.95 are not among those of the rough one, and lie between those that are.
    for owed, truth in zip(rough.share_of_loss_owed_to_hardest, truths, strict=True):
        assert owed.low <= truth <= owed.high
    assert truths[-1] > truths[1] > 0


def test_default_floors_differ_in_what_they_let_go():
    problem = random_problem(n_positives=50)
    assert recall_frontier(problem).floors.tolist() == [1, 0.98, 0.95, 0.9, 0.8, 0.5]
    one = CalibrationProblem([[1.0]], [[2.0], [0.0]])
    frontier = recall_frontier(one)
    assert frontier.floors.tolist() == [1]
    assert frontier.losses.tolist() == [1]
    assert [owed.owed for owed in frontier.share_of_loss_owed_to_hardest] == [0, 0, 0]
    forbidden = np.zeros(problem.positive_scores.shape, dtype=bool)
    forbidden[:2] = True  # 4 % can not be covered: floors above 0.96 can not be met
    barred = CalibrationProblem(problem.positive_scores, problem.negative_scores, forbidden=forbidden)
    frontier = recall_frontier(barred)
    check(barred, frontier)
    assert frontier.floors.tolist() == [0.95, 0.9, 0.8, 0.5]
    assert [owed.share for owed in frontier.share_of_loss_owed_to_hardest] == [0.05]


def test_floors_that_another_settles_are_not_searched(monkeypatch):
    from eesvm.calibration import frontier as module

    calls = []
    monkeypatch.setattr(module, "solve", lambda *a, **k: calls.append(k["min_recall"]) or solve(*a, **k))
    easy = CalibrationProblem([[2.0], [3.0], [-1.0]], [[0.0], [1.0]])
    frontier = recall_frontier(easy, [1, 0.99, 0.6, 0.5])
    check(easy, frontier)
    assert frontier.losses.tolist() == [2, 2, 0, 0]
    assert frontier.recalls.tolist() == [1, 1, 2 / 3, 2 / 3]
    assert calls == [1, 0.6]
    assert frontier.seconds[[1, 3]].tolist() == [0, 0]


def test_a_gap_and_a_time_limit_show_in_the_statuses():
    problem = random_problem(20, 200, 2000)
    rough = recall_frontier(problem, [1, 0.95, 0.5], gap=0.9)
    check(problem, rough)
    assert set(rough.statuses) <= {"gap_reached", "optimal"}
    stopped = recall_frontier(problem, [1, 0.95], time_limit=0)
    assert set(stopped.statuses) == {"time_limit"}


def test_the_same_frontier_every_time_and_for_any_number_of_threads():
    problem = random_problem()
    first, second = recall_frontier(problem, n_jobs=1), recall_frontier(problem, n_jobs=2)
    for name in ("floors", "losses", "lower_bounds", "thresholds", "recalls", "n_left_out"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_table_and_markdown():
    problem = CalibrationProblem([[2.0], [3.0], [-1.0]], [[0.0], [1.0]])
    frontier = recall_frontier(problem, [1, 0.6])
    row = frontier.table()[1]
    assert row.pop("seconds") >= 0
    assert row == {
        "floor": 0.6, "recall": 2 / 3, "n_left_out": 1, "loss": 0, "lower_bound": 0, "gap": 0, "status": "optimal",
        "owed": 1, "owed_low": 1, "owed_high": 1,
    }  # fmt: skip
    assert frontier.to_markdown() == (
        "| recall floor | recall | left out | loss | lower bound | status | share of the loss saved |\n"
        "|---|---|---|---|---|---|---|\n"
        "| 1.0 | 1.0000 | 0 | 2 | 2 | optimal | 0.0 % |\n"
        "| 0.6 | 0.6667 | 1 | 0 | 0 | optimal | 100.0 % |\n"
    )
    open_end = replace(frontier, losses=np.array([2.0, 1.0]), lower_bounds=np.array([1.5, 0.5]))
    assert open_end.to_markdown().endswith("| 50.0 % (33.3 to 75.0) |\n")


@pytest.mark.parametrize("how", ["callback", "signal", "twice"])
@pytest.mark.parametrize("floor", [1.0, 0.98])
def test_an_interrupt_leaves_the_floors_that_were_begun(how, floor, monkeypatch):
    from eesvm.calibration import frontier as module

    problem = random_problem(30, 300, 2000)
    now, done = [], []
    monkeypatch.setattr(module, "solve", lambda *a, **k: now.append(k["min_recall"]) or solve(*a, **k))

    def interrupt(progress):
        if now[-1] == floor and not done:
            done.append(progress)
            if how == "callback":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)
            if how == "twice":
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    if how == "twice" and floor == 1.0:  # aborted before anything was done
        with pytest.raises(KeyboardInterrupt):
            recall_frontier(problem, [1, 0.98, 0.9], progress=interrupt)
    else:
        frontier = recall_frontier(problem, [1, 0.98, 0.9], progress=interrupt, time_limit=2)
        check(problem, frontier)
        assert not frontier.is_complete
        assert frontier.floors.tolist() == ([1] if floor == 1 or how == "twice" else [1, 0.98])
        if how != "twice":
            assert frontier.statuses[-1] in ("feasible", "optimal")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"floors": [0.9, 0]}, r"`floors\[1\]` must be > 0, got 0"),
        ({"floors": [1.5]}, r"`floors\[0\]` must be <= 1, got 1.5"),
        ({"floors": [np.nan]}, r"`floors\[0\]` must be finite, got nan"),
        ({"floors": []}, "`floors` must hold at least one recall floor, got none"),
        ({"floors": [0.9, 1, 0.9]}, "`floors` must differ from each other, got 0.9 twice"),
        ({"floors": 0.9}, "`floors` must be a list of recall floors, got 0.9"),
        ({"floors": np.array(0.9)}, "`floors` must be a list of recall floors, got array"),
        ({"floors": "0.9"}, r"`floors\[0\]` must be a number, got '0'"),
        ({"floors": [[0.9]]}, r"`floors\[0\]` must be a number, got \[0.9\]"),
        ({"floors": [True]}, r"`floors\[0\]` must be a number, got True"),
        ({"start": [0.0]}, r"`start` must have shape \(8,\), got \(1,\)"),
        ({"time_limit": -1}, "`time_limit` must be >= 0"),
        ({"gap": np.nan}, "`gap` must be finite"),
        ({"n_jobs": 0}, "`n_jobs` must be >= 1"),
        ({"random_state": -1}, "`random_state` must be >= 0"),
        ({"known": [3]}, "`known` must hold results of `solve`, got int at index 0"),
    ],
)
def test_bad_input_is_answered_by_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        recall_frontier(random_problem(), **options)


def test_results_of_other_problems_are_refused():
    problem, other = random_problem(), random_problem(seed=2)
    with pytest.raises(InputError, match=r"`known\[0\]` is the result of another problem"):
        recall_frontier(problem, known=[solve(other, method="greedy")])
    with pytest.raises(InputError, match="`problem` must be a CalibrationProblem, got list"):
        recall_frontier([[1.0]])
    assert DEFAULT_FLOORS[0] == 1


@pytest.mark.parametrize("method", ["exact", "greedy"])
def test_the_command_writes_the_frontier_and_says_what_is_owed(tmp_path, capsys, method):
    table = synthetic_score_table(20, 1000, 4000, "heavy_tailed")
    write_score_table(tmp_path / "scores.npz", table)
    out = tmp_path / "out"
    assert main(["calibrate", str(tmp_path / "scores.npz"), "-o", str(out), "--frontier", "--method", method]) == 0
    text = capsys.readouterr().out
    frontier = recall_frontier(table.problem())
    check(table.problem(), frontier)
    with open(out / "recall_frontier.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [float(row["floor"]) for row in rows] == frontier.floors.tolist() == list(DEFAULT_FLOORS)
    assert [float(row["loss"]) for row in rows] == frontier.losses.tolist()
    assert (float(rows[0]["seconds"]) == 0) is (
        method == "exact"
    )  # what `calibrate` has searched is not searched again
    assert (out / "recall_frontier.png").read_bytes().startswith(b"\x89PNG")
    assert f"how much of the loss {frontier.losses[0]:.0f} at recall 1 a few hard positives cost:" in text
    for owed, share in zip(frontier.share_of_loss_owed_to_hardest, ("0.1 %", "1 %", "5 %"), strict=True):
        line = next(line for line in text.splitlines() if line.startswith(f"{share} of the positives"))
        assert line.split()[-2:] == [f"{100 * owed.owed:.1f}", "%"]
    shown = text.split("what recall floors cost on these rows:\n")[1].split("\n\n")[0].splitlines()
    assert shown[0].split("  ")[0] == "recall floor"
    for line, row in zip(shown[1:], frontier.table(), strict=True):
        floor = f"{100 * row['floor']:g} %"
        loss, bound = (f"{row[name]:,.0f}" for name in ("loss", "lower_bound"))
        assert re.split(r" {2,}", line.strip())[:4] == [floor, f"{row['n_left_out']:,}", loss, bound]
        assert line.rstrip().endswith(row["status"])
    assert "recall_frontier.csv, recall_frontier.png" in text
