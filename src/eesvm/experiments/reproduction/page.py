"""What `eesvm reproduce` writes: tables, claims, results.md and report.html.

In: what was measured, and how. Out: files in the output folder, the same ones whenever they are laid out from the same
measurements: dates and commands are those of the run that measured.
"""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eesvm._support.amounts import duration
from eesvm._support.files import atomic_write
from eesvm._support.run_folder import NAME as RUN_NAME
from eesvm._support.version import __version__
from eesvm.datasets.roles import sentences
from eesvm.detector.options import DetectorOptions
from eesvm.experiments.claims.rules import CONFIRMED, NOT_CONFIRMED, RULES, UNTESTED
from eesvm.experiments.claims.sheet import Judged, claims_table, summary
from eesvm.experiments.reproduction.image_roles import search_separability
from eesvm.experiments.reproduction.recipes import CHANGES, EARLY_NODES, NETWORK, Recipe
from eesvm.experiments.reproduction.results import SMALL
from eesvm.experiments.reproduction.run import Measured
from eesvm.experiments.reproduction.splits import Splits
from eesvm.experiments.tables.files import (
    ResultTable,
    latex_document,
    markdown,
    to_csv,
    to_latex,
    to_markdown,
    to_texts,
)
from eesvm.experiments.tables.paper_tables import paper_tables, pruning_table, search_table
from eesvm.report.static_page import DemoPage, Picture, Section, Table, render

_TITLE = "Joint calibration of Ensemble of Exemplar SVMs, reproduced"
_READING = (
    "Rows with the paper's names are made its way, with the changes listed here; rows beyond the paper are this "
    "package's own. The paper's figures are of other images, other descriptors and more windows: what can be "
    "compared is the order of rows and the differences between them, not the figures. A handful of splits gives wide "
    "intervals: one that includes zero is the usual case, and says that this run cannot tell."
)
_MARKS = {CONFIRMED: "✓", NOT_CONFIRMED: "✗", UNTESTED: "–"}
_CHANGES = "Changes to the paper's settings"
_SCENES = (
    "The embedded scenes are handwritten digits among photographs: they show that everything works. The network was "
    "trained on photographs and knows no digits, so what the paper says about descriptors is for photographs to test."
)


@dataclass(frozen=True)
class Run:
    """A reproduction with everything that is said about it."""

    measured: Measured
    splits: Splits
    recipes: Mapping[str, Sequence[Recipe]]
    judged: Judged

    @property
    def has_cnn(self) -> bool:
        return self.recipes[SMALL][0].options.descriptor.name == "cnn"

    def tables(self) -> list[ResultTable]:
        results = self.measured.results
        return [*paper_tables(results, self.has_cnn), search_table(results), pruning_table(self.measured.study)]


def write_outputs(root: Path, run: Run) -> None:
    """All files but those of the parts."""
    (root / "tables").mkdir(exist_ok=True)
    tables, claims = run.tables(), claims_table(run.judged)
    for table in tables:
        _write_table(root / "tables", table, table)
    _write(root / "tables" / "pruning_searches.csv", _csv_text(run.measured.study.to_csv_rows()))
    _write(root / "tables" / "all.tex", latex_document([*(table.name for table in tables), "../claims"]))
    _write_table(root, claims, claims_table(run.judged, with_values=True))
    facts = run_facts(root, run)
    _write(root / "results.md", results_markdown(run, facts, tables, claims))
    _write(root / "report.html", render(page(run, facts, tables, claims)))


def run_facts(root: Path, run: Run) -> list[tuple[str, str]]:
    """What one has to know to do it again."""
    state = json.loads((root / RUN_NAME).read_text(encoding="utf-8"))
    inputs = run.measured.inputs
    seconds = run.measured.seconds
    spent = ", ".join(f"{name} {duration(value)}" for name, value in seconds.items() if value)
    return [
        ("command", " ".join(state.get("command", []))),
        ("date", str(state.get("finished", ""))),
        ("version", f"eesvm {__version__}, Python {platform.python_version()}"),
        ("dataset", f"{inputs['name']}, hash {inputs['digest']} of all images and annotations used"),
        ("splits", run.splits.how),
        *run.splits.roles(),
        *_who_saw_what(run.measured),
        ("classes", ", ".join(run.measured.results.classes)),
        ("time", f"{duration(sum(seconds.values()))} of measuring: {spent}"),
    ]


def _who_saw_what(measured: Measured) -> list[tuple[str, str]]:
    """The network's images against the others, where something is known of them."""
    roles = measured.inputs.get("roles")
    if roles is None:
        return []
    return [("images of the network", " ".join(sentences(roles, search_separability(measured.results))))]


def changes(run: Run) -> list[tuple[str, str]]:
    """Where this run is not what the paper did, and why."""
    paper, options = DetectorOptions.make("paper").flat(), run.recipes[SMALL][0].options.flat()
    reasons = {name: why for name, _, why in CHANGES}
    stated = {(name, value) for name, value, _ in CHANGES}
    rows = [
        (f"{name} = {value}", reasons.get(name, "asked for"))
        for name, value in options.items()
        if (name, value) in stated
        or (value != paper[name] and name not in ("n_jobs", "calibration.time_limit", "calibration.gap"))
    ]
    method, nodes, seconds = (options[f"calibration.{name}"] for name in ("method", "node_limit", "time_limit"))
    rows += [
        ("searches of tables 1 to 3", f"this package's ({method}), of {nodes} nodes or {seconds:g} s at most"),
        ("searches of tables 4 to 6", f"Algorithm 1, stopped after {EARLY_NODES:,} nodes or {seconds:g} s"),
        ("test negatives", "all proposed windows with IoU below 0.5; the paper draws one or two million"),
    ]
    is_stock = run.has_cnn and options["descriptor.backbone"] == paper["descriptor.backbone"]
    return [("descriptors", NETWORK), *rows] if is_stock else rows


def results_markdown(
    run: Run, facts: Sequence[tuple[str, str]], tables: Sequence[ResultTable], claims: ResultTable
) -> str:
    """Everything on one page."""
    parts = [
        f"# {_TITLE}",
        "\n".join(f"- **{name}**: {markdown(value)}" for name, value in facts),
        "## How to read it",
        *_reading(run),
        f"{_CHANGES}:\n\n" + "\n".join(f"- {name}: {why}" for name, why in changes(run)),
        *(markdown(line) for line in _left_out(run)),
        to_markdown(claims).rstrip(),
        *(to_markdown(table).rstrip() for table in tables),
        run.measured.study.to_markdown().rstrip(),
        "## Figures",
        *(_figure_markdown(figure.name, figure.png is not None, figure.caption) for figure in run.measured.figures),
    ]
    return "\n\n".join(parts) + "\n"


def page(run: Run, facts: Sequence[tuple[str, str]], tables: Sequence[ResultTable], claims: ResultTable) -> DemoPage:
    """The same for a browser."""
    about = _pairs("What was measured", facts)
    pictures = [Picture(f.png, f.alt, f"Figure {f.number}. {f.caption}") for f in run.measured.figures if f.png]
    missing = [f.caption for f in run.measured.figures if f.png is None]
    sections = [
        Section("The run", (), (about,)),
        Section("How to read it", (*_reading(run), *_left_out(run)), (_pairs(_CHANGES, changes(run)),)),
        Section(
            claims.title,
            claims.notes[:1],
            (_html_table(claims, is_prose=True), _pairs("The rules of the verdicts", list(RULES.items()))),
        ),
        *(Section(table.title, table.notes, (_html_table(table),)) for table in tables),
        Section("Figures", missing, pictures=pictures),
    ]
    return DemoPage(f"{_TITLE}: {run.splits.name}", summary(run.judged), sections, f"Made by eesvm {__version__}.")


def _reading(run: Run) -> list[str]:
    return [_READING, _SCENES] if run.splits.is_scenes else [_READING]


def _left_out(run: Run) -> list[str]:
    lines = [*run.splits.skipped, *run.measured.results.skipped]
    return ["Left out: " + "; ".join(lines) + "."] if lines else []


def _html_table(table: ResultTable, is_prose: bool = False) -> Table:
    """Without a caption: the heading of its section says the same. Verdicts get a mark to be found by."""
    rows = [[f"{_MARKS[cell]} {cell}" if cell in _MARKS else cell for cell in row] for row in to_texts(table)]
    return Table("", table.header, rows, is_prose)


def _pairs(caption: str, pairs: Sequence[tuple[str, str]]) -> Table:
    return Table(caption, ("", ""), [list(pair) for pair in pairs], is_prose=True)


def _figure_markdown(name: str, is_drawn: bool, caption: str) -> str:
    return f"![{name}](figures/{name}.png)\n\n{markdown(caption)}" if is_drawn else markdown(caption)


def _write_table(folder: Path, table: ResultTable, with_values: ResultTable) -> None:
    _write(folder / f"{table.name}.csv", to_csv(with_values))
    _write(folder / f"{table.name}.tex", to_latex(table))
    _write(folder / f"{table.name}.md", to_markdown(table))


def _csv_text(rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _write(path: Path, text: str) -> None:
    with atomic_write(path, text=True) as handle:
        handle.write(text)
