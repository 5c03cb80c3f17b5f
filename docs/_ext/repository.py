"""Pages of the repository outside of docs/ become pages of the site, and links to them lead there.

In: benchmarks/results, and links such as ../benchmarks/results/solver.md, which work where the pages are read as files.
Out: a copy of that folder as docs/measurements, made anew by every build, and links to it. A link to the script of an
example leads to its page in the gallery. Patterns in a table of contents may match nothing, as long as the pages that
they are for have not been written, and the blank line that a doctest needs at the end of a block is not shown.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_FOLDER = "measurements"
_LINK = re.compile(r"(\]\()(?:\.\./)+benchmarks/results/")
_EXAMPLE = re.compile(r"(\]\()(?:\.\./)*examples/(plot_\w+)\.py")
_PATTERN = re.compile(r"^[\w/*]+\*\n", re.MULTILINE)
_LINK_BACK = re.compile(r"(\]\()(?:\.\./)+docs/")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _copy_measurements)
    app.connect("source-read", _redirect_links)
    app.connect("source-read", _drop_empty_patterns)
    app.connect("doctree-read", _trim_blocks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _copy_measurements(app: Sphinx) -> None:
    source, target = Path(app.srcdir).parent / "benchmarks" / "results", Path(app.srcdir) / _FOLDER
    target.mkdir(exist_ok=True)
    kept = {file.name for file in source.iterdir() if file.suffix in (".md", ".png")}
    for file in target.iterdir():
        if file.name not in kept:
            file.unlink()
    for name in kept:
        if not (target / name).exists() or (target / name).read_bytes() != (source / name).read_bytes():
            shutil.copyfile(source / name, target / name)  # what has not changed is not built again


def _redirect_links(app: Sphinx, document: str, source: list[str]) -> None:
    source[0] = _LINK.sub(rf"\1/{_FOLDER}/", source[0])
    source[0] = _EXAMPLE.sub(r"\1/gallery/\2.rst", source[0])
    if document.startswith(_FOLDER):
        source[0] = _LINK_BACK.sub(r"\1/", source[0])


def _drop_empty_patterns(app: Sphinx, document: str, source: list[str]) -> None:
    if "{toctree}" in source[0]:
        folder = Path(app.srcdir)
        source[0] = _PATTERN.sub(lambda line: line[0] if any(folder.glob(f"{line[0].strip()}.md")) else "", source[0])


def _trim_blocks(app: Sphinx, document: nodes.document) -> None:
    for block in document.findall(nodes.literal_block):
        text = block.astext().rstrip()
        if block.rawsource == block.astext():  # else it has markup of its own
            block.rawsource, block.children = text, []
            block += nodes.Text(text)
