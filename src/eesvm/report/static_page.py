"""A report as one HTML file: tables, pictures and pairs of images, readable without a network and on a phone.

In: `DemoPage`, plain data. Out: the text of the page, with every image inside and every text escaped.
Absent on purpose: scripts, links to other machines, and any computation of what is shown.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

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
    return _PAGE.format(
        title=escape(page.title),
        summary=escape(page.summary),
        style=_STYLE,
        sections="\n".join(_section(section) for section in page.sections),
        footer=escape(page.footer),
    )


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


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #f1f3f5; --line: #c9ced3; --dim: #4d555c;
  --right: #00664a; --wrong: #a33c00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --paper: #15181b; --soft: #20252a; --line: #454d55; --dim: #b3bcc4;
    --right: #4fd3a8; --wrong: #ff9a5c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
p, figure, h1 { max-width: 56rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; border-top: 1px solid var(--line); padding-top: 1.2rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .94rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--dim); padding-bottom: .4rem; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; }
thead th { vertical-align: bottom; white-space: normal; }
tbody th { font-weight: 500; }
tbody th[scope="rowgroup"] { text-align: left; font-style: italic; color: var(--dim); padding-top: .9rem; }
table.wide { min-width: 60rem; }
.prose th, .prose td { text-align: left; vertical-align: top; white-space: normal; min-width: 5.5rem; overflow-wrap: anywhere; }
figure { margin: 1.2rem 0; }
figure img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption { color: var(--dim); font-size: .92rem; }
.pairs { list-style: none; padding: 0; display: grid; gap: .8rem; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); }
.pairs li { background: var(--soft); border-radius: 6px; padding: .6rem; font-size: .88rem; border-left: 4px solid var(--right); }
.pairs li.wrong { border-left-color: var(--wrong); }
.pairs span { color: var(--right); font-weight: 700; }
.pairs .wrong span { color: var(--wrong); }
.pairs div { display: flex; gap: .5rem; margin-bottom: .3rem; }
.pairs img { image-rendering: pixelated; background: #fff; border-radius: 3px; }
footer { color: var(--dim); font-size: .88rem; padding-bottom: 2rem; margin-top: 2.5rem; }
"""  # noqa: E501

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>{summary}</p></header>
<main>
{sections}
</main>
<footer><p>{footer}</p></footer>
</body>
</html>
"""
