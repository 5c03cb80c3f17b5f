"""From the bytes of an image to the answer of `eesvm serve`: detections, floors, what is handed on, hostile images."""

import base64
import io
import json
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from eesvm import ExemplarDetector, InputError
from eesvm.boxes import iou
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.problem import any_accepts
from eesvm.calibration.tables.fit import fit_table
from eesvm.detector.model import Ensemble
from eesvm.detector.options import DetectionOptions
from eesvm.detector.training_table import describe_windows, propose_windows
from eesvm.exemplars.scoring import score_windows
from eesvm.images import read_image
from eesvm.images.masks import rle_to_mask
from eesvm.report.serving.floors import FloorSearch, _known
from eesvm.report.serving.inference import Inference, _Candidates, _standing
from eesvm.report.serving.server import Limits
from eesvm.report.serving.site import ModelSite
from eesvm.structures import Part
from eesvm.transfer import refine, transfer
from eesvm.transfer.refinement import mean_masks
from helpers.detector_scenes import quick_options, scenes, trained
from helpers.examples import ALL, few
from helpers.serving_help import quick_detector, running, scene

FLOORS = (1.0, 0.9, 0.5)


def encoded(pixels, kind="PNG", **options):
    """The bytes of an image file."""
    stream = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(stream, format=kind, **options)
    return stream.getvalue()


@pytest.fixture(scope="module")
def engine():
    return Inference(quick_detector(), max_pixels=2_000_000)


@pytest.fixture(scope="module")
def search():
    found = FloorSearch(quick_detector().models_, quick_options(), FLOORS, time_limit=0.2)
    found.start()
    assert found.wait(60).kind == "ready"
    return found


@pytest.fixture(scope="module")
def table(search):
    return search.state.table


@pytest.fixture(scope="module")
def server(engine, search):
    with running(ModelSite(engine, search, 1_000_000)) as address:
        yield address


@pytest.mark.long
def test_without_a_floor_it_is_what_the_detector_finds(engine, table):
    found = quick_detector().predict([scene()])[0]
    for floors in (None, table):
        answer = engine.detect(encoded(scene()), floors)
        kept = [one for one in answer["detections"] if one["without_floor"]]
        assert len(kept) == len(found) > 0
        np.testing.assert_allclose([one["box"] for one in kept], found.boxes, atol=0.005)
        np.testing.assert_allclose([one["score"] for one in kept], found.scores)
        assert [one["class"] for one in kept] == found.class_names.tolist()
        assert [one["exemplar"] for one in kept] == found.exemplars.tolist()
    assert (answer["width"], answer["height"]) == (scene().shape[1], scene().shape[0])
    assert all(one["at_floors"] == [] for one in engine.detect(encoded(scene()))["detections"])


def test_at_a_floor_it_is_what_suppression_leaves_of_the_accepted_windows(engine, table):
    """The same by slow loops over windows, classes and floors."""
    detector, options = quick_detector(), quick_options()
    records = [scenes("test")[0]]
    windows = describe_windows(records, list(propose_windows(records, options.windows, 1)), detector.descriptor_)
    ensemble = Ensemble(detector.models_, options.calibration.calibrator, options)
    expected = {k: [] for k in range(len(FLOORS))}
    said = ensemble.scores(windows.descriptors, windows.boxes)
    for model, one, floors in zip(detector.models_, said, table.classes, strict=True):
        scores = one.scores
        raw = score_windows(windows.descriptors, model.exemplars.coef_, model.exemplars.intercept_)
        for k in range(len(FLOORS)):
            rows = [r for r in np.argsort(-scores, kind="stable") if (raw[r] > floors.frontier.thresholds[k]).any()]
            kept = []
            for row in rows:
                if all(iou([one.boxes[row]], [one.boxes[r]])[0, 0] <= options.detection.nms for r in kept):
                    kept.append(row)
            expected[k] += [(round(float(scores[r]), 9), one.class_name) for r in kept]
    answer = engine.detect(encoded(scene()), table)
    assert answer["floors"] == list(FLOORS)
    sizes = []
    for k in range(len(FLOORS)):
        found = [(round(one["score"], 9), one["class"]) for one in answer["detections"] if k in one["at_floors"]]
        assert found == sorted(expected[k], reverse=True)[: options.detection.max_detections]
        sizes.append(len(found))
    assert sizes[0] > sizes[-1]  # a low floor is strict
    scores = [one["score"] for one in answer["detections"]]
    assert scores == sorted(scores, reverse=True)


def test_a_window_that_a_floor_rejects_suppresses_nobody():
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [40, 0, 50, 10]], dtype=float)
    candidates = _Candidates(
        boxes=boxes,
        scores=np.array([0.9, 0.8, 0.7]),
        class_ids=np.zeros(3, dtype=int),
        winners=np.zeros(3, dtype=int),
        accepted=np.array([[True, False], [True, True], [False, False]]),
    )
    assert _standing(candidates, DetectionOptions()) == [(0, [-1, 0]), (1, [1]), (2, [-1])]
    assert _standing(candidates, DetectionOptions(max_detections=1)) == [(0, [-1, 0]), (1, [1])]
    assert _standing(candidates, DetectionOptions(min_score=0.85)) == [(0, [-1, 0])]
    broken = replace(candidates, scores=np.array([np.nan, -np.inf, 0.7]))
    assert _standing(broken, DetectionOptions()) == [(2, [-1])]


def test_the_answer_is_plain_and_names_exemplars(engine, table):
    answer = engine.detect(encoded(scene()), table, with_preview=True)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    winners = {str(one["exemplar"]) for one in answer["detections"]}
    assert set(answer["exemplars"]) == winners
    for number, identity in answer["exemplars"].items():
        annotation = quick_detector().exemplars_[int(number)]
        assert (identity["class"], identity["image_id"]) == (annotation.class_name, annotation.image_id)
        assert identity["shows"] == "picture"
        assert ["digit", str(annotation.metadata["digit"])] in identity["labels"]
    preview = answer["preview"].removeprefix("data:image/jpeg;base64,")
    assert read_image(base64.b64decode(preview)).shape == scene().shape


def test_masks_and_parts_are_those_of_the_winner(engine):
    answer = engine.detect(encoded(scene()))
    size = (answer["width"], answer["height"])
    assert answer["frame"] == list(size)
    n_masks, means = 0, mean_masks(quick_detector().exemplars_)
    (found,) = quick_detector().predict([scene()])  # the same boxes, to all digits
    for one, box in zip(answer["detections"], found.boxes, strict=True):
        np.testing.assert_allclose(one["box"], box, atol=0.005)
        winner = quick_detector().exemplars_[one["exemplar"]]
        handed = refine(transfer(winner, box, size), [winner], scene(), means=means)
        assert [part["name"] for part in one["parts"]] == [part.name for part in handed.parts]
        if one["mask"] is None:
            continue
        width, height = one["mask"]["size"]
        mask = rle_to_mask({"size": [height, width], "counts": one["mask"]["counts"]})
        np.testing.assert_array_equal(mask, handed.mask)
        assert (one["mask"]["x"], one["mask"]["y"]) == handed.offset
        np.testing.assert_allclose(
            [part["box"] for part in one["parts"]], [part.box for part in handed.parts], atol=0.01
        )
        n_masks += 1
    assert n_masks > 0


@pytest.mark.long
def test_masks_of_large_images_are_in_a_smaller_frame():
    engine = Inference(quick_detector())
    large = np.kron(scene(), np.ones((8, 8, 1), dtype=np.uint8))
    answer = engine.detect(encoded(large))
    assert max(answer["frame"]) == 1000
    assert (answer["width"], answer["height"]) == (large.shape[1], large.shape[0])
    factor = answer["frame"][0] / answer["width"]
    best = answer["detections"][0]
    assert best["mask"]["x"] == int(best["box"][0] * factor)
    for part in best["parts"]:  # in pixels of the image, within the box
        assert best["box"][0] - 1 <= part["box"][0] < part["box"][2] <= best["box"][2] + 1


def test_keypoints_and_labels_of_any_kind(monkeypatch):
    detector = quick_detector()
    changed = []
    for annotation in detector.exemplars_:
        x1, y1, x2, y2 = annotation.box
        metadata = {
            "keypoints": {"centre": [(x1 + x2) / 2, (y1 + y2) / 2, 2], "unknown": [0, 0, 0]},
            "long": "x" * 500, "list": [1, 2.5, "a"], "nested": {"a": {"b": 1}}, "number": np.float32(0.25), "no": None,
            "flag": True, "nan": float("nan"), **{f"more {k}": k for k in range(40)},
        }  # fmt: skip
        part = Part("whole", annotation.box)
        changed.append(replace(annotation, metadata=metadata, parts=(part,), pose="left", mask=None))
    engine = Inference(detector)
    monkeypatch.setattr(engine, "_exemplars", tuple(changed))
    answer = engine.detect(encoded(scene()))
    json.dumps(answer, allow_nan=False)
    best = answer["detections"][0]
    x1, y1, x2, y2 = best["box"]
    assert best["mask"] is None
    assert [point["name"] for point in best["keypoints"]] == ["centre"]
    np.testing.assert_allclose(best["keypoints"][0]["point"], [(x1 + x2) / 2, (y1 + y2) / 2], atol=0.01)
    np.testing.assert_allclose(best["parts"][0]["box"], best["box"], atol=0.01)
    identity = answer["exemplars"][str(best["exemplar"])]
    labels = dict(identity["labels"])
    assert identity["pose"] == "left"
    assert len(labels["long"]) == 120
    assert (labels["list"], labels["nested"], labels["flag"]) == ("1, 2.5, a", "a b 1", "yes")
    assert (labels["number"], labels["no"], labels["nan"]) == ("0.25", "", "nan")
    assert len(labels) == 24
    assert "keypoints" not in labels


def test_pictures_of_exemplars(engine, monkeypatch):
    first = quick_detector().exemplars_[0]
    assert read_image(engine.exemplar_picture(0)).shape == first.picture.shape
    assert engine.exemplar_picture(-1) is None
    assert engine.exemplar_picture(len(quick_detector().exemplars_)) is None
    other = Inference(quick_detector())
    no_picture = replace(first, picture=None)
    monkeypatch.setattr(
        other, "_exemplars", (no_picture, replace(no_picture, mask=None, box=np.array([0.0, 0, 10, 20])))
    )
    drawn = read_image(other.exemplar_picture(0))
    assert drawn.shape[:2] == first.mask.shape
    assert drawn[first.mask].mean() > drawn[~first.mask].mean() + 50
    assert read_image(other.exemplar_picture(1)).shape == (192, 96, 3)


@pytest.mark.long
def test_other_calibrators():
    for name, kind, start in (("single-svm", "number", None), ("joint", "number", 0.0), ("none", "number", None), ("cooccurrence", "number", None)):  # fmt: skip
        engine = Inference(quick_detector(), name)
        answer = engine.detect(encoded(scene()))
        assert engine.card()["score"] == {"kind": kind, "start": start}
        found = quick_detector().predict([scene()], calibrator=name)[0]
        np.testing.assert_allclose([one["score"] for one in answer["detections"]], found.scores)
        if name == "single-svm":
            assert {one["exemplar"] for one in answer["detections"]} == {None}
            assert answer["exemplars"] == {}
    with pytest.raises(InputError, match=r"^`calibrator` must be one of 'none'"):
        Inference(quick_detector(), "magic")


# ---- images over HTTP, good and hostile


def gif(n_frames=3):
    frames = [Image.fromarray(np.roll(scene(), 40 * k, axis=1)) for k in range(n_frames)]
    stream = io.BytesIO()
    frames[0].save(stream, format="GIF", save_all=True, append_images=frames[1:], duration=50)
    return stream.getvalue()


def rotated():
    """A JPEG that is stored on its side, and says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(np.rot90(scene()).copy(), "JPEG", exif=exif, quality=95)


def palette_with_alpha():
    layer = Image.fromarray(scene()).quantize(64)
    return encoded(layer, "PNG", transparency=bytes([0] * 20 + [128] * 44))


HEIGHT, WIDTH = 240, 320
GOOD = {
    "JPEG": lambda: (encoded(scene(), "JPEG"), WIDTH, HEIGHT),
    "WebP": lambda: (encoded(scene(), "WEBP"), WIDTH, HEIGHT),
    "TIFF": lambda: (encoded(scene(), "TIFF"), WIDTH, HEIGHT),
    "animated GIF": lambda: (gif(), WIDTH, HEIGHT),
    "16 bits": lambda: (encoded(Image.fromarray(scene()[:, :, 0].astype(np.uint16) * 257)), WIDTH, HEIGHT),
    "CMYK": lambda: (encoded(Image.fromarray(scene()).convert("CMYK"), "JPEG"), WIDTH, HEIGHT),
    "palette with alpha": lambda: (palette_with_alpha(), WIDTH, HEIGHT),
    "grey with alpha": lambda: (encoded(Image.fromarray(scene()).convert("LA")), WIDTH, HEIGHT),
    "stored on its side": lambda: (rotated(), WIDTH, HEIGHT),
    "one pixel": lambda: (encoded(np.full((1, 1, 3), 200, np.uint8)), 1, 1),
    "one colour": lambda: (encoded(np.full((80, 90, 3), 200, np.uint8)), 90, 80),
    "wide": lambda: (encoded(np.tile(np.arange(30_000, dtype=np.uint8)[None, :, None], (1, 1, 3))), 30_000, 1),
    "tall": lambda: (encoded(np.tile(np.arange(30_000, dtype=np.uint8)[:, None, None], (1, 2, 3))), 2, 30_000),
}


@pytest.mark.parametrize("kind", few(GOOD, 8))
def test_images_of_every_kind_are_answered(server, kind):
    content, width, height = GOOD[kind]()
    status, answer = server.upload(content, "image/x-whatever", "/api/detect?preview=1")
    assert status == 200
    assert (answer["width"], answer["height"]) == (width, height)
    assert max(answer["frame"]) <= 1000
    for one in answer["detections"]:
        assert 0 <= one["box"][0] < one["box"][2] <= width
        assert 0 <= one["box"][1] < one["box"][3] <= height
    assert answer["preview"].startswith("data:image/jpeg;base64,")


def bomb():
    """A PNG of a few hundred bytes that says it has 900 million pixels."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><image href="file:///etc/passwd"/></svg>'
BAD = {
    "truncated JPEG": lambda: encoded(scene(), "JPEG")[:3000],
    "truncated PNG": lambda: encoded(scene())[:3000],
    "head of a PNG": lambda: encoded(scene())[:20],
    "text": lambda: b"this is not an image at all",
    "SVG": lambda: SVG,
    "HTML": lambda: b"<!DOCTYPE html><script>alert(1)</script>",
    "EPS": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "zeros": lambda: bytes(5000),
    "pickle": lambda: b"\x80\x04\x95\x00\x00\x00\x00",
    "bomb": bomb,
    "too many pixels": lambda: encoded(np.zeros((1500, 1500, 3), np.uint8)),
    "noise after a JPEG head": lambda: encoded(scene(), "JPEG")[:600] + bytes(range(256)) * 40,
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_images_get_a_sentence(server, kind):
    status, answer = server.upload(BAD[kind]())
    if kind == "noise after a JPEG head" and status == 200:
        return  # decoders of JPEG make something of anything that ends
    assert status == 422
    assert list(answer) == ["error"]
    sentence = answer["error"]
    assert sentence.startswith(("The image cannot be read: ", "The image has "))
    assert sentence.endswith(".")
    assert not any(word in sentence for word in ("Traceback", "/", "\\", "0x", "BytesIO", "Error", "\n"))


def test_limits_are_named(server):
    _, answer = server.upload(BAD["too many pixels"]())
    assert answer == {"error": "The image has 1,500 x 1,500 pixels: 2 million are taken here."}
    _, answer = server.upload(BAD["text"]())
    assert answer == {"error": "The image cannot be read: it is not an image of a known format."}


def test_what_a_library_complains_about_stays_here(engine, monkeypatch, caplog):
    class Failing:
        dimension = engine._descriptor.dimension

        def describe(self, image, boxes):
            raise ValueError("Library(1.2.3) /home/somebody/file.cpp:7: error")

        def parameters(self):
            return {}

    monkeypatch.setattr(engine, "_descriptor", Failing())
    with pytest.raises(InputError, match=r"^The image cannot be used: no windows can be found in it, or described\.$"):
        engine.detect(encoded(scene()))
    assert "/home/somebody/file.cpp" in caplog.text


@pytest.mark.long
def test_many_uploads_at_once(engine, search):
    content = encoded(scene())
    with running(ModelSite(engine, search, 1_000_000), Limits(n_running=2, n_waiting=2)) as server:
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda _: server.upload(content), range(12 if ALL else 6)))
        good = [answer for status, answer in answers if status == 200]
        assert {status for status, _ in answers} <= {200, 503}
        assert len(good) >= 4
        expected = engine.detect(content, search.state.table)["detections"]
        assert all(answer["detections"] == expected for answer in good)
        assert server.upload(content)[1]["detections"] == expected


def test_addresses_of_the_model(server, engine):
    status, headers, body = server.ask("GET", "/api/model")
    card = json.loads(body)
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert [one["name"] for one in card["classes"]] == ["three", "eight"]
    assert card["n_exemplars"] == len(quick_detector().exemplars_)
    assert card["max_upload"] == 1_000_000
    assert [row["floor"] for row in card["floors"]["rows"]] == list(FLOORS)
    for target, kind in (("/", "text/html"), ("/assets/serve.js", "text/javascript"), ("/assets/serve.css", "text/css"), ("/assets/serve.svg", "image/svg+xml")):  # fmt: skip
        status, headers, body = server.ask("GET", target)
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, kind)
        assert len(body) > 100
    status, headers, body = server.ask("GET", "/api/exemplars/0.jpg")
    assert (status, headers["Content-Type"]) == (200, "image/jpeg")
    assert body == engine.exemplar_picture(0)
    for target in ("/api/exemplars/99999.jpg", "/api/exemplars/00.jpg", "/api/exemplars/-1.jpg", "/api/exemplars/1.png", "/api/exemplars/1.jpg/", "/assets/", "/assets/engine.py", "/api/detect?preview=2", "/api/exemplars/9999999999999999999999.jpg"):  # fmt: skip
        assert server.ask("GET", target)[0] == 404, target


def test_nothing_of_an_upload_is_kept(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server.upload(encoded(scene()))
    assert list(tmp_path.iterdir()) == []


# ---- floors


def test_floors_carry_loss_and_bound(table):
    rows = table.rows()
    for k, row in enumerate(rows):
        assert row["floor"] == FLOORS[k]
        assert row["loss"] == sum(one["loss"] for one in row["classes"])
        assert row["lower_bound"] <= row["loss"] <= row["n_negatives"]
        for one, model in zip(row["classes"], quick_detector().models_, strict=True):
            scores = model.read_scores().table
            frontier = next(c for c in table.classes if c.class_name == one["class"]).frontier
            negatives = scores.scores[scores.labels == 0]
            assert any_accepts(negatives, frontier.thresholds[k]).sum() == one["loss"]
            assert len(negatives) == one["n_negatives"]
            assert one["n_left_out"] <= (1 - FLOORS[k]) * one["n_positives"] + 1e-9
    assert rows[0]["n_left_out"] == 0
    assert rows[0]["loss"] > rows[-1]["loss"]


def test_usual_floors_are_those_that_differ():
    found = FloorSearch(quick_detector().models_, quick_options(), None, time_limit=0.1)
    assert (found.state.kind, found.state.text) == ("preparing", "Thresholds are being searched: class 1 of 2.")
    found.start()
    table = found.wait(60).table
    assert table.floors[0] == 1.0
    assert len(table.floors) < 9
    for k in range(1, len(table.floors)):
        assert any((one.frontier.thresholds[k] != one.frontier.thresholds[k - 1]).any() for one in table.classes)


def test_the_floor_of_the_model_has_the_thresholds_of_the_model():
    model = quick_detector().models_[0]
    own = JointCalibrator(sigmoid=True, time_limit=2, gap=0.05)
    fit_table(model.read_scores().table, own, across_groups=True)
    changed = replace(model, calibrators={"joint": own})
    found = FloorSearch([changed], quick_options(), FLOORS, time_limit=0.1)
    found.start()
    frontier = found.wait(60).table.classes[0].frontier
    np.testing.assert_array_equal(frontier.thresholds[0], own.thresholds_)
    assert frontier.losses[0] == own.result_.loss
    problem = model.read_scores().table.problem(True)
    greedy = trained(quick_options(calibration__gap=0.0)).models_[0]
    assert _known(greedy, problem)[0] == []  # a greedy calibration is a start, not a result
    assert _known(changed, problem)[0] == [own.result_]
    assert _known(replace(model, calibrators={}), problem) == ([], None)


def test_a_search_that_is_stopped_ends():
    found = FloorSearch(quick_detector().models_, quick_options(), FLOORS, time_limit=600)
    found.start()
    found.stop(timeout=60)
    assert not found._thread.is_alive()
    assert found.state.kind in ("preparing", "ready")


def test_why_there_are_no_floors(tmp_path, caplog):
    without = [replace(model, read_scores=None) for model in quick_detector().models_]
    found = FloorSearch(without[:1], quick_options())
    found.start()
    assert found.wait().kind == "absent"
    assert found.state.text == "The model keeps no training scores of three, from which thresholds could be found."
    assert "three and 1 more" in FloorSearch(without, quick_options()).state.text
    off = FloorSearch(quick_detector().models_, quick_options(), [])
    assert off.state.text == "Recall floors were switched off when the server was started."
    quick_detector().save(tmp_path / "model")
    (tmp_path / "model/classes/three/scores.npz").write_bytes(b"damaged")
    found = FloorSearch(ExemplarDetector.load(tmp_path / "model").models_, quick_options())
    found.start()
    state = found.wait(60)
    assert state.text == "The training scores of the model cannot be used; the terminal says why."
    assert "it is damaged or of another model" in caplog.text
    with pytest.raises(InputError, match=r"^`floors` must be <= 1, got 2$"):
        FloorSearch(without, quick_options(), [1.0, 2])
