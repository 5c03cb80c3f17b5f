"""The learning curves as a picture.

In: the epochs of a training. Out: a matplotlib `Figure`: the loss of training and held-out windows, and below it what
share of the held-out windows gets its class and how well each class is ranked. The epoch whose weights were kept is
marked. Matplotlib is imported when the picture is drawn, without pyplot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which stays apart for colour-blind readers.
_BLUE, _RED, _GREEN, _INK, _GREY, _PALE = "#0072B2", "#D55E00", "#009E73", "#222222", "#767676", "#D9D9D9"


def learning_curves(history: Sequence[Mapping[str, Any]], best_epoch: int, title: str = "") -> Figure:
    """Loss, accuracy and average precision over the epochs, as the card holds them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.6), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _draw(upper, history, (("loss", "training windows", _RED, "-"), ("held_out_loss", "held-out windows", _BLUE, "--")))
    _draw(
        lower,
        history,
        (
            ("held_out_ap", "average precision, mean of the classes", _BLUE, "--"),
            ("held_out_accuracy", "share with the right class", _GREEN, "-."),
        ),
    )
    upper.set_ylabel("loss (cross-entropy)")
    upper.set_ylim(bottom=0)
    lower.set_ylabel("held-out windows, %")
    lower.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")
    lower.set_xlabel("epoch (0: before training)")
    for axes in (upper, lower):
        axes.axvline(best_epoch, color=_GREY, lw=1, ls=":", zorder=1)
        axes.legend(frameon=False, fontsize=9)
    upper.set_title(f"{title or 'Fine-tuning'}: the weights of epoch {best_epoch} are kept", loc="left", fontsize=11)
    return figure


def _draw(axes: Axes, history: Sequence[Mapping[str, Any]], lines: Sequence[tuple[str, str, str, str]]) -> None:
    from matplotlib.ticker import MaxNLocator

    for name, label, colour, style in lines:
        points = [(epoch["number"], epoch[name]) for epoch in history if epoch[name] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, ls=style, marker="o", ms=4, lw=1.6, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_PALE, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9)
