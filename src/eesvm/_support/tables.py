"""Tables of results as Markdown.

In: a header and rows of texts. Out: the lines of a table, the first column to the left and the others to the right.
Absent on purpose: what the cells say, and the sentences around a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The table, without a line end after its last row."""
    return "\n".join([_line(header), "|---|" + "---:|" * (len(header) - 1), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)  # names are free, and a bare | would begin a new cell
    return f"| {' | '.join(escaped)} |"
