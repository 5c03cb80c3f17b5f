"""What `eesvm cache` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_verb

_HELP = """\
Descriptors and windows are kept under the content of their image and all parameters, so nothing here is ever out of
date; clearing it costs time and nothing else. The default folder is that of the environment variable EESVM_CACHE, or
the cache folder of the system; converted networks are kept there, too.

example:
  eesvm cache info
  eesvm cache clear --folder features
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "cache", None, "look at the descriptors and windows kept on disk, or remove them", _HELP)
    own = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    info = add_verb(own, "info", "cache:run_info", "print how much is kept, where, and since when", _HELP)
    clear = add_verb(own, "clear", "cache:run_clear", "remove what is kept; files that are not the cache's stay", _HELP)
    for verb in (info, clear):
        verb.add_argument("--folder", metavar="FOLDER", help="of the cache (default: that of the system)")
    info.add_argument("--json", action="store_true", help="print everything as JSON")
    clear.add_argument("--quiet", action="store_true", help="print nothing but errors")
