"""A page about a calibrated score table, as one HTML file: no script, no network, readable on a phone and on paper.

In: `ScoreReport`, plain data. Out: the text of the page, with every text escaped and every chart drawn as SVG.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from eesvm._support.amounts import amount, percent
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.frontier import RecallFrontier
from eesvm.calibration.held_out import HeldOut, Share
from eesvm.calibration.problem import CalibrationProblem
from eesvm.report.score_charts import LEGEND, bar, frontier_chart, heat_map, score_chart
from eesvm.report.score_facts import Detector, TableFacts, table_facts
from eesvm.report.static_page import asset, filled

_MOST_CHARTS = 24  # histograms; tables show all detectors
_MOST_IN_MAP = 30
_COLUMNS = (
    "detector",
    "threshold",
    "positives",
    "alone",
    '<span class="hidden">bar</span>',
    "negatives",
    "alone",
    '<span class="hidden">bar</span>',
    "state",
)
_ALONE = (
    "Dark: what nobody else accepts. Switching a detector off loses its dark positives and saves its dark negatives; "
    "one without dark positives can be spared, while the others stay."
)
_HEIGHTS = "Heights are square roots of counts, positives and negatives each to their own highest bar."
_TOGETHER = (
    "Of the positives that the detector of a row accepts, the share that the detector of a column accepts, too. A dark "
    "row has little of its own."
)
_COSTS = (
    "The least loss at each recall floor; the band reaches down to what is proven. A steep end means that a few "
    "positives cost most of it: look at their labels."
)
_DECIDING = (
    "Positives that hold a threshold down alone. Without one, so many false alarms of its detector could go: is it "
    "really a positive?"
)
_MISSED = "the nearest to a threshold first."
_ALARMS = "the most clearly accepted first, where labels may be wrong."
_STATES = {"needed": "right", "idle": "other", "off": "other"}
_STATE_TEXTS = {"needed": "needed", "idle": "can be spared", "off": "switched off"}


@dataclass(frozen=True)
class ScoreReport:
    """What the page is about."""

    title: str
    problem: CalibrationProblem
    calibrator: JointCalibrator
    names: list[str]
    units: NDArray[np.float64]  # (E,) of the margins
    rows: tuple[NDArray[np.intp], NDArray[np.intp]]  # where positives and negatives stand in the table, from 0
    groups: tuple[NDArray[np.str_], NDArray[np.str_]] | None = None
    held_out: HeldOut | None = None
    frontier: RecallFrontier | None = None


def render(report: ScoreReport) -> str:
    """The page as HTML."""
    facts = table_facts(report.problem, report.calibrator.thresholds_, report.names, report.units)
    style = asset("report.css") + asset("score_page.css")
    sections = [
        _facts(report, facts),
        _detectors(facts),
        _overlap(facts),
        _frontier(report),
        _rows(report, facts),
    ]
    return filled(
        "score_page.html",
        style_source=b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii"),
        style=style,
        title=escape(report.title),
        headline=escape(_headline(report, facts)),
        sections="\n".join(sections),
        footer="Made by eesvm calibrate. A row is accepted when any detector scores it above its threshold.",
    )


def _headline(report: ScoreReport, facts: TableFacts) -> str:
    problem = report.problem
    in_use = sum(each.state != "off" for each in facts.detectors)
    return (
        f"{in_use} of {_count(problem.n_exemplars, 'detector')} accept "
        f"{problem.n_positives - facts.n_missed:,} of {_count(problem.n_positives, 'positive')} and "
        f"{facts.n_alarms:,} of {_count(problem.n_negatives, 'negative')}."
    )


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _facts(report: ScoreReport, facts: TableFacts) -> str:
    problem, result, held_out = report.problem, report.calibrator.result_, report.held_out
    needed = sum(each.state == "needed" for each in facts.detectors)
    off = sum(each.state == "off" for each in facts.detectors)
    idle = problem.n_exemplars - needed - off
    tiles = [
        ("Recall", percent(problem.recall(result.thresholds)), _expected(held_out.recall if held_out else None)),
        (
            "False alarms",
            percent(facts.n_alarms / problem.n_negatives),
            _expected(held_out.false_alarms if held_out else None),
        ),
        ("Proof", *_proof(report)),
        (
            "Detectors needed",
            f"{needed} of {problem.n_exemplars}",
            f"{off} switched off; of the other {idle} any one can be spared, while the rest stays",
        ),
    ]
    cells = "".join(
        f'<div><dt>{name}</dt><dd class="value">{escape(value)}</dd><dd class="why">{escape(why)}</dd></div>'
        for name, value, why in tiles
    )
    warnings = "".join(f"<li>{escape(text)}</li>" for text in (held_out.warnings if held_out else []))
    notes = f'<div class="notes"><b>New rows will not do as well</b><ul>{warnings}</ul></div>' if warnings else ""
    return f'<dl class="facts">{cells}</dl>{notes}'


def _expected(share: Share | None) -> str:
    if share is None:
        return "on these rows; nothing is known about new ones"
    return f"on these rows; {percent(share.value)} expected of new ones ({percent(share.low)} to {percent(share.high)})"


def _proof(report: ScoreReport) -> tuple[str, str]:
    result = report.calibrator.result_
    if report.calibrator.target_recall is not None:
        return "none", f"thresholds are for new rows, recall {percent(report.calibrator.target_recall)} wanted"
    if result.goal is not None:
        return percent(result.recall_bound), f"no thresholds have more recall with {result.goal}"
    if result.status == "optimal":
        return "optimal", f"no thresholds have a loss below {amount(result.lower_bound)} at this recall"
    return (
        f"within {percent(result.gap)}",
        f"the loss is {amount(result.loss)}, and {amount(result.lower_bound)} at least",
    )


def _detectors(facts: TableFacts) -> str:
    order = sorted(facts.detectors, key=lambda each: (-each.positives_alone, -each.positives, each.index))
    most = max((max(each.positives, each.negatives) for each in order), default=1) or 1
    in_use = [each for each in order if each.state != "off"]
    charts = "".join(
        f"<figure><figcaption><b>{escape(each.name)}</b></figcaption>{score_chart(each)}</figure>"
        for each in in_use[:_MOST_CHARTS]
    )
    more = len(in_use) - _MOST_CHARTS
    rest = f'<p class="dim">{more} more are in the table.</p>' if more > 0 else ""
    return (
        f"<section><h2>Which detector catches what</h2><p>{_ALONE}</p>"
        + _table(_COLUMNS, [_detector_row(each, most) for each in order], "detectors")
        + f'<h3>Scores and thresholds</h3>{LEGEND}<p class="dim small">{_HEIGHTS}</p>'
        + f'<div class="charts small-ones">{charts}</div>{rest}</section>'
    )


def _detector_row(each: Detector, most: int) -> list[str]:
    return [
        escape(each.name),
        "" if each.threshold == np.inf else f"{each.threshold:.5g}",
        f"{each.positives:,}",
        f"{each.positives_alone:,}",
        bar(each.positives, each.positives_alone, most, "positive"),
        f"{each.negatives:,}",
        f"{each.negatives_alone:,}",
        bar(each.negatives, each.negatives_alone, most, "negative"),
        f'<span class="chip {_STATES[each.state]}">{_STATE_TEXTS[each.state]}</span>',
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    lines = (
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _overlap(facts: TableFacts) -> str:
    used = sorted((d for d in facts.detectors if d.positives), key=lambda each: (-each.positives, each.index))
    if len(used) < 2:
        return ""
    shown = used[:_MOST_IN_MAP]
    index = [each.index for each in shown]
    rest = f" The {len(shown)} with the most positives are shown." if len(used) > len(shown) else ""
    picture = heat_map([each.name for each in shown], facts.together[np.ix_(index, index)])
    return f"<section><h2>Who catches the same</h2><p>{_TOGETHER}{rest}</p>{picture}</section>"


def _frontier(report: ScoreReport) -> str:
    frontier = report.frontier
    if frontier is None or len(frontier.floors) < 2:
        return ""
    rows = [
        [
            percent(row["floor"]),
            f"{row['n_left_out']:,}",
            amount(row["loss"]),
            amount(row["lower_bound"]),
            percent(row["owed"]),
        ]
        for row in frontier.table()
    ]
    table = _table(("recall floor", "left out", "loss", "bound", "saved"), rows, "frontier")
    return (
        f"<section><h2>What recall costs</h2><p>{_COSTS}</p>"
        f'<div class="two-wide"><figure>{frontier_chart(frontier)}</figure>{table}</div></section>'
    )


def _rows(report: ScoreReport, facts: TableFacts) -> str:
    group = ["group"] if report.groups is not None else []
    parts = []
    if facts.deciding:
        rows = [
            [*_place(report, 0, each.row), report.names[each.detector], f"{each.score:.5g}", f"{each.saved:,}"]
            for each in facts.deciding
        ]
        header = ("row", *group, "detector", "score", "false alarms it costs")
        parts.append(f"<p>{_DECIDING}</p>" + _table(header, _escaped(rows), "rows"))
    for near, side, text in (
        (facts.missed, 0, f"{facts.n_missed:,} positives are missed; {_MISSED}"),
        (facts.alarms, 1, f"{facts.n_alarms:,} negatives are accepted; {_ALARMS}"),
    ):
        if near:
            rows = [
                [*_place(report, side, each.row), report.names[each.detector], f"{each.margin:+.3g}"] for each in near
            ]
            header = ("row", *group, "detector", "margin, in standard deviations")
            parts.append(f"<p>{text}</p>" + _table(header, _escaped(rows), "rows"))
    if not parts:
        return ""
    note = '<p class="dim small">Rows count from 0 in the order of the table.</p>'
    return "\n".join(["<section><h2>The rows that decide</h2>", *parts, note, "</section>"])


def _escaped(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[escape(cell) for cell in row] for row in rows]


def _place(report: ScoreReport, side: int, row: int) -> list[str]:
    place = [f"{int(report.rows[side][row]):,}"]
    return place if report.groups is None else [*place, str(report.groups[side][row])]
