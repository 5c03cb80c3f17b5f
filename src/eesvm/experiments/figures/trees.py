"""Search trees as the paper draws them: a level per positive, an edge per E-SVM, a loss in every node.

In: a `SmallTree` and the problem it belongs to. Out: the tree, drawn into axes whose unit is an inch. The best leaf is
green; a node that was pruned together with what lies below it is red, its edge is crossed out, and the rest is pale. A
leaf has nothing below it, so a leaf that was not better is drawn like any other.
Not here: growing and searching trees (`search_study.small_trees`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eesvm.calibration.problem import CalibrationProblem
from eesvm.experiments.search_study.small_trees import PRUNED, UNSEEN, SmallTree, TreeNode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, as in `figures`.
BLUE, GREEN, RED, YELLOW = "#0072B2", "#009E73", "#D55E00", "#F0E442"
INK, GREY, PALE = "#222222", "#767676", "#D9D9D9"

_LINE = 0.19  # height of a line of text in a node, in inches
_LEVEL = 0.62  # height of the edges between two levels
BESIDE = 0.3  # width of the names of levels

_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.7}  # behind texts that lie over edges


def inch_axes(figure: Figure, corner: tuple[float, float], size: tuple[float, float]) -> Axes:
    """Empty axes of a size in inches at a place in inches, whose data are inches too."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((corner[0] / width, corner[1] / height, size[0] / width, size[1] / height))
    axes.set(xlim=(0, size[0]), ylim=(0, size[1]))
    axes.axis("off")
    return axes


def tree_extent(
    tree: SmallTree, with_sets: bool = False, with_names: bool = False, beside: float = BESIDE
) -> tuple[float, float]:
    """Width and height that a tree needs, in inches; `beside` of the width is for the names of the levels."""
    return _Layout(tree, with_sets, with_names, beside).size


def draw_tree(
    axes: Axes,
    problem: CalibrationProblem,
    tree: SmallTree,
    with_sets: bool = False,
    with_names: bool = False,
    levels: Sequence[str] | None = None,
    beside: float = BESIDE,
) -> None:
    """Draw a tree into axes of `tree_extent`.

    `with_sets` writes the false positives of each node into it, `with_names` its name beside it; `levels` are texts
    for the levels, by default the names of their positives.
    """
    layout = _Layout(tree, with_sets, with_names, beside)
    on_best_path = set(tree.path(tree.best))
    names = [f"$p_{{{positive + 1}}}$" for positive in tree.order] if levels is None else levels
    for level, name in enumerate(names):
        y = (layout.y(level) + layout.y(level + 1)) / 2
        axes.text(0, y, name, ha="left", va="center", fontsize=10, color=BLUE)
    for node in tree.nodes:
        if node.parent is not None:
            _edge(axes, layout, node, node.number in on_best_path)
    for node in tree.nodes:
        _node(axes, layout, problem, node, node.number == tree.best)


class _Layout:
    """Where nodes are, in inches from the lower left corner."""

    def __init__(self, tree: SmallTree, with_sets: bool, with_names: bool, beside: float) -> None:
        self.tree, self.with_sets, self.with_names, self.beside = tree, with_sets, with_names, beside
        n_exemplars = len(tree.nodes[0].thresholds)
        longest = max((len(node.false_positives) for node in tree.nodes), default=0)
        self.node_width = max(0.3 + 0.18 * n_exemplars, 0.5 + 0.17 * longest if with_sets else 0.0)
        self.node_height = _LINE * (3 if with_sets else 2) + 0.06
        self.spacing = self.node_width + (0.28 if with_names else 0.09)
        self.x: dict[int, float] = {}
        self._place(0, 0)
        self.size = (
            beside + self.spacing * len(tree.leaves),
            self.node_height * (tree.depth + 1) + _LEVEL * tree.depth + 0.3,
        )

    def y(self, level: int) -> float:
        """The middle of the nodes of a level; below the last there is room for a word."""
        return self.size[1] - self.node_height / 2 - 0.08 - level * (self.node_height + _LEVEL)

    def _place(self, number: int, n_left: int) -> int:
        """Leaves stand side by side, other nodes above the middle of their children; returns the leaves so far."""
        children = self.tree.nodes[number].children
        if not children:
            self.x[number] = self.beside + self.spacing * (n_left + 0.5)
            return n_left + 1
        for child in children:
            n_left = self._place(child, n_left)
        self.x[number] = (self.x[children[0]] + self.x[children[-1]]) / 2
        return n_left


def _edge(axes: Axes, layout: _Layout, node: TreeNode, is_best: bool) -> None:
    assert node.parent is not None
    assert node.exemplar is not None
    is_pale = node.fate == UNSEEN
    x1, x2 = layout.x[node.parent], layout.x[node.number]
    y1 = layout.y(node.level - 1) - layout.node_height / 2
    y2 = layout.y(node.level) + layout.node_height / 2
    colour = PALE if is_pale else GREEN if is_best else INK
    axes.plot([x1, x2], [y1, y2], color=colour, lw=2.2 if is_best else 1.1, zorder=1, ls="--" if is_pale else "-")
    axes.text(
        (x1 + x2) / 2,
        (y1 + y2) / 2,
        f"$e_{{{node.exemplar + 1}}}$",
        ha="center",
        va="center",
        fontsize=9,
        color=GREY if is_pale else INK,
        bbox=_WHITE,
        zorder=2,
    )
    if _is_cut(node):
        x, y = x1 + 0.82 * (x2 - x1), y1 + 0.82 * (y2 - y1)
        axes.plot([x], [y], "x", color=RED, ms=9, mew=2.4, zorder=3)


def _node(axes: Axes, layout: _Layout, problem: CalibrationProblem, node: TreeNode, is_best: bool) -> None:
    x, y = layout.x[node.number], layout.y(node.level)
    ink = GREY if node.fate == UNSEEN else INK
    _box(axes, layout, node, is_best)
    lines = [rf"$\mathcal{{L}}={node.loss:g}$", _thresholds(problem, node)]
    if layout.with_sets:
        lines.append(_false_positives(node))
    for k, line in enumerate(lines):
        place = y + (len(lines) - 1) * _LINE / 2 - k * _LINE
        size = 10 if k == 0 else 8.5
        axes.text(x, place, line, ha="center", va="center", fontsize=size, color=ink, zorder=5)
    if layout.with_names:
        corner = (x - layout.node_width / 2 - 0.03, y + layout.node_height / 2 - 0.02)
        axes.text(*corner, rf"$\eta_{{{node.number}}}$", ha="right", va="center", fontsize=9, color=GREY, zorder=5)
    if is_best or _is_cut(node):
        text, colour = ("optimum", GREEN) if is_best else (node.fate, RED)
        below = y - layout.node_height / 2 - 0.03
        axes.text(x, below, text, ha="center", va="top", fontsize=8.5, color=colour, bbox=_WHITE, zorder=5)


def _is_cut(node: TreeNode) -> bool:
    """Whether it was pruned with something below it."""
    return node.fate in PRUNED and bool(node.children)


def _box(axes: Axes, layout: _Layout, node: TreeNode, is_best: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y, width, height = layout.x[node.number], layout.y(node.level), layout.node_width, layout.node_height
    is_cut, is_pale = _is_cut(node), node.fate == UNSEEN
    edge = PALE if is_pale else GREEN if is_best else RED if is_cut else INK
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2 + 0.03, y - height / 2 + 0.03),
            width - 0.06,
            height - 0.06,
            boxstyle="round,pad=0.03,rounding_size=0.08",
            facecolor="#DDF2EA" if is_best else "white",
            edgecolor=edge,
            linewidth=2.0 if is_best or is_cut else 1.0,
            linestyle="--" if is_pale else "-",
            zorder=4,
        )
    )


def _thresholds(problem: CalibrationProblem, node: TreeNode) -> str:
    """Which candidate each E-SVM has, as the paper writes it."""
    parts = []
    for j, threshold in enumerate(node.thresholds):
        number = problem.candidate_thresholds(j).tolist().index(threshold) + 1
        parts.append(rf"\theta_{{{j + 1}}}^{{{number}}}")
    return "$" + r"\,".join(parts) + "$"


def _false_positives(node: TreeNode) -> str:
    names = [f"n_{{{k + 1}}}" for k in sorted(node.false_positives)]
    return rf"$\xi=\{{{','.join(names)}\}}$" if names else r"$\xi=\emptyset$"
