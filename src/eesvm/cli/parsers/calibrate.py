"""What `eesvm calibrate` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.calibration.choices import SEARCH_METHODS
from eesvm.cli.arguments import Parsers, add_table_arguments, add_verb, number

_HELP = """\
SCORES is a .npz with `positive_scores` and `negative_scores` (or `scores` and `labels`), or a .csv, .csv.gz, .tsv or
.parquet with a header, one column of scores per detector and a column of labels. A detector accepts a row whose score
is above its threshold; a row is accepted if any detector accepts it. With --bounds, a threshold stays between the two
numbers of its line; equal numbers lock it, and inf as the lower one switches its detector off. A column that counts
the rows is refused: --exclude leaves columns out, --columns names those of scores.

Thresholds that are best here are less good on new rows: recall and false alarms of rows held out in a cross-validation
stand below the result. --target-recall asks for a recall on new rows: thresholds are drawn towards a shared one and
lowered as far as held-out rows want it. With --group-column, rows of one group are held out together.

--max-loss and --min-precision ask the other way round: for the most recall within a budget of false alarms, or at a
precision, with a bound that no thresholds exceed. --max-detectors and --detector-cost keep few detectors in use.

example:
  eesvm calibrate scores.csv -o calibrated --min-recall 0.99 --time-limit 60
  eesvm calibrate scores.csv -o calibrated --target-recall 0.95 --group-column user
  eesvm calibrate scores.csv -o calibrated --max-loss 20
"""


def add_parser(verbs: Parsers) -> None:
    summary = "find the thresholds that accept the positives and the fewest negatives"
    parser = add_verb(verbs, "calibrate", "calibrate:run", summary, _HELP)
    add_table_arguments(parser, missing="refuse")
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="OUT", help="folder to write")
    add("--group-column", metavar="NAME", help="column that says where each row comes from (image, user, ...)")
    add("--method", choices=SEARCH_METHODS, default="exact", help="how to search (default: exact)")
    add(
        "--min-recall",
        type=number(above=0, maximum=1),
        default=1.0,
        metavar="R",
        help="share of the positives that must be accepted (default: 1)",
    )
    add(
        "--target-recall",
        type=number(above=0, maximum=1),
        metavar="R",
        help="share of new positives that shall be accepted: the floor is chosen by cross-validation",
    )
    add(
        "--max-loss",
        type=number(minimum=0),
        metavar="L",
        help="accept as many positives as possible with false alarms of this weight (without weights: this many)",
    )
    add(
        "--min-precision",
        type=number(above=0, maximum=1),
        metavar="Q",
        help="accept as many positives as possible while this share of what is accepted is positive",
    )
    add(
        "--max-detectors",
        type=number(minimum=1, integer=True),
        metavar="K",
        help="use K detectors at most; the others are switched off",
    )
    add(
        "--detector-cost",
        type=number(minimum=0),
        default=0.0,
        metavar="C",
        help="what using a detector costs, in false alarms; it is part of the loss (default: 0)",
    )
    add(
        "--time-limit",
        type=number(minimum=0),
        metavar="S",
        help="stop after S seconds with the best so far; the cross-validation takes as long again at most",
    )
    add("--node-limit", type=number(minimum=1, integer=True), metavar="N", help="stop after N nodes of the search")
    add(
        "--gap",
        type=number(minimum=0),
        default=0.0,
        metavar="G",
        help="stop when (loss - lower bound) / loss is at most this (default: 0)",
    )
    add("--bounds", metavar="FILE.csv", help="limits of thresholds: columns detector, lower, upper; empty: no limit")
    add("--across-groups", action="store_true", help="a detector does not cover the windows of its own group")
    add("--sigmoid", action="store_true", help="also fit a sigmoid per detector, so that scores are probabilities")
    add("--verify", action="store_true", help="also check loss and bound again, from the scores and the certificate")
    add(
        "--report",
        action="store_true",
        help="also write report.html: what each detector catches, redundant ones, recall floors, the rows that decide",
    )
    add("--frontier", action="store_true", help="also search what other recall floors cost, the time limit for each")
    add(
        "--folds",
        type=number(minimum=0, integer=True),
        default=5,
        metavar="K",
        help="of the cross-validation that says what to expect of new rows (default: 5; 0 for none)",
    )
    add("--compare", action="store_true", help="also compare all calibrators on held-out rows")
    add(
        "--test-size",
        type=number(above=0, maximum=1),
        default=0.5,
        metavar="T",
        help="share of the rows (or groups) that --compare holds out (default: 0.5)",
    )
    add(
        "--seed",
        type=number(minimum=0, integer=True),
        default=0,
        metavar="N",
        help="of all random choices (default: 0)",
    )
    add("--jobs", type=number(minimum=1, integer=True), metavar="N", help="threads (default: all cores)")
    add("--overwrite", action="store_true", help="replace OUT if eesvm wrote it")
    add("--quiet", action="store_true", help="print nothing but errors")
