"""What `eesvm apply` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_table_arguments, add_verb

_HELP = """\
columns of the output:
  row             number of the row in SCORES, from 0; then the column of --id-column, under its name
  score           its highest calibrated score: above 0 is accepted, or with --sigmoid a probability; without, it counts
                  in standard deviations of the column in the table that was calibrated
  accepted        1 where any detector scores the row above its threshold
  exemplar        the detector with the highest calibrated score, and exemplar_index, its column from 0
  margin          the score of that detector minus its threshold, in the units of its column
                  Where no detector in use has a score for the row, these three are empty.

Columns of .csv and .parquet files are found by their names, in any order; others are ignored. A calibration of an .npz
table has no names: there columns are taken in their order. `accepted` follows the thresholds, not 0.5 of a probability.

example:
  eesvm apply calibrated new_scores.csv -o decisions.csv
  eesvm apply calibrated tickets.csv -o decisions.csv --id-column ticket
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "apply", "apply:run", "score new rows with a saved calibration", _HELP)
    parser.add_argument("calibration", metavar="CALIBRATION", help="folder that `calibrate` wrote, or its .json file")
    add_table_arguments(parser)
    parser.add_argument("--id-column", metavar="NAME", help="column of SCORES to write beside each row; not for .npz")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="csv file to write; - for standard output"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
