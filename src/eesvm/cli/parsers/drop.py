"""What `eesvm drop` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_verb
from eesvm.cli.parsers.add import add_change_arguments

_HELP = """\
EXEMPLARS are numbers, as in the column exemplar of detections, or names, "IMAGE, object K", as `eesvm serve` and
pictures have them; the name of an image alone is all of its objects, and #17 is number 17 where an image is called so,
too. Their classes are calibrated again, starting from
the thresholds there are. A class that loses its last exemplar goes.

example:
  eesvm drop model 17 130
  eesvm drop model 'photo_0012, object 2' photo_0031
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "drop", "drop:run", "remove exemplars from a model", _HELP)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("exemplars", nargs="+", metavar="EXEMPLARS", help="numbers, or names of training objects or their images")
    add("-o", "--output", metavar="OUT", help="write the new model here (default: in the place of MODEL)")
    add_change_arguments(parser)
    add("--quiet", action="store_true", help="print nothing but errors")
