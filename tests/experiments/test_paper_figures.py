"""Figures 1 to 7 of the paper from a real run on small scenes: what they show, and what is said where they cannot."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from eesvm import CalibrationProblem, InputError
from eesvm._support.figures import png_bytes
from eesvm.detector.class_training import score_class, train_class
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import describe_windows, propose_windows
from eesvm.experiments.figures import drawings as paper_drawings
from eesvm.experiments.figures.example_pictures import different_winners, shown_windows
from eesvm.experiments.figures.paper_figures import FigureInputs, paper_figures
from eesvm.experiments.search_study import example_cuts
from eesvm.experiments.search_study.cuts import cut_problem, find_cut, random_cut
from eesvm.experiments.search_study.small_trees import BY_BOUND, BY_EQUIVALENCE, difficulty, small_tree
from eesvm.experiments.tables.detections import PAPER_RULES, compare_rules
from eesvm.experiments.tables.windows import Method
from eesvm.transfer.annotations import annotate_all
from helpers.detector_scenes import CLASSES, quick_options, scenes, shared_cache

pytestmark = pytest.mark.long  # one run of everything that the figures show

NAMES = [
    "figure1_windows",
    "figure2_pipeline",
    "figure3_candidate_thresholds",
    "figure4_pruning_by_bound",
    "figure5_pruning_by_equivalence",
    "figure6_order_of_positives",
    "figure7_transfer",
]


@pytest.fixture(scope="module")
def inputs():
    options = quick_options(detection__pooling=1)
    train = training_windows(scenes("train"), options, cache=shared_cache())
    proposed = list(propose_windows(scenes("test"), options.windows, 1, True))
    test = describe_windows(scenes("test"), proposed, train.descriptor)
    rule = next(rule for rule in PAPER_RULES if rule.name == Method.JOINT_SIGMOID)
    trained, (result,) = compare_rules(train, test, CLASSES[0], options, [rule])
    return FigureInputs(
        dataset="scenes",
        train=train,
        trained=trained,
        scores=score_class(train, trained, options.calibration),
        annotations=annotate_all(trained.instances, {record.image_id: record for record in train.records}),
        result=result,
        test_records=test.records,
    )


@pytest.fixture(scope="module")
def figures(inputs):
    return paper_figures(inputs)


def overlapping(seed=0, n_exemplars=6, n_positives=40, n_negatives=300):
    """A problem in which every kind of tree can be found."""
    random = np.random.default_rng(seed)
    positives = random.normal(0.7, 1, (n_positives, n_exemplars))
    return CalibrationProblem(positives, random.normal(size=(n_negatives, n_exemplars)))


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def has_colour(picture, colour):
    wanted = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return (np.abs(picture.astype(int) - wanted).max(axis=2) <= 6).sum() > 50


def test_seven_figures_in_the_order_of_the_paper(inputs, figures):
    assert [figure.number for figure in figures] == [1, 2, 3, 4, 5, 6, 7]
    assert [figure.name for figure in figures] == NAMES
    for figure in figures:
        if figure.png is None:
            assert figure.caption.startswith(f"Figure {figure.number} is not drawn: ")
            continue
        picture = pixels(figure.png)
        assert min(picture.shape[:2]) > 250
        assert picture.std() > 5
        assert figure.alt
        assert "scenes" in figure.caption
        assert CLASSES[0] in figure.caption
    assert sum(figure.png is not None for figure in figures) >= 6


@pytest.mark.long
def test_the_same_run_gives_the_same_figures(inputs, figures):
    again = paper_figures(replace(inputs), numbers=(4, 1, 7))
    assert again == [figures[0], figures[3], figures[6]]
    with pytest.raises(InputError, match=r"`numbers` must be some of 1 to 7, got \[0\]"):
        paper_figures(inputs, [0])


def test_figure_1_shows_windows_of_the_table(inputs, figures):
    shown = shown_windows(inputs.trained.instances, inputs.scores, inputs.train.records)
    is_own = np.asarray(inputs.scores.table.groups) == shown.image_id
    labels = np.asarray(inputs.scores.table.labels)
    assert (shown.n_positives, shown.n_negatives) == (
        int((is_own & (labels == 1)).sum()),
        int((is_own & (labels == 0)).sum()),
    )
    for boxes, label in ((shown.positives, 1), (shown.negatives, 0)):
        of_table = {tuple(box) for box in inputs.scores.boxes[is_own & (labels == label)]}
        assert 0 < len(boxes) <= 6
        assert len({tuple(box) for box in boxes}) == len(boxes)
        assert {tuple(box) for box in boxes} <= of_table
    assert f"{len(shown.positives)} of its {shown.n_positives} positive windows" in figures[0].caption
    picture = pixels(figures[0].png)
    for colour in (paper_drawings.GREEN, paper_drawings.RED, paper_drawings.YELLOW):
        assert has_colour(picture, colour)


def test_figure_3_counts_the_candidates_of_the_whole_table(inputs, figures):
    exemplar, low, high = example_cuts.score_stretch(inputs.problem)
    candidates = inputs.problem.candidate_thresholds(exemplar)
    windows = inputs.scores.table.scores[:, exemplar]
    assert ((windows >= low) & (windows <= high)).sum() == 12
    assert f"makes {len(candidates):,} candidates for {len(windows):,} windows" in figures[2].caption
    assert ((candidates > low) & (candidates < high)).any()


def test_examples_are_cuts_of_the_table():
    problem = overlapping()
    for find in (example_cuts.pipeline, example_cuts.by_bound):
        cut, again = find(problem, 1), find(problem, 1)
        assert (cut.problem.positive_scores == problem.positive_scores[np.ix_(cut.positives, cut.exemplars)]).all()
        assert (cut.problem.negative_scores == problem.negative_scores[np.ix_(cut.negatives, cut.exemplars)]).all()
        assert (cut.exemplars == again.exemplars).all()
        assert (cut.negatives == again.negatives).all()


def test_examples_show_what_they_are_for():
    problem = overlapping()
    part = example_cuts.pipeline(problem).problem
    root = small_tree(part, observations=()).nodes[0]
    assert part.covers(root.thresholds).tolist() == [True, False, False]
    tree = small_tree(example_cuts.by_bound(problem).problem, observations=(1,))
    assert tree.nodes[2].fate == BY_BOUND
    assert tree.nodes[tree.best].loss < tree.nodes[2].loss
    tree = small_tree(example_cuts.by_equivalence(problem).problem, observations=(2,))
    assert tree.nodes[2].fate == BY_EQUIVALENCE
    assert tree.nodes[1].false_positives == tree.nodes[2].false_positives != frozenset()
    part = example_cuts.by_order(problem).problem
    assert difficulty(part, 0) < difficulty(part, 1)
    first, second = (small_tree(part, order, observations=(1,)) for order in ((0, 1), (1, 0)))
    assert not any(node.children for node in first.with_fate(BY_BOUND))
    assert any(node.children for node in second.with_fate(BY_BOUND))


@pytest.mark.long
def test_exemplars_that_may_not_cover_their_own_image(inputs):
    across = replace(inputs, across_images=True)
    exemplar, low, high = example_cuts.score_stretch(across.problem)
    candidates = across.problem.candidate_thresholds(exemplar)
    n_shown = int(((candidates > low) & (candidates < high)).sum())
    assert n_shown > 0
    third, fourth = paper_figures(across, [3, 4])
    assert f", {n_shown} of them in the part shown." in third.caption
    assert fourth.png is not None
    assert len(small_tree(example_cuts.by_bound(across.problem).problem, observations=(1,)).nodes) == 7


def test_one_exemplar_leaves_nothing_to_choose(inputs):
    alone = train_class(inputs.train, CLASSES[0], quick_options().training)
    keep = np.arange(1)
    exemplars = type(alone.exemplars)()
    exemplars.coef_, exemplars.intercept_ = alone.exemplars.coef_[keep], alone.exemplars.intercept_[keep]
    alone = replace(alone, exemplars=exemplars, instances=alone.instances[:1])
    scores = score_class(inputs.train, alone, quick_options().calibration)
    figures = paper_figures(
        replace(inputs, trained=alone, scores=scores, annotations=inputs.annotations[:1], result=None)
    )
    assert [figure.number for figure in figures if figure.png is not None] == [1, 3]
    sentence = "Figure 4 is not drawn: the class three has one E-SVM only, and there is nothing to choose."
    assert figures[3].caption == sentence
    assert figures[3].alt == ""
    assert figures[6].caption == "Figure 7 is not drawn: no rule was judged on test images."


def test_nothing_found_and_nothing_to_read(inputs):
    def unreadable():
        raise OSError("gone")

    nothing = paper_figures(replace(inputs, result=replace(inputs.result, hits=())), [7])[0]
    assert nothing.caption == "Figure 7 is not drawn: no object of the class three was found in the test images."
    gone = replace(
        inputs,
        train=replace(inputs.train, records=tuple(replace(r, read=unreadable) for r in inputs.train.records)),
        test_records=[replace(r, read=unreadable) for r in inputs.test_records],
    )
    first, third, last = paper_figures(gone, [1, 3, 7])
    assert first.caption == (
        "Figure 1 is not drawn: no training image that can be read has both positive and negative windows."
    )
    assert last.caption == "Figure 7 is not drawn: none of the test images with a detection can be read."
    assert third.png is not None


def test_without_masks_boxes_are_outlined(inputs, figures):
    bare = replace(inputs, annotations=[replace(one, mask=None, picture=None) for one in inputs.annotations])
    assert "outlined in yellow, along its box, as there is no mask" in paper_figures(bare, [7])[0].caption
    assert "outlined in yellow, along its mask" in figures[6].caption


def test_shown_hits_are_of_different_exemplars(inputs):
    hits = [hit for hit in inputs.result.hits if hit.exemplars]
    shown = different_winners(hits * 3)
    winners = [hit.exemplars[0] for hit in shown]
    assert winners == sorted(set(winners))
    assert len(winners) == min(8, inputs.result.n_winners)


@pytest.mark.parametrize("shape", [(8, 8), (3, 400), (400, 3), (1, 1)])
def test_windows_of_tiny_and_narrow_images(shape):
    height, width = shape
    box = np.array([[0.0, 0, width, height]])
    figure = paper_drawings.windows_figure(np.zeros((*shape, 3), np.uint8), box, box[:0], box)
    picture = pixels(png_bytes(figure))
    assert picture.shape[1] == 855
    assert 100 < picture.shape[0] < 1000


def test_drawings_of_degenerate_problems():
    ties = CalibrationProblem([[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0]])
    lonely = CalibrationProblem([[1.0]], [[2.0]])
    for problem in (ties, lonely):
        tree = small_tree(problem, observations=())
        png_bytes(paper_drawings.pipeline_figure(problem, tree))
        png_bytes(paper_drawings.tree_figure(problem, tree, with_sets=True))
        labels = [["one", "two"][: tree.depth]]
        png_bytes(paper_drawings.orders_figure(problem, [tree], labels))
    assert example_cuts.score_stretch(ties) is None
    assert example_cuts.by_bound(ties) is None
    assert example_cuts.by_bound(lonely) is None
    scores = np.array([1.0])
    png_bytes(paper_drawings.thresholds_figure(scores, scores, np.array([np.inf, 0.5]), (1.0, 1.0)))


def test_cuts_keep_what_belongs_to_their_windows():
    whole = overlapping()
    random = np.random.default_rng(0)
    problem = CalibrationProblem(
        whole.positive_scores,
        whole.negative_scores,
        positive_weights=random.integers(1, 5, 40),
        negative_weights=random.integers(1, 5, 300),
        forbidden=random.random((40, 6)) < 0.7,
        lower_thresholds=np.full(6, -1.0),
        upper_thresholds=np.full(6, 3.0),
    )
    exemplars, positives, negatives = np.array([4, 1]), np.array([3, 9]), np.array([250, 7, 30])
    part = cut_problem(problem, exemplars, positives, negatives).problem
    assert part.positive_weights.tolist() == problem.positive_weights[positives].tolist()
    assert part.negative_weights.tolist() == problem.negative_weights[negatives].tolist()
    assert (part.forbidden == problem.forbidden[np.ix_(positives, exemplars)]).all()
    assert (part.lower_thresholds.tolist(), part.upper_thresholds.tolist()) == ([-1.0] * 2, [3.0] * 2)
    small, large = (random_cut(problem, n, 10, 20 * n, random_state=5) for n in (2, 4))
    assert set(small.exemplars) < set(large.exemplars)
    assert set(small.negatives) < set(large.negatives)
    assert len(large.positives) == 10
    assert not small.problem.orphans().any()
    barred = CalibrationProblem(whole.positive_scores, whole.negative_scores, forbidden=np.ones((40, 6), dtype=bool))
    assert random_cut(barred, 2, 10, 20) is None


def test_a_cut_is_looked_for_until_one_is_good_enough():
    ratings = []

    def rate(positives, negatives):
        assert (negatives[:, 0][:-1] >= negatives[:, 0][1:]).all()
        assert (negatives[:, None] >= positives).any(axis=(1, 2)).all()  # each outscores some positive
        ratings.append(float(positives.sum()))
        return ratings[-1]

    problem = overlapping()
    best = find_cut(problem, 2, 2, 3, lambda part: True, rate, n_draws=200)
    assert best.problem.positive_scores.sum() == max(ratings)
    n_all = len(ratings)
    ratings.clear()
    find_cut(problem, 2, 2, 3, lambda part: True, rate, enough=-100.0, n_draws=200)
    assert len(ratings) == 1 < n_all
    assert find_cut(problem, 2, 2, 3, lambda part: False, rate, n_draws=50) is None
    assert find_cut(problem, 7, 2, 3, lambda part: True, rate, n_draws=50) is None
