"""What `eesvm demo` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_verb

_HELP = """\
Scenes with handwritten digits among clutter: an exemplar is trained for every digit of the training scenes, all of a
class are calibrated together, and the test scenes are searched with every calibration. report.html shows what they
found, which training object each detection looks like, and what was carried over from it. About two minutes.

With --scores no image is touched: the thresholds of detectors whose scores are given, as for any other OR of detectors.

example:
  eesvm demo -o demo
  eesvm demo --scores -o scores
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(
        verbs, "demo", "demo:run", "train, calibrate and detect on built-in scenes and write a report", _HELP
    )
    parser.add_argument("-o", "--output", default="demo", metavar="OUT", help="folder to write (default: demo)")
    parser.add_argument("--scores", action="store_true", help="calibrate a built-in table of scores instead")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if eesvm wrote it")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
