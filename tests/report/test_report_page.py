"""The page in a real browser: what it shows, how it is moved through, and what it never does."""

import json
import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser

import pytest

from eesvm.report.data import RIGHT, Fact, ReportData, Section
from eesvm.report.page import render
from eesvm.report.static_page import Picture, Table
from helpers.report_examples import HOSTILE, hostile_report, large_report, page_of, selective_report, small_report


@pytest.fixture
def show(open_page):
    """Opens a report at an address and waits until it is drawn."""

    def show(make=small_report, address="#/", **options):
        page = open_page(**options)
        page.goto(page_of(make) + address)
        page.wait_for_selector("#view-title", state="attached")
        return page

    return show


def of_all(shown, n):
    return f"{n:,}" if shown == n else f"{shown:,} of {n:,}"


def hash_of(page):
    return page.evaluate("location.hash")


def wait_for_hash(page, expected):
    """The address is as expected, or becomes so: the way back through the history takes a moment."""
    until(page, f"location.hash === {json.dumps(expected)}")


def until(page, condition):
    """Wait for a condition in the page; the browser's own way to wait needs `eval`, which the page forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never: {condition}")


def settle(page):
    """Until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def field(page, name):
    """A field of the filters."""
    return page.locator(f".filters [name={name}]")


def scores_shown(page):
    return [float(text) for text in page.locator(".card .score").all_inner_texts()]


# The file


def elements_of(text):
    """Start tags with their attributes, and the text within each script."""

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.scripts = [], []

        def handle_starttag(self, tag, attrs):
            self.tags.append((tag, dict(attrs)))
            if tag == "script":
                self.scripts.append("")

        def handle_data(self, data):
            if self.tags and self.tags[-1][0] == "script":
                self.scripts[-1] += data

    reader = Reader()
    reader.feed(text)
    return reader.tags, reader.scripts


def test_the_file_asks_for_nothing_and_allows_nothing():
    text = render(small_report())
    tags, _ = elements_of(text)
    policy = next(each["content"] for tag, each in tags if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src blob:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'" in policy
    assert not any("src" in each for _, each in tags)
    assert {each["href"] for _, each in tags if "href" in each} == {"#main"}
    assert not any(name.startswith("on") or name == "style" for _, each in tags for name in each)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_hostile_names_stay_texts_in_the_file():
    data = hostile_report()
    tags, scripts = elements_of(render(data))
    assert [tag for tag, _ in tags].count("script") == 2
    assert "img" not in [tag for tag, _ in tags]
    assert json.loads(scripts[0]) == json.loads(data.to_json())
    assert json.loads(scripts[0])["classes"][0]["name"] == f"{HOSTILE}0"


def test_a_title_that_is_no_unicode_and_places_that_look_like_ours():
    text = render(ReportData(title="caf\udce9 {{script}} {{data}}", headline="{{policy}}"))
    assert text.count("<title>caf? {{script}} {{data}}</title>") == 1
    assert text.encode("utf-8")
    assert text.count("default-src") == 1


def test_five_hundred_detections_stay_below_twenty_megabytes():
    size = len(render(large_report()).encode())
    assert len(large_report().images) == 2500
    assert 5_000_000 < size < 20_000_000


# What it shows


def test_the_summary_comes_first(show):
    data, page = small_report(), show()
    assert page.title() == data.title
    assert page.locator("h1").inner_text() == data.title
    assert page.locator(".headline").inner_text() == data.headline
    assert page.locator(".facts .value").all_inner_texts() == [fact.value for fact in data.facts]
    assert page.locator(".notes li").all_inner_texts() == list(data.notes)
    rows = page.locator("table", has_text="Training and detection of each class").locator("tbody tr")
    assert rows.count() == 2
    first, search = rows.first.inner_text().split(), data.classes[0].search
    assert first[0] == "three"
    assert f"{search.loss:,.0f}" in first
    assert f"{search.lower_bound:,.0f}" in first
    assert f"{100 * data.classes[0].average_precision:.1f}" in first
    headings = page.locator("main h2").all_inner_texts()
    for expected in ("Worst false positives", "Precision, recall and false positives", "What went wrong"):
        assert expected in headings


def test_curves_are_drawn_and_follow_the_slider(show):
    data, page = small_report(), show()
    charts = page.locator(".curves .chart svg")
    assert charts.count() == 2
    assert charts.first.locator("path.line").count() == 2
    assert "three" in charts.first.get_attribute("aria-label")
    slider = page.get_by_label("Keep detections with a score of at least")
    table = page.locator("table", has_text="Detections with a score of at least").first
    before, place = table.inner_text(), charts.first.locator("circle").first.get_attribute("cx")
    slider.focus()
    page.keyboard.press("End")
    settle(page)
    assert table.inner_text() != before
    assert charts.first.locator("circle").first.get_attribute("cx") != place
    last = [row.curve for row in data.classes]
    least = min(
        score
        for curve in last
        for k, score in enumerate(curve.score)
        if k == 0 or curve.recall[k] > curve.recall[k - 1]
    )
    assert f"at={least:.6g}"[:6] in hash_of(page)
    expected = [
        max((recall for recall, score in zip(c.recall, c.score, strict=True) if score >= least), default=0)
        for c in last
    ]
    shown = [float(row.split()[1]) for row in table.locator("tbody tr").all_inner_texts()]
    assert shown == pytest.approx([100 * recall for recall in expected], abs=0.051)
    page.get_by_text("Show these detections").click()
    settle(page)
    assert hash_of(page).startswith("#/detections?min=")


def test_the_search_is_drawn_over_time_and_over_floors(show):
    page = show()
    figures = page.locator("section", has_text="how far from the best they can be").locator("figure")
    assert figures.count() == 4
    assert figures.locator("svg").count() == 4
    loss = small_report().classes[0].search.loss
    assert f"loss {loss:,.0f}" in figures.first.inner_text()


def test_a_class_can_be_highlighted(show):
    page = show()
    assert page.locator(".curves .chart").first.locator(".line.pale").count() == 0
    page.get_by_label("Highlight").select_option("eight")
    wait_for_hash(page, "#/?class=eight")
    assert page.locator(".curves .chart").first.locator(".line.pale").count() == 1


def test_what_is_left_out_without_truth(show):
    data = small_report()
    plain = tuple(replace(row, curve=None, average_precision=None, n_hits=None, n_objects=None) for row in data.classes)
    bare = replace(
        data,
        has_truth=False,
        classes=plain,
        missed=(),
        scenes=tuple(replace(scene, objects=()) for scene in data.scenes),
        detections=tuple(replace(each, kind="unjudged", object=None, iou=None) for each in data.detections),
    )
    page = show(lambda: bare)
    assert page.locator("#tabs a").all_inner_texts() == [
        "Summary",
        f"Detections {of_all(120, data.n_detections)}",
        f"Exemplars {len(data.exemplars)}",
    ]
    assert page.locator(".curves").count() == 0
    assert "Surest detections" in page.locator("main h2").all_inner_texts()
    page.locator("#tabs a", has_text="Detections").click()
    settle(page)
    assert page.locator(".chip").count() == 0
    assert field(page, "kind").count() == 0


def test_tabs_count_what_there_is(show):
    data = small_report()
    page = show(lambda: data)
    n_wrong, kinds = sum(n for row in data.classes for _, n in row.errors.kinds), dict(data.classes[0].errors.kinds)
    shown_wrong = sum(each.kind in kinds for each in data.detections)
    assert page.locator("#tabs a").all_inner_texts()[1:4] == [
        f"Detections {of_all(len(data.detections), data.n_detections)}",
        f"False positives {of_all(shown_wrong, n_wrong)}",
        f"Missed {of_all(len(data.missed), data.n_missed)}",
    ]
    fewer = replace(data, detections=data.detections[:50], missed=data.missed[:1], n_missed=1234)
    shown_wrong = sum(each.kind in kinds for each in fewer.detections)
    page = show(lambda: fewer)
    assert page.locator("#tabs a").all_inner_texts()[1:4] == [
        f"Detections 50 of {data.n_detections}",
        f"False positives {shown_wrong} of {n_wrong}",
        f"Missed {len(fewer.missed)} of 1,234",
    ]


def test_an_empty_report(show):
    page = show(lambda: ReportData("Nothing", "Nothing at all.", facts=(Fact("detections", "0"),)))
    assert "Nothing was detected." in page.locator("main").inner_text()
    for tab in ("Detections", "Exemplars"):
        page.locator("#tabs a", has_text=tab).click()
        settle(page)
        assert page.locator("#view-title").inner_text() == tab


def test_a_page_that_does_not_exist(show):
    page = show(address="#/nowhere")
    assert page.locator("#view-title").inner_text() == "There is no such page"
    for address in ("#/exemplar/99999", "#/exemplar/x", "#/exemplar"):
        page.goto(page_of(small_report) + address)
        until(page, "document.getElementById('view-title').textContent === 'There is no such exemplar'")
    page.goto(page_of(small_report) + "#/detections?class=nobody&exemplar=-3&min=x&kind=y&open=d99999&sort=z")
    until(page, "document.getElementById('view-title').textContent === 'Detections'")
    assert not page.locator("dialog").is_visible()


def test_further_sections(show):
    png = b64_png()
    section = Section(
        "More",
        ("A paragraph.",),
        (Table("Numbers", ("row", "value"), (("a", "1"),)),),
        (Picture(png, "a dot", "below"),),
    )
    page = show(lambda: replace(small_report(), sections=(section,)), "#/tables")
    assert page.locator("main h3").all_inner_texts() == ["More"]
    assert page.locator("main table td").all_inner_texts() == ["1"]
    image = page.get_by_alt_text("a dot")
    image.scroll_into_view_if_needed()
    until(page, "document.querySelector('img').naturalWidth === 1")


def b64_png():
    from base64 import b64decode

    return b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def test_without_scripts_the_headline_remains(open_page):
    page = open_page(java_script_enabled=False)
    page.goto(page_of(small_report))
    assert page.locator(".headline").inner_text() == small_report().headline
    assert "Allow scripts for this page" in page.locator("main").inner_text()


# Pictures


def test_each_image_is_decoded_once_and_shown_where_it_is_needed(show):
    page = show(address="#/detections")
    urls = page.locator(".card.detection svg image").evaluate_all(
        "nodes => nodes.map((node) => node.getAttribute('href'))"
    )
    assert len(urls) > len(set(urls)) > 1
    assert all(url.startswith("blob:") for url in urls)
    card = page.locator(".card.detection").first
    first = small_report().detections[0]
    box = card.locator("rect.box").first
    assert float(box.get_attribute("x")) == first.box[0]
    assert float(box.get_attribute("width")) == pytest.approx(first.box[2] - first.box[0])
    assert card.locator("path.mask").count() == 2
    assert card.locator("rect.part").count() == len(small_report().exemplars[first.exemplar].parts)
    x, y, width, height = map(float, card.locator("svg").first.get_attribute("viewBox").split())
    assert x <= first.box[0] < first.box[2] <= x + width
    assert y <= first.box[1] < first.box[3] <= y + height


@pytest.mark.long
def test_a_mask_that_is_not_handed_on_is_outlined_only_where_the_image_could_not_be_read(show):
    def without_masks(is_read):
        data = small_report()
        scenes = data.scenes if is_read else tuple(replace(one, image=None) for one in data.scenes)
        return replace(data, scenes=scenes, detections=tuple(replace(one, mask=None) for one in data.detections))

    for is_read in (True, False):
        page = show(partial(without_masks, is_read), address="#/detections")
        assert page.locator(".card.detection").first.locator("path.mask").count() == (0 if is_read else 2)
        page.locator(".card.detection a.picture").first.click()
        settle(page)
        assert page.locator("dialog svg.free path.mask").count() == (0 if is_read else 2)


def test_pictures_are_really_there(show):
    """The middle of the first picture is not the colour of an empty one."""
    page = show(address="#/detections")
    settle(page)
    shot = page.locator(".card.detection svg").first.screenshot()
    import io

    from PIL import Image

    colours = Image.open(io.BytesIO(shot)).convert("RGB").getcolors(1 << 20)
    assert len(colours) > 200


# Moving through it


@pytest.mark.long
def test_an_exemplar_anywhere_leads_to_what_it_did(show):
    data, page = selective_report(), show(selective_report)
    named = [f"#{k} {one.image_id}, object {one.index + 1}" for k, one in enumerate(data.exemplars)]
    busy = {name for name, one in zip(named, data.exemplars, strict=True) if one.coverage.positives_responsible}
    names = page.locator(".card.detection .looks a")
    text = next(text for text in names.all_inner_texts() if text in busy)
    names.get_by_text(text, exact=True).first.click()
    settle(page)
    number = int(re.fullmatch(r"#/exemplar/(\d+)", hash_of(page))[1])
    exemplar = data.exemplars[number]
    assert text == named[number] == page.locator("#view-title").inner_text()
    facts = page.locator("dl.table").first.inner_text()
    assert exemplar.state in facts
    assert page.locator("h3").all_inner_texts()[0] == "What it covers in training"
    covered = page.locator(".thumbs.large").first.locator("li")
    assert covered.count() == len(exemplar.coverage.objects)
    assert f"responsible for {exemplar.coverage.positives_responsible} window" in page.locator("main").inner_text()
    won = [each for each in data.detections if each.exemplar == number]
    assert page.locator(".card.detection").count() == len(won)
    assert page.locator("main .chart svg").count() == 1
    covered.first.locator("a").click()
    wait_for_hash(page, f"#/exemplar/{exemplar.coverage.objects[0][0]}")
    page.go_back()
    until(page, f"document.getElementById('view-title').textContent === {json.dumps(text)}")
    page.go_back()
    page.wait_for_selector(".facts")
    assert hash_of(page) in ("", "#/")


def test_detections_are_filtered(show):
    data, page = small_report(), show(address="#/detections")
    assert "120 detections." in page.locator("main [role=status]").first.inner_text()

    def expect(fits):
        wanted = [each.score for each in data.detections if fits(each)]
        until(page, f"document.querySelector('main [role=status]').textContent.startsWith('{len(wanted)} ')")
        assert scores_shown(page) == pytest.approx(wanted[: len(scores_shown(page))], abs=6e-4)

    field(page, "class").select_option("eight")
    settle(page)
    expect(lambda each: data.classes[each.class_id].name == "eight")
    field(page, "kind").select_option("wrong")
    settle(page)
    expect(lambda each: data.classes[each.class_id].name == "eight" and each.kind != RIGHT and each.kind != "ignored")
    assert page.locator("#view-title").inner_text() == "False positives"
    field(page, "kind").select_option("localisation")
    settle(page)
    expect(lambda each: data.classes[each.class_id].name == "eight" and each.kind == "localisation")
    field(page, "class").select_option("")
    settle(page)
    field(page, "kind").select_option("")
    settle(page)
    field(page, "among").select_option("surest")
    settle(page)
    expect(lambda each: each.is_surest)
    field(page, "among").select_option("")
    settle(page)
    exemplar = data.exemplars[data.detections[0].exemplar]
    page.locator(".filters input[list]").fill(f"{exemplar.image_id}, object {exemplar.index + 1}")
    settle(page)
    page.locator(".filters input[list]").press("Enter")
    settle(page)
    expect(lambda each: each.exemplar == data.detections[0].exemplar)
    wait_for_hash(page, f"#/detections?exemplar={data.detections[0].exemplar}")
    page.get_by_text("Clear").click()
    settle(page)
    expect(lambda each: True)
    slider = page.get_by_label("Score at least")
    slider.focus()
    page.keyboard.press("PageUp")
    settle(page)
    least = float(re.search(r"min=([^&]+)", hash_of(page))[1])
    expect(lambda each: each.score >= least)
    assert least > min(each.score for each in data.detections)


def test_a_name_that_is_no_exemplar(show):
    page = show(address="#/detections")
    page.locator(".filters input[list]").fill("nobody")
    settle(page)
    page.locator(".filters input[list]").press("Tab")
    settle(page)
    assert (
        page.locator(".filters input[list]").evaluate("node => node.validationMessage")
        == "There is no exemplar of this name."
    )
    wait_for_hash(page, "#/detections")


def test_detections_are_sorted(show):
    data, page = small_report(), show(address="#/detections")
    assert scores_shown(page) == sorted(scores_shown(page), reverse=True)
    field(page, "sort").select_option("lowest")
    until(page, "location.hash.includes('sort=lowest')")
    assert scores_shown(page)[0] == pytest.approx(data.detections[-1].score, abs=6e-4)
    assert scores_shown(page) == sorted(scores_shown(page))
    field(page, "sort").select_option("class")
    until(page, "location.hash.includes('sort=class')")
    names = page.locator(".card .name").all_inner_texts()
    assert names == sorted(names, reverse=True)  # three comes before eight in the model
    field(page, "sort").select_option("exemplar")
    until(page, "location.hash.includes('sort=exemplar')")
    numbers = page.locator(".card .looks a").evaluate_all(
        "links => links.map((link) => Number(link.hash.split('/')[2]))"
    )
    assert numbers == sorted(numbers)


def test_a_view_can_be_linked_and_back_works(show):
    page = show(address="#/detections?class=three&kind=right&sort=lowest")
    assert field(page, "class").input_value() == "three"
    assert field(page, "kind").input_value() == "right"
    assert field(page, "sort").input_value() == "lowest"
    assert set(page.locator(".card .name").all_inner_texts()) == {"three"}
    field(page, "class").select_option("eight")
    until(page, "location.hash.includes('class=eight')")
    page.go_back()
    until(page, "location.hash.includes('class=three')")
    assert field(page, "class").input_value() == "three"
    assert set(page.locator(".card .name").all_inner_texts()) == {"three"}
    page.go_forward()
    until(page, "location.hash.includes('class=eight')")
    assert field(page, "class").input_value() == "eight"


@pytest.mark.long
def test_back_returns_to_the_place_in_a_long_list(show):
    page = show(large_report, "#/detections")
    for _ in range(3):
        page.get_by_role("button", name="Show more").click()
        settle(page)
    n_cards, link = page.locator(".card").count(), page.locator(".card .looks a").nth(100)
    assert n_cards > 100
    link.scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    assert place > 1000
    link.click()
    until(page, "location.hash.startsWith('#/exemplar')")
    assert page.evaluate("scrollY") < 400
    page.go_back()
    until(page, "location.hash === '#/detections'")
    assert page.locator(".card").count() >= n_cards
    assert page.evaluate("scrollY") == pytest.approx(place, abs=150)


def test_the_dialog_of_a_detection(show):
    data, page = small_report(), show(address="#/detections")
    page.locator(".card.detection a.picture").nth(2).click()
    settle(page)
    dialog = page.locator("dialog")
    wait_for_hash(page, "#/detections?open=d1")
    detection = data.detections[1]
    assert dialog.locator("h2").inner_text() == f"{data.classes[detection.class_id].name}, {detection.score:.3f}"
    assert "2 of 120" in dialog.inner_text()
    assert dialog.locator("svg.free rect.object").count() == len(data.scenes[detection.scene].objects)
    dialog.get_by_label("annotated objects").uncheck()
    settle(page)
    assert dialog.locator("svg.free rect.object").count() == 0
    dialog.get_by_label("mask and parts").uncheck()
    settle(page)
    assert dialog.locator("svg.free path.mask").count() == 0
    assert dialog.locator("svg.free clipPath").count() == 0
    dialog.get_by_label("lay the exemplar over it").check()
    settle(page)
    assert dialog.locator("svg.free clipPath path").count() == 1
    page.keyboard.press("ArrowRight")  # a checkbox has the focus: it is not a step
    wait_for_hash(page, "#/detections?open=d1")
    dialog.get_by_role("button", name="Next").click()
    wait_for_hash(page, "#/detections?open=d2")
    page.keyboard.press("ArrowLeft")
    wait_for_hash(page, "#/detections?open=d1")
    page.keyboard.press("Escape")
    until(page, "location.hash === '#/detections'")
    assert not dialog.is_visible()
    page.go_forward()
    page.wait_for_selector("dialog[open]")
    dialog.locator(".picture").click()
    wait_for_hash(page, f"#/exemplar/{detection.exemplar}")
    settle(page)
    assert not dialog.is_visible()
    page.go_back()
    page.wait_for_selector("dialog[open]")
    dialog.get_by_role("button", name="Close").click()
    wait_for_hash(page, "#/detections")


def test_missed_objects(show):
    data = selective_report()
    assert data.missed, "the model misses some"
    page = show(selective_report)
    page.locator("#tabs a", has_text="Missed").click()
    settle(page)
    assert page.locator(".card").count() == len(data.missed)
    first = data.missed[0]
    assert data.scenes[first.scene].image_id in page.locator(".card").first.inner_text()
    page.locator(".card a.picture").first.click()
    settle(page)
    assert page.locator("dialog h2").inner_text() == f"Missed: {data.classes[first.class_id].name}"
    page.mouse.click(3, 3)  # beside the dialog
    until(page, "location.hash === '#/missed'")


def test_exemplars_are_filtered_and_sorted(show):
    data, page = selective_report(), show(selective_report, "#/exemplars?class=three")
    own = [each for each in data.exemplars if data.classes[each.class_id].name == "three"]
    assert page.locator(".card").count() == len(own)
    assert f"{sum(each.state == 'redundant' for each in own)} are redundant" in page.locator("figcaption").inner_text()
    assert page.locator(".bars rect").count() == len(own)
    busiest = max(own, key=lambda each: each.coverage.positives_responsible)
    assert page.locator(".card .name").first.inner_text() == (
        f"#{data.exemplars.index(busiest)} {busiest.image_id}, object {busiest.index + 1}"
    )
    assert page.locator(".card svg.spark").first.locator("rect").count() > 5
    field(page, "state").select_option("redundant")
    until(page, "location.hash.includes('state=redundant')")
    assert page.locator(".card").count() == sum(each.state == "redundant" for each in own)
    field(page, "state").select_option("")
    settle(page)
    field(page, "name").fill(own[0].image_id)
    settle(page)
    field(page, "name").press("Enter")
    until(page, "location.hash.includes('name=')")
    assert page.locator(".card").count() == sum(own[0].image_id in each.image_id for each in own)
    page.locator(".bars rect").first.click()
    settle(page)
    assert hash_of(page).startswith("#/exemplar/")


# Everybody


def test_the_keyboard_is_enough(show):
    page = show()
    page.keyboard.press("Tab")
    settle(page)
    assert page.evaluate("document.activeElement.id") == "skip"
    box = page.locator("#skip").bounding_box()
    assert box["x"] >= 0
    page.keyboard.press("Enter")
    settle(page)
    assert page.evaluate("document.activeElement.id") == "main"
    assert hash_of(page) in ("", "#/")
    for _ in range(2):
        page.keyboard.press("Tab")
        settle(page)
    assert page.evaluate("document.activeElement.matches('main a')")
    style = page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
    )
    assert style == "solid3px"
    page.locator("#tabs a").nth(1).focus()
    page.keyboard.press("Enter")
    until(page, "location.hash === '#/detections' && document.activeElement.id === 'view-title'")
    link = page.locator(".card a.picture").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    for _ in range(12):  # focus stays within the dialog, or goes to the browser's own controls
        page.keyboard.press("Tab")
        settle(page)
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('open')")
    assert page.evaluate("document.activeElement === document.querySelector('.card a.picture')")


VIEWS = ("#/", "#/detections", "#/detections?open=d0", "#/missed", "#/exemplars", "#/exemplar/0", "#/tables")


@pytest.fixture(scope="module")
def with_table():
    table = Table(
        "A wide table", [f"a long column name {k}" for k in range(12)], [[f"value {k}" for k in range(12)]] * 3
    )
    data = replace(small_report(), sections=(Section("Tables", ("Text.",), (table,)),))
    return lambda: data


@pytest.mark.long
@pytest.mark.parametrize("make", ["with_table", "hostile"])
def test_a_phone_never_scrolls_sideways(show, with_table, make):
    page = show(with_table if make == "with_table" else hostile_report, width=390, height=844)
    for view in VIEWS:
        page.goto(page_of(with_table if make == "with_table" else hostile_report) + view)
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        if "open" not in view:
            tab = page.locator("#tabs [aria-current]").bounding_box()
            assert 0 <= tab["x"] <= 390 - tab["width"], view
        assert page.evaluate(
            "document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth"
        ), view


CONTRAST = """
() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const level = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const parent = text.parentElement;
    if (!text.textContent.trim() || parent.closest("script, style, noscript, title, datalist, option") || !parent.getClientRects().length) continue;
    const style = getComputedStyle(parent);
    const ink = numbers(parent.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [high, low] = [level(ink.slice(0, 3)), level(behind(parent).slice(0, 3))].sort((a, b) => b - a);
    looked += 1;
    if ((high + 0.05) / (low + 0.05) < 4.5) bad.push(`${text.textContent.trim().slice(0, 30)}: ${style.color}`);
  }
  return [looked, bad];
}
"""


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(show, with_table, scheme):
    page = show(with_table, color_scheme=scheme)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    for view in VIEWS:
        page.goto(page_of(with_table) + view)
        settle(page)
        looked, bad = page.evaluate(CONTRAST)
        assert looked > 10
        assert not bad, view


def test_everything_has_a_name(show, with_table):
    """Controls, pictures and links can be spoken."""
    page = show(with_table)
    for view in VIEWS:
        page.goto(page_of(with_table) + view)
        settle(page)
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, select, svg[role=img], dialog[open], nav, img")].filter((node) =>
            !(node.textContent.trim() || node.getAttribute("aria-label") || node.querySelector?.("[aria-label]") ||
              node.labels?.length || node.getAttribute("alt") || node.getAttribute("aria-labelledby"))).map((node) => node.outerHTML.slice(0, 100))"""
        )
        assert unnamed == [], view
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
        assert len(ids) == len(set(ids)), view


def test_hostile_names_never_run(show):
    page = show(hostile_report)
    assert page.locator("h1").inner_text().startswith("</script>")
    views = ["#/", "#/detections", "#/missed", "#/exemplars", "#/exemplar/0", "#/tables", "#/detections?open=d0"]
    for view in views:
        page.goto(page_of(hostile_report) + view)
        settle(page)
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.querySelectorAll('main script, main img[src=x], dialog script').length") == 0
    page.goto(page_of(hostile_report) + "#/detections")
    choice = field(page, "class")
    choice.select_option(index=1)
    until(page, "location.hash.includes('class=')")
    assert set(page.locator(".card .name").all_text_contents()) == {f"{HOSTILE}0"}
    assert choice.input_value() == f"{HOSTILE}0"
    page.reload()
    page.wait_for_selector(".card")
    assert choice.input_value() == f"{HOSTILE}0"


def test_nothing_can_be_smuggled_past_the_policy(show):
    page = show()
    for attempt in (
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)",
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.setAttribute('onclick', 'window.hacked = 1')",
        "await fetch('data:text/plain,x')",
    ):
        script = f"async () => {{ try {{ {attempt}; return 'done'; }} catch {{ return 'refused'; }} }}"
        assert page.evaluate(script) == "refused", attempt
    assert page.evaluate("window.hacked") is None
    assert page.complaints
    page.complaints.clear()


@pytest.mark.long
def test_lists_grow_as_they_are_needed(show):
    page = show(large_report, "#/exemplars")
    first = page.locator(".card").count()
    assert first < 100
    assert page.locator(".bars rect").count() <= 300
    page.locator(".card").last.scroll_into_view_if_needed()
    until(page, f"document.querySelectorAll('.card').length > {first}")
    assert page.locator(".card").count() < 2000
    page.goto(page_of(large_report) + "#/detections")
    until(page, "document.getElementById('view-title').textContent === 'Detections'")
    assert page.locator(".card").count() < 100
    for _ in range(100):  # pressed in the page: the list also grows by itself where its end comes into view
        if not page.get_by_role("button", name="Show more").is_visible():
            break
        page.evaluate("document.querySelector('button.more')?.click()")
        settle(page)
    assert page.locator(".card").count() == 500
