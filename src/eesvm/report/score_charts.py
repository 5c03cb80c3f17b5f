"""Charts of a score table as SVG texts, in the classes of the report's style: bars, histograms, a frontier, a map.

In: counts and curves. Out: SVG elements; every text is escaped.
"""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from eesvm._support.amounts import amount, percent
from eesvm.calibration.frontier import RecallFrontier
from eesvm.report.score_facts import Detector

_BAR = 120  # pixels of the longest

LEGEND = (
    '<ul class="legend"><li><svg viewBox="0 0 26 10"><rect width="26" height="10" class="bar-positive"/></svg>'
    'positives</li><li><svg viewBox="0 0 26 10"><rect width="26" height="10" class="bar-negative"/></svg>negatives, '
    'downwards</li><li><svg viewBox="0 0 26 10"><line x1="13" x2="13" y2="10" class="threshold"/></svg>threshold: what '
    "is right of it is accepted</li></ul>"
)


def bar(count: int, alone: int, most: int, kind: str) -> str:
    """A bar of `count`, of which `alone` is dark."""
    long, dark = (round(_BAR * each / most, 1) for each in (count, alone))
    return (
        f'<svg class="bar" viewBox="0 0 {_BAR} 12" aria-hidden="true"><rect width="{long}" height="12" '
        f'class="bar-{kind} pale"/><rect width="{dark}" height="12" class="bar-{kind}"/></svg>'
    )


def score_chart(detector: Detector) -> str:
    """Histograms of one column, positives up and negatives down, with its threshold."""
    width, half, step = 320.0, 60.0, 320.0 / len(detector.positive_counts)
    parts = []
    for counts, kind, up in (
        (detector.positive_counts, "positive", True),
        (detector.negative_counts, "negative", False),
    ):
        heights = np.sqrt(counts / max(1, counts.max())) * (half - 4)  # roots, so that few are seen beside many
        for k, height in enumerate(heights):
            if height > 0:
                top = half - height if up else half
                parts.append(
                    f'<rect x="{k * step:.1f}" y="{top:.1f}" width="{step - 0.6:.1f}" height="{height:.1f}" '
                    f'class="bar-{kind}"/>'
                )
    low, high = float(detector.edges[0]), float(detector.edges[-1])
    place = float(np.clip((detector.threshold - low) / (high - low), 0, 1)) * width
    ends = f'<text x="0" y="136">{low:.3g}</text><text x="{width:g}" y="136" text-anchor="end">{high:.3g}</text>'
    label = (
        f"{detector.name}: threshold {detector.threshold:.5g}; {detector.positives} positives and "
        f"{detector.negatives} negatives are above it"
    )
    return (
        f'<div class="chart"><svg viewBox="0 0 {width:g} 140" role="img" aria-label="{escape(label)}">{"".join(parts)}'
        f'<line x1="0" x2="{width:g}" y1="{half}" y2="{half}" class="axis"/>'
        f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="122" class="threshold"/>{ends}</svg></div>'
    )


def frontier_chart(frontier: RecallFrontier) -> str:
    """Loss over recall floors, equally far apart, with a band down to what is proven."""
    floors, losses, bounds = frontier.floors[::-1], frontier.losses[::-1], frontier.lower_bounds[::-1]
    width, height, left, top, right, bottom = 620.0, 320.0, 62.0, 12.0, 18.0, 44.0
    most = float(losses.max()) or 1.0
    xs = left + (width - left - right) * np.arange(len(floors)) / max(1, len(floors) - 1)

    def ys(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(height - bottom - (height - top - bottom) * values / most)

    def points(values: NDArray[np.float64]) -> list[str]:
        return [f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys(values), strict=True)]

    parts = []
    for tick in _ticks(most):
        y = float(ys(np.array([tick]))[0])
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{amount(tick)}</text>')
    parts.append(f'<polygon class="between" points="{" ".join([*points(losses), *points(bounds)[::-1]])}"/>')
    parts.append(f'<polyline class="line c0 solid" points="{" ".join(points(losses))}"/>')
    for x, y, floor in zip(xs, ys(losses), floors, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="mark c0"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{percent(floor)}</text>')
    parts.append(
        f'<text x="{(left + width) / 2:.1f}" y="{height - 6}" text-anchor="middle">recall floor (not to scale)</text>'
    )
    parts.append(f'<text x="{left}" y="{top - 1}" class="strong">loss</text>')
    label = (
        f"Least loss: {amount(float(losses[0]))} at a recall of {percent(floors[0])}, "
        f"{amount(float(losses[-1]))} at {percent(floors[-1])}"
    )
    return (
        f'<div class="chart"><svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg></div>"
    )


def _ticks(most: float) -> list[float]:
    power = 10.0 ** np.floor(np.log10(most / 4))
    step = next((power * each for each in (1, 2, 5, 10) if most / (power * each) <= 5), power * 10)
    return [float(step * k) for k in range(int(most / step + 1e-9) + 1)]


def heat_map(names: list[str], shares: NDArray[np.float64]) -> str:
    """A square for every pair; the darker, the more they share."""
    n, size, longest = len(names), 26.0, max(len(_short(name)) for name in names)
    left, top = 20 + 7.0 * longest, 20 + 5.0 * longest
    width, height = left + n * size + 5.0 * longest, top + n * size + 4
    parts = []
    for i, row in enumerate(names):
        y = top + i * size
        parts.append(f'<text x="{left - 8}" y="{y + 17:.1f}" text-anchor="end">{escape(_short(row))}</text>')
        x = left + i * size + 15
        parts.append(f'<text transform="translate({x:.1f} {top - 8}) rotate(-45)">{escape(_short(row))}</text>')
        for j, column in enumerate(names):
            share = float(shares[i, j])
            text = f"{row}: {percent(share)} of what it accepts is accepted by {column}, too"
            kind = "own" if i == j else "both"
            parts.append(
                f'<rect x="{left + j * size:.1f}" y="{y:.1f}" width="{size - 2}" height="{size - 2}" rx="3" '
                f'class="{kind}" fill-opacity="{0.06 + 0.94 * share:.2f}"><title>{escape(text)}</title></rect>'
            )
    return (
        f'<div class="scroll" tabindex="0"><svg class="map chart" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="Shares of positives that pairs of detectors have in common">'
        f"{''.join(parts)}</svg></div>"
    )


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
