"""HOG against a slow version written from the paper's description, and its invariances."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_sample_images
from sklearn.linear_model import RidgeClassifier

from eesvm.descriptors import HOG
from eesvm.descriptors.hog import hog_of_patches, orientation_map
from eesvm.descriptors.resampling import resample

CHINA = load_sample_images().images[0]
BOXES = np.array([[10, 20, 200, 210], [300, 100, 420, 320], [600, 400, 640, 427], [5.5, 5.5, 9.1, 30.2], [7, 7, 7, 7]])


def slow_gradients(pixels):
    """(h, w, 18): the steepest channel's gradient of each pixel, shared between the two nearest of 18 directions."""
    extended = np.pad(pixels.astype(float), [(1, 1), (1, 1), (0, 0)], mode="edge")
    dx = extended[1:-1, 2:] - extended[1:-1, :-2]
    dy = extended[2:, 1:-1] - extended[:-2, 1:-1]
    steepest = np.argmax(dx**2 + dy**2, axis=2)[:, :, None]
    dx, dy = (np.take_along_axis(d, steepest, axis=2) for d in (dx, dy))
    apart = np.abs((np.degrees(np.arctan2(dy, dx)) - 20 * np.arange(18) + 180) % 360 - 180)
    return np.hypot(dx, dy) * np.maximum(0, 1 - apart / 20)


def slow_cells(pixels, cell_size):
    gradients = slow_gradients(pixels)
    n = len(pixels) // cell_size
    centres = (np.arange(n) + 0.5) * cell_size
    reach = np.maximum(0, 1 - np.abs(np.arange(len(pixels)) + 0.5 - centres[:, None]) / cell_size)
    return np.einsum("iy,jx,yxo->ijo", reach, reach, gradients, optimize=True)


def slow_normalised(cells):
    n = len(cells) - 2
    energy = ((cells[:, :, :9] + cells[:, :, 9:]) ** 2).sum(axis=2)
    out = np.zeros((n, n, 31))
    for i in range(n):
        for j in range(n):
            signed = cells[i + 1, j + 1]
            unsigned = signed[:9] + signed[9:]
            for block, (a, b) in enumerate([(i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1)]):
                norm = np.sqrt(energy[a : a + 2, b : b + 2].sum() + 1e-4)
                out[i, j, :18] += np.minimum(signed / norm, 0.2) / 2
                out[i, j, 18:27] += np.minimum(unsigned / norm, 0.2) / 2
                out[i, j, 27 + block] = 0.2357 * np.minimum(signed / norm, 0.2).sum()
    return out


@pytest.mark.parametrize(("cells", "cell_size"), [(8, 8), (3, 5), (1, 4)])
def test_warped_equals_the_slow_version(cells, cell_size):
    rows = HOG(cells, cell_size).describe(CHINA, BOXES)
    assert rows.shape == (len(BOXES), cells * cells * 31)
    for row, (x1, y1, x2, y2) in zip(rows, BOXES, strict=True):
        half = np.maximum([x2 - x1, y2 - y1], 1) / 2 * (cells + 2) / cells
        centre = np.array([x1 + x2, y1 + y2]) / 2
        side = (cells + 2) * cell_size
        patch = resample(CHINA, np.concatenate([centre - half, centre + half])[None], side, side)[0]
        expected = slow_normalised(slow_cells(patch, cell_size))
        # where two colours are equally steep, rounding may choose either: a few numbers differ visibly
        assert np.mean(np.abs(row - expected.ravel()) < 1e-3) > 0.99


def test_integral_equals_sums_over_pixels():
    descriptor = HOG(3, 8, mode="integral", size=640)
    boxes = np.array([[100, 100, 190, 160], [40, 200, 70, 290.0]])  # cells of whole pixels
    gradients = slow_gradients(CHINA)
    for row, (x1, y1, x2, y2) in zip(descriptor.describe(CHINA, boxes), boxes.astype(int), strict=True):
        step_x, step_y = (x2 - x1) // 3, (y2 - y1) // 3
        cells = np.zeros((5, 5, 18))
        for i in range(5):
            for j in range(5):
                part = np.s_[y1 + (i - 1) * step_y : y1 + i * step_y, x1 + (j - 1) * step_x : x1 + j * step_x]
                cells[i, j] = gradients[part].sum(axis=(0, 1))
        expected = slow_normalised(cells * 64 / (step_x * step_y))
        np.testing.assert_allclose(row, expected.ravel(), atol=2e-3)


def test_orientation_map_equals_the_slow_version():
    found = orientation_map(CHINA[:60, :70].astype(np.float32))
    np.testing.assert_allclose(found, slow_gradients(CHINA[:60, :70]), atol=1e-2)
    assert ((found > 0).sum(axis=2) <= 2).all()


@pytest.mark.parametrize("mode", ["warped", "integral"])
def test_brightness_and_contrast_hardly_matter(mode):
    image = np.repeat(CHINA[:, :, :1] // 2, 3, axis=2)  # grey: colours that are equally steep point the same way
    descriptor = HOG(mode=mode)
    rows = descriptor.describe(image, BOXES[:3])
    np.testing.assert_allclose(descriptor.describe(image + 40, BOXES[:3]), rows, atol=1e-3)
    np.testing.assert_allclose(descriptor.describe(image * 2, BOXES[:3]), rows, atol=1e-2)


@pytest.mark.parametrize("mode", ["warped", "integral"])
def test_an_edge_is_seen_in_its_direction(mode):
    image = np.zeros((64, 64, 3), np.uint8)
    image[:, 32:] = 200
    row = HOG(2, mode=mode).describe(image, [[0, 0, 64, 64]])[0].reshape(2, 2, 31)
    assert (row[:, :, :18].argmax(axis=2) == 0).all()  # from dark to bright along x
    assert (row[:, :, 18:27].argmax(axis=2) == 0).all()
    turned = HOG(2, mode=mode).describe(np.ascontiguousarray(image[:, ::-1]), [[0, 0, 64, 64]])[0].reshape(2, 2, 31)
    assert (turned[:, :, :18].argmax(axis=2) == 9).all()


def test_a_flat_image_is_all_zeros():
    flat = np.full((50, 60, 3), 77, np.uint8)
    for mode in ("warped", "integral"):
        assert (HOG(mode=mode).describe(flat, [[0, 0, 60, 50], [-9, -9, 3, 3]]) == 0).all()


def test_one_pixel_images_work():
    for mode in ("warped", "integral"):
        rows = HOG(mode=mode).describe(CHINA[:1, :1], [[0, 0, 1, 1]])
        assert np.isfinite(rows).all()


def test_patches_in_a_batch_do_not_mix():
    patches = resample(CHINA, BOXES[:3], 40, 40)
    together = np.empty((3, 3, 3, 31), np.float32)
    hog_of_patches(patches, 8, together)
    alone = np.empty((1, 3, 3, 31), np.float32)
    hog_of_patches(patches[1:2], 8, alone)
    np.testing.assert_array_equal(alone[0], together[1])


def test_digits_come_apart():
    """Handwritten digits on one large picture: HOG of their boxes names more of them than their pixels do."""
    digits = load_digits()
    images, labels = digits.images[:1200], digits.target[:1200]
    sheet = np.zeros((20 * 60, 20 * 20), np.uint8)
    boxes = []
    for k, digit in enumerate(images):
        y, x = divmod(k, 20)
        sheet[20 * y + 4 : 20 * y + 12, 20 * x + 4 : 20 * x + 12] = digit * 15
        boxes.append([20 * x + 2, 20 * y + 2, 20 * x + 14, 20 * y + 14])
    sheet = np.repeat(sheet[:, :, None], 3, axis=2)

    def score(rows):
        return RidgeClassifier(10.0).fit(rows[:600], labels[:600]).score(rows[600:], labels[600:])

    pixels = score(images.reshape(1200, -1))
    for mode in ("warped", "integral"):
        assert score(HOG(4, mode=mode, size=1200).describe(sheet, boxes)) > pixels + 0.02


@pytest.mark.long
def test_hog_needs_no_vision_package():
    blocked = ["cv2", "PIL", "onnx", "onnxruntime"]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import numpy as np;"
        "from eesvm.descriptors import make_descriptor;"
        "print(make_descriptor('hog').describe(np.zeros((30, 30, 3), np.uint8), [[0, 0, 20, 20]]).shape);"
        "make_descriptor()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(1, 1984)"
    assert done.stderr.strip().endswith("which is not installed: pip install 'eesvm[vision]'")
