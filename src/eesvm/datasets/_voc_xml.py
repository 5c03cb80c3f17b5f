"""The XML of PASCAL VOC and ILSVRC: one file for one image.

In: the bytes of a file. Out: a tree of nodes that know their lines, and from it the size, the file name and the
objects that it speaks of, numbers still as they are written. Declarations of entities, the stuff of XML bombs, are
refused.
Not here: judgement. Whether a box lies in its image is asked in `build`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.sax import SAXException
from xml.sax.handler import ContentHandler

from eesvm._support.extras import optional_module

_DEEPEST = 32  # levels of nested tags
_LARGEST_FILE = 1 << 26  # bytes
_OWN_TAGS = frozenset({"name", "pose", "truncated", "difficult", "bndbox", "part", "attributes"})  # not metadata
_TRUE = frozenset({"1", "true", "yes"})


class XmlError(ValueError):
    """The file is no annotation; the message says why, `line` where."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


@dataclass
class Node:
    """One tag: its text and the tags within."""

    tag: str
    line: int
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def find(self, tag: str) -> Node | None:
        return next((child for child in self.children if child.tag == tag), None)

    def all(self, tag: str) -> Iterator[Node]:
        return (child for child in self.children if child.tag == tag)

    def value(self, tag: str) -> str:
        """The text of a tag within, "" where there is none."""
        child = self.find(tag)
        return "" if child is None else child.text.strip()


def parse_xml(data: bytes) -> Node:
    """The root of an XML file."""
    if len(data) > _LARGEST_FILE:
        raise XmlError(f"the file has more than {_LARGEST_FILE >> 20} MiB")
    if not data.strip():
        raise XmlError("the file is empty")
    sax = optional_module("defusedxml.sax")
    common = optional_module("defusedxml.common")
    handler = _TreeHandler()
    try:
        sax.parseString(data, handler)
    except common.DefusedXmlException as error:
        raise XmlError("it declares entities, which is refused", handler.line()) from error
    except SAXException as error:
        raise XmlError(f"it is not well-formed XML: {error.getMessage()}", handler.line()) from error
    except (ValueError, LookupError) as error:  # an encoding that does not exist, or not for this
        raise XmlError(f"it cannot be decoded: {error}", handler.line()) from error
    if handler.root is None:
        raise XmlError("the file is empty")
    return handler.root


def parse_annotation(data: bytes) -> Node:
    """The root of an annotation file, which must be <annotation>."""
    root = parse_xml(data)
    if root.tag != "annotation":
        raise XmlError(f"it is no annotation: its root is <{root.tag[:50]}>", root.line)
    return root


def stated_size(root: Node) -> tuple[int, int] | None:
    """(width, height) as the file states them; None where it does not."""
    size = root.find("size")
    if size is None:
        return None
    width, height = (_number(size.value(tag)) for tag in ("width", "height"))
    if not (math.isfinite(width) and math.isfinite(height)):
        return None
    return int(width), int(height)


def corners(node: Node) -> tuple[float, float, float, float] | None:
    """xmin, ymin, xmax, ymax of the <bndbox> of an object or part, as written; None where one of them is no number."""
    box = node.find("bndbox")
    if box is None:
        return None
    numbers = [_number(box.value(tag)) for tag in ("xmin", "ymin", "xmax", "ymax")]
    return None if any(math.isnan(number) for number in numbers) else (numbers[0], numbers[1], numbers[2], numbers[3])


def is_true(node: Node, tag: str) -> bool:
    return node.value(tag).lower() in _TRUE


def metadata(node: Node) -> dict[str, Any]:
    """All tags of an object that have no place of their own: texts, or mappings of what is within."""
    values = _mapping(node, _OWN_TAGS)
    for attribute in (inner for outer in node.all("attributes") for inner in outer.all("attribute")):  # as CVAT writes
        if attribute.value("name"):
            values[attribute.value("name")] = attribute.value("value")
    return values


def _mapping(node: Node, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for child in node.children:
        if child.tag in without:
            continue
        value = _mapping(child) if child.children else child.text.strip()
        if child.tag not in values:
            values[child.tag] = value
        elif isinstance(values[child.tag], list):
            values[child.tag].append(value)
        else:
            values[child.tag] = [values[child.tag], value]
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class _TreeHandler(ContentHandler):
    """Builds the tree while the parser reads."""

    def __init__(self) -> None:
        super().__init__()
        self.root: Node | None = None
        self._open: list[Node] = []
        self._locator: Any = None

    def setDocumentLocator(self, locator: Any) -> None:
        self._locator = locator

    def line(self) -> int:
        return int(self._locator.getLineNumber() or 1) if self._locator is not None else 1

    def startElement(self, name: str, attrs: Any) -> None:
        if len(self._open) >= _DEEPEST:
            raise SAXException(f"tags are nested more than {_DEEPEST} deep")
        node = Node(name, self.line())
        if self._open:
            self._open[-1].children.append(node)
        elif self.root is None:
            self.root = node
        self._open.append(node)

    def endElement(self, name: str) -> None:
        self._open.pop()

    def characters(self, content: str) -> None:
        if self._open:
            self._open[-1].text += content
