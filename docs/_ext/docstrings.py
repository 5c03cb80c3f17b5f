"""Docstrings of this package as reStructuredText: they are written for reading in the code, in plain words.

In: docstrings with numpy's sections, whose entries are `name : what it is` (`type : what it is` of what is returned or
raised), and dataclasses whose fields are explained by the comments behind them. Out: what napoleon expects: a name
without a type and its text below, the fields as a section of attributes, indented formulas as literal blocks, and no
character that would be taken for markup. Types are shown as they are written in the code.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

import eesvm

_ENTRY = re.compile(r"^((?:\*{0,2}\w+)(?:, \w+)*) : (.*)$")
_SECTION = re.compile(r"(?:^|\n)(Parameters|Returns|Raises|Attributes)\n-+\n")
_IS_NAME = re.compile(r"^[A-Za-z_][\w.]*$")
_TYPES = (  # what becomes of types when they are evaluated, and what they were
    (re.compile(r"TypeAliasForwardRef\('(\w+)'\)"), r"\1"),
    (
        re.compile(
            r"(?:~?numpy\.)?ndarray\[tuple\[(?:~?typing\.)?Any, \.\.\.\], (?:~?numpy\.)?dtype\[(?:~?numpy\.)?(\w+)\]\]"
        ),
        r"NDArray[\1]",
    ),
)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process_docstring, priority=400)  # napoleon comes at 500
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-skip-member", _skip)
    app.connect("object-description-transform", _shorten_types_of_properties)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process_docstring(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    if not (getattr(item, "__module__", None) or name).startswith("eesvm"):
        return  # inherited from scikit-learn or numpy, who write reStructuredText
    text = "\n".join(lines)
    text = as_restructured_text(text)
    if what == "class" and not _SECTION.search(text):
        text += "\n".join(_section_of_fields(item))
    if what in ("attribute", "property"):
        text = text.replace(": ", ":\n", 1)  # napoleon takes what stands before a colon for the type
    lines[:] = [*text.split("\n"), ""]


def as_restructured_text(text: str) -> str:
    """A docstring without what would be read as markup but was not meant as such; its sections come last."""
    body, *parts = _SECTION.split(text)
    prose, sections = [body], []
    for title, content in zip(parts[::2], parts[1::2], strict=True):
        entries, *rest = re.split(r"\n\n(?=\S)", content.rstrip("\n"), maxsplit=1)
        prose += rest
        sections.append(f"{title}\n{'-' * len(title)}\n{_entries(entries)}\n")
    return "\n\n".join([_paragraphs("\n\n".join(prose)), *sections])


def _paragraphs(text: str) -> str:
    """Indented blocks become literal ones."""
    blocks, is_literal = [], False
    for block in re.split(r"\n\n+", text):
        was_literal, is_literal = is_literal, block.startswith("    ")
        if is_literal and not was_literal:
            blocks.append("::")
        blocks.append(block if is_literal else without_markup(block))
    return "\n\n".join(blocks)


def _entries(text: str) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        entry = _ENTRY.match(line)
        lines += [entry[1], f"    {without_markup(entry[2])}"] if entry else [without_markup(line)]
    return "\n".join(lines)


def without_markup(text: str) -> str:
    """Names in backticks become references, other code literal text, and everything else means itself."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # code that goes on in the next line of an entry
        return text
    return "".join(_code(piece) if k % 2 else _escaped(piece) for k, piece in enumerate(pieces))


def _code(piece: str) -> str:
    piece = " ".join(piece.split())
    if not _IS_NAME.match(piece):
        return f"``{piece}``" if piece else "``"
    target = f"eesvm.{piece}" if piece in eesvm.__all__ else piece
    return f":py:obj:`{piece} <{target}>`"


def _escaped(piece: str) -> str:
    return re.sub(r"([\\*|]|_(?!\w))", r"\\\1", piece)


def _section_of_fields(item: type) -> Iterator[str]:
    """The fields of a dataclass or named tuple as a section, each with type, default and the comment behind it."""
    fields = list(_fields(item)) if _is_record(item) else []
    if fields:
        yield from ("", "", "Attributes", "----------")
    for name, kind, comment in fields:
        yield f"{name} : {kind}"
        yield f"    {without_markup(comment)}"


def _is_record(item: Any) -> bool:
    return inspect.isclass(item) and (dataclasses.is_dataclass(item) or hasattr(item, "_fields"))


def _fields(item: type) -> Iterator[tuple[str, str, str]]:
    source = textwrap.dedent(inspect.getsource(item))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            name = node.target.id
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            comment = " ".join(comments[line] for line in lines if line in comments)
            yield name, _kind(item, node.annotation) + _default(item, name), comment


def _kind(item: type, annotation: ast.expr) -> str:
    """The type as it is written; private names for types by what they stand for."""
    module = vars(sys.modules[item.__module__])
    return re.sub(
        r"\b_\w+", lambda name: _as_written(stringify_annotation(module[name[0]])) or "", ast.unparse(annotation)
    )


def _default(item: type, name: str) -> str:
    value = getattr(item, name, dataclasses.MISSING)
    is_plain = isinstance(value, str | int | float | tuple | None)
    return f" = {value!r}" if is_plain and dataclasses.is_dataclass(item) else ""


def _process_signature(
    app: Sphinx, what: str, name: str, item: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    if what == "class" and _is_record(item) and signature:
        return "", None  # its fields follow, with their types and defaults
    return _as_written(signature), _as_written(returns)


def _as_written(types: str | None) -> str | None:
    for pattern, written in _TYPES:
        types = types and pattern.sub(written, types)
    return types


def _shorten_types_of_properties(app: Sphinx, domain: str, kind: str, content: nodes.Element) -> None:
    signature = content.parent[0]
    for annotation in list(signature.findall(addnodes.desc_annotation)):
        text = annotation.astext()
        if _as_written(text) != text:
            annotation.children = [nodes.Text(_as_written(text) or "")]


def _skip(app: Sphinx, what: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """What others add: scikit-learn methods for its metadata routing, named tuples a second word about each field."""
    is_routing = re.fullmatch(r"set_\w+_request", name)
    is_alias = (getattr(item, "__doc__", None) or "").startswith("Alias for field number")
    return True if is_routing or is_alias else None
