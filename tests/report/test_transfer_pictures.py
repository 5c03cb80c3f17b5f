"""Pictures of annotation transfer: their size, and colours where they are expected."""

from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm.images import read_image, write_image
from eesvm.report.annotated import _tint, annotated
from eesvm.report.transfer_pictures import GREEN, PINK, YELLOW, draw_outline, grid, pair, panel, superimposed
from eesvm.structures import Detections, ExemplarAnnotation, Part
from eesvm.transfer import transfer, transfer_consensus
from eesvm.transfer.detections import hand_on_refined

GREY, BLUE = (90, 90, 90), (0, 0, 200)


def scene(width=200, height=100):
    return np.full((height, width, 3), GREY, dtype=np.uint8)


def exemplar(**values):
    """A blue object of 40 x 20 whose mask is its left half."""
    mask = np.zeros((20, 40), dtype=bool)
    mask[:, :20] = True
    picture = np.full((20, 40, 3), BLUE, dtype=np.uint8)
    return replace(ExemplarAnnotation("dog", "a", 0, np.array([5.0, 5, 45, 25]), mask, picture=picture), **values)


def detections_of(boxes, winners):
    scores = np.linspace(0.9, 0.4, len(boxes))
    return Detections("b", np.array(boxes, dtype=float), scores, np.array(["dog"] * len(boxes)), np.array(winners))


def is_colour(picture, colour):
    return (picture == np.array(colour)).all(axis=2)


def test_the_exemplar_lies_over_the_detection_in_its_mask():
    image = scene()
    picture = superimposed(image, (50, 20, 130, 60), exemplar(), context=None, height=None, alpha=0.5)
    assert picture.shape == image.shape
    assert (image == GREY).all()  # the image itself is left alone
    green = is_colour(picture, GREEN)
    rows, columns = np.flatnonzero(green.any(axis=1)), np.flatnonzero(green.any(axis=0))
    assert (rows[0], rows[-1], columns[-1]) == (20, 59, 129)
    assert tuple(picture[40, 70]) == (45, 45, 145)  # half of each
    assert tuple(picture[40, 110]) == GREY  # not in the mask
    assert tuple(picture[5, 5]) == GREY
    yellow = is_colour(picture, YELLOW)
    assert yellow[40, 88:90].all()  # the right edge of the mask
    assert not yellow[:, 91:].any()


def test_the_mirrored_exemplar():
    picture = superimposed(scene(), (50, 20, 130, 60), exemplar(), context=None, height=None, is_mirrored=True)
    assert tuple(picture[40, 70]) == GREY
    assert picture[40, 110, 2] > 150


def test_the_outline_is_that_of_what_is_handed_on():
    box, image = (50, 20, 130, 60), scene()
    image[20:60, 50:110] = (200, 30, 30)
    handed = hand_on_refined(exemplar(), box, image)
    assert handed.is_refined
    picture = superimposed(image, box, exemplar(), context=None, height=None, alpha=1, transferred=handed)
    assert tuple(picture[40, 70]) == BLUE  # the exemplar as it was
    rows, columns = np.nonzero(is_colour(picture, YELLOW))
    assert (columns.max(), rows.min(), rows.max()) == (np.flatnonzero(handed.whole_mask()[40]).max(), 22, 57)
    assert columns.max() > 95


def test_what_is_handed_on_without_a_mask_is_framed():
    box = (50, 20, 130, 60)
    handed = replace(transfer(exemplar(), box, (200, 100)), mask=None)
    picture = superimposed(scene(), box, exemplar(), context=None, height=None, transferred=handed)
    bare = superimposed(scene(), box, exemplar(), context=None, height=None)
    np.testing.assert_array_equal(is_colour(picture, YELLOW)[40, 125:127], True)
    assert not is_colour(bare, YELLOW)[40, 91:].any()


def test_images_with_masks():
    box, image = (50, 20, 130, 60), scene()
    image[20:60, 50:110] = (200, 30, 30)
    found = detections_of([box, (5, 70, 25, 90)], [0, -1])
    mask = hand_on_refined(exemplar(), box, image).whole_mask()
    picture = annotated(image, found, [exemplar()])
    bare = annotated(image, found, [exemplar(mask=None)])
    differs = (picture != bare).any(axis=2)
    assert not differs[~mask].any()
    assert tuple(picture[40, 80]) == (208, 62, 22)  # a quarter of the colour of the class
    assert differs[mask].mean() > 0.8  # but for the frame, and its text
    outside = detections_of([(300, 20, 330, 60)], [0])
    np.testing.assert_array_equal(annotated(image, outside, [exemplar()])[:, :60], image[:, :60])  # but for its text


@pytest.mark.parametrize("box", [(50, 20, 130, 60), (-30, -10, 60, 50), (150.5, 60, 260, 160), (0, 0, 200, 100)])
def test_masks_are_drawn_as_they_would_be_in_the_whole_image(box):
    rng = np.random.default_rng(1)
    image, mask = rng.integers(0, 255, (100, 200, 3), dtype=np.uint8), rng.random((20, 40)) < 0.9
    handed = hand_on_refined(exemplar(mask=mask), box, image)
    assert handed.mask.any()
    slow, fast, whole = image.copy(), image.copy(), handed.whole_mask()
    colour = (0xE6, 0x9F, 0x00)
    slow[whole] = np.rint(0.75 * slow[whole] + 0.25 * np.array(colour)).astype(np.uint8)
    draw_outline(slow, whole, colour, 3)
    _tint(fast, handed, "#e69f00", 3)
    np.testing.assert_array_equal(fast, slow)
    assert (fast != image).any()


def test_a_pair_shows_the_detection_as_it_is_beside_the_exemplar():
    box, image = (50, 20, 130, 60), scene()
    picture = pair(image, box, exemplar(), context=None, height=100)
    whole, own = picture[:, :200], picture[:, 204:]
    green, yellow = is_colour(whole, GREEN), is_colour(whole, YELLOW)
    assert green[20, 50:130].all()
    assert yellow[30:50, 88:90].all()  # the right edge of the mask
    assert is_colour(whole, GREY)[~green & ~yellow].all()  # nothing is laid over it
    assert (is_colour(own, BLUE) | is_colour(own, YELLOW)).all()
    assert own.shape == (100, 200, 3)
    bare = pair(image, box, exemplar(mask=None), context=None, height=100)[:, :200]
    assert not is_colour(bare, YELLOW).any()


def test_the_mirror_image_is_named():
    found, plain = detections_of([(50, 50, 130, 90)], [0]), exemplar(mask=None)
    names = [annotated(scene(600, 300), found, [one]) for one in (plain, replace(plain, is_mirrored=True))]
    assert (names[0] != names[1]).any()


def test_without_a_mask_the_box_is_yellow_and_without_a_picture_only_lines_are_drawn():
    picture = superimposed(scene(), (50, 20, 130, 60), exemplar(mask=None), context=None, height=None, alpha=1)
    assert tuple(picture[40, 110]) == BLUE
    assert is_colour(picture, YELLOW)[40, 53:55].all()
    bare = superimposed(scene(), (50, 20, 130, 60), exemplar(picture=None), context=None, height=None)
    assert tuple(bare[40, 70]) == GREY
    assert is_colour(bare, YELLOW).any()


def test_without_a_mask_the_detection_shines_through():
    """An exemplar that fills the box would otherwise hide what was detected."""
    picture = superimposed(scene(), (50, 20, 130, 60), exemplar(mask=None), context=None, height=None)
    assert tuple(picture[40, 110]) == (45, 45, 145)  # half of each
    masked = superimposed(scene(), (50, 20, 130, 60), exemplar(), context=None, height=None)
    assert tuple(masked[40, 70]) == (18, 18, 178)


def test_a_picture_that_was_made_smaller_still_covers_the_object():
    halves = np.zeros((10, 20, 3), dtype=np.uint8)
    halves[:, 10:] = BLUE
    small = exemplar(mask=None, picture=halves)
    picture = superimposed(scene(), (50, 20, 130, 60), small, context=None, height=None, alpha=1)
    assert tuple(picture[40, 70]) == (0, 0, 0)
    assert tuple(picture[40, 110]) == BLUE
    assert panel(scene(), (50, 20, 130, 60), replace(small, mask=exemplar().mask)).shape[0] == 240 + 16


@pytest.mark.parametrize("box", [(-20, -10, 60, 50), (150, 60, 260, 160), (3.3, 4.4, 9.9, 8.1)])
def test_boxes_at_the_border_and_below_pixels(box):
    for annotation in (exemplar(), exemplar(mask=None)):
        picture = superimposed(scene(), box, annotation, height=128)
        assert picture.shape[0] == 128
        assert is_colour(picture, GREEN).any()
        assert is_colour(picture, YELLOW).any()


def test_context_and_height():
    assert superimposed(scene(), (50, 20, 130, 60), exemplar(), context=0, height=80).shape == (80, 160, 3)
    assert superimposed(scene(), (50, 20, 130, 60), exemplar(), context=0.25, height=120).shape == (120, 240, 3)


def test_panels_show_detection_exemplar_and_mask_side_by_side():
    annotation = exemplar(parts=(Part("head", np.array([10.0, 8, 20, 20])),), metadata={"keypoints": {"eye": [40, 20]}})
    picture = panel(scene(), (50, 20, 130, 60), annotation, context=0, height=100)
    assert picture.shape == (100 + 16, 3 * 200 + 4 * 8, 3)
    detection, own, transferred = (picture[8:108, 8 + k * 208 : 208 + k * 208] for k in range(3))
    assert is_colour(detection, GREEN).any()
    assert not is_colour(detection, YELLOW).any()
    assert tuple(own[50, 50]) == BLUE
    assert is_colour(own, YELLOW)[50, 98:100].all()
    assert is_colour(transferred, PINK).any()
    assert is_colour(transferred, PINK)[75, 175]  # the eye
    assert transferred[50, 150].min() > 150  # pale outside the mask
    assert transferred[90, 60, 2] < 90 < transferred[90, 60, 0]  # tinted inside
    for bare in (exemplar(picture=None), exemplar(mask=None, picture=None)):
        assert panel(scene(), (50, 20, 130, 60), bare, height=64).shape[0] == 64 + 16


def test_where_nothing_can_be_drawn_the_third_picture_is_not_the_first_again():
    bare = exemplar(mask=None, metadata={"subcategory": "pug"})
    picture = panel(scene(), (50, 20, 130, 60), bare, context=0, height=100)
    detection, transferred = picture[8:108, 8:208], picture[8:108, 424:624]
    assert tuple(detection[50, 100]) == GREY
    assert transferred[50, 100].min() > 150
    assert is_colour(transferred, GREEN)[50, :2].all()
    parts = exemplar(mask=None, parts=(Part("head", np.array([10.0, 8, 20, 20])),))
    assert tuple(panel(scene(), (50, 20, 130, 60), parts, context=0, height=100)[98, 424 + 150]) == GREY


def test_a_consensus_can_be_shown():
    image = scene()
    both = [exemplar(), exemplar(mask=np.ones((20, 40), dtype=bool))]
    handed = transfer_consensus(both, [1, 3], (50, 20, 130, 60), (200, 100))
    picture = panel(image, (50, 20, 130, 60), both[1], handed, context=0, height=100)
    assert picture[58, 8 + 2 * 208 + 150, 0] < 150  # nothing is pale: the vote is for the whole box


def test_grids():
    pictures = [scene(50, 100), scene(200, 100), scene(100, 200)]
    sheet = grid(pictures, columns=2, height=50)
    assert sheet.shape == (2 * 58 + 8, 25 + 100 + 24, 3)
    assert (sheet[:8] == 255).all()
    titled = grid(
        pictures,
        columns=2,
        height=50,
        captions=["one", "two", "a text that is too long for its picture"],
        title="A title",
    )
    assert titled.shape[0] > sheet.shape[0]
    assert (titled[:8] < 128).any()  # letters
    assert titled.shape[1] == sheet.shape[1]


def text_rows(sheet, start):
    """Heights at which there are letters, as pieces: how many lines a text has."""
    is_written = (sheet[start:] < 128).any(axis=(1, 2))
    return int((np.diff(np.concatenate([[False], is_written]).astype(int)) == 1).sum())


@pytest.mark.parametrize(
    ("caption", "n_lines"),
    [
        ("MMM", 1),
        ("MMM\nMMM", 2),
        ("MMMMM MMMMM", 2),
        ("MMMMM-MMMMM", 2),
        ("MM MM MM MM", 2),
        ("MMMMMMMMMM", 2),
        ("MMMMM MMMMM\nMMM", 3),
        ("M" * 100, 4),
    ],
)
def test_long_captions_are_broken_instead_of_cut(caption, n_lines):
    white = np.full((50, 60, 3), 255, dtype=np.uint8)
    sheet = grid([white], height=50, captions=[caption])
    assert sheet.shape[1] == 60 + 16
    assert text_rows(sheet, 0) == n_lines
    assert not (sheet[:, :6] < 128).any()
    assert not (sheet[:, -6:] < 128).any()


def test_captions_without_the_font_of_matplotlib(monkeypatch, tmp_path):
    """Some systems keep its fonts elsewhere."""
    monkeypatch.setattr("matplotlib.get_data_path", lambda: str(tmp_path))
    white = np.full((50, 60, 3), 255, dtype=np.uint8)
    assert text_rows(grid([white], height=50, captions=["MMM"]), 0) == 1


def test_narrow_pictures_get_room_for_their_captions():
    narrow = np.full((50, 20, 3), 255, dtype=np.uint8)
    sheet = grid([narrow, narrow], 2, 50, ["one line", "two\nlines"], "a title\nof two lines", min_width=80)
    assert sheet.shape[1] == 2 * 80 + 24
    assert text_rows(sheet[:, :88], 35) == 1
    assert text_rows(sheet[:, 96:], 35) == 2
    panels = [panel(scene(20, 100), (2, 2, 18, 98), exemplar(), captions=texts) for texts in ((), "abc")]
    assert panels[0].shape[1] < panels[1].shape[1]


def test_pictures_can_be_written(tmp_path):
    picture = panel(scene(), (50, 20, 130, 60), exemplar(), captions=["test", "exemplar", "mask"])
    write_image(tmp_path / "panel.png", picture)
    np.testing.assert_array_equal(read_image(tmp_path / "panel.png"), picture)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grid([]), "`pictures` must hold at least one picture"),
        (lambda: grid([scene()], captions=["a", "b"]), "`captions` must be as many as the pictures, 1, got 2"),
        (lambda: grid([scene()[:, :, 0]]), "`image` must be uint8 of shape (height, width, 3), got uint8 (100, 200)"),
        (lambda: superimposed(scene(), (0, 0, 9, 9), exemplar(), alpha=2), "`alpha` must be <= 1, got 2"),
        (lambda: superimposed(scene(), (0, 0, 0, 9), exemplar()), "`box` must have an area, got 0, 0, 0, 9"),
        (lambda: grid([scene()], min_width=-1), "`min_width` must be >= 0, got -1"),
        (lambda: panel(scene(), (0, 0, 9, 9), exemplar(), height=3), "`height` must be >= 16, got 3"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
