"""A report as one HTML file: tables, pictures and pairs of images, readable without a network and on a phone.

In: `DemoPage`, plain data. Out: the text of the page, with every image inside and every text escaped.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows, the others are numbers or short texts.

    With `is_prose` cells are sentences: left-aligned and folded. A row of which only the first cell says something is
    the head of those below it.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_prose: bool = False


@dataclass(frozen=True)
class Picture:
    """A PNG, what it shows for those who do not see it, and a sentence below it."""

    png: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Pair:
    """A detection beside the exemplar that won it, both as (h, w) ink from 0 to 1."""

    window: NDArray[np.float64]
    exemplar: NDArray[np.float64]
    caption: str
    is_right: bool


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and what follows them."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    pairs: Sequence[Pair] = ()


@dataclass(frozen=True)
class DemoPage:
    """The whole page."""

    title: str
    summary: str
    sections: Sequence[Section]
    footer: str


def render(page: DemoPage) -> str:
    """The page as HTML."""
    return filled(
        "static_page.html",
        title=escape(page.title),
        summary=escape(page.summary),
        style=asset("static_page.css"),
        sections="\n".join(_section(section) for section in page.sections),
        footer=escape(page.footer),
    )


def filled(name: str, **values: str) -> str:
    """An asset with a value in every place `{{name}}`; nothing in a value is taken for a place to fill."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], asset(name))


def asset(name: str) -> str:
    """A file of `assets`."""
    return files("eesvm.report").joinpath("assets", name).read_text(encoding="utf-8")


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(text)}</p>" for text in section.paragraphs]
    parts += [_table(table) for table in section.tables]
    parts += [_picture(picture) for picture in section.pictures]
    if section.pairs:
        parts.append('<ul class="pairs">' + "\n".join(_pair(pair) for pair in section.pairs) + "</ul>")
    return "<section>" + "\n".join(parts) + "</section>"


def _table(table: Table) -> str:
    head = _cells(table.header, "th", ' scope="col"')
    body = "\n".join(f"<tr>{_row(row)}</tr>" for row in table.rows)
    kind = f' class="prose{" wide" if len(table.header) > 3 else ""}"' if table.is_prose else ""
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}>{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[str]) -> str:
    if len(row) > 1 and row[0] and not any(row[1:]):
        return f'<th scope="rowgroup" colspan="{len(row)}">{escape(row[0])}</th>'
    return _cells(row[:1], "th", ' scope="row"') + _cells(row[1:], "td")


def _cells(values: Iterable[str], tag: str, attributes: str = "") -> str:
    return "".join(f"<{tag}{attributes}>{escape(value)}</{tag}>" for value in values)


def _picture(picture: Picture) -> str:
    image = f'<img src="{_data_uri(picture.png)}" alt="{escape(picture.alt)}" loading="lazy">'
    return f"<figure>{image}<figcaption>{escape(picture.caption)}</figcaption></figure>"


def _pair(pair: Pair) -> str:
    images = "".join(
        f'<img src="{_data_uri(_ink_png(ink))}" alt="{what}" width="72" height="72">'
        for ink, what in ((pair.window, "the window"), (pair.exemplar, "the exemplar that won it"))
    )
    kind = "right" if pair.is_right else "wrong"
    mark = "✓" if pair.is_right else "✗"
    return f'<li class="{kind}"><div>{images}</div><span aria-hidden="true">{mark}</span> {escape(pair.caption)}</li>'


def _ink_png(ink: NDArray[np.float64]) -> bytes:
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, np.asarray(ink), cmap="gray_r", vmin=0.0, vmax=1.0, format="png")
    return buffer.getvalue()


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode("ascii")
