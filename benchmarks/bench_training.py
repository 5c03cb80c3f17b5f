"""Training exemplar SVMs: together, against a loop of liblinear over all negatives, and over mined ones.

Writes benchmarks/results/training.md. Descriptors are generated: rectified, of low rank with noise, 1,280 numbers of
mean length 20. Loops are measured on a few exemplars and scaled to all of them, which the tables say. Every training
runs in a process of its own, so that its peak memory is its own. About five minutes on two cores; `--large` adds
2,000 exemplars x 200,000 negatives and takes some more, `--small` is a quick look whether everything runs. `--real FOLDER`
measures descriptors of photographs instead, kept in that folder, and replaces the page's section on them; some 20 minutes,
which `--dimensions` cuts into pieces; with `--mapped` behind the default's kernel map, in a section of its own.
`--cold` measures what compiling adds to a first training, and replaces that section.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from _common import RESULTS, first_calls, forget_peak, held_memory, machine, markdown
from _training_real import measure, section
from eesvm import ExemplarSVMs
from eesvm.exemplars.scoring import score_windows

SETTINGS = {
    "paper: hinge, C 1e-4": {"C": 1e-4},
    "squared hinge, C 1e-4": {"C": 1e-4, "loss": "squared_hinge"},
    "original code: hinge, C 0.01, positive weight 50": {"C": 0.01, "positive_weight": 50.0},
}
REAL_TITLE, MAPPED_TITLE = "Descriptors of photographs", "Behind the kernel map"
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


@dataclass(frozen=True)
class Size:
    n_exemplars: int
    n_negatives: int
    n_dimensions: int = 1280

    def __str__(self) -> str:
        return f"{self.n_exemplars:,} x {self.n_negatives:,} x {self.n_dimensions:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 2,000 exemplars x 200,000 negatives")
    parser.add_argument("--only-large", action="store_true", help="nothing but that, printed and not written")
    parser.add_argument("--small", action="store_true", help="a tenth of everything, printed and not written")
    parser.add_argument("--few", type=int, default=4, help="exemplars on which the loops are measured (4)")
    parser.add_argument("--real", type=Path, help="measure photographs; a folder for their descriptors")
    parser.add_argument("--dimensions", type=int, help="with --real: only tables of so many dimensions")
    parser.add_argument(
        "--mapped", action="store_true", help="with --real: behind the kernel map of the default preset"
    )
    parser.add_argument("--render", action="store_true", help="with --real: only lay out what has been measured")
    parser.add_argument("--cold", action="store_true", help="measure compiling alone")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(train_here(**json.loads(arguments.child))))
        return
    if arguments.real:
        mapped = arguments.mapped
        kept = arguments.real / ("training_mapped.jsonl" if mapped else "training_real.jsonl")
        if not arguments.render:
            measure(arguments.real, kept, arguments.dimensions, mapped)
        command = "`python benchmarks/bench_training.py --real FOLDER" + (" --mapped`" if mapped else "`")
        replace_section(MAPPED_TITLE if mapped else REAL_TITLE, f"{command}, {machine()}. {section(kept, mapped)}")
        return
    if arguments.cold:
        replace_section("Compilation", f"`python benchmarks/bench_training.py --cold`, {machine()}. {compile_times()}")
        return
    size = Size(50, 2000, 256) if arguments.small else Size(500, 20_000)
    sections = []
    if not arguments.only_large:
        sections += [
            (f"{size}: together, and one after the other", comparison(size, arguments.few)),
            ("How time grows", growth(size)),
            ("Scoring", scoring(size)),
        ]
    if arguments.large or arguments.only_large:
        sections.append(("Large", large()))
    pages = [f"# Training exemplar SVMs\n\n`python benchmarks/bench_training.py`, {machine()}."]
    text = "\n\n".join(pages + [f"## {title}\n\n{body}" for title, body in sections]) + "\n"
    if not arguments.small and not arguments.only_large:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "training.md").write_text(text)
    print(text)


def replace_section(title: str, body: str) -> None:
    """Put a section where the page has one of that title, else at its end."""
    page = RESULTS / "training.md"
    parts = page.read_text().split("\n## ")
    kept = [part for part in parts if not part.startswith(title)]
    place = next((k for k, part in enumerate(parts) if part.startswith(title)), len(kept))
    kept.insert(place, f"{title}\n\n{body}\n")
    page.write_text("\n## ".join(part.rstrip("\n") + "\n" for part in kept))


def compile_times() -> str:
    """A first training in a new process, for each kind of descent, without and with compiled code on disk."""
    start = "import numpy as np; from eesvm import ExemplarSVMs; random = np.random.default_rng(0)"
    start += "; x = 5 * random.standard_normal((1220, 20)).astype(np.float32); x[:, 0] += 5"
    rows = []
    for name, options, rows_used in (
        ("hinge, a pool of few negatives", "C=1e-4", "np.abs(x)"),
        ("hinge, all negatives", "C=0.1, positive_weight=50", "x"),
        ("squared hinge, all negatives", "C=0.1, positive_weight=50, loss='squared_hinge'", "x"),
    ):
        call = f"ExemplarSVMs({options}).fit({rows_used}[:20], {rows_used}[20:])"
        rows += [[name, *row] for row in first_calls(start, call)]
    note = (
        "A new process trains 20 exemplars of 20 dimensions against 1,200 negatives; each line has a cache of its own."
    )
    return f"{note}\n\n{markdown(['training', '', 'CPU s of the import', 'CPU s of the first call'], rows)}"


def comparison(size: Size, few: int) -> str:
    exemplars, negatives = make_rows(size)
    chosen = np.linspace(0, size.n_exemplars - 1, few).astype(int)
    rows = []
    for name, options in SETTINGS.items():
        found = train_apart(size, options, keep=chosen)
        best = [fit_liblinear(exemplars[j], negatives, options, 1e-6)[1] for j in chosen]
        tol, loop = loosest(exemplars[chosen], negatives, options, best)
        mined = [fit_mined(exemplars[j], negatives, options, tol) for j in chosen]
        excess = max(a / b for a, b in zip(found["objectives"], best, strict=True)) - 1
        mined_excess = max(value / b for (_, value), b in zip(mined, best, strict=True)) - 1
        seconds, scale = found["seconds"], size.n_exemplars
        loop_seconds, mined_seconds = loop * scale, float(np.mean([t for t, _ in mined])) * scale
        rows.append(
            [
                name,
                f"{seconds:.2f} s",
                f"{excess:.1e}",
                f"{found['gap']:.1e}",
                f"{loop_seconds:,.0f} s ({tol:g})",
                f"**{loop_seconds / seconds:,.0f}x**",
                f"{mined_seconds:,.0f} s ({mined_excess:.0e})",
                f"{mined_seconds / seconds:,.1f}x",
                f"{found['peak'] / 2**20:,.0f} MiB",
                f"{1 + found['peak'] / negatives.nbytes:.2f}x",
                f"{found['n_support']:,.0f}",
            ]
        )
    headings = [
        "criterion",
        "together",
        "worst objective above liblinear's at 1e-6",
        "worst duality gap",
        f"loop of LinearSVC (its tolerance), {few} measured x {size.n_exemplars // few}",
        "loop / together",
        "LinearSVC on mined negatives only (its excess), scaled likewise",
        "mined / together",
        "peak memory besides the negatives",
        "negatives and peak / negatives",
        "supporting negatives per exemplar",
    ]
    note = (
        f"The negatives take {negatives.nbytes / 2**20:,.0f} MiB. LinearSVC is given the loosest of the tolerances "
        f"{', '.join(f'{t:g}' for t in TOLERANCES)} with which its objective is within 0.1 % of the best, for float32 rows; "
        "reading and checking the input counts for both. Mined: LinearSVC on the 500 negatives most like the exemplar, then "
        "all negatives are scored and the 1,000 worst violators join, until there is none above 1e-3."
    )
    return f"{note}\n\n{markdown(headings, rows)}"


def growth(size: Size) -> str:
    rows = []
    for name in ("paper: hinge, C 1e-4", "original code: hinge, C 0.01, positive weight 50"):
        for n_exemplars in (size.n_exemplars // 4, size.n_exemplars, 4 * size.n_exemplars):
            rows.append(growth_row(name, Size(n_exemplars, size.n_negatives, size.n_dimensions)))
        for n_negatives in (size.n_negatives // 4, 4 * size.n_negatives):
            rows.append(growth_row(name, Size(size.n_exemplars, n_negatives, size.n_dimensions)))
    return markdown(
        [
            "criterion",
            "exemplars x negatives x dimensions",
            "seconds",
            "nanoseconds per pair",
            "looks at all negatives",
        ],
        rows,
    )


def growth_row(name: str, size: Size) -> list[str]:
    found = train_apart(size, SETTINGS[name])
    pairs = size.n_exemplars * size.n_negatives
    return [name, str(size), f"{found['seconds']:.2f}", f"{1e9 * found['seconds'] / pairs:.0f}", str(found["n_scans"])]


def scoring(size: Size) -> str:
    weights, windows = make_rows(size)
    biases = np.zeros(len(weights), dtype=np.float32)
    out = np.empty((len(windows), len(weights)), dtype=np.float32)
    flops = 2 * weights.size * len(windows)
    product = best_of(lambda: np.matmul(windows, weights.T, out=out))
    scores = best_of(lambda: score_windows(windows, weights, biases, out))
    rows = [
        ["numpy's sgemm, one call", f"{product:.3f}", f"{flops / product / 1e9:.0f}", "100 %"],
        ["score_windows", f"{scores:.3f}", f"{flops / scores / 1e9:.0f}", f"**{100 * product / scores:.0f} %**"],
    ]
    return f"{size.n_negatives:,} windows, {size.n_exemplars:,} exemplars, best of 7.\n\n" + markdown(
        ["", "seconds", "GFLOP/s", "of sgemm"], rows
    )


def large() -> str:
    size = Size(2000, 200_000)
    rows = []
    for name, options in SETTINGS.items():
        found = train_apart(size, options)
        rows.append(
            [
                name,
                f"{found['seconds']:.0f} s",
                f"{found['gap']:.1e}",
                f"{found['peak'] / 2**20:,.0f} MiB",
                f"{1 + found['peak'] / (4 * size.n_negatives * size.n_dimensions):.2f}x",
                found["n_scans"],
                f"{found['n_support']:,.0f}",
                found["converged"],
            ]
        )
    headings = [
        f"{size}",
        "time",
        "worst duality gap",
        "peak memory besides the negatives",
        "negatives and peak / negatives",
        "looks at all negatives",
        "supporting negatives per exemplar",
        "exemplars that reached tol 1e-3",
    ]
    return markdown(headings, rows)


def make_rows(size: Size, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Exemplars and negatives, drawn in blocks so that drawing them takes little memory."""
    random = np.random.default_rng(seed)
    base = random.standard_normal((64, size.n_dimensions), dtype=np.float32) / 8
    exemplars = np.empty((size.n_exemplars, size.n_dimensions), dtype=np.float32)
    negatives = np.empty((size.n_negatives, size.n_dimensions), dtype=np.float32)
    for rows in (negatives, exemplars):
        for start in range(0, len(rows), 1024):
            block = rows[start : start + 1024]
            noise = random.standard_normal(block.shape, dtype=np.float32)
            signal = random.standard_normal((len(block), 64), dtype=np.float32) @ base
            np.maximum(0, signal + np.float32(0.5) * noise - np.float32(0.3), out=block)
    scale = np.float32(20 / np.linalg.norm(negatives[:2048], axis=1).mean())
    exemplars *= scale
    negatives *= scale
    return exemplars, negatives


def train_apart(size: Size, options: dict, keep: np.ndarray | None = None) -> dict:
    """`train_here` in a new process."""
    task = {"size": vars(size), "options": options, "keep": [] if keep is None else keep.tolist()}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def train_here(size: dict, options: dict, keep: list[int]) -> dict:
    """Train once and say how long it took, how much memory, and how good the exemplars in `keep` are."""
    exemplars, negatives = make_rows(Size(**size))
    warm = np.ascontiguousarray(negatives[:300, :20]) + np.float32(0.1)
    ExemplarSVMs(**options).fit(warm[:20], warm[20:])  # compiles, or loads what was compiled before
    svms = ExemplarSVMs(**options)
    before = held_memory("VmRSS")
    forget_peak()
    began = time.perf_counter()
    svms.fit(exemplars, negatives)
    seconds = time.perf_counter() - began
    peak = held_memory("VmHWM") - before
    values = [objective(svms.coef_[j], svms.intercept_[j], exemplars[j], negatives, options) for j in keep]
    return {
        "seconds": seconds,
        "peak": peak,
        "gap": float(svms.gap_.max()),
        "objectives": values,
        "n_scans": int(svms.n_scans_.max()),
        "n_support": float(svms.n_support_.mean()),
        "converged": int(svms.converged_.sum()),
    }


def loosest(exemplars: np.ndarray, negatives: np.ndarray, options: dict, best: list[float]) -> tuple[float, float]:
    """The loosest tolerance of LinearSVC within 0.1 % of the best objectives, and its seconds per exemplar."""
    for tol in TOLERANCES:
        runs = [fit_liblinear(x, negatives, options, tol) for x in exemplars]
        if all(value <= b * 1.001 for (_, value), b in zip(runs, best, strict=True)):
            break
    return tol, float(np.mean([seconds for seconds, _ in runs]))


def fit_liblinear(x: np.ndarray, negatives: np.ndarray, options: dict, tol: float) -> tuple[float, float]:
    """(seconds, objective) of LinearSVC on all negatives."""
    began = time.perf_counter()
    w, b = liblinear(x, negatives, options, tol)
    return time.perf_counter() - began, objective(w, b, x, negatives, options)


def fit_mined(x: np.ndarray, negatives: np.ndarray, options: dict, tol: float) -> tuple[float, float]:
    """(seconds, objective over all negatives) of LinearSVC on a cache that violators join."""
    began = time.perf_counter()
    is_cached = np.zeros(len(negatives), dtype=bool)
    is_cached[np.argsort(-(negatives @ x))[:500]] = True
    for _ in range(50):
        w, b = liblinear(x, negatives[is_cached], options, tol)
        scores = negatives @ w.astype(np.float32) + np.float32(b)
        violators = np.flatnonzero((scores > -1 + 1e-3) & ~is_cached)
        if len(violators) == 0:
            break
        is_cached[violators[np.argsort(-scores[violators])[:1000]]] = True
    return time.perf_counter() - began, objective(w, b, x, negatives, options)


def liblinear(x: np.ndarray, negatives: np.ndarray, options: dict, tol: float) -> tuple[np.ndarray, float]:
    X = np.concatenate([x[None], negatives])
    svm = LinearSVC(
        C=options["C"],
        loss=options.get("loss", "hinge"),
        class_weight={1: options.get("positive_weight", 1.0), 0: 1.0},
        tol=tol,
        max_iter=20_000,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        svm.fit(X, np.arange(len(X)) == 0)
    return svm.coef_[0], float(svm.intercept_[0])


def objective(w: np.ndarray, b: float, x: np.ndarray, negatives: np.ndarray, options: dict) -> float:
    """The criterion over all negatives, in float64."""
    w = np.asarray(w, dtype=np.float64)
    power = 2 if options.get("loss") == "squared_hinge" else 1
    parts = [negatives[k : k + 2048].astype(np.float64) @ w for k in range(0, len(negatives), 2048)]
    loss = (np.maximum(1 + np.concatenate(parts) + b, 0) ** power).sum()
    own = options.get("positive_weight", 1.0) * max(1 - x.astype(np.float64) @ w - b, 0.0) ** power
    return float(w @ w / 2 + b**2 / 2 + options["C"] * (own + loss))


def best_of(work, n: int = 7) -> float:
    seconds = []
    for _ in range(n):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


if __name__ == "__main__":
    main()
