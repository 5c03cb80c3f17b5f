"""Drawings of windows, candidate thresholds and search trees, as in figures 1 to 6 of the paper.

In: an image with boxes; scores; a tiny problem and its `SmallTree`s. Out: matplotlib `Figure`s, which
`png_bytes` turns into PNG. Positives are blue plus signs above the axis of scores, negatives red minus signs
below it, and thresholds are lines across; trees are those of `trees`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.problem import CalibrationProblem
from eesvm.experiments.figures.trees import BLUE, GREEN, GREY, INK, RED, YELLOW, draw_tree, inch_axes, tree_extent
from eesvm.experiments.search_study.small_trees import SmallTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 200
_MARGIN = 0.15  # inches around everything
_STRIP = (3.4, 1.25)  # width and height of one E-SVM's scores, in inches
_LEGEND = 5.4  # width of the legend of windows
_NAME = 0.3  # of them for its name

_Floats = NDArray[np.floating]


def windows_figure(image: NDArray[np.uint8], positives: _Floats, negatives: _Floats, truth: _Floats) -> Figure:
    """Boxes (n, 4) of positive windows in green, of negative ones in red and dashed, of the exemplar in yellow."""
    height, width = image.shape[:2]
    wide = min(_LEGEND, 5.5 * width / height)
    tall = max(0.6, wide * height / width)
    figure = _figure(_LEGEND + 2 * _MARGIN, tall + 0.4 + 2 * _MARGIN, dpi=150)
    axes = inch_axes(figure, (_MARGIN + (_LEGEND - wide) / 2, 0.4 + _MARGIN), (wide, tall))
    axes.imshow(image, interpolation="nearest" if max(height, width) < 100 else "antialiased", aspect="auto")
    axes.set(xlim=(0, width), ylim=(height, 0))
    for boxes, colour, style, line, name in (
        (negatives, RED, (0, (3, 1.5)), 1.8, r"negative window ($\mathcal{N}$)"),
        (positives, GREEN, "-", 1.8, r"positive window ($\mathcal{P}$)"),
        (truth, YELLOW, "-", 3.0, "ground truth of the E-SVM"),
    ):
        _draw_boxes(axes, boxes, colour, style, line, name)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="lower center", ncols=3, frameon=False, fontsize=9, columnspacing=1.2)
    return figure


def thresholds_figure(
    positives: _Floats, negatives: _Floats, candidates: _Floats, stretch: tuple[float, float]
) -> Figure:
    """All scores under one E-SVM above; below, enlarged, those of a stretch with the candidates among them."""
    figure = _figure(7.2, 2.9)
    whole = inch_axes(figure, (_MARGIN, 2.1), (6.9, 0.5))
    part = inch_axes(figure, (_MARGIN, 0.5), (6.9, 0.95))
    low, high = stretch
    _score_axis(whole, np.concatenate([positives, negatives]))
    _score_axis(part, np.array(stretch), with_numbers=True)
    for values, sign, colour, y in ((positives, "+", BLUE, 0.3), (negatives, "-", RED, -0.3)):
        whole.plot(values, np.full(len(values), 2 * y), "|", color=colour, ms=10, mew=0.6)
        _signs(part, values[(values >= low) & (values <= high)], sign, colour, y, size=11)
    for number, threshold in enumerate(candidates, start=1):
        if low < threshold < high:
            _threshold(part, float(threshold), rf"$\theta^{{{number}}}$", reach=0.85)
    whole.axvspan(*part.get_xlim(), color=YELLOW, alpha=0.6, lw=0, zorder=0)
    for x, y, text, colour in (
        (0.0, 2.75, "all windows", GREY),
        (1.0, 2.75, "+ positive", BLUE),
        (1.0, 2.0, "\N{MINUS SIGN} negative", RED),
        (0.0, 1.8, "the yellow part, enlarged", GREY),
    ):
        figure.text(
            (_MARGIN + 6.9 * x) / 7.2, y / 2.9, text, ha="right" if x else "left", va="center", fontsize=9, color=colour
        )
    return figure


def pipeline_figure(problem: CalibrationProblem, tree: SmallTree) -> Figure:
    """Left the scores as numbers, in the middle the candidate thresholds, right the tree of all solutions."""
    wide, height = tree_extent(tree)
    table = 0.5 + 0.65 * problem.n_exemplars
    strip = (_STRIP[0], min(1.8, height / problem.n_exemplars))
    lefts = np.cumsum([_MARGIN, table + 0.45, strip[0] + 0.4]).tolist()
    figure = _figure(lefts[-1] + wide + _MARGIN, height + 0.35 + 2 * _MARGIN)
    _table(figure, problem, (lefts[0], _MARGIN), (table, height))
    _strips(figure, problem, (lefts[1], _MARGIN + height), strip)
    draw_tree(inch_axes(figure, (lefts[2], _MARGIN), (wide, height)), problem, tree)
    titles = ("scores", "candidate thresholds", "search tree")
    for left, width, title in zip(lefts, (table, strip[0], wide), titles, strict=True):
        _text_at(figure, left + width / 2, height + _MARGIN + 0.2, title)
    return figure


def tree_figure(problem: CalibrationProblem, tree: SmallTree, with_sets: bool = False) -> Figure:
    """Left the scores with their thresholds, right the tree; `with_sets` writes the false positives into the nodes."""
    wide, tall = tree_extent(tree, with_sets, with_names=True)
    strips = problem.n_exemplars * _STRIP[1]
    height = max(tall, strips)
    left = _MARGIN + _STRIP[0] + 0.4
    figure = _figure(left + wide + _MARGIN, height + 2 * _MARGIN)
    _strips(figure, problem, (_MARGIN, _MARGIN + (height + strips) / 2), _STRIP)
    axes = inch_axes(figure, (left, _MARGIN + (height - tall) / 2), (wide, tall))
    draw_tree(axes, problem, tree, with_sets, with_names=True)
    return figure


def orders_figure(problem: CalibrationProblem, trees: Sequence[SmallTree], labels: Sequence[Sequence[str]]) -> Figure:
    """Above the scores, below one tree for each order of the positives; `labels` say what stands beside each level."""
    beside = 0.85
    extents = [tree_extent(tree, with_names=True, beside=beside) for tree in trees]
    tall = max(height for _, height in extents)
    lefts = np.cumsum([_MARGIN, *(wide + 0.35 for wide, _ in extents)])
    width = max(float(lefts[-1]) - 0.35, problem.n_exemplars * (_STRIP[0] + 0.4)) + _MARGIN
    figure = _figure(width, tall + _STRIP[1] + 0.55 + 2 * _MARGIN)
    gap = (width - problem.n_exemplars * _STRIP[0]) / (problem.n_exemplars + 1)
    for j in range(problem.n_exemplars):
        left = gap + j * (_STRIP[0] + gap)
        _strip(figure, (left, _MARGIN + tall + 0.55), _STRIP, problem, j)
    for k, (tree, left, (wide, _)) in enumerate(zip(trees, lefts, extents, strict=False)):
        axes = inch_axes(figure, (float(left), _MARGIN), (wide, tall))
        draw_tree(axes, problem, tree, with_names=True, levels=labels[k], beside=beside)
        _text_at(figure, float(left) + (wide + beside) / 2, _MARGIN + tall + 0.25, f"({'abcdef'[k]})")
    return figure


def _figure(width: float, height: float, dpi: int = _DPI) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _text_at(figure: Figure, x: float, y: float, text: str) -> None:
    """A title, at a place in inches."""
    width, height = figure.get_size_inches()
    figure.text(x / width, y / height, text, ha="center", va="center", fontsize=11, color=INK)


def _draw_boxes(axes: Axes, boxes: _Floats, colour: str, style: Any, line: float, name: str) -> None:
    """Frames with a dark rim, so that they are seen on any picture."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    for k, (x1, y1, x2, y2) in enumerate(boxes):
        label = name if k == 0 else None
        frame = Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=colour, ls=style, lw=line, label=label)
        frame.set_path_effects([Stroke(linewidth=line + 1.2, foreground=INK, alpha=0.6), Normal()])
        axes.add_patch(frame)


def _table(figure: Figure, problem: CalibrationProblem, corner: tuple[float, float], size: tuple[float, float]) -> None:
    """The scores as numbers: a line for each window, a column for each E-SVM."""
    width, height = size
    row = min(0.34, height / (1 + problem.n_positives + problem.n_negatives))
    axes = inch_axes(figure, corner, size)
    columns = [width - 0.65 * (problem.n_exemplars - 1 - j) for j in range(problem.n_exemplars)]
    for j, x in enumerate(columns):
        axes.text(x, height - row / 2, f"$e_{{{j + 1}}}$", ha="right", va="center", fontsize=11, color=INK)
    axes.plot([0, width], [height - row] * 2, color=GREY, lw=0.8)
    line = 1
    for scores, sign, colour, name in (
        (problem.positive_scores, "+", BLUE, "p"),
        (problem.negative_scores, "\N{MINUS SIGN}", RED, "n"),
    ):
        for k, values in enumerate(scores, start=1):
            y = height - (line + 0.5) * row
            axes.text(0, y, f"{sign} ${name}_{{{k}}}$", va="center", fontsize=10, color=colour)
            for x, value in zip(columns, values, strict=True):
                text = f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
                axes.text(x, y, text, ha="right", va="center", fontsize=10, color=INK)
            line += 1


def _strips(
    figure: Figure, problem: CalibrationProblem, top_left: tuple[float, float], size: tuple[float, float]
) -> None:
    """The scores of all E-SVMs, one under the other, each of a size in inches."""
    left, top = top_left
    for j in range(problem.n_exemplars):
        _strip(figure, (left, top - (j + 1) * size[1]), size, problem, j)


def _strip(
    figure: Figure,
    corner: tuple[float, float],
    size: tuple[float, float],
    problem: CalibrationProblem,
    exemplar: int,
) -> None:
    """One E-SVM: its windows by name on the axis of scores, and its candidate thresholds."""
    name = inch_axes(figure, corner, (_NAME, size[1]))
    name.text(0, size[1] / 2, f"$e_{{{exemplar + 1}}}$", va="center", fontsize=12, color=INK)
    axes = inch_axes(figure, (corner[0] + _NAME, corner[1]), (size[0] - _NAME, size[1]))
    positives, negatives = problem.positive_scores[:, exemplar], problem.negative_scores[:, exemplar]
    reach = 1.75 * size[1] / _STRIP[1]  # so that signs and names are as far apart in higher strips
    candidates = problem.candidate_thresholds(exemplar)
    _score_axis(axes, np.concatenate([positives, negatives, candidates[np.isfinite(candidates)]]), reach)
    for values, sign, colour, letter, y in ((positives, "+", BLUE, "p", 0.3), (negatives, "-", RED, "n", -0.3)):
        _signs(axes, values, sign, colour, y)
        rows = _rows_of_names(values, np.ptp(axes.get_xlim())) if sign == "-" else np.zeros(len(values))
        for k, (value, row) in enumerate(zip(values, rows, strict=True), start=1):
            name_y = (2.3 + 1.3 * row) * y
            axes.text(value, name_y, f"${letter}_{{{k}}}$", ha="center", va="center", fontsize=9, color=colour)
    edge = axes.get_xlim()[1]
    for k, threshold in enumerate(candidates, start=1):
        _threshold(axes, min(float(threshold), edge), rf"$\theta_{{{exemplar + 1}}}^{{{k}}}$", reach=1.0)


def _rows_of_names(values: _Floats, length: float) -> NDArray[np.float64]:
    """0, or 1 for a name that would touch its left neighbour's on an axis of that length: it goes one row further."""
    rows = np.zeros(len(values))
    order = np.argsort(values, kind="stable")
    for left, right in pairwise(order):
        if values[right] - values[left] < 0.055 * length and rows[left] == 0:
            rows[right] = 1
    return rows


def _score_axis(axes: Axes, scores: _Floats, reach: float = 1.0, with_numbers: bool = False) -> None:
    """A line to put signs on; with numbers there is an axis below it."""
    low, high = float(scores.min()), float(scores.max())
    room = 0.06 * (high - low) or max(abs(high), 1.0) * 0.1
    axes.set(xlim=(low - room, high + 1.5 * room), ylim=(-reach, reach))
    axes.axhline(0, color=GREY, lw=0.9, zorder=0)
    if with_numbers:
        axes.axis("on")
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.set_yticks([])
        axes.tick_params(axis="x", colors=GREY, labelsize=8)
        axes.set_xlabel("score", fontsize=9, color=GREY)


def _signs(axes: Axes, values: _Floats, sign: str, colour: str, y: float, size: float = 8) -> None:
    marker = {"+": "+", "-": "_"}[sign]
    axes.plot(values, np.full(len(values), y), marker, color=colour, ms=size, mew=2.0)


def _threshold(axes: Axes, place: float, name: str, reach: float = 0.8) -> None:
    axes.plot([place] * 2, [-reach, reach], color=INK, lw=1.3, clip_on=False)
    axes.text(place, reach + 0.06, name, ha="center", va="bottom", fontsize=10, color=INK)
