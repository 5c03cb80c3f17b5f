"""Formulas as MathML, which browsers draw by themselves: no script, and nothing from the network.

In: the LaTeX of `$...$` and of ```math blocks. Out: `<math>` elements in the page, and a font for them beside it: few
systems have one that knows where indices belong. It is STIX Two Math, which the package ziamath carries.
A formula that cannot be converted is a warning, so the build fails and names the page.
Not here: numbered equations; a page that needs a name for one writes it into the formula.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ziamath
from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging

_FONT = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
_MARKS = tuple(".,;:)")
_CONVERTER = LatexToMathML(fancy_error=False)
_LOG = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("doctree-read", _keep_marks)
    app.connect("build-finished", _copy_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def to_mathml(latex: str, is_block: bool = False) -> str:
    """One `<math>` element."""
    return _CONVERTER.convert_with_local_state(latex, displaystyle=is_block)


def _keep_marks(app: Sphinx, document: nodes.document) -> None:
    """A full stop or comma stays in the line of the formula before it."""
    for node in list(document.findall(nodes.math)):
        following = node.next_node(descend=False, siblings=True)
        if isinstance(following, nodes.Text) and following.astext()[:1] in _MARKS:
            text = following.astext()
            node["mark"] = text[0]
            following.parent.replace(following, nodes.Text(text[1:]))


def _visit_inline(translator: Any, node: nodes.math) -> None:
    formula = _converted(node, is_block=False)
    if "mark" in node:
        formula = f'<span class="formula-with-mark">{formula}{node["mark"]}</span>'
    translator.body.append(formula)
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_converted(node, is_block=True)}</div>\n')
    raise nodes.SkipNode


def _converted(node: nodes.Node, is_block: bool) -> str:
    try:
        return to_mathml(node.astext(), is_block)
    except LatexError as error:
        _LOG.warning("the formula %r cannot be converted: %s", node.astext(), error, location=node)
        return ""


def _copy_font(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        target = Path(app.outdir) / "_static" / "math.ttf"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(_FONT.read_bytes())
