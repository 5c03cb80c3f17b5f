"""Other tools that set thresholds for detectors joined by OR, beside this one, on their own kind of data.

In: a folder with the public files that `_held_out_tables.py` names, and the packages that are installed; nothing is
fetched, and what is missing is said on the page. Out: `docs/results/peers.md`.

    python benchmarks/bench_peers.py FOLDER

TruSThresh is used as published (github.com/hyperconnect/trusthresh), Iguanas and semantic-router as installed. The random
search is, in our words, what semantic-router did up to 0.1.16; its 1.x has one calibrated bar for all routes instead.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import time
from itertools import product
from pathlib import Path

import numpy as np

from _common import ROOT, machine, markdown
from _held_out_tables import clinc, unsmile
from eesvm import CalibrationProblem, solve
from eesvm.calibration.tables.score_table import ScoreTable

DOMAINS = ("banking", "credit_cards", "travel")
SECONDS, BUDGET_SECONDS = 600.0, 30.0  # of the clock, for each of our searches, for a floor and within a budget
ALPHAS = (8, 32, 128)  # penalties of TruSThresh that are tried; its example has 32
RATES = {0.01: 1000, 0.001: 2000}  # learning rates and epochs; its example has the first, the second does better
N_DRAWS, N_RUNS, REACH = 500, 5, 0.8  # of the random search, as published; so many runs from other seeds
GRID = np.linspace(0.5, 0.999, 40)  # quantiles of the negatives at which a column is offered as a rule


def ours(problem: CalibrationProblem, **goal: float) -> tuple[object, float]:
    solve(problem, time_limit=1.0, n_jobs=1, **goal)  # compiles what is not yet compiled
    began = time.process_time()
    limit = SECONDS if "min_recall" in goal else BUDGET_SECONDS
    result = solve(problem, time_limit=limit, n_jobs=1, **goal)
    return result, time.process_time() - began


def trusthresh(table: ScoreTable, recall: float) -> tuple[float, float] | None:
    """(false alarms, seconds) of the best of its settings that reaches the recall; None where none does."""
    vars(np)["float_"] = np.float64  # numpy 2 has no such name, which the package's annotations use
    from trusthresh.data import Processor, Subtask
    from trusthresh.loss import maximize_precision_at_given_recall_w_penalty
    from trusthresh.model import TruSThresh, TruSThreshConfig
    from trusthresh.operation import Col, Or

    began, best = time.process_time(), None
    problem = table.problem()
    for alpha, rate in product(ALPHAS, RATES):
        columns = [Subtask(name=name, label=["yes"]) for name in table.names]
        rule = Or(*(Col(subtask_name=name, label="yes") for name in table.names))
        processor = Processor(x=table.scores.astype(np.float64), y=table.labels == 1, metadata=columns, rule=rule)
        config = TruSThreshConfig(
            initial_threshold=0.5,
            initial_width=0.1,
            tune_width=True,
            device="cpu",
            n_epochs=RATES[rate],
            learning_rate=rate,
            loss_fn=maximize_precision_at_given_recall_w_penalty,
            loss_params={"alpha": alpha, "target_recall": recall},
        )
        with contextlib.redirect_stdout(io.StringIO()):
            thresholds = np.array(TruSThresh(processor=processor, config=config).tune()["thresholds"])
        if problem.is_feasible(thresholds, recall):
            best = min(problem.loss(thresholds), np.inf if best is None else best)
    return None if best is None else (best, time.process_time() - began)


def random_search(problem: CalibrationProblem, recall: float) -> tuple[float, float] | None:
    """(false alarms, seconds) of the best draw of all runs that reaches the recall.

    Each draw takes for every column one of 100 numbers within `REACH` of the threshold that it has, kept from 0 to 1; the
    draw stays, good or bad, and the best of all is the answer. The first run starts at 0,
    where everything is accepted, the others at 0.5.
    """
    began, best = time.process_time(), np.inf
    for seed in range(N_RUNS):
        random = np.random.default_rng(seed)
        thresholds = np.full(problem.n_exemplars, 0.5 if seed else 0.0)
        for _ in range(N_DRAWS + 1):
            if problem.is_feasible(thresholds, recall):
                best = min(best, problem.loss(thresholds))
            low, high = np.maximum(thresholds - REACH, 0.0), np.minimum(thresholds + REACH, 1.0)
            thresholds = low + (high - low) * random.integers(100, size=len(low)) / 99
    return None if best == np.inf else (best, time.process_time() - began)


def router(table: ScoreTable, recall: float) -> tuple[float, float]:
    """(false alarms, seconds) of semantic-router 1.x: the highest bar of its confidences that reaches the recall."""
    from semantic_router.calibration import Calibrator

    began = time.process_time()
    highest, is_positive = table.scores.max(axis=1).astype(np.float64), table.labels == 1
    best = np.inf
    for method in ("platt", "isotonic"):
        confidences = Calibrator.fit(highest, is_positive, method)(highest)
        needed = int(np.ceil(recall * is_positive.sum() - 1e-9))
        bar = np.sort(confidences[is_positive])[::-1][needed - 1]  # equality passes
        best = min(best, float((confidences[~is_positive] >= bar).sum()))
    return best, time.process_time() - began


def iguanas(table: ScoreTable, budget: float | None) -> tuple[list[float], int]:
    """Thresholds of the rules that its greedy selection keeps, by F1, or by recall within an alert rate."""
    import polars as pl
    from iguanas.rule_combination import combine_rules_budgeted, combine_rules_greedy

    negatives = table.scores[table.labels == 0]
    rules, places = {}, {}
    for j, name in enumerate(table.names):
        for limit in np.unique(np.quantile(negatives[:, j], GRID)):
            rules[f"{name}>{limit:.9g}"] = table.scores[:, j] > limit
            places[f"{name}>{limit:.9g}"] = (j, float(limit))
    y = pl.Series(table.labels == 1)
    options = {"max_rules": table.n_exemplars}
    if budget is None:
        chosen = combine_rules_greedy(pl.DataFrame(rules), y, metric="f1", **options)
    else:
        chosen = combine_rules_budgeted(pl.DataFrame(rules), y, max_alert_rate=budget, **options)
    thresholds = np.full(table.n_exemplars, np.inf)
    names = [text.strip("()") for text in chosen.columns[-1].split(" | ")] if chosen.width else []
    for name in names:
        j, limit = places[name]
        thresholds[j] = min(thresholds[j], limit)
    return thresholds.tolist(), len(names)


def cell(found: tuple[float, float] | None) -> str:
    return "none meets it" if found is None else f"{found[0]:g} ({found[1]:.1f} s)"


def has(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return importlib.util.find_spec(package) is not None
    return True


def floors_table(
    name: str, table: ScoreTable, floors: tuple[float, ...], with_trusthresh: bool, with_router: bool
) -> list[list[str]]:
    problem, rows = table.problem(), []
    for floor in floors:
        result, seconds = ours(problem, min_recall=floor)
        row = [name, f"{floor:g}", cell(trusthresh(table, floor)) if with_trusthresh else ""]
        row += [
            cell(router(table, floor)) if with_router else "",
            cell(random_search(problem, floor)),
            f"**{result.loss:g}** ({seconds:.1f} s)",
            f"{result.lower_bound:g}",
        ]
        rows.append(row)
        print(row, flush=True)
    return rows


def budget_rows(name: str, table: ScoreTable) -> list[list[str]]:
    """Iguanas by F1 and within alert rates, and the most recall with as many false alarms."""
    problem, rows = table.problem(), []
    share = table.n_positives / table.n_rows
    for text, budget in (("F1", None), *((f"alerts <= {rate:.0%}", rate) for rate in (share / 2, share))):
        thresholds, n_rules = iguanas(table, budget)
        alarms, recall = problem.loss(thresholds), problem.recall(thresholds)
        result, seconds = ours(problem, max_loss=alarms)
        row = [name, text, str(n_rules), f"{alarms:g}", f"{recall:.1%}", f"**{result.recall:.1%}** ({seconds:.1f} s)"]
        rows.append([*row, f"{result.recall_bound:.1%}"])
        print(rows[-1], flush=True)
    return rows


HEAD = """# Peers

`python benchmarks/bench_peers.py FOLDER`; nothing is fetched, files and packages that are not there are named below. All figures are
of the rows that thresholds were fitted to: this page is about the search. Much of such a lead is gone [on new rows](held_out.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    parts, missing, tables = [HEAD, f"{machine()}; one thread, CPU seconds.\n"], [], {}
    for name, make in (
        ("unsmile 1", lambda: unsmile(options.folder, 1)),
        *((f"CLINC {domain}", lambda domain=domain: clinc(options.folder, domain)) for domain in DOMAINS),
    ):
        try:
            tables[name] = make()
        except FileNotFoundError as error:
            missing.append(f"the table {name} ({Path(error.filename).name})")
    with_trusthresh, with_iguanas = has("trusthresh") and has("torch"), has("iguanas") and has("polars")
    with_router = has("semantic_router")
    missing += [] if with_trusthresh else ["the package trusthresh, or torch"]
    missing += [] if with_iguanas else ["the package iguanas, or polars"]
    missing += [] if with_router else ["the package semantic-router"]
    rows = []
    for name, table in tables.items():
        is_first = name == "unsmile 1"
        floors = (0.999, 0.99, 0.975, 0.95) if is_first else (0.99, 0.95, 0.9)
        rows += floors_table(name, table, floors, with_trusthresh and is_first, with_router)
    parts.append("## False alarms at a recall floor\n")
    parts.append(
        "CPU seconds in brackets. TruSThresh: gradient descent through a smoothed threshold, on the data that it "
        "comes with; the best of three penalties and two learning rates that meets the floor. semantic-router: the installed 1.x maps the highest score to a "
        "confidence (the better of its two ways), with one bar for all routes, the highest that meets the floor; bars of "
        "single routes are left to the user: [how to give it ours](../recipes.md). Random search: as semantic-router did up to "
        "0.1.16, in our words, the best of five runs of 500 draws; it searched for accuracy there, and is given the floor "
        "here. The bound is ours: no thresholds accept fewer.\n"
    )
    parts.append(markdown(["table", "floor", "TruSThresh", "semantic-router", "random search", "eesvm", "bound"], rows))
    if with_iguanas and tables:
        parts.append("\n## Recall within a budget\n")
        parts.append(
            f"Iguanas {importlib.metadata.version('iguanas')} chooses among rules `column > t` for {len(GRID)} quantiles t "
            "of each column's negatives: greedily by F1, or by recall while so many rows raise an alert. Beside it, the "
            "most recall with the same false alarms. That is not what Iguanas was asked for: it chooses among given rules, and an "
            "alert rate counts accepted positives, too.\n"
        )
        found = [row for name, table in tables.items() for row in budget_rows(name, table)]
        header = ["table", "Iguanas by", "rules", "false alarms", "its recall", "eesvm recall", "bound"]
        parts.append(markdown(header, found))
    parts.append(f"\nNot at hand: {', '.join(missing)}.\n" if missing else "\nEverything was at hand.\n")
    (ROOT / "docs" / "results" / "peers.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
