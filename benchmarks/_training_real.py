"""The section of training.md on photographs: exemplars trained together, and a loop of LinearSVC beside each.

What was measured is kept line by line in a file, so that an interrupted measurement can be resumed; the page is made
from that file. CPU time is that of all threads; LinearSVC has one. It is given one exemplar, tol 1e-3 and at most 1,000
iterations, its default: what it has not solved by then counts as if it had. The squared hinge it solves in the dual and
in the primal, and the faster of the two counts. Where its objective is then more than a thousandth above ours, a second
ratio counts what it needs to come so near: more iterations, and a smaller tol where it ends before they are used up.

What 20 times a loop of LinearSVC leaves is also counted in looks: how often the rows can be read from memory and
multiplied with the weights of one exemplar in that time. A descent needs a handful of them at the least.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from _common import markdown
from _training_data import MAPPED, gaussian_rows, real_rows, real_sets
from eesvm import ExemplarSVMs, LinearSVM
from eesvm._support.files import atomic_write

ALL_C = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LOSSES = ("hinge", "squared_hinge")
NEAR = 1e-3  # objectives that differ by less are near each other
FURTHER = ((4_000, 1e-3), (16_000, 1e-4), (64_000, 1e-5), (256_000, 1e-6))  # iterations and tol, to come near
PATIENCE = 20.0  # CPU seconds of LinearSVC on one exemplar after which it is not given more of them


@dataclass(frozen=True)
class Case:
    name: str
    n_exemplars: int
    n_dimensions: int
    loss: str
    C: float
    positive_weight: float


def cases(mapped: bool = False) -> list[Case]:
    """All costs where a loop takes seconds, fewer costs and exemplars where it takes long; or rows behind a map."""
    found = [Case("Gaussian", 60, 400, "hinge", 1e-3, 10.0)]
    few = (1e-5, 1e-3, 1e-1, 1.0)
    sizes = [("voc2007", 60, 128, ALL_C), ("voc2007", 60, 256, ALL_C), ("pets_voc", 18, 128, ALL_C)]
    sizes += [("voc2007", 30, 512, few), ("pets_voc", 18, 256, ALL_C), ("pets_voc", 18, 512, few)]
    sizes += [("voc2007", 10, 1280, few), ("pets_voc", 10, 1280, few)]
    if mapped:
        found, sizes = [], [(f"voc2007{MAPPED}", 30, 512, ALL_C), (f"pets_voc{MAPPED}", 18, 512, ALL_C)]
    for name, n, d, costs in sizes:
        if name in real_sets():
            found += [Case(name, n, d, loss, C, w) for C in costs for loss in LOSSES for w in (50.0, 1.0)]
    return found


def measure(folder: Path, kept: Path, n_dimensions: int | None, mapped: bool = False) -> None:
    """Measure what is not in the file `kept` yet, of one number of dimensions or all."""
    done = {json.dumps(line["case"]) for line in read(kept)}
    for case in cases(mapped):
        if n_dimensions in (None, case.n_dimensions) and json.dumps(asdict(case)) not in done:
            line = {"case": asdict(case), **measure_case(case, folder)}
            with kept.open("a") as handle:
                handle.write(json.dumps(line) + "\n")
            print(line, flush=True)
    _let_it_end(folder, kept)


def _let_it_end(folder: Path, kept: Path) -> None:
    """Add to the lines where LinearSVC is worse by a thousandth what it takes to be no worse than that, or some time."""
    lines = read(kept)
    for line in lines:
        if line["excess"] < -NEAR and "near" not in line:
            case = Case(**line["case"])
            exemplars, negatives = _rows(case, folder)
            ours = _objective_of_ours(case, exemplars, negatives)
            for most, tol in FURTHER:
                loop, n_iterations, theirs = _one_liblinear(exemplars[0], negatives, case, True, most, tol)
                if theirs <= (1 + NEAR) * ours or loop > PATIENCE:
                    break
            line["near"] = {"loop": loop, "iterations": n_iterations, "reached": theirs <= (1 + NEAR) * ours}
            print(case, line["near"], flush=True)
            with atomic_write(kept, text=True) as handle:
                handle.writelines(json.dumps(line) + "\n" for line in lines)


def read(kept: Path) -> list[dict]:
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def measure_case(case: Case, folder: Path) -> dict:
    exemplars, negatives = _rows(case, folder)
    options = {"C": case.C, "positive_weight": case.positive_weight, "loss": case.loss}
    ExemplarSVMs(**options).fit(exemplars[:, :20] + 0.1, negatives[:2000, :20])  # compiles, or loads
    svms, cpu, wall = ExemplarSVMs(**options), time.process_time(), time.perf_counter()
    svms.fit(exemplars, negatives)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    loop, n_iterations, theirs = _liblinear(exemplars[0], negatives, case)
    mine = _objective(svms.coef_[0], svms.intercept_[0], exemplars[0], negatives, case)
    with_prior = {"prior": _seconds_with_prior(options, exemplars, negatives)} if case == _preset_of(case.name) else {}
    return {
        **with_prior,
        "cpu": cpu / len(exemplars),
        "wall": wall / len(exemplars),
        "gap": float(svms.gap_.max()),
        "converged": int(svms.converged_.sum()),
        "support": float(svms.n_support_.mean()),
        "loop": loop,
        "iterations": n_iterations,
        "excess": mine / theirs - 1,
    }


def _preset_of(name: str) -> Case | None:
    """The rows that the default preset trains on."""
    sizes = {case.name: (case.n_exemplars, case.n_dimensions) for case in cases(mapped=True)}
    return Case(name, *sizes[name], "squared_hinge", 1e-4, 50.0) if name in sizes else None


def _seconds_with_prior(options: dict, exemplars: np.ndarray, negatives: np.ndarray) -> float:
    """CPU seconds an exemplar that bends the single SVM of its class, whose own training is not counted."""
    prior = LinearSVM(loss="squared_hinge").fit(exemplars, negatives)
    ExemplarSVMs(**options, prior=prior).fit(exemplars, negatives[:4000])  # compiles, or loads
    began = time.process_time()
    ExemplarSVMs(**options, prior=prior).fit(exemplars, negatives)
    return (time.process_time() - began) / len(exemplars)


def _objective_of_ours(case: Case, exemplars: np.ndarray, negatives: np.ndarray) -> float:
    """What we reach on the first exemplar, trained alone."""
    svms = ExemplarSVMs(C=case.C, positive_weight=case.positive_weight, loss=case.loss).fit(exemplars[:1], negatives)
    return _objective(svms.coef_[0], svms.intercept_[0], exemplars[0], negatives, case)


def section(kept: Path, mapped: bool = False) -> str:
    """The table."""
    rows, looks = [], {}
    order = {json.dumps(asdict(case)): k for k, case in enumerate(cases(mapped))}
    for line in sorted(read(kept), key=lambda line: order.get(json.dumps(line["case"]), len(order))):
        case, ratio = Case(**line["case"]), line["loop"] / line["cpu"]
        n_rows = 6000 if case.name == "Gaussian" else 20_000
        if (n_rows, case.n_dimensions) not in looks:
            looks[n_rows, case.n_dimensions] = one_look(n_rows, case.n_dimensions)
        rows.append(
            [
                f"{case.name}, {case.n_exemplars} x {case.n_dimensions:,}",
                case.loss.replace("_", " "),
                f"{case.C:g}, {case.positive_weight:g}",
                f"{1e3 * line['cpu']:.1f}",
                f"{1e3 * line['wall']:.1f}",
                f"{1e3 * line['loop']:,.0f} ({line['iterations']:,})",
                f"**{ratio:,.0f}x**" if ratio >= 20 else f"{ratio:,.1f}x",
                _near(line),
                f"{line['loop'] / 20 / looks[n_rows, case.n_dimensions]:,.1f}",
                f"{line['excess']:+.0e}",
                f"{line['gap']:.0e}",
                f"{line['support']:,.0f}",
            ]
        )
    headings = [
        "exemplars x dimensions",
        "loss",
        "C, positive weight",
        "CPU ms an exemplar",
        "wall ms",
        "LinearSVC CPU ms (iterations)",
        "LinearSVC / ours, CPU",
        "the same, its objective near ours",
        "looks that 20x leaves",
        "our objective / its - 1",
        "worst duality gap",
        "supporting negatives",
    ]
    note = _mapped_note(read(kept)) if mapped else _note(read(kept), rows, looks)
    return f"{note}\n\n{markdown(headings, rows)}"


def _mapped_note(lines: list[dict]) -> str:
    ratios = [line["loop"] / line["cpu"] for line in lines]
    return (
        "20,000 negatives of photographs as the default preset describes them: 512 principal components, a kernel map of "
        "1,024 landmarks cut to 512 numbers, a mean length of 20. All else as in the section before, on one core: "
        f"{sum(ratio >= 20 for ratio in ratios)} of {len(ratios)} rows are at least 20 times faster in CPU time, the "
        f"least is {min(ratios):.1f} times as fast. The preset itself (squared hinge, C 1e-4, positive weight 50) has the "
        "single SVM of the class as a prior, which liblinear has not; with it exemplars take "
        + ", ".join(
            f"{1e3 * line['prior']:.1f} CPU ms in {line['case']['name']} (LinearSVC without / ours with: "
            f"{line['loop'] / line['prior']:.0f}x)"
            for line in lines
            if "prior" in line
        )
        + "."
    )


def _near(line: dict) -> str:
    if "near" not in line:
        return f"{line['loop'] / line['cpu']:,.0f}x"
    near = line["near"]
    return f"{'' if near['reached'] else 'more than '}{near['loop'] / line['cpu']:,.0f}x ({near['iterations']:,})"


def one_look(n_rows: int, n_dimensions: int, n_exemplars: int = 1) -> float:
    """CPU seconds an exemplar of one product of all rows with the weights of some, the least of several."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((n_rows, n_dimensions), dtype=np.float32)
    shape = n_dimensions if n_exemplars == 1 else (n_dimensions, n_exemplars)
    weights, seconds = random.standard_normal(shape, dtype=np.float32), []
    with threadpool_limits(1):
        for _ in range(9):
            began = time.process_time()
            rows @ weights
            seconds.append(time.process_time() - began)
    return min(seconds) / n_exemplars


def _floor_note(lines: list[dict]) -> str:
    """What no solver that states a duality gap over all negatives can do without, beside a twentieth of LinearSVC's time."""
    widths = sorted({line["case"]["n_dimensions"] for line in lines if line["case"]["name"] != "Gaussian"})
    least = {d: 2e3 * one_look(20_000, d, 10) for d in widths}
    room = {d: min(1e3 * line["loop"] / 20 for line in lines if line["case"]["n_dimensions"] == d) for d in widths}
    n_impossible = sum(1e3 * line["loop"] / 20 < least.get(line["case"]["n_dimensions"], 0.0) for line in lines)
    spans = ", ".join(f"{least[d]:.2f} of {room[d]:.1f} in {d:,}" for d in widths)
    return (
        "A floor: two products of all negatives with the weights of ten exemplars at a time, which any solver that states "
        "a duality gap over all of them needs, take an exemplar so much of the least twentieth of LinearSVC's time "
        f"(CPU ms): {spans} dimensions. 20 times is below that floor in {n_impossible} rows."
    )


def _note(lines: list[dict], rows: list[list[str]], looks: dict[tuple[int, int], float]) -> str:
    ratios = [(line["case"]["n_dimensions"], line["loop"] / line["cpu"]) for line in lines]
    n_fast = sum(row[6].startswith("**") for row in rows)
    by_width = "; ".join(
        f"{sum(ratio >= 20 for d, ratio in ratios if d == width)} of {sum(d == width for d, _ in ratios)} in {width:,}"
        for width in sorted({d for d, _ in ratios})
    )
    n_slower, least = sum(ratio < 1 for _, ratio in ratios), min(ratio for _, ratio in ratios)
    spans = ", ".join(f"{1e3 * look:.1f} in {d:,}" for (n, d), look in sorted(looks.items()) if n == 20_000)
    return (
        "20,000 negatives of photographs (6,000 in the Gaussian table, whose standard deviations fall from 2 to 0.1): "
        "windows described by the default network, reduced by PCA, scaled to a mean length of 20. LinearSVC: the same "
        "criterion on the first exemplar, tol 1e-3, 1,000 iterations at most, of dual and primal the faster. "
        f"{_near_note(rows)}"
        "Training had one core. "
        f"{n_fast} of {len(rows)} rows are at least 20 times faster in CPU time (dimensions: {by_width}); "
        f"{n_slower} are slower than LinearSVC, the least is {least:.1f} times as fast. "
        "Looks that 20x leaves: how often 20,000 rows can be multiplied with one vector of weights in a twentieth of "
        f"LinearSVC's time; one such look takes {spans} dimensions (CPU ms). {_floor_note(lines)}"
    )


def _near_note(rows: list[list[str]]) -> str:
    """How the rows stand where LinearSVC may go on until its objective is near ours."""
    n_unsolved = sum("(" in row[7] for row in rows)
    n_fast = sum(float(row[7].removeprefix("more than ").split("x")[0].replace(",", "")) >= 20 for row in rows)
    return (
        f"In {n_unsolved} rows its objective is then more than a thousandth above ours; the next column gives it "
        "more iterations and a smaller tol, step by step, until it is not (a second pass; the CPU time of the step that comes near "
        f"counts alone; a step of more than {PATIENCE:.0f} s is the last): {n_fast} of {len(rows)} rows are then at least 20 times faster. "
    )


def _rows(case: Case, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    if case.name == "Gaussian":
        return gaussian_rows(case.n_exemplars, 6000, case.n_dimensions)
    exemplars, negatives = real_rows(case.name, case.n_dimensions, folder)
    return exemplars[: case.n_exemplars], negatives


def _liblinear(x: np.ndarray, negatives: np.ndarray, case: Case) -> tuple[float, int, float]:
    """CPU seconds, iterations and objective, of the faster way where there are two."""
    ways = (True,) if case.loss == "hinge" else (True, False)
    return min(_one_liblinear(x, negatives, case, dual) for dual in ways)


def _one_liblinear(
    x: np.ndarray, negatives: np.ndarray, case: Case, dual: bool, n_iterations: int = 1000, tol: float = 1e-3
) -> tuple[float, int, float]:
    began = time.process_time()
    X = np.concatenate([x[None], negatives])
    weights = {1: case.positive_weight, 0: 1.0}
    options = {"tol": tol, "dual": dual, "max_iter": n_iterations, "random_state": 0}
    svm = LinearSVC(C=case.C, loss=case.loss, class_weight=weights, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        svm.fit(X, np.arange(len(X)) == 0)
    seconds = time.process_time() - began
    return seconds, int(svm.n_iter_), _objective(svm.coef_[0], svm.intercept_[0], x, negatives, case)


def _objective(w: np.ndarray, b: float, x: np.ndarray, negatives: np.ndarray, case: Case) -> float:
    """The criterion over all negatives, in float64."""
    w, b = np.asarray(w, dtype=np.float64), float(b)
    power = 2 if case.loss == "squared_hinge" else 1
    loss = (np.maximum(1 + negatives.astype(np.float64) @ w + b, 0) ** power).sum()
    own = case.positive_weight * max(1 - x.astype(np.float64) @ w - b, 0.0) ** power
    return float(w @ w / 2 + b**2 / 2 + case.C * (own + loss))
