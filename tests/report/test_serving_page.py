"""The page of `eesvm serve` in a real browser: uploads of every way, sliders, keyboard, phone, and what goes wrong."""

import base64
import io
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image

from eesvm.images.masks import rle_to_mask
from eesvm.report.serving.floors import FloorSearch
from eesvm.report.serving.inference import Inference
from eesvm.report.serving.server import Limits
from eesvm.report.serving.site import ModelSite
from helpers.detector_scenes import quick_options
from helpers.serving_help import RememberingInference, quick_detector, running, scene

FLOORS = (1.0, 0.9, 0.5)
GONE = "The server does not answer: is `eesvm serve` still running?"


@pytest.fixture(scope="module")
def engine():
    return RememberingInference(quick_detector(), max_pixels=1_000_000)


@pytest.fixture(scope="module")
def site(engine):
    search = FloorSearch(quick_detector().models_, quick_options(), FLOORS, time_limit=0.2)
    search.start()
    assert search.wait(60).kind == "ready"
    return ModelSite(engine, search, 500_000)


@pytest.fixture(scope="module")
def server(site):
    with running(site, Limits(max_upload=500_000)) as address:
        yield address


@pytest.fixture(scope="module")
def answer(engine, site):
    """What the server will say about the scene."""
    return engine.detect(png(scene()), site._floors.state.table)


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()


def photo(name="scene.png", content=None, kind="image/png"):
    return {"name": name, "mimeType": kind, "buffer": png(scene()) if content is None else content}


def opened(open_page, server, **options):
    page = open_page(**options)
    page.goto(server.url)
    page.wait_for_selector("h1:has-text('Detector of')")
    return page


def uploaded(page, file=None):
    page.set_input_files("#file", file or photo())
    page.wait_for_selector("#side:not([hidden])")
    page.wait_for_selector("#progress", state="hidden")
    return page


def move(page, slider, value):
    """Set a range input as a person does, so far as scripts can tell."""
    page.eval_on_selector(
        slider,
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', {bubbles: true})); }",
        value,
    )


def standing(answer, floor=None, least=-np.inf):
    """Detections that should be shown at a floor, by its place, and a least score."""
    return [
        one
        for one in answer["detections"]
        if (one["without_floor"] if floor is None else floor in one["at_floors"]) and one["score"] >= least
    ]


def painted(page):
    """(height, width) which pixels of the canvas of masks are painted."""
    width, height, places = page.evaluate(
        """() => { const c = document.getElementById('masks');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const places = []; for (let i = 0; i < d.length / 4; i++) if (d[4 * i + 3]) places.push(i);
        return [c.width, c.height, places]; }"""
    )
    mask = np.zeros(width * height, dtype=bool)
    mask[places] = True
    return mask.reshape(height, width)


def test_an_upload_shows_detections_and_exemplars(open_page, server, answer):
    page = opened(open_page, server)
    assert page.inner_text("h1") == "Detector of three, eight"
    assert not page.is_visible("#result")
    assert page.locator("#learnt img").count() == min(12, len(quick_detector().exemplars_))
    uploaded(page)
    assert not page.is_visible("#learnt")
    move(page, "#score", "0")
    expected = standing(answer, 0)
    assert page.locator(".card").count() == page.locator(".box").count() == len(expected)
    first = page.locator(".card").first
    best = answer["exemplars"][str(expected[0]["exemplar"])]
    assert expected[0]["class"] in first.inner_text()
    assert f"{expected[0]['score']:.2f}" in first.inner_text()
    assert f"looks like object {best['index'] + 1} of {best['image_id']}" in first.inner_text()
    assert page.locator(".card img").first.evaluate("node => node.decode().then(() => node.naturalWidth)") > 0
    assert "windows in" in page.inner_text("#status")
    # The box lies where the detection is.
    stage, box = page.locator("#canvas").bounding_box(), page.locator(".box[data-number='0']").bounding_box()
    x1, y1, x2, y2 = answer["detections"][0]["box"]
    assert abs((box["x"] - stage["x"]) / stage["width"] - x1 / answer["width"]) < 0.01
    assert abs((box["y"] - stage["y"]) / stage["height"] - y1 / answer["height"]) < 0.01
    assert abs(box["width"] / stage["width"] - (x2 - x1) / answer["width"]) < 0.01
    assert abs(box["height"] / stage["height"] - (y2 - y1) / answer["height"]) < 0.01


def test_sliders_choose_without_asking_again(open_page, server, answer):
    page = uploaded(opened(open_page, server))
    asked = []
    page.on("request", lambda request: asked.append(request.method))
    assert page.inner_text("#floor-value") == "100 %"
    assert page.inner_text("#score-value") == "0.50"
    counts = []
    for position, floor, text in ((0, 2, "50 %"), (1, 1, "90 %"), (2, 0, "100 %"), (3, None, "off")):
        move(page, "#floor", str(position))
        for least in (0.0, 0.2, 0.6, 1.0):
            move(page, "#score", str(least))
            expected = standing(answer, floor, least)
            assert page.locator(".card").count() == len(expected)
            counts.append(len(expected))
        assert page.inner_text("#floor-value") == text
        assert page.get_attribute("#floor", "aria-valuetext") == text
    assert len(set(counts)) > 3
    assert page.is_visible("#nothing")
    assert "the best scores" in page.inner_text("#nothing")
    assert "POST" not in asked


def test_the_floor_says_what_it_costs(open_page, server, site):
    page = uploaded(opened(open_page, server))
    for position, row in zip((2, 1, 0), site._floors.state.table.rows(), strict=True):
        move(page, "#floor", str(position))
        text = page.inner_text("#floor-text")
        assert f"{row['loss']:,.0f} of {row['n_negatives']:,} negatives" in text
        least = int(np.ceil(row["lower_bound"] - 1e-6))
        proof = "proven to be the fewest possible" if row["loss"] <= least else f"at least {least:,}"
        assert proof in text
        assert ("accept all " if not row["n_left_out"] else f"all but {row['n_left_out']:,} of") in text
    page.click("#floor-details summary")
    cells = page.locator("#floor-rows tr").first.inner_text().split("\t")
    assert cells[0] == "three"
    assert cells[2] == f"{row['classes'][0]['loss']:,.0f}"
    move(page, "#floor", "3")
    assert "every window stays" in page.inner_text("#floor-text")


@pytest.mark.long
def test_masks_parts_and_classes_can_be_switched_off(open_page, server, answer):
    page = uploaded(opened(open_page, server))
    move(page, "#score", "0")
    expected = np.zeros((answer["height"], answer["width"]), dtype=bool)
    for mask in (one["mask"] for one in standing(answer, 0) if one["mask"]):
        (width, height), x, y = mask["size"], mask["x"], mask["y"]
        piece = rle_to_mask({"size": [height, width], "counts": mask["counts"]})
        expected[y : y + height, x : x + width] |= piece
    assert expected.any()
    np.testing.assert_array_equal(painted(page), expected)
    page.uncheck("#show-masks")
    assert not painted(page).any()
    page.check("#show-masks")
    np.testing.assert_array_equal(painted(page), expected)
    page.locator(".card").first.click()
    assert page.locator(".part").count() == 2
    page.uncheck("#show-parts")
    assert page.locator(".part").count() == 0
    n = page.locator(".card").count()
    page.locator("#classes input").first.uncheck()
    assert 0 < page.locator(".card").count() < n
    assert "three" not in page.locator(".card .name").all_inner_texts()


def test_looking_at_a_detection_highlights_it(open_page, server):
    page = uploaded(opened(open_page, server))
    move(page, "#score", "0")
    cards = page.locator(".card")
    cards.nth(1).hover()
    number = cards.nth(1).get_attribute("data-number")
    assert page.locator(".box.active").get_attribute("data-number") == number
    page.hover("h1")
    assert page.locator(".box.active").count() == 0
    page.locator(".box[data-number='0']").hover(position={"x": 2, "y": 2}, force=True)
    assert page.locator(".card.active").get_attribute("data-number") == page.locator(".box.active").get_attribute("data-number")  # fmt: skip


def test_all_of_it_by_keyboard(open_page, server):
    page = opened(open_page, server)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    assert page.eval_on_selector("label[for=file]", "node => getComputedStyle(node).outlineStyle") == "solid"
    uploaded(page)
    page.focus("#score")
    page.keyboard.press("Home")
    assert page.inner_text("#score-value") == "0.00"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#score-value") == "0.01"
    page.focus("#floor")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#floor-value") == "90 %"
    page.locator(".card").first.focus()
    assert page.locator(".box.active").get_attribute("data-number") == page.locator(".card").first.get_attribute("data-number")  # fmt: skip
    page.keyboard.press("ArrowDown")
    second = page.locator(".card").nth(1)
    assert page.locator(".box.active").get_attribute("data-number") == second.get_attribute("data-number")
    page.keyboard.press("Enter")
    assert second.get_attribute("aria-expanded") == "true"
    known = page.locator(".known:not([hidden])")
    assert known.count() == 1
    assert "digit" in known.inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".known:not([hidden])").count() == 0


def handed_over(page, event, target, name="scene.png", kind="image/png", content=None):
    """A drop or paste event with a file."""
    data = base64.b64encode(png(scene()) if content is None else content).decode()
    page.evaluate(
        """([event, target, name, kind, data]) => {
        const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
        const transfer = new DataTransfer();
        if (name) transfer.items.add(new File([bytes], name, {type: kind}));
        const made = event === 'paste'
          ? new ClipboardEvent('paste', {clipboardData: transfer, bubbles: true, cancelable: true})
          : new DragEvent(event, {dataTransfer: transfer, bubbles: true, cancelable: true});
        document.querySelector(target).dispatchEvent(made); }""",
        [event, target, name, kind, data],
    )


@pytest.mark.long
def test_drop_and_paste(open_page, server, answer):
    for event, target in (("drop", "#drop"), ("drop", "footer"), ("paste", "body")):
        page = opened(open_page, server)
        if event == "drop":
            handed_over(page, "dragover", target)
            assert "over" in page.get_attribute("#drop", "class")
        handed_over(page, event, target)
        page.wait_for_selector("#side:not([hidden])")
        move(page, "#score", "0")
        assert page.locator(".card").count() == len(standing(answer, 0))
        assert page.get_attribute("#drop", "class") == "drop small"
    handed_over(page, "drop", "#drop", name="")
    assert page.inner_text("#error") == "There is no image file in what was dropped or pasted."


def test_what_cannot_be_used_gets_a_sentence(open_page, server, answer):
    page = opened(open_page, server)
    page.set_input_files("#file", photo("notes.txt", b"hello", "text/plain"))
    assert page.inner_text("#error") == "notes.txt is not a photograph or another image made of pixels."
    page.set_input_files("#file", photo("line.svg", b"<svg/>", "image/svg+xml"))
    assert page.inner_text("#error") == "line.svg is not a photograph or another image made of pixels."
    page.set_input_files("#file", photo("large.png", bytes(500_001)))
    assert page.inner_text("#error") == "large.png is too large: 0.5 MB are taken here."
    assert page.complaints == []  # all of these were seen without asking the server
    for name, content, sentence in (
        ("cut.png", png(scene())[:4000], "The image cannot be read: "),
        ("<b>bold</b>.png", b"not an image", "The image cannot be read: it is not an image of a known format."),
        ("vast.png", png(np.zeros((1200, 1000, 3), np.uint8)), "The image has 1,000 x 1,200 pixels: 1 million are taken here."),
    ):  # fmt: skip
        page.set_input_files("#file", photo(name, content))
        page.wait_for_selector("#error:not(:empty)")
        assert page.inner_text("#error").startswith(f"{name}: {sentence}")
        page.wait_for_selector("#result", state="hidden")
        assert "422" in page.complaints.pop()  # the browser's own note on its console
    uploaded(page)
    assert page.inner_text("#error") == ""
    move(page, "#score", "0")
    assert page.locator(".card").count() == len(standing(answer, 0))


@pytest.fixture
def slow_server(site):
    """One that has to look at every image, as the real one."""
    with running(ModelSite(Inference(quick_detector()), site._floors, 500_000)) as address:
        yield address


@pytest.mark.long
def test_the_last_image_wins(open_page, slow_server):
    page = opened(open_page, slow_server)
    small = np.ascontiguousarray(scene()[:120, :160])
    page.set_input_files("#file", photo("first.png"))
    page.set_input_files("#file", photo("second.png", png(small)))
    page.wait_for_selector("#side:not([hidden])")
    assert page.inner_text("#caption") == "160 x 120 pixels"
    page.wait_for_timeout(300)
    assert page.inner_text("#caption") == "160 x 120 pixels"
    assert page.inner_text("#error") == ""


def test_an_image_that_browsers_cannot_show(open_page, server, answer):
    stream = io.BytesIO()
    Image.fromarray(scene()).save(stream, format="TIFF")
    page = uploaded(opened(open_page, server), photo("scene.tif", stream.getvalue(), "image/tiff"))
    assert page.eval_on_selector("#picture", "node => node.naturalWidth") == answer["width"]
    move(page, "#score", "0")
    assert page.locator(".card").count() == len(standing(answer, 0))


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(open_page, server, scheme):
    page = opened(open_page, server, width=360, height=740, color_scheme=scheme, has_touch=True, is_mobile=True)
    uploaded(page)
    move(page, "#score", "0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".card").nth(1).tap()
    assert page.locator(".known:not([hidden])").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.long
def test_floors_that_become_ready_later(open_page, engine):
    search = FloorSearch(quick_detector().models_, quick_options(), FLOORS, time_limit=0.2)
    with running(ModelSite(engine, search, 500_000)) as server:
        page = uploaded(opened(open_page, server))
        assert not page.is_visible("#floor")
        assert page.inner_text("#floor-text").startswith("The slider for the recall floor is being prepared.")
        move(page, "#score", "0.25")
        search.start()
        page.wait_for_selector("#floor", state="visible")
        assert page.inner_text("#floor-value") == "100 %"
        assert page.inner_text("#score-value") == "0.25"  # what was chosen stays
        search.stop()


def test_a_model_without_scores_says_so(open_page, engine):
    models = [replace(model, read_scores=None) for model in quick_detector().models_]
    with running(ModelSite(engine, FloorSearch(models, quick_options()), 500_000)) as server:
        page = uploaded(opened(open_page, server))
        assert not page.is_visible("#floor")
        assert page.inner_text("#floor-text") == (
            "There is no slider for the recall floor. The model keeps no training scores of three and 1 more, from "
            "which thresholds could be found."
        )
        assert page.locator(".card").count() > 0 or page.is_visible("#nothing")


def test_texts_of_a_model_are_never_markup(open_page, monkeypatch, engine):
    evil = '<img src="http://outside.example/x.png" onerror="alert(1)">'
    engine = Inference(quick_detector())
    changed = tuple(
        replace(one, image_id=evil, pose=evil, metadata={evil: evil}) for one in quick_detector().exemplars_
    )
    monkeypatch.setattr(engine, "_exemplars", changed)
    with running(ModelSite(engine, FloorSearch(quick_detector().models_, quick_options(), []), 500_000)) as server:
        page = uploaded(opened(open_page, server), photo(f"{evil[:20]}.png"))
        move(page, "#score", "0")
        page.locator(".card").first.click()
        assert evil in page.locator(".known:not([hidden])").inner_text()
        assert page.locator(".list img[src*=outside]").count() == 0


def test_a_server_that_is_gone(open_page, site):
    with running(site, Limits(max_upload=500_000)) as server:
        page = uploaded(opened(open_page, server))
    page.set_input_files("#file", photo("late.png"))
    page.wait_for_selector("#error:not(:empty)")
    assert page.inner_text("#error") == f"late.png: {GONE}"
    assert not page.is_visible("#progress")
    assert "ERR_CONNECTION_REFUSED" in page.complaints.pop()


def test_colours_can_be_read():
    """Every pair of text and ground has a contrast of 4.5 to 1 or more, in light and in dark."""
    style = (files("eesvm.report.serving") / "assets" / "serve.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        pairs = [("ink", "paper"), ("ink", "soft"), ("dim", "paper"), ("dim", "soft"), ("on-accent", "accent"), ("wrong", "wrong-paper")]  # fmt: skip
        for text, ground in pairs:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        assert contrast(colours["accent"], colours["paper"]) >= 3  # lines and sliders


def test_assets_hold_nothing_inline_and_nothing_from_outside():
    folder = files("eesvm.report.serving") / "assets"
    page = (folder / "serve.html").read_text()
    assert not re.search(r"\son[a-z]+=|<style|javascript:|\sstyle=|<script>(?!</)", page)
    scripts = ""
    for name in ("serve.html", "serve.css", "serve.js", "serve_show.js"):
        text = (folder / name).read_text()
        assert "http://" not in text
        assert "https://" not in text
        scripts += text if name.endswith(".js") else ""
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", scripts)


def contrast(one, other):
    """The contrast of two colours as WCAG defines it."""

    def luminance(colour):
        values = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
