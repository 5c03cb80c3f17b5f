"""Every kind of image file becomes RGB, or one sentence that says why not."""

import io
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from eesvm import InputError
from eesvm.images import ImageError, image_header, image_size, read_image, read_index_image, write_image
from helpers.dataset_files import pixels
from helpers.examples import many


def encoded(picture, format="PNG", **options):
    buffer = io.BytesIO()
    picture.save(buffer, format=format, **options)
    return buffer.getvalue()


def test_rgb_is_read_as_it_is(tmp_path):
    image = pixels(7, 5)
    write_image(tmp_path / "a.png", image)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), image)
    assert image_size(tmp_path / "a.png") == (7, 5)
    assert read_image((tmp_path / "a.png").read_bytes()).dtype == np.uint8


def test_result_can_be_written_to_and_is_contiguous():
    image = read_image(encoded(Image.fromarray(pixels(7, 5))))
    image[0, 0] = 0
    assert image.flags.c_contiguous


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG", ".png", ".bmp", ".webp", ".tif"])
def test_written_images_come_back(tmp_path, suffix):
    smooth = np.dstack([np.add.outer(np.arange(16), np.arange(24)) * 5] * 3).astype(np.uint8)
    write_image(tmp_path / f"a{suffix}", smooth)
    difference = read_image(tmp_path / f"a{suffix}").astype(int) - smooth
    assert np.abs(difference).max() <= (6 if suffix.lower() in (".jpg", ".jpeg", ".webp") else 0)


def test_one_pixel(tmp_path):
    write_image(tmp_path / "a.png", np.full((1, 1, 3), 9, np.uint8))
    assert read_image(tmp_path / "a.png").tolist() == [[[9, 9, 9]]]


def test_grey_and_black_and_white():
    grey = np.array([[0, 128, 255]], np.uint8)
    assert read_image(encoded(Image.fromarray(grey))).tolist() == [[[0] * 3, [128] * 3, [255] * 3]]
    assert read_image(encoded(Image.fromarray(grey > 100))).tolist() == [[[0] * 3, [255] * 3, [255] * 3]]


def test_sixteen_bits_are_scaled_not_cut_off():
    deep = np.array([[0, 257, 32768, 65535]], np.uint16)
    assert read_image(encoded(Image.fromarray(deep)))[0, :, 0].tolist() == [0, 1, 128, 255]
    assert read_image(encoded(Image.fromarray(deep), "TIFF"))[0, :, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 255]], np.int32), [0, 255]),
        (np.array([[0, 65535]], np.int32), [0, 255]),
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 128, 255]),
        (np.array([[0.0, 255.0]], np.float32), [0, 255]),
    ],
)
def test_deep_pixels_are_scaled_by_their_range(values, expected):
    assert read_image(encoded(Image.fromarray(values), "TIFF"))[0, :, 0].tolist() == expected


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.array([[0, 70000]], np.int32), "its pixels are numbers from 0 to 70000, which say no brightness"),
        (np.array([[-1.0, 1.0]], np.float32), "its pixels are numbers from -1 to 1, which say no brightness"),
        (np.array([[np.nan, 1.0]], np.float32), "its pixels are not all finite numbers"),
    ],
)
def test_deep_pixels_without_a_scale_are_refused(values, sentence):
    with pytest.raises(ImageError, match=f"^the image in memory: {sentence}$"):
        read_image(encoded(Image.fromarray(values), "TIFF"))


def test_cmyk():
    picture = Image.new("CMYK", (4, 4), (0, 255, 255, 0))  # no cyan, all magenta and yellow: red
    red = read_image(encoded(picture, "JPEG", quality=100))[0, 0]
    assert red[0] > 230
    assert red[1:].max() < 40


def test_palette():
    picture = Image.fromarray(np.array([[0, 1]], np.uint8))
    picture.putpalette([10, 20, 30, 40, 50, 60])
    assert read_image(encoded(picture)).tolist() == [[[10, 20, 30], [40, 50, 60]]]


def test_transparent_pixels_lie_over_white():
    palette = Image.fromarray(np.array([[0, 1]], np.uint8))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    assert read_image(encoded(palette, transparency=0)).tolist() == [[[255] * 3, [40, 50, 60]]]
    rgba = Image.fromarray(np.array([[[9, 9, 9, 0], [9, 9, 9, 255], [0, 0, 0, 128]]], np.uint8))
    assert read_image(encoded(rgba)).tolist() == [[[255] * 3, [9] * 3, [127] * 3]]
    assert read_image(encoded(Image.new("LA", (1, 1), (7, 0)))).tolist() == [[[255] * 3]]


def test_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (3, 2), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert read_image(data)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_rotation_agrees_with_pillow(orientation, format):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    blocks = np.kron(np.arange(24).reshape(4, 6) * 10, np.ones((8, 8))).astype(np.uint8)
    data = encoded(Image.fromarray(blocks), format, exif=exif)
    with Image.open(io.BytesIO(data)) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    np.testing.assert_array_equal(read_image(data), expected)
    assert image_size(data) == (expected.shape[1], expected.shape[0])


def test_stored_pixels_can_be_had_without_rotation():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.fromarray(pixels(6, 4)), exif=exif)
    assert image_header(data) == (4, 6, True)
    np.testing.assert_array_equal(read_image(data, rotate=False), pixels(6, 4))


def test_broken_exif_does_not_cost_the_picture():
    data = encoded(Image.fromarray(pixels(6, 4)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_image(data).shape == (4, 6, 3)


def test_truncated_file_has_a_size_but_no_pixels(tmp_path):
    path = tmp_path / "a.jpg"
    data = encoded(Image.fromarray(pixels(64, 64)), "JPEG")
    path.write_bytes(data[: len(data) // 2])
    assert image_size(path) == (64, 64)
    with pytest.raises(ImageError, match=r"a\.jpg: it is broken: .*truncated"):
        read_image(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "the file is empty"), (b"hello, this is text", "it is not an image of a known format")],
)
def test_no_image(tmp_path, content, sentence):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    for read in (read_image, image_size, read_index_image):
        with pytest.raises(ImageError, match=f"^{path}: {sentence}$"):
            read(path)
        with pytest.raises(ImageError, match=f"^the image in memory: {sentence}$"):
            read(content)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ImageError, match=r"nothing\.png: No such file or directory$"):
        read_image(tmp_path / "nothing.png")
    with pytest.raises(ImageError, match=r": Is a directory$"):
        read_image(tmp_path)


def test_formats_that_start_other_programs_are_not_known():
    with pytest.raises(ImageError, match="it is not an image of a known format"):
        read_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")


def test_huge_images_are_refused_before_they_are_decoded():
    data = encoded(Image.new("1", (10_000, 10_000)))
    assert len(data) < 100_000
    for read in (read_image, image_size, read_index_image):
        with pytest.raises(ImageError, match=r"more (pixels )?than"):
            read(data)
    with pytest.raises(ImageError, match=r"it has 30 x 20 pixels, more than the limit of 599 \(`max_pixels`\)$"):
        read_image(encoded(Image.new("L", (30, 20))), max_pixels=599)
    assert read_image(encoded(Image.new("L", (30, 20))), max_pixels=600).shape == (20, 30, 3)


def test_index_images_keep_their_numbers():
    numbers = np.array([[0, 1, 255]], np.uint8)
    picture = Image.fromarray(numbers)
    picture.putpalette(list(range(256)) * 3)
    np.testing.assert_array_equal(read_index_image(encoded(picture)), numbers)
    np.testing.assert_array_equal(read_index_image(encoded(Image.fromarray(numbers))), numbers)
    with pytest.raises(ImageError, match=r"its pixels are RGB, not numbers of a palette or grey levels$"):
        read_index_image(encoded(Image.new("RGB", (2, 2))))


@pytest.mark.parametrize("image", [np.zeros((3, 3, 4), np.uint8), np.zeros((3, 3, 3)), np.zeros((0, 3, 3), np.uint8)])
def test_only_images_are_written(tmp_path, image):
    with pytest.raises(InputError, match=r"^`image` must (be uint8|have at least one pixel)"):
        write_image(tmp_path / "a.png", image)
    assert not list(tmp_path.iterdir())


def test_unknown_ending_is_not_written(tmp_path):
    with pytest.raises(InputError, match=r"the ending '\.xyz' is not one of \.jpg, \.jpeg, \.png"):
        write_image(tmp_path / "a.xyz", pixels(2, 2))


def test_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    write_image(path, pixels(4, 4))

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_image(path, pixels(8, 8))
    assert image_size(path) == (4, 4)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InputError, match=r"needs the package PIL, .* pip install 'eesvm\[vision\]'$"):
        read_image(b"")


@settings(max_examples=many(150), deadline=None)
@given(st.data())
def test_damaged_files_raise_nothing_but_image_errors(data):
    format = data.draw(st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"]))
    good = bytearray(encoded(Image.fromarray(pixels(12, 9)), format))
    for _ in range(data.draw(st.integers(1, 8))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(good[: data.draw(st.integers(0, len(good)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for read in (read_image, image_size):
            with suppress(ImageError):
                read(content)
