"""Pictures for bench_solver: loss and bound over time, times of two methods, growth with size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

# Okabe and Ito's palette, as in the figures of the package.
BLUE, ORANGE, GREEN, RED, SKY, PINK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
INK, GREY, PALE = "#222222", "#767676", "#D9D9D9"
COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, INK)

History = Sequence[Sequence[float]]  # (seconds, loss, bound)


@dataclass(frozen=True)
class Panel:
    """One table: the history of the exact search, what it ended with, and what else is known."""

    title: str
    history: History
    seconds: float
    other: History = ()  # of Algorithm 1
    other_seconds: float = 0.0
    best_known: float | None = None


@dataclass(frozen=True)
class Pair:
    """Seconds of two methods on one table."""

    name: str  # gives the colour
    kind: str  # gives the mark
    exact: float
    other: float
    is_exact_done: bool
    is_other_done: bool


def histories(panels: Sequence[Panel]) -> Figure:
    """Small panels of loss and bound over time, each near its own final loss."""
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure, grid = _canvas(n_rows, n_columns, (5.0 * n_columns, 0.7 + 2.3 * n_rows))
    for axes, panel in zip(grid, panels, strict=False):
        _history_panel(axes, panel)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(panels) - n_columns) : len(panels)]:
        axes.set_xlabel("seconds")
    legend: dict[str, object] = {}
    for axes in grid[: len(panels)]:
        legend |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def times(pairs: Sequence[Pair], other_name: str) -> Figure:
    """Seconds of the exact search against those of another method; arrows where one of them had to stop."""
    figure, (axes,) = _canvas(1, 1, (7.2, 5.4))
    colours = dict(zip(dict.fromkeys(pair.name for pair in pairs), COLOURS, strict=False))
    marks = dict(zip(dict.fromkeys(pair.kind for pair in pairs), "osD", strict=False))
    values = np.array([(pair.exact, pair.other) for pair in pairs])
    low, high = 0.6 * values.min(axis=0), 1.8 * values.max(axis=0)
    low, high = np.minimum(low, low.max()), np.maximum(high, high[0])
    line = np.geomspace(min(low) / 30, 30 * max(high), 200)
    for factor, style, text in ((1, "-", "as fast"), (20, "--", "20 times faster")):
        axes.plot(line, factor * line, style, color=GREY, lw=1, zorder=1, label=text)
    axes.plot(2 * line + 1, line, ":", color=GREY, lw=1, zorder=1, label="twice the time, and a second")
    for name, colour in colours.items():
        axes.plot([], [], "-", color=colour, lw=5, label=name)
    for kind, mark in marks.items():
        axes.plot([], [], mark, color=INK, ms=6, label=kind)
    for pair in pairs:
        colour = colours[pair.name]
        face = colour if pair.is_exact_done else "white"
        axes.plot(pair.exact, pair.other, marks[pair.kind], color=colour, mfc=face, ms=6, mew=1.2, alpha=0.85, zorder=3)
        if not pair.is_other_done:
            axes.annotate(
                "",
                (pair.exact, pair.other),
                (0, 16),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<-", "color": colour, "lw": 1.0, "shrinkB": 3},
                zorder=2,
            )
    axes.set(xscale="log", yscale="log", xlim=(low[0], high[0]), ylim=(low[1], 1.6 * high[1]))
    axes.set(xlabel="seconds, exact", ylabel=f"seconds, {other_name}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    if not all(pair.is_other_done for pair in pairs):
        axes.plot([], [], ls="", marker=r"$\uparrow$", color=INK, ms=9, label=f"{other_name} stopped by its limit")
    if not all(pair.is_exact_done for pair in pairs):
        axes.plot([], [], "o", color=INK, mfc="white", ms=6, label="exact stopped by its limit")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def growth(lines: dict[str, Sequence[tuple[int, float, bool, float]]]) -> Figure:
    """Per family (exemplars, seconds, whether proven, bytes): time and memory over size."""
    figure, (time_axes, memory_axes) = _canvas(1, 2, (9.6, 4.2))
    for (family, points), (colour, mark) in zip(lines.items(), ((GREEN, "o"), (ORANGE, "s"), (PINK, "D")), strict=True):
        sizes, seconds, is_done, peaks = (np.array(column) for column in zip(*points, strict=True))
        for axes, values in ((time_axes, seconds), (memory_axes, peaks / 2**20)):
            axes.plot(sizes, values, "-", color=colour, lw=1.2, zorder=2)
            for done, face in ((True, colour), (False, "white")):
                chosen = is_done == done
                axes.plot(sizes[chosen], values[chosen], mark, color=colour, mfc=face, ms=7, mew=1.2, zorder=3)
        time_axes.plot([], [], mark, ls="-", color=colour, label=family.replace("_", "-"))
    sizes = sorted({point[0] for points in lines.values() for point in points})
    for axes, label in ((time_axes, "seconds until proven"), (memory_axes, "peak memory, MiB")):
        axes.set(xscale="log", xlabel="exemplars (positives and negatives in proportion)", ylabel=label)
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.xaxis.minorticks_off()
    time_axes.set_yscale("log")
    time_axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    memory_axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    memory_axes.set_ylim(0)
    time_axes.plot([], [], "o", color=GREY, mfc="white", ls="", label="stopped by the limit")
    handles, labels = time_axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def frontiers(curves: Sequence[tuple[str, Sequence[tuple[float, float, float]]]]) -> Figure:
    """Per table (recall floor, loss, bound): both over the share of positives that may be left out."""
    figure, grid = _canvas(1, len(curves), (4.2 * len(curves), 3.4))
    for axes, (title, points) in zip(grid, curves, strict=True):
        floors, losses, bounds = (np.array(column) for column in zip(*points, strict=True))
        places = np.arange(len(floors))
        axes.plot(places, losses, "o-", color=RED, ms=5, label="loss")
        axes.plot(places, bounds, "o-", color=BLUE, ms=4, label="bound")
        axes.fill_between(places, bounds, losses, color=PALE, alpha=0.6, lw=0)
        axes.set_xticks(places, [f"{100 * (1 - floor):.3g} %" for floor in floors])
        axes.set_ylim(0, 1.08 * losses.max() or 1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("positives that may be left out")
        axes.set_title(title, loc="left", fontsize=9.5)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _history_panel(axes: Axes, panel: Panel) -> None:
    times, losses, bounds = _until(panel.history, panel.seconds)
    axes.step(times, losses, where="post", color=RED, lw=1.6, label="loss, exact")
    axes.step(times, bounds, where="post", color=BLUE, lw=1.6, label="bound, exact")
    axes.fill_between(times, bounds, losses, step="post", color=PALE, alpha=0.6, lw=0)
    top = losses[0]
    if len(panel.other):
        other_times, other_losses, _ = _until(panel.other, panel.other_seconds)
        axes.step(other_times, other_losses, "-.", where="post", color=ORANGE, lw=1.3, label="loss, Algorithm 1")
        top = max(top, other_losses[-1])
    if panel.best_known is not None:
        axes.axhline(panel.best_known, color=INK, ls=":", lw=1, label="best loss known before")
    last, proven = losses[-1], bounds[-1]
    axes.plot(times[-1], last, "o", color=RED, ms=4)
    axes.plot(times[-1], proven, "o", color=BLUE, ms=3)
    low = max(0.0, min(proven - 0.5 * (last - proven), 0.8 * last))
    high = min(top, 1.3 * last) if last else top
    margin = 0.08 * (high - low) or 1
    axes.set_ylim(low - (margin if low else 0), high + margin)
    _log_seconds(axes, times[-1] / times[0])
    axes.yaxis.set_major_locator(_whole_numbers())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ended = "proven" if proven >= last else f"gap {100 * (last - proven) / last:.2g} %"
    axes.set_title(f"{panel.title}: {last:,.0f}, {ended}", loc="left", fontsize=9.5)


def _log_seconds(axes: Axes, span: float) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 100 else (1.0,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _whole_numbers() -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=5, integer=True, min_n_ticks=1)


def _until(history: History, seconds: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, losses and bounds, held until the search ended."""
    points = np.array(history, dtype=float).reshape(-1, 3)
    end = max(seconds, points[-1, 0])
    return np.append(points[:, 0], end), np.append(points[:, 1], points[-1, 1]), np.append(points[:, 2], points[-1, 2])


def _canvas(n_rows: int, n_columns: int, inches: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for axes in grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=PALE, lw=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(colors=INK, labelsize=9)
    return figure, grid
