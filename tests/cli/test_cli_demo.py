"""The demo on small scenes, and the comparison of rules behind its tables."""

import json
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm.cli import main
from eesvm.cli.console import Screen
from eesvm.cli.demo import scenes as demo_scenes
from eesvm.cli.demo.scenes_report import SHARED, reading, search_table
from eesvm.datasets.scenes import make_scenes
from eesvm.detector import ExemplarDetector
from eesvm.detector.class_training import score_class, train_class
from eesvm.detector.model import Ensemble, score_image
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import describe_windows, propose_windows
from eesvm.exemplars.scoring import score_windows
from eesvm.experiments.reproduction.measure import ClassWork
from eesvm.experiments.reproduction.recipes import Recipe
from eesvm.experiments.tables.detections import PAPER_RULES, WINNER, Rule, compare_rules, transfer_choices
from eesvm.experiments.tables.windows import Method
from eesvm.metrics import average_precision, evaluate_detections, false_positives_at_recall
from eesvm.metrics.detection_files import read_detections
from eesvm.transfer.annotations import annotate_all
from helpers.detector_scenes import CLASSES, quick_options, scenes, shared_cache, trained


@pytest.fixture(scope="module")
def halves():
    options = quick_options()
    train = training_windows(scenes("train"), options)
    found = list(propose_windows(scenes("test"), options.windows, 1, True))
    return train, describe_windows(scenes("test"), found, train.descriptor)


@pytest.fixture(scope="module")
def compared(halves):
    rules = (*PAPER_RULES, Rule("own image", "joint-sigmoid", {"calibration.coverage": "own-image"}))
    return compare_rules(*halves, CLASSES[0], quick_options(detection__pooling=1), rules)


def test_rules_are_judged_as_the_slow_way_does(halves, compared):
    """Scores of the single SVM and of the uncalibrated maximum, by hand."""
    _, test = halves
    trained, results = compared
    by_rule = {one.rule: one for one in results}
    rows = np.flatnonzero(test.instance < 0)
    is_positive = test.overlap(CLASSES[0], with_difficult=False)[rows] >= 0.5
    raw = score_windows(test.descriptors[rows], trained.exemplars.coef_, trained.exemplars.intercept_)
    recall = by_rule[Method.JOINT].recall
    for rule, scores in (
        ("EE-SVM no calibration", raw.max(axis=1)),
        (Method.SINGLE_SVM, trained.single.scores(test.descriptors[rows])),
    ):
        found = by_rule[rule]
        assert found.window_ap == pytest.approx(average_precision(is_positive, scores))
        assert found.false_positives == false_positives_at_recall(is_positive, scores, recall)
        report = evaluate_detections(test.records, found.detections, classes=[CLASSES[0]])
        assert found.detection_ap == report[CLASSES[0]].average_precision
    assert len({one.recall for one in results}) == 1
    assert by_rule[Method.JOINT].search["loss"] >= by_rule[Method.JOINT].search["bound"] > 0
    assert by_rule["own image"].search["loss"] <= by_rule[Method.JOINT].search["loss"]


def test_hits_name_their_winners(compared):
    trained, results = compared
    for one in results:
        assert all(len(set(hit.exemplars)) == len(hit.exemplars) for hit in one.hits)
        assert len({(hit.instance.image_id, hit.instance.index) for hit in one.hits}) == len(one.hits) > 0
        if one.rule == Method.SINGLE_SVM:
            assert one.n_winners == 0
        else:
            assert 0 < one.n_winners <= one.n_used <= one.n_exemplars == len(trained.instances)
        if one.rule == Method.COOCCURRENCE:
            assert {len(hit.exemplars) for hit in one.hits} == {1}


def test_what_winners_hand_on_is_measured(halves, compared):
    train, test = halves
    trained, results = compared
    records = {record.image_id: record for record in train.records}
    annotations = annotate_all(trained.instances, records)
    described = train.descriptors[train.objects(CLASSES[0])[0]]
    joint = next(one for one in results if one.rule == Method.JOINT_SIGMOID)
    quality = transfer_choices(test, trained.exemplars, described, annotations, joint)
    assert quality[WINNER, "mask IoU"].n_detections == len(joint.hits)
    assert quality["best exemplar", "mask IoU"].mean >= quality[WINNER, "mask IoU"].mean
    single = next(one for one in results if one.rule == Method.SINGLE_SVM)
    with pytest.raises(InputError, match="'Single Linear-SVM' finds no object"):
        transfer_choices(test, trained.exemplars, described, annotations, single)


def test_a_class_that_no_test_window_shows_is_named(halves):
    train, test = halves
    blank = test.of_images([k for k, record in enumerate(test.records) if not any(
        instance.class_name == CLASSES[1] for instance in record.instances)])  # fmt: skip
    with pytest.raises(InputError, match=f"no window of the test images shows an object of the class '{CLASSES[1]}'"):
        compare_rules(train, blank, CLASSES[1], quick_options())


@pytest.mark.long
def test_demo_on_small_scenes(tmp_path, capsys):
    demo_scenes.show(make_scenes(12, 6, classes=CLASSES), quick_options(), str(tmp_path / "demo"), False, Screen(False))
    out = capsys.readouterr().out
    assert f"Open {tmp_path / 'demo' / 'report.html'} in a browser." in out
    for rule in PAPER_RULES:
        assert rule.name in out
    for stage in ("detection in the test scenes", "comparison of calibrators", "model, tables and pictures"):
        assert f"\n{stage} " in out
    assert "\nreport with recall floors " in out
    page = (tmp_path / "demo" / "report.html").read_text()
    data = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    tables = [table for section in data["sections"] for table in section["tables"]]
    assert [row[0] for row in tables[0]["rows"]] == [*(rule.name for rule in PAPER_RULES), SHARED]
    assert "How to read this: 'this detector' detects with an AP of" in out
    assert any("How to read this" in text for section in data["sections"] for text in section["paragraphs"])
    assert tables[0]["header"][-3:] == ["paper: false positives", "paper: window AP", "paper: detection AP"]
    assert [table["caption"] for table in tables[1:]] == [
        "Joint calibration of each class", "Agreement with the truth, in per cent", "Errors by kind",
    ]  # fmt: skip
    assert sum(len(section["pictures"]) for section in data["sections"]) == 1
    assert all(each["search"]["history"] and each["search"]["floors"] for each in data["classes"])
    assert data["has_truth"]
    assert f"{data['n_detections']:,} detections" in data["headline"]
    detector = ExemplarDetector.load(tmp_path / "demo" / "model")
    assert set(detector.classes_) == set(CLASSES)
    found = read_detections(tmp_path / "demo" / "detections.csv")
    assert {one.image_id for one in found} <= {record.image_id for record in scenes("test")}
    table = (tmp_path / "demo" / "tables.csv").read_text().splitlines()
    assert len(table) == 2 + len(PAPER_RULES)


@pytest.mark.long
def test_the_demo_judges_what_the_detector_does():
    detector = trained(quick_options(detection__max_detections=None), calibrators="all")
    moving = replace(detector.models_[0].regressor, constant=np.array([0.2, 0.1, -0.3, 0.2], dtype=np.float32))
    detector.models_[0] = replace(detector.models_[0], regressor=moving)
    found = detector.predict(scenes("test"), cache=shared_cache())
    judged = demo_scenes._judge(detector, scenes("train"), scenes("test"), found, shared_cache(), None)
    for name in CLASSES:
        result = judged.results[name][-1]
        for one, other in zip(found, result.detections, strict=True):
            np.testing.assert_allclose(one.boxes[one.class_names == name], other.boxes)
        assert judged.report[name].average_precision == pytest.approx(result.detection_ap)


@pytest.mark.long
def test_rows_of_the_paper_have_scales_of_each_exemplar():
    """As a detector that draws no scales together has them; redundant exemplars are counted there."""
    detector = trained(quick_options(), calibrators="all")
    alone = trained(quick_options(calibration__shrink=None), calibrators="all")
    found = [
        demo_scenes._judge(one, scenes("train"), scenes("test"), one.predict(scenes("test")), shared_cache(), None)
        for one in (detector, alone)
    ]
    for name in CLASSES:
        own, other = (judged.results[name] for judged in found)
        for rule in (Method.JOINT, Method.JOINT_SIGMOID, Method.AFFINE, Method.NO_CALIBRATION):
            first, second = (next(one for one in results if one.rule == rule) for results in (own, other))
            assert (first.detection_ap, first.n_used) == (second.detection_ap, second.n_used)
        assert own[-1].rule == SHARED
        assert own[-1].n_used == own[-1].n_exemplars
    assert search_table(found[0].results)[1][0][:6] == search_table(found[1].results)[1][0][:6]


def test_the_words_under_the_table_follow_its_figures():
    row = namedtuple("row", "rule detection_ap")
    names = (SHARED, Method.JOINT_SIGMOID, Method.NO_CALIBRATION, Method.SINGLE_SVM)
    text = reading({"a": [row(*pair) for pair in zip(names, (0.5, 0.4, 0.5, 0.6), strict=True)]})
    assert "an AP of 50.0, level with the same exemplars uncalibrated (50.0) and 10.0 below one SVM" in text
    assert "it would be 40.0: exemplars that were trained around a common direction" in text
    text = reading({"a": [row(*pair) for pair in zip(names, (0.5, 0.6, 0.5, 0.4), strict=True)]})
    assert "it would be 60.0: on these scenes exemplars could have kept scales of their own." in text
    assert "mostly chance" not in text


@pytest.mark.slow
def test_demo_as_it_is(tmp_path, capsys):
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    assert "Done in" in capsys.readouterr().out
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 1


def test_training_and_scoring_are_those_of_the_detector(halves, compared):
    """`compare_rules` is the steps of the detector, nothing else."""
    train, _ = halves
    trained, results = compared
    again = train_class(train, CLASSES[0], quick_options().training)
    np.testing.assert_array_equal(again.exemplars.coef_, trained.exemplars.coef_)
    scores = score_class(train, again, quick_options().calibration)
    assert scores.table.n_exemplars == results[0].n_exemplars


@pytest.mark.long
def test_boxes_are_moved_as_the_detector_moves_them(halves):
    """For rules whose options say so, in `compare_rules` and in what a reproduction does."""
    train, test = halves
    name = CLASSES[0]  # of which boxes can be learned
    plain = Rule("as proposed", "joint-sigmoid", {"detection.box_regression": False})
    rules = (Rule("moved", "joint-sigmoid"), Rule("moved single", "single-svm"), plain)
    _, results = compare_rules(train, test, name, quick_options(), rules)
    (model,) = trained(quick_options(), classes=[name]).models_
    assert model.regressor is not None
    for result, calibrator in zip(results[:2], ("joint-sigmoid", "single-svm"), strict=True):
        ensemble = Ensemble([model], calibrator, quick_options())
        for k, found in enumerate(result.detections):
            own = np.flatnonzero((test.image == k) & (test.instance < 0))
            expected = score_image(ensemble, found.image_id, test.boxes[own], test.descriptors[own])
            np.testing.assert_allclose(found.boxes, expected.boxes)
            np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
    windows = {tuple(box) for box in test.boxes}
    assert all(tuple(box) in windows for found in results[2].detections for box in found.boxes)
    assert not any(tuple(box) in windows for found in results[0].detections for box in found.boxes)
    assert all(tuple(hit.box) not in windows for hit in results[0].hits)
    # The same where no rule but one of them wants it.
    paper = quick_options(detection__box_regression=False)
    rules = (Rule("as proposed", "joint-sigmoid"), Rule("moved", "joint-sigmoid", {"detection.box_regression": True}))
    for found in (
        compare_rules(train, test, name, paper, rules)[1],
        ClassWork([Recipe(paper, rules)], lambda options: halves, name).results(),
    ):
        assert found[0].detection_ap == results[2].detection_ap
        assert found[1].detection_ap == results[0].detection_ap
    assert results[0].detection_ap != results[2].detection_ap
