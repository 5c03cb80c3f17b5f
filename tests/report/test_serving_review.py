"""The page of `eesvm serve --review`: its addresses, and in a real browser accept, reject, correct, draw and save."""

import json
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm.boxes import iou
from eesvm.cli import main
from eesvm.datasets import open_dataset
from eesvm.datasets.reviews import ReviewFolder
from eesvm.detector.training_table import propose_windows
from eesvm.images import write_image
from eesvm.report.serving.floors import FloorSearch
from eesvm.report.serving.review import ReviewSite
from eesvm.report.serving.site import ModelSite
from helpers.detector_scenes import quick_options, scenes
from helpers.serving_help import RememberingInference, quick_detector, running


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Three test scenes as files."""
    folder, records = tmp_path_factory.mktemp("photos"), []
    for record in scenes("test")[:3]:
        path = folder / f"{record.image_id}.png"
        write_image(path, record.read())
        records.append(replace(record, path=str(path)))
    return records


@pytest.fixture(scope="module")
def inference():
    return RememberingInference(quick_detector())


@pytest.fixture
def server(tmp_path, images, inference):
    detector = quick_detector()
    model = ModelSite(inference, FloorSearch(detector.models_, quick_options(), [], 0.1), 500_000)
    folder = ReviewFolder(tmp_path / "review", "m1")
    with running(ReviewSite(model, inference, images, folder, detector.exemplars_, {"three": 0.0})) as address:
        yield address


def post(server, target, content):
    return server.upload(json.dumps(content).encode(), "application/json", target)


def test_addresses(server, images, tmp_path):
    status, _, body = server.ask("GET", "/api/review")
    assert status == 200
    assert json.loads(body)["images"] == [{"name": one.image_id, "version": 0} for one in images]
    status, answer = post(server, "/api/review/0", {})
    assert status == 200
    assert answer["review"] == {"version": 0, "objects": [], "rejected": []}
    assert answer["preview"].startswith("data:image/jpeg;base64,")
    first = answer["detections"][0]
    x1, y1, x2, y2 = first["box"]
    thing = {"class": first["class"], "bbox": [x1, y1, x2 - x1, y2 - y1], "exemplar": first["exemplar"], "mask": True}
    status, saved = post(
        server, "/api/review/0/save", {"version": 0, "objects": [thing | {"review": "accepted"}], "rejected": [thing]}
    )
    assert (status, saved) == (200, {"version": 1})
    (instance,) = open_dataset(tmp_path / "review")[0].instances
    assert instance.class_name == first["class"]
    assert instance.mask is not None
    again = post(server, "/api/review/0", {})[1]["review"]
    assert (again["version"], again["objects"][0]["exemplar"]) == (1, first["exemplar"])
    assert again["objects"][0]["has_mask"]
    # The mask as it was saved stays with an object that nobody has moved, whoever its exemplar is now.
    kept = again["objects"][0] | {"mask": True, "exemplar": None}
    assert post(server, "/api/review/0/save", {"version": 1, "objects": [kept], "rejected": []})[0] == 200
    assert open_dataset(tmp_path / "review")[0].instances[0].mask is not None


@pytest.mark.parametrize(
    ("target", "content", "status", "sentence"),
    [
        ("/api/review/0/save", {"version": 5, "objects": [], "rejected": []}, 409, None),
        ("/api/review/0/save", {"version": "x"}, 422, "`version` must be the version of the image that was reviewed."),
        ("/api/review/0/save", {"version": 0}, 422, "`objects` and `rejected` must be lists of objects."),
        ("/api/review/0/save", [1], 422, "An object is needed here."),
        (
            "/api/review/0/save",
            {"version": 0, "objects": [{"class": "three", "bbox": [0, 0, 0, 0], "review": "accepted"}], "rejected": []},
            422,
            None,
        ),
        (
            "/api/review/0/save",
            {"version": 0, "objects": [{}] * 10_001, "rejected": []},
            422,
            "An image may have 10,000 objects at most.",
        ),
        ("/api/review/9", {}, 404, "There is nothing at this address."),
        ("/api/review/x", {}, 404, "There is nothing at this address."),
    ],
)
def test_requests_that_are_refused(server, target, content, status, sentence):
    found, answer = post(server, target, content)
    assert found == status
    assert sentence is None or answer == {"error": sentence}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"bbox": [10**400, 0, 10, 10], "mask": True}, "An object of {} must have a `bbox` of four numbers."),
        ({"bbox": [float("nan"), 0, 10, 10], "mask": True}, "An object of {} must have a `bbox` of four numbers."),
        ({"bbox": [0, 0, float("inf"), 10]}, "An object of {} must have a `bbox` of four numbers."),
        ({"bbox": [True, True, True, True]}, "An object of {} must have a `bbox` of four numbers."),
        ({"bbox": [1e308, 0, 1e308, 10], "mask": True}, "An object of {} has a `bbox` that is no box."),
        ({"bbox": [90_000, 0, 10, 10]}, "The box of an object of {} has no area within the image."),
        ({"bbox": [5, 5, 1e-300, 10]}, "The box of an object of {} has no area within the image."),
        ({"class": ["three"], "mask": True}, "An object of {} has no class."),
        ({"class": {"three": 1}, "mask": True}, "An object of {} has no class."),
        (
            {"class": "three\n"},
            "The class of an object of {} must be a name of up to 200 characters that can be shown.",
        ),
        ({"class": "\ud800"}, "The class of an object of {} must be a name of up to 200 characters that can be shown."),
        (
            {"class": "x" * 201},
            "The class of an object of {} must be a name of up to 200 characters that can be shown.",
        ),
        ({"score": float("nan")}, "The score of an object of {} must be a number."),
        ({"score": 10**400}, "The score of an object of {} must be a number."),
        ({"exemplar": 999, "mask": True}, "There is no exemplar 999: the model has {n}, counted from 0."),
        ({"exemplar": -1}, "There is no exemplar -1: the model has {n}, counted from 0."),
        ({"exemplar": "0"}, "There is no exemplar 0: the model has {n}, counted from 0."),
    ],
)
def test_objects_that_cannot_be_kept(server, images, tmp_path, changes, sentence):
    thing = {"class": "three", "bbox": [5, 5, 20, 20], "review": "accepted", "score": 0.5, "exemplar": 0} | changes
    status, answer = post(server, "/api/review/0/save", {"version": 0, "objects": [thing], "rejected": []})
    n = len(quick_detector().exemplars_)
    assert (status, answer) == (422, {"error": sentence.format(images[0].image_id, n=n)})
    assert not (tmp_path / "review").exists()


def test_other_refusals(server):
    assert server.upload(b"{", "application/json", "/api/review/0")[0] == 400
    assert server.upload(b"[" * 100_000, "application/json", "/api/review/0")[0] == 400
    status, answer = server.upload(b"{}", "text/plain", "/api/review/0/save")
    assert (status, answer["error"]) == (
        415,
        "JSON is needed here, and the request says text/plain: send the header Content-Type: application/json "
        "(curl: -H 'Content-Type: application/json').",
    )
    status, _, _ = server.ask("POST", "/api/review/0", b"{}", Content_Type="application/json", Origin="http://evil")
    assert status == 403


def test_trouble_of_the_machine_is_not_the_reviewers_fault(server, tmp_path):
    (tmp_path / "review").write_text("a file where the folder should be")
    status, answer = post(server, "/api/review/0/save", {"version": 0, "objects": [], "rejected": []})
    assert (status, answer["error"].startswith("The server cannot do this: ")) == (500, True)
    (tmp_path / "review").unlink()
    (tmp_path / "review").mkdir()
    (tmp_path / "review/instances.json").write_text("{")
    status, answer = post(server, "/api/review/0/save", {"version": 0, "objects": [], "rejected": []})
    sentence = f"{tmp_path / 'review/instances.json'}: it is not JSON, or it is damaged."
    assert (status, answer) == (422, {"error": sentence})
    assert (tmp_path / "review/instances.json").read_text() == "{"


def opened(open_page, server):
    page = open_page(1300, 900)
    page.goto(f"{server.url}review")
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Image 1')")
    return page


def test_accept_reject_correct_draw_and_save(open_page, server, images, tmp_path):
    page = opened(open_page, server)
    page.locator("#score").evaluate("n => { n.value = 0; n.dispatchEvent(new Event('input')); }")
    n = page.locator("#list .object").count()
    assert n >= 2
    page.locator("#list .object").nth(0).get_by_role("button", name="Accept").click()
    page.locator("#list .object").nth(1).get_by_role("button", name="Reject").click()
    page.locator("#list .object").nth(0).get_by_role("button", name="Undecided").click()
    page.locator("#list .object").nth(0).click(position={"x": 10, "y": 10})
    corner = page.locator("#boxes .box.active .corner").nth(3).bounding_box()
    x, y = corner["x"] + corner["width"] / 2, corner["y"] + corner["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 7, y - 9, steps=3)
    page.mouse.up()
    assert page.locator("#list .object").nth(0).get_attribute("class") == "object corrected active"
    area = page.locator("#canvas").bounding_box()
    page.evaluate("document.querySelectorAll('#boxes .box').forEach(n => { n.style.pointerEvents = 'none'; })")
    page.locator("#class").fill("nine")
    page.mouse.move(area["x"] + 5, area["y"] + 5)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] / 4, area["y"] + area["height"] / 4, steps=3)
    page.mouse.up()
    assert page.locator("#list .object.drawn").count() == 1
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Saved')")
    record = open_dataset(tmp_path / "review")[0]
    assert record.image_id == images[0].image_id
    assert sorted(i.class_name for i in record.instances if not i.is_difficult)[0] in ("eight", "nine", "three")
    assert [i.class_name for i in record.instances if not i.is_difficult].count("nine") == 1
    assert sum(i.is_difficult for i in record.instances) == n - 2
    content = json.loads((tmp_path / "review/instances.json").read_text())
    assert [one["review"] for one in content["annotations"]].count("corrected") == 1
    assert len(content["rejected"]) == 1
    # What was said is there again, and not asked about twice.
    page.reload()
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Image 2')")
    page.locator("#images").select_option("0")
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Image 1')")
    assert page.locator("#list .object.drawn").count() == 1
    assert page.locator("#list .object.rejected").count() == 1


def test_keys_and_the_button_for_the_rest(open_page, server, images, tmp_path):
    page = opened(open_page, server)
    page.locator("#score").evaluate("n => { n.value = 0; n.dispatchEvent(new Event('input')); }")
    page.keyboard.press("a")
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.keyboard.press("k")
    assert page.locator("#list .object").nth(0).get_attribute("class") == "object accepted active"
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Image 2')")
    assert page.locator("#title").text_content() == "Review: 1 of 3 images"
    (instance,) = open_dataset(tmp_path / "review")[0].instances
    assert not instance.is_difficult


@pytest.mark.long
def test_two_reviewers_at_once(open_page, server, tmp_path):
    one, other = opened(open_page, server), opened(open_page, server)
    one.keyboard.press("Enter")
    one.wait_for_function("() => document.getElementById('status').textContent.startsWith('Image 2')")
    other.get_by_role("button", name="Save", exact=True).click()
    other.wait_for_function("() => document.getElementById('error').textContent !== ''")
    name = scenes("test")[0].image_id
    assert other.locator("#error").text_content() == (
        f"Not saved: Somebody else has reviewed {name} in the meantime: look at it again before you save."
    )
    other.complaints[:] = [text for text in other.complaints if "409" not in text]
    content = json.loads((tmp_path / "review/instances.json").read_text())
    assert content["images"][0]["review"] == {"version": 1}


@pytest.mark.long
def test_reviews_become_exemplars(tmp_path, images, capsys):
    """The whole loop by the verbs, without a browser: a review of this model is taken, one of another refused."""
    from eesvm._support.digests import file_digest

    quick_detector().save(tmp_path / "model")
    digest = file_digest(tmp_path / "model/model.json")
    things = [
        {"class": i.class_name, "bbox": [*i.box[:2].tolist(), *(i.box[2:] - i.box[:2]).tolist()], "review": "accepted"}
        for i in images[0].instances
    ]
    proposed = next(propose_windows(images[:1], quick_options().windows, 1)).boxes
    objects = np.array([i.box for i in images[0].instances])
    x1, y1, x2, y2 = proposed[np.flatnonzero(iou(proposed, objects).max(axis=1) == 0)[0]].tolist()
    rejected = [{"class": "three", "bbox": [x1, y1, x2 - x1, y2 - y1]}]
    ReviewFolder(tmp_path / "review", digest).save(images[0], 0, things, rejected)
    ReviewFolder(tmp_path / "strange", "another").save(images[0], 0, things, [])
    command = ["add", str(tmp_path / "model")]
    assert main([*command, str(tmp_path / "strange"), "--no-cache", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"eesvm: error: {tmp_path / 'strange/instances.json'} is a review of another model than {tmp_path / 'model'}\n"
    )
    assert main([*command, str(tmp_path / "review"), "--no-cache"]) == 0
    assert "hard negatives from 1 image" in capsys.readouterr().out
    # The next round goes on in the same folder: it is of a model that this one has grown from.
    changes = json.loads((tmp_path / "model/model.json").read_text())["inputs"]["changes"]
    assert changes[0]["model_before"] == digest
    grown = ReviewFolder(tmp_path / "review", file_digest(tmp_path / "model/model.json"), [digest])
    grown.save(images[1], 0, things[:1], [])
    more = replace(images[1], instances=())
    assert np.array_equal(more.read(), images[1].read())
    assert main([*command, str(tmp_path / "review"), "--no-cache", "--quiet"]) == 0


def test_another_photograph_of_the_same_name_is_refused(tmp_path, images):
    folder = ReviewFolder(tmp_path / "review", "m1")
    assert folder.save(images[0], 0, [], []) == 1
    assert folder.save(images[0], 1, [], []) == 2
    with pytest.raises(InputError) as error:
        folder.save(replace(images[0], path=images[1].path), 2, [], [])
    assert str(error.value) == f"the review has another photograph called {images[0].image_id}: name another folder"
