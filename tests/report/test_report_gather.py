"""What a report holds, compared with the parts of the library that it is gathered from."""

import copy
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm.images.outlines import outline
from eesvm.metrics import ERROR_KINDS, break_down_errors, evaluate_detections
from eesvm.report import data as report_data
from eesvm.report.data import ShownDetection
from eesvm.report.gather import gather
from eesvm.report.scenes import choose_detections, with_masks
from eesvm.report.truth import judge
from eesvm.structures import Dataset, Detections, ExemplarAnnotation
from eesvm.transfer import transfer
from eesvm.transfer.detections import choose_detections as choose_for_transfer
from eesvm.transfer.detections import hand_on
from eesvm.transfer.refinement import mean_masks
from helpers.detector_scenes import detections as detections_of
from helpers.detector_scenes import quick_options, scenes, trained
from helpers.examples import ALL
from helpers.report_examples import small_detections, small_model, small_report


def gathered(detector=None, dataset=None, detections=None, **arguments):
    if not ALL:  # each detection has its mask refined
        arguments.setdefault("max_detections", 40)
    return gather(
        small_model() if detector is None else detector,
        scenes("test") if dataset is None else dataset,
        small_detections() if detections is None else detections,
        **arguments,
    )


@pytest.mark.long
def test_figures_are_those_of_the_metrics():
    data, report = small_report(), evaluate_detections(scenes("test"), small_detections())
    errors = break_down_errors(scenes("test"), small_detections())
    assert data.has_truth
    for row, found, top in zip(data.classes, report.classes, errors.top, strict=True):
        assert (row.name, row.n_objects, row.n_hits) == (found.class_name, found.n_objects, found.n_hits)
        assert row.average_precision == found.average_precision
        assert row.curve.recall[-1] == found.recall
        assert row.curve.false_positives[-1] == found.n_detections - found.n_hits - found.n_ignored_detections
        assert dict(row.top_errors.kinds) == {kind: getattr(top, kind) for kind in ERROR_KINDS}
        assert row.top_errors.n_hits == top.n_hits
    assert data.n_missed == len(errors.missed) == len(data.missed)
    assert data.facts[0].value == f"{100 * report.mean_average_precision:.1f} %"
    assert data.facts[0].value in data.headline


def test_verdicts_add_up_to_the_breakdown():
    found = judge(scenes("test"), small_detections(), small_model().classes_)
    errors = break_down_errors(scenes("test"), small_detections())
    kinds = Counter(verdict.kind for verdict in found.verdicts.values())
    assert kinds[report_data.RIGHT] == errors.total.n_hits
    assert {kind: kinds[kind] for kind in ERROR_KINDS} == {kind: getattr(errors.total, kind) for kind in ERROR_KINDS}
    surest = Counter(found.of(*place).kind for place in found.surest)
    assert surest[report_data.RIGHT] == errors.total_top.n_hits
    assert {kind: surest[kind] for kind in ERROR_KINDS} == {
        kind: getattr(errors.total_top, kind) for kind in ERROR_KINDS
    }


def test_shown_detections_are_those_that_were_made():
    data = small_report()
    boxes = {one.image_id: one for one in small_detections()}
    assert len(data.detections) == 120 < data.n_detections == sum(map(len, small_detections()))
    scores = [each.score for each in data.detections]
    assert scores == sorted(scores, reverse=True)
    for each in data.detections:
        entry = boxes[data.scenes[each.scene].image_id]
        row = entry.scores.tolist().index(each.score)
        assert each.exemplar == entry.exemplars[row]
        assert data.classes[each.class_id].name == entry.class_names[row]
        np.testing.assert_allclose(each.box, entry.boxes[row], atol=0.01)
        if each.kind == report_data.RIGHT:
            thing = data.scenes[each.scene].objects[each.object]
            assert thing.class_name == data.classes[each.class_id].name
            assert each.iou >= 0.5
    assert any("120 of " in note for note in data.notes)


def test_of_many_detections_each_class_shows_its_surest():
    def found(image, name, scores):
        n = len(scores)
        return Detections(image, np.tile([0.0, 0, 9, 9], (n, 1)), np.array(scores), np.full(n, name), np.full(n, -1))

    entries = [found("a", "dog", [0.9, 0.8, 0.7, 0.6, 0.5]), found("b", "cat", [0.3, 0.2])]
    chosen = [(entry.image_id, row) for entry, row in choose_detections(entries, 5)]
    assert chosen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    assert len(choose_detections(entries, 100)) == 7
    assert choose_detections([], 5) == []


def test_exemplars_and_their_coverage():
    data, detector = small_report(), small_model()
    assert [each.image_id for each in data.exemplars] == [each.image_id for each in detector.exemplars_]
    first = 0
    for class_id, model in enumerate(detector.models_):
        own = data.exemplars[first : first + model.n_exemplars]
        joint, table = model.calibrators["joint"], model.read_scores().table
        problem = table.problem(joint.across_groups_)
        assignment = problem.assign(joint.thresholds_)
        assert [each.class_id for each in own] == [class_id] * len(own)
        assert [each.state == report_data.REDUNDANT for each in own] == (~joint.active_).tolist()
        assert [each.threshold for each in own if each.threshold is not None] == [
            float(value) for value in joint.thresholds_ if np.isfinite(value)
        ]
        assert [each.coverage.positives_responsible for each in own] == [
            int((assignment == j).sum()) for j in range(len(own))
        ]
        for each in own:
            assert sum(n for _, n in each.coverage.objects) + each.coverage.n_elsewhere == (
                each.coverage.positives_responsible
            )
            assert sum(each.scores.positives) == table.n_positives
            assert sum(each.scores.negatives) == table.n_rows - table.n_positives
            for number, n in each.coverage.objects:
                assert data.exemplars[number].n_windows >= n
                assert data.exemplars[number].image_id != each.image_id or not joint.across_groups_
        assert (
            sum(each.n_windows for each in own) + sum(each.coverage.n_elsewhere for each in own) >= problem.n_positives
        )
        first += len(own)


def test_what_exemplars_won():
    data = small_report()
    winners = Counter(number for one in small_detections() for number in one.exemplars.tolist())
    assert {k: each.n_detections for k, each in enumerate(data.exemplars) if each.n_detections} == dict(winners)
    assert sum(each.n_right for each in data.exemplars) == sum(row.top_errors.n_hits for row in data.classes)
    assert sum(each.n_right + each.n_wrong for each in data.exemplars) == sum(
        row.top_errors.n_detections for row in data.classes
    )
    best = max(range(len(data.exemplars)), key=lambda k: data.exemplars[k].best_score or -np.inf)
    assert data.detections[0].score == data.exemplars[best].best_score


def test_the_search_and_its_floors():
    data, models = small_report(), small_model().models_
    for row, model in zip(data.classes, models, strict=True):
        result = model.calibrators["joint"].result_
        assert (row.search.loss, row.search.lower_bound, row.search.status) == (
            result.loss, result.lower_bound, result.status)  # fmt: skip
        assert row.search.history == tuple(result.history)
        assert row.search.history[-1][1] == result.loss
        assert row.search.floors[0].loss == result.loss
        losses = [floor.loss for floor in row.search.floors]
        assert losses == sorted(losses, reverse=True)
    total = sum(model.calibrators["joint"].result_.loss for model in models)
    assert next(fact for fact in data.facts if fact.name == "calibration loss").value == f"{total:,.0f}"
    n_redundant = sum(model.calibrators["joint"].result_.n_redundant for model in models)
    redundant = next(fact for fact in data.facts if fact.name == "redundant exemplars")
    assert redundant.value == f"{n_redundant} of {len(data.exemplars)}"


def test_what_is_handed_on():
    data = small_report()
    annotation, exemplar = small_model().exemplars_[0], data.exemplars[0]
    assert exemplar.outline.startswith("M")
    assert [name for name, _ in exemplar.parts] == [part.name for part in annotation.parts]
    width, height = annotation.box[2] - annotation.box[0], annotation.box[3] - annotation.box[1]
    expected = (annotation.parts[0].box - np.tile(annotation.box[:2], 2)) / [width, height, width, height]
    np.testing.assert_allclose(exemplar.parts[0][1], np.clip(expected, 0, 1), atol=1e-6)
    assert dict(exemplar.labels)["digit"] == str(annotation.metadata["digit"])


def test_masks_are_those_that_are_exported():
    data, exemplars = small_report(), small_model().exemplars_
    records, means = {record.image_id: record for record in scenes("test")}, mean_masks(exemplars)
    n_refined = 0
    chosen = choose_detections(small_detections(), 500)
    for each, (one, _) in zip(data.detections[:30], chosen, strict=False):
        assert each.box == tuple(np.round(one.box, 2))
        record, winner = records[data.scenes[each.scene].image_id], exemplars[each.exemplar]
        columns = ([one.box], [each.score], [winner.class_name], [each.exemplar])
        found = Detections(record.image_id, *map(np.array, columns))
        (image,) = choose_for_transfer(exemplars, [found], [record])
        (handed,) = hand_on(exemplars, image, record.read(), means)
        (height, width), (x, y) = handed.mask.shape, handed.offset
        assert each.mask.place == (x, y, x + width, y + height)
        if max(width, height) > 96:  # larger ones are outlined smaller
            continue
        assert each.mask.outline_size == (2 * width, 2 * height)
        assert each.mask.outline == outline(handed.mask)
        n_refined += not np.array_equal(handed.mask, transfer(winner, one.box, handed.image_size).mask)
    assert n_refined > 0


def test_masks_of_large_objects_are_outlined_smaller():
    rng = np.random.default_rng(0)
    winner = ExemplarAnnotation(
        "thing", "a", 0, np.array([0.0, 0, 300, 150]), rng.random((15, 30)).repeat(10, 0).repeat(10, 1) < 0.7
    )
    pixels = rng.integers(0, 255, (400, 500, 3), dtype=np.uint8)
    shown = [
        ShownDetection(k, 0, 0.5, (20.0, 30.0, 420.0, 330.0), exemplar) for k, exemplar in ((0, 0), (0, None), (1, 0))
    ]
    boxes = [np.array(one.box) for one in shown]
    first, nobody, elsewhere = with_masks(shown, boxes, 0, pixels, [winner])
    assert (first.mask.outline_size, first.mask.place) == ((192, 144), (20, 30, 420, 330))
    assert [nobody, elsewhere] == shown[1:]
    outside = with_masks(shown[:1], [np.array([600.0, 0.0, 700.0, 50.0])], 0, pixels, [winner])
    assert outside[0].mask is None


def test_without_annotations():
    bare = tuple(replace(record, instances=()) for record in scenes("test"))
    data = gathered(dataset=Dataset("photos", bare, ()))
    assert not data.has_truth
    assert data.missed == ()
    assert {each.kind for each in data.detections} == {report_data.UNJUDGED}
    assert all(row.curve is None and row.average_precision is None for row in data.classes)
    assert data.notes[0].startswith("photos has no annotated object of three and eight: average precision")
    assert data.facts[0].name == "detections"
    assert all(each.coverage is not None for each in data.exemplars)


@pytest.mark.long
def test_difficult_objects_alone_are_no_truth():
    records = tuple(
        replace(record, instances=tuple(replace(each, is_difficult=True) for each in record.instances))
        for record in scenes("test")
    )
    assert not gathered(dataset=replace(scenes("test"), images=records)).has_truth


def test_nothing_detected():
    data = gathered(detections=[])
    assert data.detections == ()
    assert data.has_truth
    n_objects = sum(row.n_objects for row in data.classes)
    assert len(data.missed) == data.n_missed == n_objects
    assert data.facts[0].value == "0.0 %"
    assert {each.n_detections for each in data.exemplars} == {0}


def test_more_missed_objects_than_are_shown(monkeypatch):
    monkeypatch.setattr("eesvm.report.gather._MOST_MISSED", 3)
    data = gathered(detections=[])
    assert len(data.missed) == 3
    assert len({(each.scene, each.object) for each in data.missed}) == 3
    assert f"3 of {data.n_missed} missed objects are shown." in data.notes


def test_detections_of_other_images_or_models_are_refused():
    first = small_detections()[0]
    with pytest.raises(
        InputError, match=r"^the detections are of other images: scenes has no image x, but for example "
    ):
        gathered(detections=[replace(first, image_id="x")])
    with pytest.raises(InputError, match=f"have two entries for the image {first.image_id}$"):
        gathered(detections=[first, first])
    stranger = replace(first, exemplars=np.full(len(first), len(small_model().exemplars_)))
    with pytest.raises(InputError, match=r"^the detections are of another model: a detection in .* names the exemplar"):
        gathered(detections=[stranger])
    with pytest.raises(InputError, match=r"^photos has no images$"):
        gathered(dataset=Dataset("photos", (), ()))
    with pytest.raises(InputError, match=r"^`max_detections` must be >= 1, got 0$"):
        gathered(max_detections=0)


def test_detections_without_exemplar_and_of_an_unknown_class():
    first = small_detections()[0]
    n = len(first)
    other = replace(first, class_names=np.full(n, "zebra"), exemplars=np.full(n, -1))
    data = gathered(detections=[other], max_detections=500)
    assert [row.name for row in data.classes] == ["three", "eight", "zebra"]
    assert {each.exemplar for each in data.detections} == {None}
    assert {each.kind for each in data.detections} == {report_data.UNJUDGED}
    assert data.classes[2].n_exemplars == 0
    assert f"No exemplar is named by {n} of the detections that are shown." in data.notes
    assert "scenes does not have the class zebra: detections of it are not judged." in data.notes


@pytest.mark.long
def test_a_model_that_has_kept_less():
    detector = copy.copy(small_model())
    detector.models_ = [replace(model, calibrators={}, read_scores=None) for model in small_model().models_]
    data = gathered(detector)
    assert all(row.search is None for row in data.classes)
    assert all(each.state == report_data.UNKNOWN and each.scores is None for each in data.exemplars)
    assert any(note.startswith("The model has no joint calibration") for note in data.notes)
    assert any(note.startswith("The model has not kept its training scores") for note in data.notes)
    assert [fact.name for fact in data.facts] == ["mean average precision", "objects found"]


@pytest.mark.long
def test_a_search_without_history():
    detector = copy.copy(small_model())
    detector.models_ = [replace(m, calibrators=copy.deepcopy(m.calibrators)) for m in small_model().models_]
    for model in detector.models_:
        joint = model.calibrators["joint"]
        joint.result_ = replace(joint.result_, history=[])
    data = gathered(detector)
    assert "The model has not kept the history of its searches: loss and bound over time are left out." in data.notes
    assert not any("history" in note for note in small_report().notes)


def test_images_that_cannot_be_read():
    def broken():
        raise OSError(5, "no such luck")

    records = (replace(scenes("test")[0], read=broken), *scenes("test")[1:])
    problems = []
    data = gathered(dataset=replace(scenes("test"), images=records), problems=problems)
    assert [str(problem) for problem in problems] == [f"{records[0].image_id}: no such luck"]
    assert [scene.image_id for scene in data.scenes if scene.image is None] == [records[0].image_id]
    assert "1 image could not be read: what was found there is listed without a picture." in data.notes
    again = gathered(dataset=replace(scenes("test"), images=records), problems=problems)  # as if detection had met it
    assert len(problems) == 1
    assert again.notes == data.notes


@pytest.mark.long
def test_images_that_are_read_but_cannot_be_used():
    records = (replace(scenes("test")[0], read=lambda: np.zeros((0, 5, 3), dtype=np.uint8)), *scenes("test")[1:])
    problems = []
    data = gathered(dataset=replace(scenes("test"), images=records), problems=problems)
    assert [problem.path for problem in problems] == [records[0].image_id]
    assert [scene.image_id for scene in data.scenes if scene.image is None] == [records[0].image_id]
    assert "1 image could not be read: what was found there is listed without a picture." in data.notes


def test_images_that_were_trained_on():
    train = scenes("train")
    data = gathered(dataset=train, detections=[replace(small_detections()[0], image_id=train[0].image_id)])
    assert any("with the name of a training image" in note for note in data.notes)
    own = [each for each in data.detections if each.is_own_image]
    assert all(data.exemplars[each.exemplar].image_id == data.scenes[each.scene].image_id for each in own)


@pytest.mark.long
def test_another_calibrator_is_named():
    data = gathered(calibrator="sigmoid", title="My own")
    assert data.title == "My own"
    assert not data.is_joint
    assert any(note.startswith("The detections were made with the calibrator sigmoid;") for note in data.notes)
    assert small_report().title == "Detections of three and eight, each with the training object it looks like"


@pytest.mark.long
def test_scales_that_exemplars_share_are_told():
    """Thresholds are shown; who has none takes part in detection all the same, unless scales are each exemplar's own."""
    alone = trained(quick_options(calibration__shrink=None))
    data = gathered(alone, detections=detections_of(alone, "joint-sigmoid"))
    sentence = "Detections are scored on a scale that the exemplars share"
    assert data.is_joint
    assert not any(note.startswith(sentence) for note in data.notes)
    assert not small_report().is_joint
    assert any(note.startswith(sentence) for note in small_report().notes)
    for report, is_said in ((data, True), (small_report(), False)):
        fact = next(fact for fact in report.facts if fact.name == "redundant exemplars")
        assert fact.note.endswith("; they take no part in detection") == is_said


@pytest.mark.long
def test_a_loaded_model_gives_the_same_report(tmp_path):
    from eesvm import ExemplarDetector

    small_model().save(tmp_path / "model")
    data = gathered(ExemplarDetector.load(tmp_path / "model"), max_detections=120, frontier_seconds=0.0)
    again = small_report()
    assert data.classes == again.classes
    assert data.exemplars == again.exemplars
    assert data.detections == again.detections
    assert data.headline == again.headline
