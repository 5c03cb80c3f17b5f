"""Tables 1 to 6 of the paper from what was measured, with the paper's own figures beside them.

In: `Results`. Out: `ResultTable`s with the paper's rows under its names, a column for each class and one for the mean
with its interval, the difference to the row that the paper compares with (paired by split), the paper's mean and the
range of its classes; rows that go beyond the paper follow in a group of their own. Two more tables: how the joint
searches behind the rows ended, and the statements of section 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from eesvm._support.amounts import rough_duration, rounded_percent
from eesvm.experiments.paper import (
    CNN_INDEPENDENT,
    CNN_JOINT,
    DEPTH_REDUCTION,
    EXHAUSTIVE_SECONDS,
    HOG_INDEPENDENT,
    ORDERING_SPEEDUP,
    PAPER_TABLES,
    PRUNED_SHARE,
    RECALL,
    REDUNDANT_SHARE,
    PaperRow,
    PaperTable,
)
from eesvm.experiments.reproduction.recipes import ACROSS_IMAGES, DEFAULT_PRESET
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL, Results
from eesvm.experiments.search_study.pruning import PruningStudy
from eesvm.experiments.tables.estimates import Sample
from eesvm.experiments.tables.files import (
    COUNT,
    COUNT_GAIN,
    GAIN,
    PERCENT,
    Cell,
    Column,
    ResultTable,
    TableRow,
)
from eesvm.experiments.tables.windows import Method

PAPER_GROUP, OWN_GROUP = "the paper's rows", "beyond the paper"

_percent = partial(rounded_percent, form=".0f", missing="")
_SHOWN_AS = {Method.SINGLE_SVM: "Single Linear-SVM (R-CNN)", RECALL: "Recall, %"}
_ABOUT = {
    1: "Negative test windows that a method accepts in order to reach the recall of the joint thresholds: fewer are "
    "better. The row of the joint calibration alone counts what its thresholds accept as they are.",
    2: "Average precision of test windows, in per cent.",
    3: "Average precision of detections by PASCAL VOC's rules since 2010, in per cent. The default preset of eesvm "
    "moves boxes by regression, the other rows leave them as they are proposed.",
    4: "As table 1, with all training images and the search stopped early.",
    5: "As table 2, with all training images and the search stopped early.",
    6: "Average precision of detections, in per cent; all training images, the search stopped early. Boxes as in "
    "table 3.",
}

# Rows of table 6: stage, method and which measure of it.
_VOC_ROWS = {
    HOG_INDEPENDENT: (HOG, Method.SIGMOID),
    CNN_INDEPENDENT: (FULL, Method.SIGMOID),
    CNN_JOINT: (FULL, Method.JOINT_SIGMOID),
}


def paper_tables(results: Results, has_cnn: bool = True) -> list[ResultTable]:
    """All six tables, by number; without CNN descriptors table 6 has its HOG row only."""
    return [
        _counts(results, PAPER_TABLES[1], SMALL),
        _precisions(results, PAPER_TABLES[2], SMALL, "window_ap"),
        _precisions(results, PAPER_TABLES[3], SMALL, "detection_ap"),
        _counts(results, PAPER_TABLES[4], FULL),
        _precisions(results, PAPER_TABLES[5], FULL, "window_ap"),
        _features(results, PAPER_TABLES[6], has_cnn),
    ]


def search_table(results: Results) -> ResultTable:
    """How the searches behind the joint rows ended, class by class, means over the splits."""
    columns = tuple(
        Column(name)
        for name in (
            *("exemplars", "positives", "negatives", "false positives (loss)", "at least (bound)"),
            *("largest gap, %", "redundant, %", "proven optimal", "seconds"),
        )
    )
    rows = [
        TableRow(f"{method}: {name}", tuple(cells), group)
        for stage, group in ((SMALL, "tables 1 to 3"), (FULL, "tables 4 to 6"))
        for method in (Method.JOINT_SIGMOID, ACROSS_IMAGES, DEFAULT_PRESET)
        for name in results.classes
        if (cells := list(_search_cells(results, stage, method, name)))
    ]
    notes = (
        "Training windows: every search covers all positives. A gap of 0 is a proof that no thresholds accept fewer.",
    )
    return ResultTable("searches", "The joint searches behind the tables", "search", columns, tuple(rows), notes)


def pruning_table(study: PruningStudy) -> ResultTable:
    """The statements of section 5.5, each in a line."""
    shares = study.pruned_share or {}
    generated = study.generated_pruned_share or {}
    more = "more than " if study.ordering_is_lower_bound else ""
    speedup, exhaustive = study.ordering_speedup, study.exhaustive_estimate
    lines = [
        ("Observation 3: levels of the tree saved", f"{100 * DEPTH_REDUCTION:g} %", _percent(study.depth_reduction)),
        (
            "Observation 4: time in random order over time sorted",
            f"{ORDERING_SPEEDUP:g}",
            "" if speedup is None else f"{more}{speedup:,.1f}",
        ),
        *(
            (f"Observations 1 and 2: nodes pruned at {n:,} E-SVMs", _paper_share(n), _percent(share))
            for n, share in shares.items()
        ),
        *(
            (f"Observations 1 and 2: nodes pruned at {n:,} E-SVMs, generated table", _paper_share(n), _percent(share))
            for n, share in generated.items()
        ),
        ("Redundant E-SVMs at the optimum", f"up to {100 * REDUNDANT_SHARE:g} %", _percent(study.redundant_share)),
        (
            "Exhaustive search of 15 E-SVMs and 50 positives (estimate)",
            rough_duration(EXHAUSTIVE_SECONDS),
            "" if exhaustive is None else rough_duration(exhaustive),
        ),
    ]
    columns = (Column("paper"), Column("here"))
    rows = tuple(TableRow(name, (Cell(paper), Cell(here))) for name, paper, here in lines)
    notes = (f"Each search stops after {study.time_limit:g} s. An empty cell: it could not be measured.",)
    return ResultTable("pruning", "Section 5.5: pruning statistics and runtimes", "statistic", columns, rows, notes)


def _counts(results: Results, paper: PaperTable, stage: str) -> ResultTable:
    """Tables 1 and 4."""
    columns = (
        *(Column(name) for name in results.classes),
        Column("mean", has_interval=True),
        Column("mean, % of negatives"),
        Column("minus indep. sigmoid", has_interval=True),
        *_paper_columns(paper, "% of negatives"),
    )
    rows = [_recall_row(results, paper, stage)]
    rows += [_count_row(results, paper, stage, method, is_ours) for method, is_ours in _shown(results, paper, stage)]
    return _table(results, paper, stage, columns, rows)


def _recall_row(results: Results, paper: PaperTable, stage: str) -> TableRow:
    def sample(name: str | None) -> Sample | None:
        """Recall belongs to the joint thresholds, so all rows of a stage share it."""
        return _sample(results, stage, Method.JOINT, "recall", name)

    cells = [_mean_cell(sample(name), 100.0) for name in results.classes]
    cells += [_cell(sample(None), 100.0), Cell(), Cell()]
    return TableRow(_SHOWN_AS[RECALL], (*cells, *_paper_cells(paper, RECALL, PERCENT), Cell()), PAPER_GROUP)


def _count_row(results: Results, paper: PaperTable, stage: str, method: str, is_ours: bool) -> TableRow:
    def measure(of: str, name: str | None, share: bool = False) -> Sample | None:
        """The thresholds alone decide, the other methods rank."""
        kind = "accepted" if of == Method.JOINT else "false_positives"
        return _sample(results, stage, of, f"{kind}_share" if share else kind, name)

    own, reference = measure(method, None), measure(Method.SIGMOID, None)
    cells = [_mean_cell(measure(method, name), 1.0, COUNT) for name in results.classes]
    cells += [_cell(own, 1.0, COUNT), _mean_cell(measure(method, None, share=True), 100.0)]
    cells.append(_difference(own, reference, 1.0, COUNT_GAIN) if method != Method.SIGMOID else Cell())
    figures = _paper_cells(paper, method, COUNT)
    row = paper.rows.get(method)
    share = Cell() if row is None or paper.n_negatives is None else Cell(100 * row.mean / paper.n_negatives)
    return TableRow(_SHOWN_AS.get(method, method), (*cells, *figures, share), OWN_GROUP if is_ours else PAPER_GROUP)


def _precisions(results: Results, paper: PaperTable, stage: str, measure: str) -> ResultTable:
    """Tables 2, 3 and 5."""

    def sample(method: str, name: str | None) -> Sample | None:
        return _sample(results, stage, method, measure, name)

    named = _shown(results, paper, stage)
    return _precision_table(results, paper, stage, named, sample, Method.SIGMOID, "minus indep. sigmoid")


def _features(results: Results, paper: PaperTable, has_cnn: bool) -> ResultTable:
    """Table 6."""

    def sample(row: str, name: str | None) -> Sample | None:
        stage, method = _VOC_ROWS.get(row, (FULL, row))
        return _sample(results, stage, method, "detection_ap", name) if has_cnn or stage == HOG else None

    named = [*((row, False) for row in _VOC_ROWS), *(pair for pair in results.methods(FULL) if pair[1])]
    named = [pair for pair in named if has_cnn or pair[0] == HOG_INDEPENDENT]
    return _precision_table(results, paper, FULL, named, sample, CNN_INDEPENDENT, "minus CNN, independent")


def _precision_table(
    results: Results,
    paper: PaperTable,
    stage: str,
    named: Sequence[tuple[str, bool]],
    sample: Callable[[str, str | None], Sample | None],
    reference: str,
    gain: str,
) -> ResultTable:
    """Rows of per cents beside a reference row; `sample` gives a row's class, or its mean for None."""
    columns = (
        *(Column(name) for name in results.classes),
        Column("mean", has_interval=True),
        Column(gain, has_interval=True),
        *_paper_columns(paper, gain),
    )
    rows = []
    for row, is_ours in named:
        cells = [_mean_cell(sample(row, name), 100.0) for name in results.classes]
        cells.append(_cell(sample(row, None), 100.0))
        is_other = row != reference
        cells.append(_difference(sample(row, None), sample(reference, None), 100.0, GAIN) if is_other else Cell())
        cells += [*_paper_cells(paper, row, PERCENT), _paper_gain(paper, row, reference) if is_other else Cell()]
        rows.append(TableRow(_SHOWN_AS.get(row, row), tuple(cells), OWN_GROUP if is_ours else PAPER_GROUP))
    return _table(results, paper, stage, columns, rows)


def _table(
    results: Results, paper: PaperTable, stage: str, columns: Sequence[Column], rows: Sequence[TableRow]
) -> ResultTable:
    over = "resamples of the test images" if results.is_resampled else f"{results.n_splits} splits"
    note = (
        f"{_ABOUT[paper.number]} Classes are means over splits; after ± or in brackets 95 % intervals over {over}; "
        f"differences are paired. {_sizes(results, stage)} Paper: {paper.setting}."
    )
    title = f"Table {paper.number}. {paper.title}"
    return ResultTable(f"table{paper.number}", title, "method", tuple(columns), tuple(rows), (note,))


def _sizes(results: Results, stage: str) -> str:
    parts = results.of(stage)
    if not parts:
        return ""

    def spread(name: str) -> str:
        counts = [int(part.facts[name]) for part in parts]
        return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"

    return (
        f"In a class and split {spread('n_exemplars')} exemplars; {spread('n_test_positives')} positive and "
        f"{spread('n_test_negatives')} negative test windows."
    )


def _shown(results: Results, paper: PaperTable, stage: str) -> list[tuple[str, bool]]:
    """The paper's rows in its order, then ours."""
    measured = results.methods(stage)
    return [
        *((method, False) for method in paper.rows if (method, False) in measured),
        *(pair for pair in measured if pair[1]),
    ]


def _sample(results: Results, stage: str, method: str, measure: str, name: str | None) -> Sample | None:
    if name is None:
        return results.mean(stage, method, measure)
    return results.sample(stage, method, measure, name)


def _cell(sample: Sample | None, factor: float, kind: str = PERCENT) -> Cell:
    return Cell() if sample is None else Cell(sample.estimate().scaled(factor), kind)


def _mean_cell(sample: Sample | None, factor: float, kind: str = PERCENT) -> Cell:
    """Without an interval."""
    return Cell() if sample is None else Cell(factor * sample.estimate().value, kind)


def _difference(own: Sample | None, reference: Sample | None, factor: float, kind: str) -> Cell:
    return Cell() if own is None or reference is None else _cell(own - reference, factor, kind)


def _paper_columns(paper: PaperTable, last: str) -> tuple[Column, ...]:
    has_classes = any(row.classes for row in paper.rows.values())
    ranges = (Column("paper: lowest class"), Column("paper: highest class")) if has_classes else ()
    return (Column("paper: mean"), *ranges, Column(f"paper: {last}"))


def _paper_cells(paper: PaperTable, method: str, kind: str) -> Iterator[Cell]:
    """Mean, and lowest and highest class where the table has them."""
    row = paper.rows.get(method, PaperRow(float("nan")))
    yield Cell(None if method not in paper.rows else row.mean, kind)
    if any(each.classes for each in paper.rows.values()):
        yield Cell(min(row.classes) if row.classes else None, kind)
        yield Cell(max(row.classes) if row.classes else None, kind)


def _paper_gain(paper: PaperTable, method: str, reference: str) -> Cell:
    row, other = paper.rows.get(method), paper.rows.get(reference)
    return Cell() if row is None or other is None else Cell(round(row.mean - other.mean, 6), GAIN)


def _paper_share(n_exemplars: int) -> str:
    return rounded_percent(PRUNED_SHARE.get(n_exemplars), "g", "")


def _search_cells(results: Results, stage: str, method: str, name: str) -> Iterator[Cell]:
    parts = results.of(stage, name)
    found = [(part, row) for part in parts for row in part.rows if row.method == method and row.search]
    if not found:
        return

    def mean(values: Sequence[float], kind: str = COUNT) -> Cell:
        return Cell(sum(values) / len(values), kind)

    yield mean([row.n_exemplars for _, row in found])
    yield mean([part.facts["n_calibration_positives"] for part, _ in found])
    yield mean([part.facts["n_calibration_negatives"] for part, _ in found])
    yield mean([row.search["loss"] for _, row in found])
    yield mean([row.search["bound"] for _, row in found])
    yield Cell(100 * max(row.search["gap"] for _, row in found), PERCENT)
    yield mean([100 * (1 - row.n_used / row.n_exemplars) for _, row in found], PERCENT)
    n_proven = sum(row.search["status"] == "optimal" for _, row in found)
    yield Cell(f"{n_proven} of {len(found)}")
    yield mean([row.search["seconds"] for _, row in found], PERCENT)
