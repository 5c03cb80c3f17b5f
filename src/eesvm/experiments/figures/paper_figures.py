"""Each figure of the paper with its caption, or why it cannot be drawn.

In: `FigureInputs`: the windows, exemplars, scores and detections of one class. Out: seven `PaperFigure`s in the order
of the paper, each a PNG with a caption that says what is seen, or a sentence why it cannot be drawn from this run.
Trees are those of small cuts of the real score table: two E-SVMs and a few windows, found by trying draws with a fixed
seed until one shows what the figure is about. No score is made up, and pictures are not chosen by their looks.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm._support.figures import png_bytes
from eesvm._support.validation import InputError
from eesvm.calibration.problem import CalibrationProblem
from eesvm.detector.class_training import CalibrationScores, TrainedClass
from eesvm.detector.training_table import TrainingWindows
from eesvm.experiments.figures import drawings as paper_drawings
from eesvm.experiments.figures.example_pictures import different_winners, read_or_none, shown_windows
from eesvm.experiments.search_study import example_cuts
from eesvm.experiments.search_study.cuts import Cut
from eesvm.experiments.search_study.small_trees import difficulty, small_tree
from eesvm.experiments.tables.detections import RuleResult
from eesvm.report.transfer_pictures import grid, superimposed
from eesvm.structures import ExemplarAnnotation, ImageRecord

ALL_FIGURES = (1, 2, 3, 4, 5, 6, 7)

_PICTURE_HEIGHT = 260  # of each detection of figure 7, in pixels
_ETA = "\N{GREEK SMALL LETTER ETA}"  # what the paper calls nodes


@dataclass(frozen=True)
class FigureInputs:
    """One class of a real run."""

    dataset: str  # its name, for the captions
    train: TrainingWindows  # with the records that pixels are read from
    trained: TrainedClass
    scores: CalibrationScores  # of `score_class(train, trained)`
    annotations: Sequence[ExemplarAnnotation]  # of `trained.instances`, in their order
    result: RuleResult | None  # the joint calibration with sigmoid on the test images; None: none was judged
    test_records: Sequence[ImageRecord]  # those images
    across_images: bool = False  # whether exemplars may not cover windows of their own image (calibration.coverage)
    positive_overlap: float = 0.5  # calibration.positive_overlap, which figure 1 speaks of
    negative_overlap: float = 0.2  # calibration.negative_overlap
    random_state: int = 0  # of the draws

    @cached_property
    def problem(self) -> CalibrationProblem:
        """The calibration problem of the class."""
        return self.scores.table.problem(self.across_images)

    @property
    def class_name(self) -> str:
        return self.trained.class_name


@dataclass(frozen=True)
class PaperFigure:
    """One figure."""

    number: int  # 1 to 7
    name: str  # a file name without its ending: "figure1_windows"
    png: bytes | None = field(repr=False)  # None: it could not be drawn
    caption: str  # plain text; where there is no picture, the reason
    alt: str  # what the picture shows, for those who do not see it; "" without a picture


@dataclass(frozen=True)
class _Drawn:
    png: bytes
    caption: str
    alt: str


class _CannotDrawError(Exception):
    """The run does not have what a figure shows; the text says what is missing."""


def paper_figures(inputs: FigureInputs, numbers: Collection[int] = ALL_FIGURES) -> list[PaperFigure]:
    """The figures with these numbers, in the order of the paper."""
    if not set(numbers) <= set(ALL_FIGURES):
        raise InputError(f"`numbers` must be some of 1 to 7, got {numbers!r}")
    figures = []
    for number in sorted(set(numbers)):
        name, draw = _FIGURES[number - 1]
        stem = f"figure{number}_{name}"
        try:
            drawn = draw(inputs)
            figures.append(PaperFigure(number, stem, drawn.png, drawn.caption, drawn.alt))
        except _CannotDrawError as error:
            figures.append(PaperFigure(number, stem, None, f"Figure {number} is not drawn: {error}.", ""))
    return figures


def _windows(inputs: FigureInputs) -> _Drawn:
    """Figure 1: a training image with windows of P and of N, and the ground truth of exemplars."""
    shown = shown_windows(inputs.trained.instances, inputs.scores, inputs.train.records)
    if shown is None:
        raise _CannotDrawError("no training image that can be read has both positive and negative windows")
    figure = paper_drawings.windows_figure(shown.pixels, shown.positives, shown.negatives, shown.truth)
    numbers = ", ".join(str(j + 1) for j in shown.exemplars)
    caption = (
        f"Windows of a training image ({inputs.dataset}, {shown.image_id}) for the class {inputs.class_name}. "
        f"Green: {len(shown.positives)} of its {shown.n_positives:,} positive windows, which have an IoU of at least "
        f"{inputs.positive_overlap:g} with an object of the class. Red, dashed: {len(shown.negatives)} of its "
        f"{shown.n_negatives:,} negative windows, which have at most {inputs.negative_overlap:g}. Yellow: the ground "
        f"truth of E-SVM {numbers}. In all training images there are {_sizes(inputs)}."
    )
    alt = f"A training image of the class {inputs.class_name}: green frames on the object, red ones elsewhere."
    return _Drawn(png_bytes(figure), caption, alt)


def _pipeline(inputs: FigureInputs) -> _Drawn:
    """Figure 2: scores, candidate thresholds and the whole tree of a small cut."""
    cut = _found(inputs, example_cuts.pipeline, "in which both thresholds matter")
    tree = small_tree(cut.problem, observations=())
    counts = " and ".join(str(len(cut.problem.candidate_thresholds(j))) for j in (0, 1))
    caption = (
        f"Joint calibration, of {_origin(inputs, cut)}. Left: their scores. Middle: the {counts} candidate thresholds "
        f"of the two E-SVMs. Right: the tree of all {len(tree.leaves)} solutions. A level is a positive window, an "
        "edge the E-SVM that is made to accept it; a node holds the thresholds so far and how many negative windows "
        f"they accept. Every leaf accepts all positives, and the best one {_amount(tree.nodes[tree.best].loss)}. "
        "Positive p1 is accepted at the root already: observation 3 would save its level."
    )
    alt = f"A table of scores, two axes with thresholds, and a tree with {len(tree.nodes)} nodes, one leaf green."
    return _Drawn(png_bytes(paper_drawings.pipeline_figure(cut.problem, tree)), caption, alt)


def _candidates(inputs: FigureInputs) -> _Drawn:
    """Figure 3: the candidate thresholds of one E-SVM."""
    chosen = example_cuts.score_stretch(inputs.problem)
    if chosen is None:
        raise _CannotDrawError("under no E-SVM a negative comes right after a positive among the highest windows")
    exemplar, low, high = chosen
    positives, negatives = inputs.problem.positive_scores[:, exemplar], inputs.problem.negative_scores[:, exemplar]
    candidates = inputs.problem.candidate_thresholds(exemplar)
    figure = paper_drawings.thresholds_figure(positives, negatives, candidates, (low, high))
    windows = np.concatenate([positives, negatives])
    n_part, n_higher = int(((windows >= low) & (windows <= high)).sum()), int((windows > high).sum())
    n_shown = int(((candidates > low) & (candidates < high)).sum())
    caption = (
        f"Candidate thresholds of E-SVM {exemplar + 1} ({inputs.trained.names[exemplar]}; {inputs.dataset}, "
        f"{inputs.class_name}), given its scores on {len(positives):,} positive (+) and {len(negatives):,} negative "
        f"(\N{MINUS SIGN}) windows. Enlarged: {n_part} windows; {n_higher} score higher. The only thresholds worth "
        "considering lie between a negative and the positive above it, and of all equivalent ones we take the mean of "
        f"the two scores. That makes {len(candidates):,} candidates for {len(windows):,} windows, {n_shown} of them in "
        "the part shown."
    )
    alt = "Plus and minus signs on two axes of scores; a line wherever a minus is followed by a plus."
    return _Drawn(png_bytes(figure), caption, alt)


def _bound(inputs: FigureInputs) -> _Drawn:
    """Figure 4: pruning by bound."""
    cut = _found(inputs, example_cuts.by_bound, "that is pruned by bound")
    tree = small_tree(cut.problem, observations=(1,))
    best, pruned = tree.nodes[tree.best], tree.nodes[2]
    caption = (
        f"Pruning by bound, on {_origin(inputs, cut)}. Leaf {_ETA}{best.number} accepts {_amount(best.loss)}. Node "
        f"{_ETA}{pruned.number} accepts {pruned.loss:g} already, and the loss never shrinks on the way down: the "
        "subtree below it cannot hold a better solution."
    )
    alt = f"Two axes of scores and a tree whose right half, at loss {pruned.loss:g}, is crossed out."
    return _Drawn(png_bytes(paper_drawings.tree_figure(cut.problem, tree)), caption, alt)


def _equivalence(inputs: FigureInputs) -> _Drawn:
    """Figure 5: pruning by equivalence."""
    cut = _found(inputs, example_cuts.by_equivalence, "that is pruned by equivalence")
    tree = small_tree(cut.problem, observations=(2,))
    same = ", ".join(f"n{n + 1}" for n in sorted(tree.nodes[1].false_positives))
    caption = (
        f"Pruning by equivalence, on {_origin(inputs, cut)}. Nodes {_ETA}1 and {_ETA}2 have the same parent and the "
        f"same false positives ({same}), although they lower the thresholds of different E-SVMs: the leaves below one "
        "cost what the leaves below the other cost, and only one subtree needs to be searched."
    )
    alt = "Two axes of scores and a tree with two equal sets of false positives; one of its halves is crossed out."
    return _Drawn(png_bytes(paper_drawings.tree_figure(cut.problem, tree, with_sets=True)), caption, alt)


def _order(inputs: FigureInputs) -> _Drawn:
    """Figure 6: the same positives in two orders."""
    cut = _found(inputs, example_cuts.by_order, "that is pruned in one order of two positives and not in the other")
    trees = [small_tree(cut.problem, order, observations=(1,)) for order in ((0, 1), (1, 0))]
    costs = [difficulty(cut.problem, p) for p in (0, 1)]
    labels = [[f"$p_{{{p + 1}}}$\ndifficulty {costs[p]:g}" for p in tree.order] for tree in trees]
    caption = (
        f"The order of the positives, on {_origin(inputs, cut)}. The difficulty of a positive is the number of false "
        f"positives that its cheapest E-SVM makes: {costs[0]:g} for p1, {costs[1]:g} for p2. Tree (a) begins with p1, "
        "and no subtree can be pruned by bound. Tree (b) begins with p2, which is more difficult: a node right below "
        f"the root costs no less than the best leaf, {_amount(trees[1].nodes[trees[1].best].loss)}, and is pruned."
    )
    alt = "Two axes of scores and two trees; half of the second one is crossed out."
    return _Drawn(png_bytes(paper_drawings.orders_figure(cut.problem, trees, labels)), caption, alt)


def _transfer(inputs: FigureInputs) -> _Drawn:
    """Figure 7: detections with their exemplars laid over them."""
    if inputs.result is None:
        raise _CannotDrawError("no rule was judged on test images")
    records = {record.image_id: record for record in inputs.test_records}
    hits = [hit for hit in inputs.result.hits if hit.exemplars and hit.instance.image_id in records]
    if not hits:
        raise _CannotDrawError(f"no object of the class {inputs.class_name} was found in the test images")
    pictures, texts, n_masks = [], [], 0
    for hit in different_winners(hits):
        image, exemplar = read_or_none(records[hit.instance.image_id]), inputs.annotations[hit.exemplars[0]]
        if image is not None:
            pictures.append(superimposed(image, hit.box, exemplar, height=_PICTURE_HEIGHT))
            texts.append(f"by {exemplar.image_id},\nobject {exemplar.index + 1}")
            n_masks += exemplar.mask is not None
    if not pictures:
        raise _CannotDrawError("none of the test images with a detection can be read")
    outline = {0: "along its box, as there is no mask", len(pictures): "along its mask"}.get(
        n_masks, "along its mask, or its box where it has none"
    )
    result = inputs.result
    caption = (
        f"Association between detected objects and training exemplars ({inputs.dataset}, {inputs.class_name}, "
        f"{result.rule}). Detections in green; the exemplar that won each of them is laid over it and outlined in "
        f"yellow, {outline}. Shown are {len(pictures)} of {len(hits)} detected objects, each won by another exemplar, "
        f"in the order of the exemplars. The test images hold {result.n_objects} objects; {result.n_winners} of "
        f"{result.n_exemplars} exemplars win one."
    )
    alt = f"{len(pictures)} detections in green frames, over each of which a training object is laid."
    columns = len(pictures) if len(pictures) <= 4 else -(-len(pictures) // 2)
    return _Drawn(_as_png(grid(pictures, columns=columns, height=_PICTURE_HEIGHT, captions=texts)), caption, alt)


_FIGURES: tuple[tuple[str, Callable[[FigureInputs], _Drawn]], ...] = (
    ("windows", _windows),
    ("pipeline", _pipeline),
    ("candidate_thresholds", _candidates),
    ("pruning_by_bound", _bound),
    ("pruning_by_equivalence", _equivalence),
    ("order_of_positives", _order),
    ("transfer", _transfer),
)


def _found(inputs: FigureInputs, find: Callable[[CalibrationProblem, int], Cut | None], what: str) -> Cut:
    """The cut that a figure shows."""
    if inputs.problem.n_exemplars < 2:
        raise _CannotDrawError(f"the class {inputs.class_name} has one E-SVM only, and there is nothing to choose")
    cut = find(inputs.problem, inputs.random_state)
    if cut is None:
        raise _CannotDrawError(f"no draw of two E-SVMs and a few windows of the score table has a tree {what}")
    return cut


def _origin(inputs: FigureInputs, cut: Cut) -> str:
    one, other = (j + 1 for j in cut.exemplars.tolist())
    return (
        f"E-SVMs {one} and {other}, {len(cut.positives)} positive and {len(cut.negatives)} negative windows of the "
        f"score table of the run ({inputs.dataset}, {inputs.class_name}: {_sizes(inputs)}), found among random draws"
    )


def _sizes(inputs: FigureInputs) -> str:
    problem = inputs.problem
    return f"{problem.n_exemplars:,} E-SVMs, {problem.n_positives:,} positive, {problem.n_negatives:,} negative windows"


def _amount(loss: float) -> str:
    return f"{loss:g} negative window{'' if loss == 1 else 's'}"


def _as_png(picture: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    optional_module("PIL.Image").fromarray(picture).save(buffer, "png")
    return buffer.getvalue()
