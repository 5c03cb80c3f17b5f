"""What `eesvm verify` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_table_arguments, add_verb

_HELP = """\
The loss and the recall of the thresholds in OUT are computed again from SCORES, and the lower bound from the
certificate beside them. No search takes part in it. The exit status is 1 where something does not hold.

example:
  eesvm calibrate scores.csv -o calibrated
  eesvm verify scores.csv calibrated
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(
        verbs, "verify", "verify:run", "check the loss and the lower bound of a finished calibration", _HELP
    )
    add_table_arguments(parser)
    parser.add_argument("calibration", metavar="OUT", help="folder that `calibrate` wrote")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
