"""Held-out recall and false alarms of ways to set thresholds, by the rules of `results/held_out_rules.md`.

In: a folder with the public files that `_held_out_tables.py` names; what is not there is said to be missing. Nothing is
fetched. Out: `results/held_out.md`; trials are kept in the folder, so that an interrupted run resumes.

    python benchmarks/bench_held_out.py FOLDER [--tables unsmile_1 ...] [--processes 2]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy import stats

from _common import RESULTS, machine, markdown
from _held_out_tables import ORIENTED, oriented, tables
from eesvm import CalibrationProblem, solve
from eesvm._support.files import atomic_write
from eesvm.calibration.calibrators.joint import spreads
from eesvm.calibration.held_out import make_folds, part, resampled
from eesvm.calibration.pooled import CHOICES, UNITS, Decisions, Offsets, Rows, Units, pool
from eesvm.calibration.tables.fit import split_table
from eesvm.calibration.tables.score_table import ScoreTable

RECALLS, SEEDS, N_BOOTSTRAPS = (0.9, 0.95), {1: range(5), 2: range(5, 10)}, 8
SHARED = "shared"
NARROW = tuple(choice for choice in CHOICES if choice.units != "spreads" and not choice.keep_off)  # of the first round


def offsets_in(units: str, problem: CalibrationProblem, thresholds: np.ndarray) -> Offsets:
    return Offsets.of(Units.of(units, problem.negative_scores), problem, thresholds, False)


def fitted(problem: CalibrationProblem, recall: float) -> np.ndarray:
    return solve(problem, min_recall=recall, node_limit=1, n_jobs=1).thresholds


def margins(problem: CalibrationProblem, thresholds: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return tuple(
        ((scores - thresholds) / units).max(axis=1) for scores in (problem.positive_scores, problem.negative_scores)
    )


def trial(train: ScoreTable, test: ScoreTable, recall: float) -> dict[str, dict[str, float]]:
    """By way: false alarms at that test recall; recall and false alarms as decided."""
    across = train.exemplar_groups is not None
    problem, unseen = train.problem(across_groups=across), test.problem()
    groups = None if train.groups is None else (train.groups[train.labels == 1], train.groups[train.labels == 0])
    folds = make_folds(problem, 5, *(groups or (None, None)))
    joint = fitted(problem, recall)
    found = {}

    def decisions(positives: np.ndarray, negatives: np.ndarray) -> Decisions:
        return Decisions(positives, negatives, np.ones(len(positives)), np.ones(len(negatives)))

    def told(way: str, made: Decisions, level: float | None) -> None:
        found[way] = {"alarms": made.false_alarms(recall)}
        if level is not None:
            found[way] |= {
                "recall": float((made.positives > level).mean()),
                "decided": float((made.negatives > level).mean()),
            }

    scores, quantiles = (offsets_in(name, problem, joint) for name in ("scores", "quantiles"))
    for way, made, strength in (
        (SHARED, scores, 0.0),
        ("shared quantile", quantiles, 0.0),
        *((f"shrunk {strength:g}", quantiles, strength) for strength in (0.25, 0.5, 0.75)),
    ):
        level = Rows.of(made.units, problem).pooled(made, strength).level(recall)
        told(way, Rows.of(made.units, unseen).pooled(made, strength), level)
    units = spreads(problem.positive_scores, problem.negative_scores)
    told("joint", decisions(*margins(unseen, joint, units)), 0.0)
    votes, offsets, pooled_votes = [], [], []
    chosen = pool(problem, recall, folds, lambda rest, _: fitted(rest, recall), joint, NARROW)
    for seed in range(N_BOOTSTRAPS):
        random = np.random.default_rng(seed)
        drawn = [resampled(each, random) for each in (folds.positive_groups, folds.negative_groups)]
        again = part(problem, *drawn)
        thresholds = fitted(again, recall)
        votes.append(margins(unseen, thresholds, units))
        refit = offsets_in(chosen.choice.units, problem, thresholds)
        offsets.append(refit.offsets)
        level = Rows.of(refit.units, problem).pooled(refit, chosen.choice.strength).level(recall)
        pooled = Rows.of(refit.units, unseen).pooled(refit, chosen.choice.strength)
        pooled_votes.append((pooled.positives - level, pooled.negatives - level))
    half = (N_BOOTSTRAPS - 1) // 2
    for way, cast in (("vote", votes), ("pooled vote", pooled_votes)):
        told(way, decisions(*(np.sort([vote[k] for vote in cast], axis=0)[half] for k in (0, 1))), 0.0)
    made = chosen.offsets
    told("pooled", Rows.of(made.units, unseen).pooled(made, chosen.choice.strength), None)
    found["pooled"] |= {
        "recall": unseen.recall(chosen.thresholds),
        "decided": float(unseen.accepts(chosen.thresholds).mean()),
        "strength": chosen.choice.strength,
        "units": made.units.name,
    }
    bagged = Offsets(made.units, np.mean(offsets, axis=0), made.is_off)
    told("pooled, bootstrapped", Rows.of(made.units, unseen).pooled(bagged, chosen.choice.strength), None)
    return found


def second_trial(train: ScoreTable, test: ScoreTable, recall: float) -> dict[str, dict[str, float]]:
    """The ways of the second round, as `trial`."""
    across = train.exemplar_groups is not None
    problem, unseen = train.problem(across_groups=across), test.problem()
    folds = make_folds(problem, 5, *(train.parted_groups() or (None, None)))
    joint = fitted(problem, recall)
    rows = np.ones(unseen.n_positives), np.ones(unseen.n_negatives)
    shared = offsets_in("scores", problem, joint)
    made = Rows.of(shared.units, unseen).pooled(shared, 0.0)
    level = Rows.of(shared.units, problem).pooled(shared, 0.0).level(recall)
    units = spreads(problem.positive_scores, problem.negative_scores)
    numbers = {SHARED: made, "joint": Decisions(*margins(unseen, joint, units), *rows)}
    found = {way: {"alarms": each.false_alarms(recall)} for way, each in numbers.items()}
    for way, limit in ((SHARED, level), ("joint", 0.0)):
        found[way]["recall"] = float((numbers[way].positives > limit).mean())
        found[way]["decided"] = float((numbers[way].negatives > limit).mean())
    refits = {}

    def refit(rest: CalibrationProblem, _: float) -> np.ndarray:
        key = rest.positive_scores.tobytes()  # the folds are the same for both
        if key not in refits:
            refits[key] = fitted(rest, recall)
        return refits[key]

    for way, choices in (("pooled", NARROW), ("pooled, wider", CHOICES)):
        chosen = pool(problem, recall, folds, refit, joint, choices)
        made = Rows.of(chosen.offsets.units, unseen).pooled(chosen.offsets, chosen.choice.strength)
        found[way] = {
            "alarms": made.false_alarms(recall),
            "recall": unseen.recall(chosen.thresholds),
            "decided": float(unseen.accepts(chosen.thresholds).mean()),
            "strength": chosen.choice.strength,
            "units": chosen.choice.units,
            "off": chosen.choice.keep_off,
        }
    return found


def split_trials(table: ScoreTable, name: str, rounds: int, seed: int, folder: Path) -> list[dict]:
    """Both halves of one split; kept in the folder."""
    kept = folder / f"held_out_trials_{rounds}" / f"{name}_{seed}.json"
    if not kept.exists():
        rows = []
        for train, test in (split_table(table, 0.5, seed), other_way(table, seed)):
            if name in ORIENTED:
                train, test = oriented(train, test)
            rows += [{"recall": recall, "ways": TRIALS[rounds](train, test, recall)} for recall in RECALLS]
        kept.parent.mkdir(exist_ok=True)
        with atomic_write(kept) as file:
            file.write(json.dumps(rows).encode())
        print(f"round {rounds}, {name}, seed {seed}: done", flush=True)
    return json.loads(kept.read_text())


TRIALS = {1: trial, 2: second_trial}


def other_way(table: ScoreTable, seed: int) -> tuple[ScoreTable, ScoreTable]:
    """The same halves, exchanged; exemplars of images that are now tested are left out."""
    marked = table.rows(np.arange(table.n_rows))
    rows = ScoreTable(
        np.arange(table.n_rows, dtype=np.float64)[:, None], table.labels, table.groups
    )  # the same draw, whatever the columns
    train, test = split_table(rows, 0.5, seed)
    halves = [marked.rows(part.scores[:, 0].astype(np.intp)) for part in (test, train)]
    if table.exemplar_groups is None:
        return halves[0], halves[1]
    unseen = ~np.isin(table.exemplar_groups, halves[1].groups)
    return halves[0].exemplars(unseen), halves[1].exemplars(unseen)


def interval(differences: np.ndarray) -> float:
    """Half of the 95 % interval of a corrected t-test."""
    n = len(differences)
    return float(stats.t.ppf(0.975, n - 1) * np.sqrt((1 / n + 1) * differences.var(ddof=1)))


HEAD = """# Held-out recall and false alarms

`python benchmarks/bench_held_out.py FOLDER`, by [rules](held_out_rules.md) that were written down before: ten halves of each
table in each round. False alarms are per cent of the tested negatives at the same tested recall; of other ways than one shared
threshold the difference to it, with its 95 % interval; negative is better.
"""


def page(found: dict[str, list[dict]]) -> str:
    ways = list(next(iter(found.values()))[0]["ways"])
    parts = []
    for recall in RECALLS:
        values = {
            name: {
                way: np.array([row["ways"][way]["alarms"] for row in rows if row["recall"] == recall]) for way in ways
            }
            for name, rows in found.items()
        }
        parts.append(f"\n### Recall {recall:g}\n")
        rows = []
        for name, by_way in values.items():
            cells = [name, f"{100 * by_way[SHARED].mean():.1f}"]
            for way in ways[1:]:
                difference = 100 * (by_way[way] - by_way[SHARED])
                cells.append(f"{difference.mean():+.1f} ± {interval(difference):.1f}")
            rows.append(cells)
        means = {way: 100 * np.array([by_way[way].mean() for by_way in values.values()]) for way in ways}
        last = ["**mean**", f"{means[SHARED].mean():.1f}"]
        for way in ways[1:]:
            each = means[way] - means[SHARED]
            half = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0
            last.append(f"**{each.mean():+.2f} ± {half:.2f}**")
        parts.append(markdown(["table", SHARED, *ways[1:]], [*rows, last]))
    parts.append("\n### As decided\n")
    parts.append("Mean recall and false alarms, in per cent, of what was fitted for a recall, on the tested half.\n")
    decided = [way for way in ways if "decided" in next(iter(found.values()))[0]["ways"][way]]
    rows = []
    for recall in RECALLS:
        for name, kept in found.items():
            cells = [name, f"{recall:g}"]
            for way in decided:
                both = [
                    [row["ways"][way][key] for row in kept if row["recall"] == recall] for key in ("recall", "decided")
                ]
                cells.append(" / ".join(f"{100 * np.mean(each):.1f}" for each in both))
            rows.append(cells)
    parts.append(markdown(["table", "wanted", *decided], rows))
    parts.append("\n### What was chosen\n")
    chosen = [[name, *(_chosen(kept, recall) for recall in RECALLS)] for name, kept in found.items()]
    parts.append(markdown(["table", *(f"units and strength at {recall:g}" for recall in RECALLS)], chosen))
    return "\n".join(parts)


def _chosen(kept: list[dict], recall: float) -> str:
    rows = [row["ways"].get("pooled, wider", row["ways"]["pooled"]) for row in kept if row["recall"] == recall]
    counts = {units: sum(row["units"] == units for row in rows) for units in UNITS}
    units = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    off = f", off {sum(row['off'] for row in rows)}" if "off" in rows[0] else ""
    return f"{units}{off}; mean strength {np.mean([row['strength'] for row in rows]):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--rounds", nargs="+", type=int, choices=[1, 2], default=[1, 2])
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    made, missing = {}, []
    for name, make in tables(options.folder).items():
        try:
            if not options.tables or name in options.tables:
                made[name] = make()
        except FileNotFoundError as error:
            missing.append(f"{name} ({Path(error.filename).name})")
    jobs = [(name, rounds, seed) for rounds in options.rounds for name in made for seed in SEEDS[rounds]]
    outcomes = Parallel(options.processes)(delayed(split_trials)(made[job[0]], *job, options.folder) for job in jobs)
    parts = [HEAD, f"{machine()}.\n"]
    for rounds in options.rounds:
        found: dict[str, list[dict]] = {}
        for (name, which, _), rows in zip(jobs, outcomes, strict=True):
            if which == rounds:
                found[name] = found.get(name, []) + rows
        parts.append(f"## Round {rounds}\n{page(found)}\n")
    if missing:
        print(f"missing: {', '.join(missing)}")
        parts.append(f"Not at hand: {', '.join(missing)}.\n")
    (RESULTS / "held_out.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
