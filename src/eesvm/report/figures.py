"""Pictures of a calibration: loss and bound, thresholds among scores, precision and recall, coverage.

In: plain arrays and results. Out: matplotlib `Figure` objects. Matplotlib is imported when a picture is drawn, without
pyplot: no window, no global state, no effect on other plots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import FloatArray
from eesvm.calibration.problem import CalibrationProblem
from eesvm.metrics import ClassReport, DetectionReport, average_precision, precision_recall_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

    from eesvm.calibration.frontier import RecallFrontier

# Okabe and Ito's palette, which stays apart for colour-blind readers.
_BLUE, _ORANGE, _GREEN, _RED, _SKY, _PINK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
_INK, _GREY, _PALE = "#222222", "#767676", "#D9D9D9"
_LINES = ((_BLUE, "-"), (_RED, "-"), (_GREEN, "--"), (_ORANGE, "-."), (_PINK, ":"), (_SKY, "--"), (_INK, ":"))


def loss_and_bound(
    history: Sequence[tuple[float, float, float]],
    status: str = "",
    seconds: float | None = None,
    is_recall: bool = False,
    what: str = "",
) -> Figure:
    """Best loss and proven lower bound over time.

    Parameters
    ----------
    history : (seconds, loss, lower bound) of each improvement, as `CalibrationResult.history`.
    status : of the result, for the title.
    seconds : when the search ended. Default: at the last entry of the history.
    is_recall : the history is of a search for recall; what is plotted is the share of the positives left out.
    what : begins the title, where the search is not all that made the thresholds.
    """
    figure, axes = _canvas()
    points = np.array(history, dtype=float).reshape(-1, 3)
    axes.set_xlabel("seconds")
    axes.set_ylabel("positives left out (share)" if is_recall else "false positives (weight of accepted negatives)")
    if len(points) == 0:
        axes.text(0.5, 0.5, "no solution was recorded", transform=axes.transAxes, ha="center", color=_GREY)
        axes.set_title("Loss and lower bound over time", loc="left", fontsize=11)
        return figure
    end = max(points[-1, 0], seconds or 0.0)
    times, losses, bounds = np.append(points[:, 0], end), *(np.append(points[:, k], points[-1, k]) for k in (1, 2))
    if end > 20 * times[0] > 0:  # most of the story is in the first moments
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_xlim(0, 1.05 * end if end > times[0] else 2 * end or 1)
    often = max(1, len(times) // 20)
    for values, colour, style, size, label in (
        (losses, _RED, "-", 6, f"{'left out by' if is_recall else 'loss of'} the best thresholds so far"),
        (bounds, _BLUE, "--", 3, "lower bound: no thresholds can do better"),
    ):
        axes.step(times, values, style, where="post", color=colour, marker="o", ms=size, markevery=often, label=label)
    axes.fill_between(times, bounds, losses, step="post", color=_PALE, alpha=0.6, lw=0)
    axes.set_ylim(0, 1.1 * losses.max() or 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    ending = _ending(losses[-1], bounds[-1], status, is_recall)
    axes.set_title(f"{what}: {ending[0].lower()}{ending[1:]}" if what else ending, loc="left", fontsize=11)
    _legend_below(figure, axes)
    return figure


def plot_recall_frontier(frontier: RecallFrontier) -> Figure:
    """Loss and proven lower bound over the share of the positives that may be left out; dots where it was computed."""
    figure, axes = _canvas()
    shares = 1 - frontier.floors
    places = _percent_axis(axes, shares)
    losses, bounds = frontier.losses, frontier.lower_bounds
    for values, colour, style, size, label in (
        (losses, _RED, "-", 6, "loss of the best thresholds found"),
        (bounds, _BLUE, "--", 3, "lower bound: no thresholds can do better"),
    ):
        dots = size if len(shares) <= 15 else size / 2
        axes.plot(shares, values, style, color=colour, marker="o", ms=dots, lw=1.8, label=label)
    axes.fill_between(shares, bounds, losses, color=_PALE, alpha=0.6, lw=0)
    for k in _apart(places):
        text, point = f"{losses[k]:,.10g}", (shares[k], losses[k])
        axes.annotate(text, point, (5, 5), textcoords="offset points", fontsize=8, color=_INK)
    axes.set_ylim(0, 1.1 * losses.max() or 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    axes.set_xlabel("positives that may be left out")
    axes.set_ylabel("false positives (weight of accepted negatives)")
    axes.set_title(_frontier_title(frontier), loc="left", fontsize=11)
    _legend_below(figure, axes)
    return figure


def thresholds_and_scores(
    problem: CalibrationProblem,
    thresholds: ArrayLike,
    names: Sequence[str] | None = None,
    max_exemplars: int = 12,
) -> Figure:
    """Where each threshold sits among the scores of the negatives and of the positives, one line per exemplar.

    Parameters
    ----------
    problem : the scores.
    thresholds : (E,) numbers, +inf for a redundant exemplar.
    names : (E,) of the exemplars. Default: they are numbered.
    max_exemplars : how many lines to draw at most.
    """
    limits = np.asarray(thresholds)
    assignment = problem.assign(limits)
    counts = np.bincount(assignment[assignment >= 0], minlength=problem.n_exemplars)
    chosen = _spread(np.lexsort((-counts, limits == np.inf)), max_exemplars)
    figure, axes = _canvas(height=1.6 + 0.42 * len(chosen))
    for line, exemplar in enumerate(chosen):
        _score_line(axes, line, problem, limits, assignment, int(exemplar))
    labels = [f"exemplar_{j}" for j in range(problem.n_exemplars)] if names is None else names
    axes.set_yticks(range(len(chosen)), [_short(labels[j]) for j in chosen])
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("score under the detector")
    shown = (
        ""
        if len(chosen) == problem.n_exemplars
        else f" ({len(chosen)} of {problem.n_exemplars} detectors, busiest first)"
    )
    axes.set_title(f"Thresholds among the scores{shown}", loc="left", fontsize=11)
    _score_legend(figure)
    return figure


def precision_recall_curves(
    labels: ArrayLike,
    scores: Mapping[str, ArrayLike],
    decisions: Mapping[str, ArrayLike] | None = None,
    title: str = "Precision and recall of windows",
) -> Figure:
    """One curve per named row of window scores.

    Parameters
    ----------
    labels : (n,) 1 for positive windows; everything else is negative.
    scores : (n,) scores of the windows, by the name of the curve.
    decisions : (n,) booleans by the same names: a dot shows where these decisions put the detector.
    title : of the figure.
    """
    figure, axes = _canvas()
    is_positive = np.asarray(labels) == 1
    for k, (name, values) in enumerate(scores.items()):
        colour, style = _LINES[k % len(_LINES)]
        precision, recall, _ = precision_recall_curve(is_positive, values)
        precision, recall = np.append(precision[0], precision), np.append(0.0, recall)
        average = average_precision(is_positive, values)
        label = f"{name} (average precision {100 * average:.1f})"
        axes.plot(recall, precision, color=colour, ls=style, lw=1.8, label=label)
        if decisions is not None and name in decisions:
            accepted = np.asarray(decisions[name], dtype=bool)
            hits = (accepted & is_positive).sum()
            point = hits / max(1, is_positive.sum()), hits / max(1, accepted.sum())
            axes.plot(*point, "o", color=colour, ms=7, mec="white")
    axes.set(xlim=(0, 1.01), ylim=(0, 1.03), xlabel="recall", ylabel="precision")
    axes.legend(loc="lower left", frameon=True, framealpha=0.9, edgecolor="none", fontsize=9)
    axes.set_title(title + (" (dots: where the thresholds cut)" if decisions else ""), loc="left", fontsize=11)
    return figure


def detection_curves(report: DetectionReport) -> Figure:
    """Precision over recall of each class; of many classes only the three best and the three worst are named.

    The curve is the monotone one that average precision is about: at each recall the highest precision there or
    beyond. Thin behind those that are named are the precisions themselves. COCO's curves are those of its lowest IoU.
    """
    from matplotlib.collections import LineCollection

    figure, axes = _canvas()
    drawn = [found for found in report.classes if found.n_objects]
    ranked = sorted(drawn, key=lambda found: -found.average_precision)
    named = ranked if len(ranked) <= len(_LINES) else [*ranked[:3], *ranked[-3:]]
    for found in drawn:
        if found not in named:
            axes.plot(*_monotone(found), ds="steps-pre", color=_PALE, lw=1.0, zorder=1)
    for (colour, style), found in zip(_LINES, named, strict=False):
        label = f"{_short(found.class_name)} ({_precision_text(report, found)})"
        axes.plot(*_monotone(found), ds="steps-pre", color=colour, ls=style, lw=1.8, label=label, zorder=3)
        if report.protocol != "coco":  # whose code gives the monotone curve only
            raw = np.stack([found.curve.recall, found.curve.precision], axis=1)
            axes.add_collection(LineCollection([raw], colors=colour, linewidths=0.7, alpha=0.4, zorder=2))
    axes.set(xlim=(0, 1.01), ylim=(0, 1.03), xlabel="recall", ylabel="precision")
    if not drawn:
        axes.text(0.5, 0.5, "there is no object to find", transform=axes.transAxes, ha="center", color=_GREY)
        return figure
    many = "" if named is ranked else f"\n({len(drawn)} classes, the best and the worst are named)"
    axes.set_title(_detection_title(report) + many, loc="left", fontsize=11)
    _legend_below(figure, axes)
    return figure


def coverage(assignment: ArrayLike, active: ArrayLike) -> Figure:
    """How many positives each exemplar is responsible for, and how many exemplars are redundant.

    Parameters
    ----------
    assignment : (P,) the exemplar that is responsible for each positive, -1 for none.
    active : (E,) booleans, False for redundant exemplars.
    """
    is_active = np.asarray(active, dtype=bool)
    owners = np.asarray(assignment)
    counts = np.bincount(owners[owners >= 0], minlength=len(is_active))
    order = np.lexsort((-counts, ~is_active))
    n_redundant, n_left_out = int((~is_active).sum()), int((owners < 0).sum())
    n_busy = int((counts > 0).sum())
    figure, axes = _canvas()
    axes.bar(np.arange(len(order)) + 1, counts[order], width=1.0 if len(order) > 60 else 0.85, color=_BLUE)
    height = max(1, int(counts.max())) * 1.15
    axes.set(xlim=(0.2, len(order) + 0.8), ylim=(0, height))
    for first, n, colour, text in (
        (n_busy, len(order) - n_busy - n_redundant, _SKY, "accept some, win none"),
        (len(order) - n_redundant, n_redundant, _GREY, "redundant"),
    ):
        if n:
            axes.axvspan(first + 0.5, first + n + 0.5, color=colour, alpha=0.25, lw=0)
            level = 0.98 if colour == _SKY else 0.88  # the texts of two narrow bands must not meet
            right = first + n + 0.5
            axes.text(right, level * height, f"{n} {text} ", ha="right", va="top", color=_INK, fontsize=9)
    axes.yaxis.set_major_locator(_whole_numbers())
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.set_xlabel("detectors, busiest first")
    axes.set_ylabel("positives it is responsible for")
    left_out = f", {n_left_out:,} positives are left out" if n_left_out else ""
    title = f"{n_busy:,} of {len(order):,} detectors are responsible for the positives{left_out}"
    axes.set_title(title, loc="left", fontsize=11)
    return figure


def _canvas(height: float = 4.2) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_PALE, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9)
    return figure, axes


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)


def _monotone(found: ClassReport) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Recall, and the highest precision at that recall or beyond, as steps from 0; straight down where recall ends."""
    curve = found.curve
    if not len(curve.recall):
        return np.zeros(1), np.zeros(1)
    highest = np.maximum.accumulate(curve.precision[::-1])[::-1]
    recall = np.concatenate([[0.0], curve.recall, curve.recall[-1:]])
    return recall, np.concatenate([highest[:1], highest, [0.0]])


def _precision_text(report: DetectionReport, found: ClassReport) -> str:
    """Average precision of the curve, and that of COCO, which is a mean over other curves, too."""
    average = f"{100 * found.average_precision:.1f}"
    return f"AP {average}" if report.iou is not None else f"AP50 {100 * found.values['AP50']:.1f}, COCO AP {average}"


def _detection_title(report: DetectionReport) -> str:
    """Whose curves these are, and the mean over the classes."""
    average = f"{100 * report.mean_average_precision:.1f}"
    if report.iou is not None:
        return f"{report.protocol}, IoU {report.iou:g}: mean average precision {average}"
    at_half = f"{100 * report.values['AP50']:.1f}"
    return f"coco: curves at IoU 0.5, mean AP50 {at_half}\nCOCO AP, the mean over IoU 0.5 to 0.95: {average}"


def _whole_numbers() -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=8, integer=True, min_n_ticks=1)


def _ending(loss: float, bound: float, status: str, is_recall: bool = False) -> str:
    """The last state of a search as a title."""
    what, loss, bound = ("Left out: share", round(loss, 5), round(bound, 5)) if is_recall else ("Loss", loss, bound)
    if bound >= loss:
        return f"{what} {loss:,.10g}, proven optimal"
    gap = 100 * (loss - bound) / loss
    ended = {
        "time_limit": ", stopped by the time limit",
        "node_limit": ", stopped by the node limit",
        "gap_reached": ", as near as was asked for",
    }.get(status, "")
    return f"{what} {loss:,.10g}, at least {bound:,.10g} is unavoidable (gap {gap:.1f} %){ended}"


def _frontier_title(frontier: RecallFrontier) -> str:
    """The share that says most: the smallest part of the positives that provably costs a tenth of the loss or more."""
    telling = [owed for owed in frontier.share_of_loss_owed_to_hardest if owed.low >= 0.1]
    if not telling:
        return "Loss and lower bound over recall floors"
    owed = telling[0]
    low, high = f"{100 * owed.low:.0f}", f"{100 * owed.high:.0f}"
    share = low if low == high else f"{low} to {high}"
    whole = f"the loss at recall {frontier.floors[0]:g}"
    return f"The hardest {100 * owed.share:g} % of the positives cause {share} % of {whole}"


def _percent_axis(axes: Axes, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares in per cent on a logarithmic axis that has a place for 0; returns where each share is, from 0 to 1."""
    above_zero = shares[shares > 0]
    smallest = float(above_zero.min()) if len(above_zero) else 0.01
    axes.set_xscale("symlog", linthresh=smallest, linscale=0.6)
    # One unit of the transformed axis is a decade; below the smallest share it is linear.
    places = np.where(shares > 0, 0.6 + np.log10(np.maximum(shares, smallest) / smallest), 0.0)
    places = (places - places.min()) / (np.ptp(places) or 1.0)
    ticks = shares[_apart(places)]
    axes.set_xticks(ticks, [f"{100 * share:.3g} %" for share in ticks])
    axes.set_xticks([], minor=True)
    if len(shares) == 1:
        axes.set_xlim(shares[0] / 2 - smallest / 2, 2 * shares[0] + smallest)
    return places


def _apart(places: NDArray[np.float64], least: float = 0.07) -> list[int]:
    """Indices of increasing `places` that leave room for a text each, the first and the last among them."""
    kept = [0]
    for k in range(1, len(places)):
        if places[k] - places[kept[-1]] >= least and (k == len(places) - 1 or places[-1] - places[k] >= least):
            kept.append(k)
    return kept


def _spread(order: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """`n` of the exemplars in `order`, from the first to the last of them, more of the first."""
    if len(order) <= n:
        return order
    steps = np.arange(n)
    return order[np.maximum(steps, (steps / max(1, n - 1)) ** 2 * (len(order) - 1)).round().astype(int)]


def _score_line(
    axes: Axes, line: int, problem: CalibrationProblem, limits: FloatArray, assignment: NDArray[np.intp], exemplar: int
) -> None:
    """One exemplar: a band of negatives, ticks of the highest of them, dots of positives, a bar for the threshold."""
    negatives = np.asarray(problem.negative_scores[:, exemplar], dtype=float)
    positives = np.asarray(problem.positive_scores[:, exemplar], dtype=float)
    low, lower, median, upper, high = np.quantile(negatives, (0.0, 0.25, 0.5, 0.75, 1.0))
    axes.plot([low, high], [line + 0.16] * 2, color=_PALE, lw=4, solid_capstyle="butt", zorder=1)
    axes.plot([lower, upper], [line + 0.16] * 2, color=_GREY, lw=4, solid_capstyle="butt", zorder=2)
    axes.plot([median], [line + 0.16], "|", color="white", ms=4, zorder=3)
    accepted = negatives[negatives > limits[exemplar]]
    axes.plot(accepted, np.full(len(accepted), line + 0.16), "|", color=_RED, ms=6, mew=1.0, zorder=3)
    own = assignment == exemplar
    axes.plot(positives[~own], np.full((~own).sum(), line - 0.14), ".", color=_SKY, ms=2.5, alpha=0.5, zorder=2)
    axes.plot(positives[own], np.full(own.sum(), line - 0.14), ".", color=_BLUE, ms=6, zorder=4)
    if limits[exemplar] < np.inf:
        axes.plot([limits[exemplar]] * 2, [line - 0.34, line + 0.34], color=_INK, lw=2, zorder=5)
    else:
        place = max(high, positives.max())
        axes.annotate("redundant", (place, line), (6, 0), textcoords="offset points", va="center", fontsize=8)


def _score_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    marks: dict[str, dict[str, Any]] = {
        "threshold": {"color": _INK, "lw": 2},
        "positive it is responsible for": {"color": _BLUE, "marker": ".", "ms": 8, "ls": ""},
        "other positive": {"color": _SKY, "marker": ".", "ms": 4, "ls": ""},
        "negatives: all, middle half": {"color": _GREY, "lw": 4},
        "negative it accepts": {"color": _RED, "marker": "|", "ms": 7, "ls": ""},
    }
    handles = [Line2D([], [], label=label, **style) for label, style in marks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def _short(name: str) -> str:
    return name if len(name) <= 22 else name[:10] + "…" + name[-11:]
