"""Tables for people and for programs: one table as CSV, LaTeX and Markdown.

In: a `ResultTable`: columns, rows in groups, and cells that are texts, numbers or estimates. Out: CSV with a header and
all digits, an estimate as three columns; LaTeX that needs no package, escaped; Markdown; and rows of texts for a page.
Names come from datasets and may hold anything: a class called `a_b & 50%` is printed, never run.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from eesvm.experiments.tables.estimates import Estimate

# How a number is shown: counts of windows, per cent, differences of both with their sign, ratios.
COUNT, PERCENT, GAIN, COUNT_GAIN, RATIO = "count", "percent", "gain", "count gain", "ratio"

_PROSE_ROWS = 10  # of a table of sentences, on a page


@dataclass(frozen=True)
class Cell:
    """A text, a number or an estimate; an empty one where there is nothing to say."""

    value: Estimate | float | str | None = None
    kind: str = PERCENT

    @property
    def estimate(self) -> Estimate | None:
        """The cell as an estimate, if it is a number."""
        if isinstance(self.value, int | float):
            return Estimate(float(self.value))
        return self.value if isinstance(self.value, Estimate) else None


@dataclass(frozen=True)
class Column:
    """A column; `has_interval`: its cells are estimates."""

    name: str
    has_interval: bool = False
    is_text: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row; rows of one group follow each other."""

    name: str
    cells: tuple[Cell, ...]
    group: str = ""


@dataclass(frozen=True)
class ResultTable:
    """One table."""

    name: str  # of its files
    title: str
    first: str  # head of the column of names
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def header(self) -> list[str]:
        return [self.first, *(column.name for column in self.columns)]

    @property
    def groups(self) -> list[tuple[str, list[TableRow]]]:
        return [(group, list(rows)) for group, rows in groupby(self.rows, key=lambda row: row.group)]


def to_csv(table: ResultTable) -> str:
    """A header and one line per row; per cent are per cent, and nothing is rounded."""
    has_groups = any(row.group for row in table.rows)
    header = [table.first, *(["group"] if has_groups else [])]
    for column in table.columns:
        header += [column.name, f"{column.name}, low", f"{column.name}, high"] if column.has_interval else [column.name]
    lines: list[list[str]] = [header]
    for row in table.rows:
        line = [row.name, *([row.group] if has_groups else [])]
        for column, cell in zip(table.columns, row.cells, strict=True):
            line += _csv_cells(cell, column.has_interval)
        lines.append(line)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()


def to_markdown(table: ResultTable, heading: str = "##") -> str:
    """Title, table and notes; groups after the first open with a line of their own."""
    lines = [f"{heading} {markdown(table.title)}", "", _md_line([markdown(name) for name in table.header])]
    lines.append("|---|" + "".join("---|" if column.is_text else "---:|" for column in table.columns))
    for number, (group, rows) in enumerate(table.groups):
        if number and group:
            lines.append(_md_line([f"*{markdown(group)}*", *[""] * len(table.columns)]))
        lines += [_md_line([markdown(row.name), *(markdown(text(cell)) for cell in row.cells)]) for row in rows]
    lines += [part for note in table.notes for part in ("", markdown(note))]
    return "\n".join(lines) + "\n"


def to_latex(table: ResultTable) -> str:
    """Floating tables without packages, for `\\input`; notes are the caption. Prose is cut where a page ends."""
    is_prose = any(column.is_text for column in table.columns)
    step = _PROSE_ROWS if is_prose else max(1, len(table.rows))
    parts = [replace(table, rows=table.rows[start : start + step]) for start in range(0, len(table.rows), step)]
    floats = []
    for number, part in enumerate(parts or [table]):
        named = f"\\label{{tab:{_label(table.name)}}}" if not number else ""
        title = f"{table.title}{', continued' if number else ''}."
        caption = " ".join(latex(each) for each in (title, *(() if number else table.notes)))
        floats.append(f"{_latex_float(part)}\\caption{{{caption}}}{named}\n\\end{{table*}}\n")
    return "\n".join(floats)


def latex_document(names: Sequence[str]) -> str:
    """A document that shows the tables of these files, to be compiled beside them."""
    inputs = "\n".join(f"\\input{{{name}.tex}}\n\\clearpage" for name in names)
    return f"\\documentclass[a4paper,landscape]{{article}}\n\\begin{{document}}\n{inputs}\n\\end{{document}}\n"


def to_texts(table: ResultTable) -> list[list[str]]:
    """Rows as texts, under `ResultTable.header`; groups after the first open with a row of their own."""
    lines = []
    for number, (group, rows) in enumerate(table.groups):
        if number and group:
            lines.append([group, *[""] * len(table.columns)])
        lines += [[row.name, *(text(cell) for cell in row.cells)] for row in rows]
    return lines


def text(cell: Cell) -> str:
    """What people read: 45.1 ± 3.2, 1,234, +2.3."""
    found = cell.estimate
    if found is None:
        return "" if cell.value is None else str(cell.value)
    if math.isnan(found.value):
        return ""
    shown = _number(found.value, cell.kind)
    if not found.has_interval:
        return shown
    below, above = found.value - found.low, found.high - found.value
    plain = {GAIN: PERCENT, COUNT_GAIN: COUNT}.get(cell.kind, cell.kind)
    if math.isclose(below, above, rel_tol=1e-6, abs_tol=1e-12):
        return f"{shown} ± {_number(above, plain)}"
    return f"{shown} ({_number(found.low, cell.kind)} to {_number(found.high, cell.kind)})"


def latex(plain: str) -> str:
    """A text without anything that LaTeX would act on."""
    printable = "".join(c if c.isprintable() else " " for c in plain)
    return "".join(_LATEX.get(character, character) for character in printable)


def markdown(plain: str) -> str:
    """A text that ends neither a cell nor a line, and that opens no tag."""
    line = " ".join(plain.split())
    for character in "\\`*_|[]":
        line = line.replace(character, f"\\{character}")
    return line.replace("&", "&amp;").replace("<", "&lt;")


_LATEX = {
    "\\": "\\textbackslash{}",
    "{": "\\{",
    "}": "\\}",
    "$": "\\$",
    "&": "\\&",
    "#": "\\#",
    "%": "\\%",
    "_": "\\_",
    "^": "\\textasciicircum{}",
    "~": "\\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",  # after a line break a bracket would be its argument
    "]": "{]}",
    "±": "$\\pm$",
    "×": "$\\times$",
    "–": "--",
}


def _number(value: float, kind: str) -> str:
    if kind in (COUNT, COUNT_GAIN):
        return f"{value:+,.0f}" if kind == COUNT_GAIN else f"{value:,.0f}"
    if kind == RATIO:
        return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"
    return f"{value:+.1f}" if kind == GAIN else f"{value:.1f}"


def _csv_cells(cell: Cell, has_interval: bool) -> list[str]:
    found = cell.estimate
    if found is None:
        values = [str(cell.value or ""), "", ""]
    else:
        values = ["" if math.isnan(value) else repr(value) for value in (found.value, found.low, found.high)]
    return values if has_interval else values[:1]


def _md_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(latex(cell) for cell in cells) + " \\\\"


def _latex_float(table: ResultTable) -> str:
    """A float up to its caption."""
    is_prose = any(column.is_text for column in table.columns)
    share = f"p{{{0.9 / (len(table.columns) + 1):.3f}\\textwidth}}"
    kinds = [share if is_prose else "l", *(share if column.is_text else "r" for column in table.columns)]
    lines = ["\\begin{table*}", "\\centering\\footnotesize", f"\\begin{{tabular}}{{{''.join(kinds)}}}", "\\hline"]
    lines += [_latex_line(table.header), "\\hline"]
    for number, (group, rows) in enumerate(table.groups):
        if number and group:
            lines += ["\\hline", f"\\multicolumn{{{len(kinds)}}}{{l}}{{\\emph{{{latex(group)}}}}} \\\\"]
        lines += [_latex_line([row.name, *(text(cell) for cell in row.cells)]) for row in rows]
    return "\n".join([*lines, "\\hline", "\\end{tabular}", ""])


def _label(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name)
