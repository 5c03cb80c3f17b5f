"""The help of every verb of the command line, asked for when the page is built: it cannot fall behind the code.

In: the directive `command-line-help`. Out: a section per verb with what `eesvm VERB --help` prints.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from eesvm.cli import _parser

_COLUMNS = "96"  # what fits into a page; a terminal's width decides otherwise


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("command-line-help", CommandLineHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def verbs_with_help() -> dict[str, str]:
    """What `eesvm VERB --help` prints, by the words of the verb; verbs of verbs come after them, eesvm itself first."""
    with mock.patch.dict(os.environ, {"COLUMNS": _COLUMNS, "NO_COLOR": "1"}):
        return {parser.prog: parser.format_help() for parser in _parsers(_parser())}


class CommandLineHelp(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [self._section(name, text) for name, text in verbs_with_help().items()]

    def _section(self, name: str, text: str) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        section += nodes.title(text=name)
        section += nodes.literal_block(text, text, language="none")
        self.state.document.note_explicit_target(section)
        return section


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):  # a verb with an alias is there twice
                yield from _parsers(child)
