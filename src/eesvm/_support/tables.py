"""Tables of results as Markdown.

In: a header and rows of texts. Out: the lines of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True) -> str:
    """The table, without a line end after its last row; with `numbers` all columns but the first to the right."""
    rule = "|---|" + ("---:|" if numbers else "---|") * (len(header) - 1)
    return "\n".join([_line(header), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    safe = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)  # names are free: a bare | opens a cell
    return f"| {' | '.join(safe)} |"
