"""Average precision of detections: cases worked out by hand, a slow reference, other people's code, and errors by kind."""

import contextlib
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from eesvm import InputError, metrics
from eesvm._support.figures import png_bytes
from eesvm.datasets import open_dataset, write_coco
from eesvm.datasets.scenes import make_scenes
from eesvm.metrics import break_down_errors, evaluate_detections
from eesvm.metrics import detections as detection_module
from eesvm.metrics.detection_files import write_coco_results
from eesvm.report import figures
from eesvm.structures import Dataset, Detections, ImageRecord, Instance
from helpers.dataset_files import real_data
from helpers.examples import many

VOC_PROTOCOLS = ("voc07", "voc10", "ilsvrc")


def image(image_id, *objects, width=100, height=100):
    """An image; objects are (class, box, flags), flags of "d" for difficult and "c" for crowd."""
    instances = tuple(
        Instance(name, np.array(box, dtype=float), image_id, k, is_difficult="d" in flags, is_crowd="c" in flags)
        for k, (name, box, flags) in enumerate((*each, "")[:3] for each in objects)
    )
    return ImageRecord(image_id, lambda: np.zeros((height, width, 3), np.uint8), width, height, instances)


def found(image_id, *rows):
    """Detections; rows are (class, score, box)."""
    return Detections(
        image_id,
        np.array([box for _, _, box in rows], dtype=float).reshape(-1, 4),
        np.array([score for _, score, _ in rows], dtype=float),
        np.array([name for name, _, _ in rows], dtype=str),
        np.full(len(rows), -1),
    )


# Three objects to be found, a difficult one, and five detections. In the order of their scores:
#   0.9  the first object of image a                              hit
#   0.8  the same again, IoU 90 / 100                             second hit: false
#   0.7  the difficult object of image b                          ignored
#   0.6  the upper half of the object of image b, IoU exactly 0.5 hit
#   0.5  nothing                                                  false
# So the curve has the points (recall 1/3, precision 1), (1/3, 1/2), (2/3, 2/3), (2/3, 1/2).
TRUTH = [
    image("a", ("dog", (0, 0, 10, 10)), ("dog", (20, 0, 30, 10))),
    image("b", ("dog", (0, 0, 10, 10)), ("dog", (20, 0, 30, 10), "d")),
]
FOUND = [
    found("b", ("dog", 0.7, (20, 0, 30, 10)), ("dog", 0.6, (0, 0, 10, 5))),
    found("a", ("dog", 0.9, (0, 0, 10, 10)), ("dog", 0.8, (0, 0, 10, 9)), ("dog", 0.5, (40, 40, 50, 50))),
]


def test_voc10_by_hand():
    # Envelope: precision 1 up to recall 1/3, then 2/3 up to 2/3, then nothing: 1/3 * 1 + 1/3 * 2/3 = 5/9.
    report = evaluate_detections(TRUTH, FOUND, protocol="voc10")
    dog = report["dog"]
    assert dog.average_precision == report.mean_average_precision == pytest.approx(5 / 9, abs=1e-15)
    assert (dog.n_objects, dog.n_ignored_objects, dog.n_detections, dog.n_hits, dog.n_ignored_detections) == (
        3,
        1,
        5,
        2,
        1,
    )
    assert dog.recall == 2 / 3
    np.testing.assert_array_equal(dog.curve.recall, np.array([1, 1, 2, 2]) / 3)
    np.testing.assert_array_equal(dog.curve.precision, [1, 1 / 2, 2 / 3, 1 / 2])
    np.testing.assert_array_equal(dog.curve.scores, [0.9, 0.8, 0.6, 0.5])


def test_voc07_by_hand():
    # Highest precision at recall >= 0, 0.1, 0.2, 0.3: 1; at 0.4, 0.5, 0.6: 2/3; at 0.7 and more: 0. (4 + 2) / 11.
    assert evaluate_detections(TRUTH, FOUND, protocol="voc07").mean_average_precision == pytest.approx(
        6 / 11, abs=1e-15
    )


def test_recalls_of_voc07_are_exact():
    # 3 of 10 objects are a recall of 0.3, although 3 * 0.1 > 0.3 in floats: four of the eleven points, not three.
    boxes = [(10 * k, 0, 10 * k + 10, 10) for k in range(10)]
    truth = [image("a", *(("dog", box) for box in boxes))]
    detections = [found("a", *(("dog", 1, box) for box in boxes[:3]))]
    assert evaluate_detections(truth, detections, protocol="voc07").mean_average_precision == pytest.approx(4 / 11)


def test_ilsvrc_asks_less_of_small_objects():
    # 10 x 10: 100 / (20 * 20) = 0.25, so an IoU of 0.3 is a hit and one of 0.2 is none. 20 x 30: 600 / (30 * 40) = 0.5.
    # 40 x 40: 1600 / 2500 = 0.64, so 0.5 is asked.
    truth = [image("a", ("dog", (0, 0, 10, 10)), ("dog", (20, 0, 40, 30)), ("dog", (50, 0, 90, 40)))]
    rows = [("dog", 0.9, (0, 0, 10, 3)), ("dog", 0.8, (20, 0, 40, 15)), ("dog", 0.7, (50, 0, 90, 20))]
    report = evaluate_detections(truth, [found("a", *rows)], protocol="ilsvrc")
    assert (report["dog"].n_hits, report.mean_average_precision) == (3, 1.0)
    rows = [("dog", 0.9, (0, 0, 10, 2)), ("dog", 0.8, (20, 0, 40, 14)), ("dog", 0.7, (50, 0, 90, 19))]
    assert evaluate_detections(truth, [found("a", *rows)], protocol="ilsvrc")["dog"].n_hits == 0
    assert evaluate_detections(truth, [found("a", *rows)], protocol="ilsvrc", iou=0.1)["dog"].n_hits == 3


def test_voc_and_ilsvrc_differ_where_the_best_object_is_taken():
    # The second detection overlaps the first object by 9.5 / 10.5 and the second one by 8.5 / 11.5, both enough. For VOC
    # it belongs to the first, which is taken: precision 1 up to recall 1/2. For ILSVRC it takes the second.
    truth = [image("a", ("dog", (0, 0, 10, 10)), ("dog", (2, 0, 12, 10)))]
    detections = [found("a", ("dog", 0.9, (0, 0, 10, 10)), ("dog", 0.8, (0.5, 0, 10.5, 10)))]
    assert evaluate_detections(truth, detections, protocol="voc10").mean_average_precision == 0.5
    assert evaluate_detections(truth, detections, protocol="ilsvrc").mean_average_precision == 1.0


def test_crowds_ignore_what_no_object_takes():
    truth = [image("a", ("dog", (0, 0, 80, 80), "c"), ("dog", (0, 0, 10, 10)))]
    rows = [
        ("dog", 0.9, (0, 0, 10, 10)),  # within the crowd entirely, and yet a hit
        ("dog", 0.8, (40, 40, 50, 50)),  # in the crowd: ignored, although its IoU with it is tiny
        ("dog", 0.7, (41, 41, 50, 50)),  # again: a crowd is never used up
        ("dog", 0.6, (75, 0, 85, 10)),  # half of it in the crowd: ignored
        ("dog", 0.5, (76, 0, 86, 10)),  # less than half: false
    ]
    for protocol in VOC_PROTOCOLS:
        dog = evaluate_detections(truth, [found("a", *rows)], protocol=protocol)["dog"]
        assert (dog.n_objects, dog.n_hits, dog.n_ignored_detections, dog.n_ignored_objects) == (1, 1, 3, 1)
        np.testing.assert_array_equal(dog.curve.precision, [1, 1 / 2])


def test_ties_follow_images_then_rows():
    truth = [image("z", ("dog", (0, 0, 10, 10))), image("a", ("dog", (0, 0, 10, 10)))]
    hit, miss = ("dog", 0.5, (0, 0, 10, 10)), ("dog", 0.5, (50, 50, 60, 60))
    # Image z comes first in the truth, so its miss is before the hit of a: precisions 0, 1/2 and AP 1/2 * 1/2.
    report = evaluate_detections(truth, [found("a", hit), found("z", miss)])
    assert report.mean_average_precision == 0.25
    assert evaluate_detections(truth, [found("z", miss), found("a", hit)]).mean_average_precision == 0.25
    assert evaluate_detections(truth, [found("z", hit, miss)]).mean_average_precision == 0.5
    assert evaluate_detections(truth, [found("z", miss, hit)]).mean_average_precision == 0.25


def test_images_without_detections_and_classes_without_objects():
    truth = Dataset("set", tuple(TRUTH), ("cat", "dog"))
    nothing = evaluate_detections(truth, [])
    assert nothing["dog"].average_precision == nothing.mean_average_precision == nothing["dog"].recall == 0
    assert math.isnan(nothing["cat"].average_precision)
    assert math.isnan(nothing["cat"].recall)
    half = evaluate_detections(truth, FOUND[:1])
    assert half["dog"].n_objects == 3
    # A cat where there is none has nothing to be measured against, but is counted.
    report = evaluate_detections(truth, [found("a", ("cat", 1, (0, 0, 10, 10)))])
    assert (report["cat"].n_detections, report.mean_average_precision) == (1, 0)
    no_objects = evaluate_detections([image("a")], [], protocol="voc07")
    assert no_objects.classes == ()
    assert math.isnan(no_objects.mean_average_precision)
    empty = Detections("a", np.empty(0), np.empty(0), np.empty(0), np.empty(0))  # columns of whatever dtype
    assert evaluate_detections(truth, [empty]).n_detections == 0


def test_unknown_classes_are_reported_and_chosen_ones_are_obeyed():
    extra = found("a", ("dog", 0.9, (0, 0, 10, 10)), ("dgo", 0.8, (0, 0, 10, 10)), ("cow", 0.8, (0, 0, 10, 10)))
    truth = [*TRUTH, image("c", ("cow", (0, 0, 10, 10)))]
    report = evaluate_detections(truth, [extra], classes=["dog"])
    assert [each.class_name for each in report.classes] == ["dog"]
    assert dict(report.unknown_classes) == {"dgo": 1}  # cow is known, only not asked for
    assert "Detections of classes that the truth does not have are left out: 1 of dgo." in report.to_markdown()
    assert report.n_detections == 1
    with pytest.raises(InputError, match="`classes` has 'cat', which the truth does not have: it has cow, dog"):
        evaluate_detections(truth, [], classes=["cat"])


@pytest.mark.parametrize(
    ("detections", "options", "sentence"),
    [
        ([found("q")], {}, "`detections` has the image 'q', which the truth does not have"),
        ([found("a"), found("a")], {}, "`detections` has two entries for the image 'a'"),
        ([found("a", ("dog", np.nan, (0, 0, 1, 1)))], {}, "detection 0 of the image 'a' has a score that is NaN"),
        (
            [found("a", ("dog", 1, (0, 0, 1, 1)), ("dog", 1, (0, 0, np.inf, 1)))],
            {},
            "detection 1 of the image 'a' has a box that is NaN or infinite",
        ),
        (
            [replace(found("a", ("dog", 1, (0, 0, 1, 1))), scores=np.ones(2))],
            {},
            r"the detections of the image 'a' must have \(n, 4\) boxes, n scores and n class names, "
            r"got shapes \(1, 4\), \(2,\) and \(1,\)",
        ),
        ([], {"protocol": "voc12"}, "`protocol` must be one of 'voc07', 'voc10', 'ilsvrc', 'coco', got 'voc12'"),
        ([], {"iou": 0}, "`iou` must be > 0, got 0"),
        ([], {"iou": 1.5}, "`iou` must be <= 1, got 1.5"),
        ([], {"classes": []}, "`classes` holds no class"),
        ([], {"n_resamples": -1}, "`n_resamples` must be >= 0, got -1"),
        (
            [],
            {"protocol": "coco", "n_resamples": 9},
            "`n_resamples` must be 0 for the protocol 'coco': intervals are made for VOC and ILSVRC",
        ),
    ],
)
def test_what_cannot_be_evaluated(detections, options, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        evaluate_detections(TRUTH, detections, **options)


def test_a_truth_that_cannot_be_used():
    with pytest.raises(InputError, match="`truth` holds no image"):
        evaluate_detections([], [])
    with pytest.raises(InputError, match="`truth` has the image 'a' twice"):
        evaluate_detections([image("a"), image("b"), image("a")], [])


def test_coco_without_its_package(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    sentence = r"this needs the package faster_coco_eval, which is not installed: pip install 'eesvm\[coco\]'"
    with pytest.raises(InputError, match=sentence):
        evaluate_detections(TRUTH, FOUND, protocol="coco")


# --- a slow, obvious reference ------------------------------------------------------------------------------------------


def slow_overlap(box, other, over_first=False):
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    common = max(0, width) * max(0, height)
    area, other_area = ((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
    if common == 0:
        return 0.0
    return common / area if over_first else common / (area + other_area - common)


def slow_threshold(instance, iou, protocol):
    if protocol != "ilsvrc":
        return iou
    width, height = instance.box[2] - instance.box[0], instance.box[3] - instance.box[1]
    return min(iou, width * height / ((width + 10) * (height + 10)))


def slow_ranking(truth, detections, class_name):
    """(image number, row, score, box), best first."""
    entries = {entry.image_id: entry for entry in detections}
    rows = []
    for number, record in enumerate(truth):
        entry = entries.get(record.image_id)
        for row in range(0 if entry is None else len(entry)):
            if entry.class_names[row] == class_name:
                rows.append((number, row, float(entry.scores[row]), entry.boxes[row]))
    return sorted(rows, key=lambda each: (-each[2], each[0], each[1]))


def slow_outcomes(truth, detections, class_name, protocol, iou=0.5):
    """((image number, row) -> hit, second, ignored or miss, in ranked order; objects found), by going through them."""
    taken, outcomes = set(), {}
    for number, row, _, box in slow_ranking(truth, detections, class_name):
        own = [i for i in truth[number].instances if i.class_name == class_name]
        plain = [(slow_overlap(box, i.box), i) for i in own if not i.is_crowd]
        crowds = [slow_overlap(box, i.box, over_first=True) for i in own if i.is_crowd]
        in_crowd = any(share >= iou for share in crowds)
        fitting = [(v, i) for v, i in plain if v > 0 and v >= slow_threshold(i, iou, protocol)]
        if protocol == "ilsvrc":
            free = [(v, i) for v, i in fitting if not i.is_difficult and (number, i.index) not in taken]
            if free:
                best = max(free, key=lambda pair: pair[0])[1]
                taken.add((number, best.index))
                outcomes[number, row] = "hit"
            elif in_crowd or any(i.is_difficult for _, i in fitting):
                outcomes[number, row] = "ignored"
            else:
                outcomes[number, row] = "second" if fitting else "miss"
            continue
        best_iou, best = max(plain, key=lambda pair: pair[0], default=(0.0, None))
        if best_iou == 0 or best_iou < iou:
            outcomes[number, row] = "ignored" if in_crowd else "miss"
        elif best.is_difficult:
            outcomes[number, row] = "ignored"
        elif (number, best.index) in taken:
            outcomes[number, row] = "second"
        else:
            taken.add((number, best.index))
            outcomes[number, row] = "hit"
    return outcomes, taken


def slow_average_precision(outcomes, n_objects, protocol):
    """Straight from the definition: at every recall the highest precision at that recall or beyond it."""
    points, hits, accepted = [], 0, 0
    for outcome in outcomes:
        if outcome != "ignored":
            accepted += 1
            hits += outcome == "hit"
            points.append((hits, hits / accepted))

    def precision_from(n_hits):  # at a recall of at least n_hits / n_objects
        return max((p for h, p in points if h >= n_hits), default=0.0)

    if protocol == "voc07":
        return sum(precision_from(k * n_objects / 10) for k in range(11)) / 11
    return sum(precision_from(k) for k in range(1, n_objects + 1)) / n_objects


def slow_kind(truth, detections, number, row, outcome, iou=0.5):
    entry = {entry.image_id: entry for entry in detections}[truth[number].image_id]
    overlaps = {True: [0.0], False: [0.0]}
    for instance in truth[number].instances:
        if not instance.is_crowd:
            overlaps[instance.class_name == entry.class_names[row]].append(slow_overlap(entry.boxes[row], instance.box))
    if outcome == "second":
        return "duplicate"
    if max(overlaps[True]) >= 0.1:
        return "localisation"
    return "confusion" if max(overlaps[False]) >= 0.1 else "background"


@st.composite
def cases(draw, flags=("", "", "", "d", "c", "dc"), sizes=(1, 4)):
    """Small images full of overlaps, equal scores, equal boxes, empty images and images without detections."""
    unit = draw(st.sampled_from([1, 1, 7]))  # small and large for ILSVRC
    corner = st.integers(0, 6)
    box = st.tuples(corner, corner, st.integers(*sizes), st.integers(*sizes)).map(
        lambda b: tuple(unit * v for v in (b[0], b[1], b[0] + b[2], b[1] + b[3]))
    )
    name = st.sampled_from(["cat", "dog"])
    score = st.integers(0, 3).map(lambda k: k / 4)
    truth, detections = [], []
    for image_id in draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(1, 3))]:
        objects = draw(st.lists(st.tuples(name, box, st.sampled_from(flags)), max_size=4))
        truth.append(image(image_id, *objects))
        if draw(st.integers(0, 4)):
            detections.append(found(image_id, *draw(st.lists(st.tuples(name, score, box), max_size=6))))
    return Dataset("set", tuple(truth), ("cat", "dog")), draw(st.permutations(detections))


@settings(max_examples=many(200), deadline=None)
@given(cases(), st.sampled_from(VOC_PROTOCOLS))
def test_against_the_reference(case, protocol):
    truth, detections = case
    report = evaluate_detections(truth, detections, protocol=protocol)
    errors = break_down_errors(truth, detections, protocol=protocol)
    known = []
    for k, name in enumerate(truth.classes):
        outcomes, taken = slow_outcomes(truth, detections, name, protocol)
        to_find = [i for i in truth.instances(name) if not i.is_difficult and not i.is_crowd]
        each = report[name]
        assert each.n_hits == list(outcomes.values()).count("hit")
        assert each.n_ignored_detections == list(outcomes.values()).count("ignored")
        assert (each.n_detections, each.n_objects) == (len(outcomes), len(to_find))
        if to_find:
            known.append(slow_average_precision(outcomes.values(), len(to_find), protocol))
            assert each.average_precision == pytest.approx(known[-1], abs=1e-12)
        else:
            assert math.isnan(each.average_precision)
        # Errors: kinds by detection, counts of all and of the first N, and the missed objects.
        judged = [(place, outcome) for place, outcome in outcomes.items() if outcome != "ignored"]
        kinds = [
            "hit" if outcome == "hit" else slow_kind(truth, detections, *place, outcome) for place, outcome in judged
        ]
        listed = {(f.image_id, f.detection): f.kind for f in errors.false_positives if f.class_name == name}
        expected = {
            (truth[number].image_id, row): kind
            for ((number, row), _), kind in zip(judged, kinds, strict=True)
            if kind != "hit"
        }
        assert listed == expected
        for counts, part in ((errors.everything[k], kinds), (errors.top[k], kinds[: len(to_find)])):
            assert [counts.n_hits, *(getattr(counts, kind) for kind in metrics.ERROR_KINDS)] == [
                part.count(kind) for kind in ("hit", *metrics.ERROR_KINDS)
            ]
        number = {record.image_id: k for k, record in enumerate(truth)}
        missed = [(i.image_id, i.index) for i in to_find if (number[i.image_id], i.index) not in taken]
        assert [(m.image_id, m.instance) for m in errors.missed if m.class_name == name] == missed
    assert math.isnan(report.mean_average_precision) if not known else True
    if known:
        assert report.mean_average_precision == pytest.approx(np.mean(known), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(VOC_PROTOCOLS), st.randoms(use_true_random=False))
def test_orders_that_do_not_matter(case, protocol, random):
    """Neither the order of the entries nor any monotone change of the scores changes anything."""
    truth, detections = case
    once = evaluate_detections(truth, detections, protocol=protocol)
    shuffled = [replace(entry, scores=np.exp(3 * entry.scores) - 7) for entry in detections]
    random.shuffle(shuffled)
    again = evaluate_detections(truth, iter(shuffled), protocol=protocol)
    assert [c.n_hits for c in once.classes] == [c.n_hits for c in again.classes]
    for one, other in zip(once.classes, again.classes, strict=True):
        np.testing.assert_array_equal(one.average_precision, other.average_precision)
        np.testing.assert_array_equal(one.curve.precision, other.curve.precision)


# --- COCO ---------------------------------------------------------------------------------------------------------------


def official_coco(annotations, results):
    """The twelve numbers of pycocotools for two files."""
    tools = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = tools.COCO(str(annotations))
        judge = COCOeval(truth, truth.loadRes(str(results)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats


NAMES = ("AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


def assert_same(report, official):
    ours = [report.mean_average_precision, *(report.values[name] for name in NAMES)]
    np.testing.assert_allclose([-1 if math.isnan(value) else value for value in ours], official, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_coco_agrees_with_the_official_code(seed, tmp_path):
    """Through the files that we write, crowds and equal scores included."""
    rng = np.random.default_rng(seed)
    names, truth, detections = ("cat", "dog", "emu"), [], []
    for k in range(25):
        corners, sides = rng.integers(0, 150, (6, 2)), rng.choice([8, 20, 40, 70, 110], (6, 2))
        boxes = np.hstack([corners, corners + sides]).astype(float)
        labels = rng.choice(names, 6)
        flags = rng.choice(["", "", "", "c"], 6)
        truth.append(image(f"img{k}", *zip(labels, boxes, flags, strict=True), width=300, height=300))
        moved = boxes[rng.integers(0, 6, 14)] + rng.normal(0, 4, (14, 4))
        moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2])
        rows = zip(rng.choice(names, 14), rng.integers(0, 8, 14) / 8, moved, strict=True)
        if k % 5:
            detections.append(found(f"img{k}", *sorted(rows, key=lambda row: -row[1])))
    dataset = Dataset("set", tuple(truth), names)
    write_coco(dataset, tmp_path / "truth.json")
    write_coco_results(tmp_path / "found.json", detections, dataset)
    report = evaluate_detections(dataset, detections[::-1], protocol="coco")
    assert_same(report, official_coco(tmp_path / "truth.json", tmp_path / "found.json"))
    assert 0 < report.mean_average_precision < 1
    assert report.n_objects == sum(not i.is_crowd for i in dataset.instances())
    # At one IoU there is one precision: it is the AP50 of the mean over ten.
    half = evaluate_detections(dataset, detections, protocol="coco", iou=0.5)
    assert half.mean_average_precision == pytest.approx(report.values["AP50"], abs=1e-12)
    assert "AP75" not in half.values


def test_coco_on_photographs(tmp_path):
    """Real annotations with masks and crowds: sizes by the area of the mask, official ids in the results."""
    folder = real_data("coco_subset_128")
    document = json.loads((folder / "instances_train2017.json").read_text())
    # One box reaches outside its image: the reader cuts it off, the official code does not.
    beyond = next(a["image_id"] for a in document["annotations"] if a["id"] == 1463315)
    for name, key in (("images", "id"), ("annotations", "image_id")):
        document[name] = [entry for entry in document[name] if entry[key] != beyond]
    annotations = tmp_path / "instances.json"
    annotations.write_text(json.dumps(document))
    dataset = open_dataset(annotations, check="none", images=folder / "images")
    assert (len(dataset), dataset.problems) == (127, ())
    rng = np.random.default_rng(0)
    detections = []
    for record in dataset:
        rows = [
            (i.class_name, round(rng.uniform(), 2), i.box + np.array([-1, -1, 1, 1]) * rng.uniform(0, 8))
            for i in record.instances
            if rng.uniform() < 0.8
        ]
        detections.append(found(record.image_id, *sorted(rows, key=lambda row: -row[1])))
    write_coco_results(tmp_path / "found.json", detections, annotations)
    report = evaluate_detections(dataset, detections, protocol="coco")
    assert_same(report, official_coco(annotations, tmp_path / "found.json"))


def test_the_area_that_a_file_states_decides_what_is_small(tmp_path):
    """A box of 60 x 60 whose polygon is said to cover 500 pixels is small, as in the official code."""
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    entry = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 60, 60], "area": 500.5, "iscrowd": 0}
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 100, "height": 100}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [entry],
    }
    (tmp_path / "truth.json").write_text(json.dumps(document))
    dataset = open_dataset(tmp_path / "truth.json")
    detections = [found("1", ("cat", 0.5, np.array([10.0, 10, 70, 70])))]
    write_coco_results(tmp_path / "found.json", detections, tmp_path / "truth.json")
    report = evaluate_detections(dataset, detections, protocol="coco")
    assert_same(report, official_coco(tmp_path / "truth.json", tmp_path / "found.json"))
    assert report.values["APs"] == 1
    write_coco(dataset, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["annotations"][0]["area"] == 500.5


def test_coco_with_difficult_objects_and_nothing_at_all():
    report = evaluate_detections(TRUTH, FOUND, protocol="coco", iou=0.5)
    dog = report["dog"]
    # As for VOC, two hits of three with a second hit in between; the difficult object and the detection on it are out.
    # COCO takes the mean of 101 recalls: 34 of them (0 to 0.33) with precision 1, 33 (up to 0.66) with 2/3.
    assert dog.average_precision == pytest.approx((34 + 33 * 2 / 3) / 101)
    assert (dog.n_objects, dog.n_ignored_objects, dog.n_hits, dog.n_ignored_detections) == (3, 1, 2, None)
    nothing = evaluate_detections(TRUTH, [], protocol="coco")
    assert nothing.mean_average_precision == 0
    assert nothing["dog"].n_hits == 0


@pytest.mark.parametrize("protocol", metrics.PROTOCOLS)
def test_a_truth_without_any_class_has_no_average_precision(protocol):
    report = evaluate_detections([image("a")], [found("a", ("dog", 0.9, (0, 0, 10, 10)))], protocol=protocol)
    assert (report.classes, report.n_objects, report.unknown_classes) == ((), 0, {"dog": 1})
    assert np.isnan(report.mean_average_precision)


# --- intervals and texts ------------------------------------------------------------------------------------------------


def random_case(n_images=40, seed=0):
    rng = np.random.default_rng(seed)
    truth, detections = [], []
    for k in range(n_images):
        corners = rng.integers(0, 60, (3, 2))
        boxes = np.hstack([corners, corners + rng.integers(10, 30, (3, 2))]).astype(float)
        truth.append(
            image(f"{k}", *zip(rng.choice(["cat", "dog"], 3), boxes, rng.choice(["", "", "d"], 3), strict=True))
        )
        moved = boxes[rng.integers(0, 3, 8)] + rng.normal(0, 3, (8, 4))
        rows = zip(rng.choice(["cat", "dog"], 8), rng.uniform(size=8), moved, strict=True)
        detections.append(found(f"{k}", *rows))
    return truth, detections


@pytest.mark.parametrize("protocol", VOC_PROTOCOLS)
def test_a_resample_is_the_evaluation_of_the_drawn_images(protocol):
    truth, detections = random_case()
    report = evaluate_detections(truth, detections, protocol=protocol, n_resamples=1, random_state=5)
    drawn = np.sort(np.random.default_rng(5).integers(40, size=40))
    copies = [replace(truth[k], image_id=f"{place}") for place, k in enumerate(drawn)]
    entries = [replace(detections[k], image_id=f"{place}") for place, k in enumerate(drawn)]
    expected = evaluate_detections(copies, entries, protocol=protocol)
    # With one resample the bias is its distance from the estimate, which is taken off twice.
    mirrored = 2 * report.mean_average_precision - expected.mean_average_precision
    assert report.interval == pytest.approx((mirrored, mirrored), abs=1e-12)
    for each in report.classes:
        mirrored = 2 * each.average_precision - expected[each.class_name].average_precision
        assert each.interval == pytest.approx((mirrored, mirrored), abs=1e-12)


def test_intervals_are_reproducible_and_around_the_estimate():
    truth, detections = random_case()
    first = evaluate_detections(truth, detections, n_resamples=200)
    again = evaluate_detections(truth, detections[::-1], n_resamples=200)
    assert first.interval == again.interval
    assert first.interval.low < first.mean_average_precision < first.interval.high
    assert first.confidence == 0.95
    assert "95 % interval" in first.to_markdown()
    wide = evaluate_detections(truth, detections, n_resamples=200, confidence=1.0)
    assert wide.interval.low <= first.interval.low < first.interval.high <= wide.interval.high
    # A class whose one image is seldom drawn has an interval from the resamples that have it; one without objects, none.
    rare = Dataset("set", (*truth, image("rare", ("emu", (0, 0, 9, 9)))), ("cat", "dog", "emu", "yak"))
    report = evaluate_detections(rare, [*detections, found("rare", ("emu", 1, (0, 0, 9, 9)))], n_resamples=50)
    assert report["emu"].interval == (1.0, 1.0)
    assert report["yak"].interval is None


@pytest.mark.slow
@pytest.mark.parametrize(("n_images", "least", "most_plain"), [(60, 0.7, 0.6), (300, 0.85, 0.8)])
def test_intervals_cover_the_truth(n_images, least, most_plain):
    """Mean of ten classes, of a simulated detector whose true average precision is known from many images.

    Without the correction for bias most intervals of few images lie above the truth.
    """
    rng = np.random.default_rng(0)

    def rankings(n):
        mood = rng.normal(0, 0.7, n)  # detections of one image are alike
        for k in range(10):
            objects = np.repeat(np.arange(n), rng.poisson(0.6, n))
            hits, wrong = objects[rng.uniform(size=len(objects)) < 0.85], np.repeat(np.arange(n), rng.poisson(1, n))
            images = np.concatenate([hits, wrong])
            centres = np.concatenate([np.full(len(hits), 0.9 - 0.08 * k), np.full(len(wrong), -0.3)])
            scores = rng.normal(centres + 0.3 * mood[images], 1)
            order = np.argsort(-scores)
            is_hit = (np.arange(len(images)) < len(hits))[order]
            yield detection_module._Ranking("", is_hit, scores[order], images[order], objects, 0, 0, False)

    def mean(found):
        return detection_module._mean(each.average_precision() for each in found)

    truth = mean(rankings(40_000))
    n_covered = n_plain = 0
    for _ in range(100):
        sample = list(rankings(n_images))
        estimates = detection_module._resample(sample, n_images, 200, rng)
        means = np.array([detection_module._mean(row) for row in estimates])
        low, high = detection_module._interval(means, mean(sample), 0.95)
        n_covered += low <= truth <= high
        low, high = np.quantile(means, [0.025, 0.975])
        n_plain += low <= truth <= high
    assert n_covered >= 100 * least
    assert n_plain <= 100 * most_plain


def test_curves_of_few_and_of_many_classes():
    truth, detections = random_case()
    for report in (
        evaluate_detections(truth, detections),
        evaluate_detections(truth, [], protocol="coco"),
        evaluate_detections([image("a")], []),
    ):
        assert png_bytes(figures.detection_curves(report)).startswith(b"\x89PNG")
    names = [f"class {k}" for k in range(12)]
    many = [image("a", *((name, (0, 0, 10, 10)) for name in names))]
    rows = [(name, 1, (0, 0, 10, 10)) for name in names[:5]]
    figure = figures.detection_curves(evaluate_detections(many, [found("a", *rows)]))
    assert len(figure.axes[0].lines) == 12
    assert len(figure.legends[0].get_texts()) == 6
    assert "12 classes, the best and the worst are named" in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize("protocol", ["voc10", "ilsvrc"])
def test_average_precision_is_the_area_under_the_curve_that_is_drawn(protocol):
    truth, detections = random_case()
    report = evaluate_detections(truth, detections, protocol=protocol)
    drawn = figures.detection_curves(report).axes[0]
    assert len(drawn.lines) == len(drawn.collections) == len([found for found in report.classes if found.n_objects])
    for line, raw in zip(drawn.lines, drawn.collections, strict=True):
        one = next(each for each in report.classes if line.get_label().startswith(f"{each.class_name} (AP "))
        recall, precision = line.get_data()
        assert line.get_drawstyle() == "steps-pre"
        assert (np.diff(precision) <= 0).all()
        assert (np.diff(recall) * precision[1:]).sum() == pytest.approx(one.average_precision)
        # Behind it, thinner, is what it is the envelope of.
        np.testing.assert_array_equal(raw.get_paths()[0].vertices, np.stack([one.curve.recall, one.curve.precision], 1))
        assert raw.get_zorder() < line.get_zorder()
        assert raw.get_linewidth()[0] < line.get_linewidth()
    assert any((np.diff(found.curve.precision) > 0).any() for found in report.classes)  # else there is nothing to see


def test_curves_of_coco_at_one_overlap_have_one_average_precision():
    truth, detections = random_case()
    report = evaluate_detections(truth, detections, protocol="coco", iou=0.7)
    figure = figures.detection_curves(report)
    title = f"coco, IoU 0.7: mean average precision {100 * report.mean_average_precision:.1f}"
    assert figure.axes[0].get_title(loc="left") == title
    assert all("COCO" not in text.get_text() for text in figure.legends[0].get_texts())


def test_tables_of_a_report():
    truth = Dataset("set", (*TRUTH, image("c", ("a|b", (0, 0, 5, 5)))), ("dog", "a|b", "yak"))
    report = evaluate_detections(truth, FOUND)
    header, *rows = report.to_csv_rows()
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["class"] for row in table] == ["dog", "a|b", "yak", "all"]
    assert table[0] == {
        "protocol": "voc10", "iou": 0.5, "class": "dog", "average_precision": pytest.approx(5 / 9),
        "average_precision_low": "", "average_precision_high": "", "objects": 3, "ignored_objects": 1, "detections": 5,
        "hits": 2, "ignored_detections": 1, "recall": 2 / 3,
    }  # fmt: skip
    assert (table[2]["average_precision"], table[2]["recall"]) == ("", "")
    assert (table[3]["average_precision"], table[3]["objects"], table[3]["recall"]) == (pytest.approx(5 / 18), 4, 0.5)
    assert report.to_markdown() == (
        "PASCAL VOC since 2010: area under the monotone precision-recall curve. IoU 0.5; 3 images, 4 objects, 5 detections.\n"
        "\n"
        "| class | AP, % | objects | detections | hits | recall, % |\n"
        "|---|---:|---:|---:|---:|---:|\n"
        "| dog | 55.6 | 3 | 5 | 2 | 66.7 |\n"
        "| a\\|b | 0.0 | 1 | 0 | 0 | 0.0 |\n"
        "| yak | - | 0 | 0 | 0 | - |\n"
        "| all | 27.8 | 4 | 5 | 2 | 50.0 |\n"
    )
    document = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert document["mean_average_precision"] == pytest.approx(5 / 18)
    assert [each["class"] for each in document["classes"]] == ["dog", "a|b", "yak"]
    coco = evaluate_detections(truth, FOUND, protocol="coco")
    assert coco.to_csv_rows()[0][-len(NAMES) :] == NAMES
    assert coco.to_csv_rows()[1][1] == "0.5:0.95"
    assert json.dumps(coco.as_dict(), allow_nan=False)


# --- errors -------------------------------------------------------------------------------------------------------------


def test_errors_by_hand():
    truth = [
        image(
            "a",
            ("dog", (0, 0, 10, 10)),
            ("cat", (20, 0, 30, 10)),
            ("dog", (50, 0, 60, 10)),
            ("dog", (70, 0, 80, 10), "d"),
        ),
        image("b", ("dog", (0, 0, 10, 10))),
    ]
    rows = [
        ("dog", 0.95, (0, 0, 10, 10)),  # hit
        ("dog", 0.9, (0, 0, 10, 9)),  # duplicate
        ("dog", 0.8, (20, 0, 30, 9)),  # confusion: 0.9 of a cat
        ("dog", 0.7, (50, 0, 60, 4)),  # localisation: 0.4
        ("dog", 0.6, (0, 50, 10, 60)),  # background
        ("dog", 0.5, (70, 0, 80, 10)),  # on the difficult one: ignored
        ("dog", 0.4, (70, 0, 80, 4)),  # localisation, of the difficult one
    ]
    errors = break_down_errors(truth, [found("a", *rows)])
    dog = {each.class_name: each for each in errors.everything}["dog"]
    assert dog == metrics.ErrorCounts("dog", 3, 6, 1, localisation=2, confusion=1, duplicate=1, background=1)
    assert (dog.n_missed, dog.n_false_positives) == (2, 5)
    top = {each.class_name: each for each in errors.top}["dog"]  # three objects, so the first three detections
    assert top == metrics.ErrorCounts("dog", 3, 3, 1, localisation=0, confusion=1, duplicate=1, background=0)
    assert [tuple(each) for each in errors.false_positives] == [
        ("a", 1, "dog", 0.9, "duplicate", 0.9, 0, "dog", 0, 0, 10, 9),
        ("a", 2, "dog", 0.8, "confusion", 0.9, 1, "cat", 20, 0, 30, 9),
        ("a", 3, "dog", 0.7, "localisation", 0.4, 2, "dog", 50, 0, 60, 4),
        ("a", 4, "dog", 0.6, "background", 0.0, -1, "", 0, 50, 10, 60),
        ("a", 6, "dog", 0.4, "localisation", 0.4, 3, "dog", 70, 0, 80, 4),
    ]
    assert [tuple(each) for each in errors.missed] == [
        ("a", 1, "cat", 0.0),
        ("a", 2, "dog", 0.4),
        ("b", 0, "dog", 0.0),
    ]
    assert errors.total == metrics.ErrorCounts("all", 4, 6, 1, localisation=2, confusion=1, duplicate=1, background=1)
    header, *table = errors.to_csv_rows()
    assert header == ("among", "class", "objects", "detections", "hits", *metrics.ERROR_KINDS, "missed")
    assert table[-1] == ("all", "all", 4, 6, 1, 2, 1, 1, 1, 3)
    assert "| dog | 3 | 3 | 1 | 0 | 1 | 1 | 0 | 2 |" in errors.to_markdown()
    # Of one class alone, confusion with the others is still confusion.
    alone = break_down_errors(truth, [found("a", *rows)], classes=["dog"])
    assert alone.total == replace(dog, class_name="all")
    assert alone.false_positives == errors.false_positives
    with pytest.raises(InputError, match="`protocol` must be one of 'voc07', 'voc10', 'ilsvrc', got 'coco'"):
        break_down_errors(truth, [], protocol="coco")


def test_the_truth_itself_is_perfect():
    scenes = make_scenes(4, 4)
    detections = [
        found(r.image_id, *((i.class_name, 1, i.box) for i in r.instances if not i.is_difficult)) for r in scenes
    ]
    for protocol in metrics.PROTOCOLS:
        report = evaluate_detections(scenes, detections, protocol=protocol)
        assert report.mean_average_precision == pytest.approx(1.0)
    assert break_down_errors(scenes, detections).missed == ()
