"""Selective search: kernels against slow obvious versions, invariances, any image, any number of threads."""

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets.scenes import make_scenes
from eesvm.windows.selective_search import PLANS, selective_search
from eesvm.windows.selective_search.colours import SPACES, colour_planes
from eesvm.windows.selective_search.grouping import Similarities, group
from eesvm.windows.selective_search.histograms import pixel_bins, region_histograms
from eesvm.windows.selective_search.regions import regions_of
from eesvm.windows.selective_search.search import distinct, hierarchies
from eesvm.windows.selective_search.segmentation import segmentation, sorted_edges
from eesvm.windows.selective_search.shrinking import shrunk
from eesvm.windows.selective_search.strategies import Step
from helpers import reference_selective_search as slow
from helpers.examples import many

ALL = Similarities(True, True, True, True)
WAYS = [Similarities(*flags) for flags in product((True, False), repeat=4) if any(flags)]


def random_image(rng, largest=9, n_channels=3):
    """Noise, few colours, or smooth: what makes ties, small and large regions."""
    shape = (*rng.integers(1, largest, 2), n_channels)
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(0, 256, shape).astype(np.uint8)
    if kind == 1:
        return (rng.integers(0, 2, shape) * 255).astype(np.uint8)
    if kind == 2:
        return rng.integers(100, 120, shape).astype(np.uint8)
    blocks = rng.integers(0, 256, (-(-shape[0] // 3), -(-shape[1] // 3), n_channels))
    return np.repeat(np.repeat(blocks, 3, axis=0), 3, axis=1)[: shape[0], : shape[1]].astype(np.uint8)


def planes_of(image):
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def all_boxes(planes, scale=150, min_size=4, wanted=ALL):
    labels, n = segmentation(sorted_edges(planes), scale, min_size)
    histograms = region_histograms(pixel_bins(planes), labels, n)
    return group(regions_of(labels, n), *histograms, wanted, labels.size)


def test_segments_are_those_of_the_slow_version():
    rng = np.random.default_rng(0)
    n_several = 0
    for case in range(many(2000)):
        planes = planes_of(random_image(rng, n_channels=(1, 3)[case % 2]))
        scale, min_size = int(rng.choice([1, 5, 20, 150])), int(rng.choice([1, 2, 5, 30]))
        labels, n = segmentation(sorted_edges(planes), scale, min_size)
        assert (labels == slow.segmentation(planes, scale, min_size)).all()
        assert n == labels.max() + 1
        n_several += n > 2
    assert n_several > many(2000) // 5


def test_histograms_and_regions_are_those_of_the_slow_version():
    rng = np.random.default_rng(1)
    for case in range(many(300)):
        planes = planes_of(random_image(rng, n_channels=(1, 3)[case % 2]))
        labels, n = segmentation(sorted_edges(planes), 10, 2)
        colours, texture = region_histograms(pixel_bins(planes), labels, n)
        regions = regions_of(labels, n)
        for name in range(n):
            expected = slow.histograms(planes, labels == name)
            assert colours[name].tolist() == expected[0]
            assert texture[name].tolist() == expected[1]
            assert regions.sizes[name] == (labels == name).sum()


def test_groups_are_those_of_the_slow_version():
    rng = np.random.default_rng(2)
    n_merges = 0
    for case in range(many(1500)):
        planes = planes_of(random_image(rng, n_channels=(1, 3)[case % 2]))
        labels, n = segmentation(sorted_edges(planes), int(rng.choice([1, 5, 20])), int(rng.choice([1, 2, 4])))
        wanted = WAYS[case % len(WAYS)]
        histograms = region_histograms(pixel_bins(planes), labels, n)
        found = group(regions_of(labels, n), *histograms, wanted, labels.size)
        assert found.tolist() == slow.grouping(planes, labels, wanted).tolist()
        assert len(found) == 2 * n - 1  # regions of an image are all connected
        assert found[-1].tolist() == [0, 0, labels.shape[1], labels.shape[0]]
        n_merges += n - 1
    assert n_merges > 3 * many(1500)


def turned(boxes, turn, height, width):
    x1, y1, x2, y2 = boxes.T
    columns = {
        "left-right": (width - x2, y1, width - x1, y2),
        "up-down": (x1, height - y2, x2, height - y1),
        "transposed": (y1, x1, y2, x2),
    }[turn]
    return np.stack(columns, axis=1)


TURNS = {
    "left-right": lambda planes: planes[:, :, ::-1],
    "up-down": lambda planes: planes[:, ::-1],
    "transposed": lambda planes: planes.transpose(0, 2, 1),
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_turned_image_has_turned_boxes(turn):
    """Where no two edges weigh the same; pairs of regions that are equally similar do not occur in noise."""
    rng = np.random.default_rng(3)
    n_compared = 0
    for _ in range(many(800)):
        planes = rng.integers(0, 256, (3, *rng.integers(3, 8, 2))).astype(np.uint8)
        weights = [edge[0] for edge in slow.weighted_edges(planes)]
        if len(set(weights)) < len(weights):
            continue
        n_compared += 1
        found = all_boxes(np.ascontiguousarray(TURNS[turn](planes)))
        expected = turned(all_boxes(planes), turn, *planes.shape[1:])
        assert (distinct(found) == distinct(expected.astype(np.int32))).all()
    assert n_compared > many(800) // 8


def test_a_wider_border_of_one_colour_shifts_the_segments():
    rng = np.random.default_rng(4)
    for _ in range(many(200)):
        inside = rng.integers(0, 60, (3, *rng.integers(4, 12, 2))).astype(np.uint8)
        boxes = []
        for border in (4, 9):
            planes = np.pad(inside, ((0, 0), (border, border), (border, border)), constant_values=255)
            labels, n = segmentation(sorted_edges(planes), 5, 2)
            found = regions_of(labels, n)
            is_inside = found.boxes[:, :2].min(axis=1) > 0
            assert (~is_inside).sum() == 1
            boxes.append(np.column_stack([found.boxes[is_inside] - border, found.sizes[is_inside]]))
        assert (boxes[0] == boxes[1]).all()


def test_grey_is_grey_in_every_space():
    grey = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    for space in SPACES:
        planes = colour_planes(grey, space)
        assert planes.dtype == np.uint8
        brightness = {"hsv": 2, "lab": 0, "rgb": 0, "rgi": 2, "grey": 0}.get(space)
        for number, plane in enumerate(planes):
            if number == brightness or space == "rgb":
                assert (np.diff(plane[0].astype(int)) >= 0).all()
                assert (plane[0, 0], plane[0, -1]) == (0, 255)
            else:
                assert len(np.unique(plane)) == 1


def test_colours_are_those_of_the_standard_library_and_of_opencv():
    import colorsys

    image = np.random.default_rng(5).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    hue, saturation, value = colour_planes(image, "hsv").astype(float)
    for y, x in product(range(20), range(30)):
        h, s, v = colorsys.rgb_to_hsv(*(image[y, x] / 255))
        assert min(abs(hue[y, x] - 180 * h), 180 - abs(hue[y, x] - 180 * h)) <= 0.51
        assert abs(saturation[y, x] - 255 * s) <= 0.51
        assert value[y, x] == round(255 * v)
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB).transpose(2, 0, 1).astype(int)
    assert np.abs(lab - colour_planes(image, "lab").astype(int)).max() <= 4
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(int)
    assert np.abs(grey - colour_planes(image, "grey")[0]).max() <= 1


def test_all_colours_have_a_place_in_every_space():
    side = np.arange(0, 256, 15, dtype=np.uint8)
    cube = np.stack(np.meshgrid(side, side, side), axis=-1).reshape(1, -1, 3)
    for space in SPACES:
        planes = colour_planes(cube, space)
        assert planes.shape == (3 if space in ("hsv", "lab", "rgb", "rgi") else 1, 1, cube.shape[1])
    assert colour_planes(cube, "hsv")[0].max() < 180
    assert (colour_planes(cube, "lab")[1:].min(axis=(1, 2)) > 5).all()  # nothing wrapped around


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 2), (3, 40)])
@pytest.mark.parametrize("n_colours", [1, 2, 256])
@pytest.mark.parametrize("mode", PLANS)
def test_any_image_has_boxes(shape, n_colours, mode):
    image = np.random.default_rng(6).integers(0, n_colours, (*shape, 3)).astype(np.uint8)
    found = selective_search(image, mode)
    assert len(found) >= 1
    assert [0, 0, shape[1], shape[0]] in found.tolist()
    assert (found[:, :2] < found[:, 2:]).all()
    assert (found >= 0).all()
    assert (found <= [shape[1], shape[0]] * 2).all()
    assert len(np.unique(found, axis=0)) == len(found)


def test_one_colour_is_one_region():
    image = np.full((40, 60, 3), 99, dtype=np.uint8)
    for mode in PLANS:
        assert selective_search(image, mode).tolist() == [[0, 0, 60, 40]]


def test_two_colours_are_two_regions():
    image = np.zeros((60, 80, 3), dtype=np.uint8)
    image[20:50, 10:40] = 255
    found = selective_search(image, "single")
    assert [0, 0, 80, 60] in found.tolist()
    assert np.abs(found - [10, 20, 40, 50]).max(axis=1).min() <= 1  # smoothing may move an edge by a pixel


def test_a_very_long_image():
    image = np.random.default_rng(7).integers(0, 256, (200, 20_000, 3)).astype(np.uint8)
    found = selective_search(image, "single")
    assert (found <= [20_000, 200, 20_000, 200]).all()
    full = selective_search(image[:, :4000], "single", working_size=10_000)
    assert len(full) > len(found)


def test_too_many_pixels_are_one_sentence(monkeypatch):
    image = np.zeros((20, 30, 3), dtype=np.uint8)
    monkeypatch.setattr("eesvm.windows.selective_search.search._MAX_PIXELS", 500)
    sentence = r"^`working_size` must leave an image at most 500 pixels, got 400 for one of 30 x 20$"
    with pytest.raises(InputError, match=sentence):
        selective_search(image, "single", working_size=400)
    assert len(selective_search(image, "single", working_size=20))


@pytest.mark.long
def test_lack_of_memory_is_one_sentence():
    resource = pytest.importorskip("resource", reason="only Unix limits the memory of a process")
    del resource
    script = (
        "import numpy as np, resource\n"
        "from eesvm import InputError\n"
        "from eesvm.windows.selective_search import selective_search\n"
        "selective_search(np.zeros((20, 20, 3), np.uint8), 'single')\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), -1))\n"
        "try:\n"
        "    selective_search(np.zeros((4000, 4000, 3), np.uint8), 'single', working_size=4000)\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("the memory of a process is read from /proc")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "there is not enough memory to segment an image of 4000 x 4000: lower `working_size`, got 4000\n"
    )


def test_shrinking_takes_the_mean_of_areas():
    rng = np.random.default_rng(8)
    for _ in range(many(300)):
        image = rng.integers(0, 256, (*rng.integers(1, 40, 2), 3)).astype(np.uint8)
        height, width = image.shape[:2]
        longest = int(rng.integers(1, 30))
        small = shrunk(image, longest)
        factor = min(1.0, longest / max(height, width))
        assert small.shape == (max(1, round(height * factor)), max(1, round(width * factor)), 3)
        down, across = (
            np.array(
                [
                    [max(0.0, min((i + 1) * n / m, j + 1) - max(i * n / m, j)) * m / n for j in range(n)]
                    for i in range(m)
                ]
            )
            for n, m in ((height, small.shape[0]), (width, small.shape[1]))
        )
        means = np.einsum("iy,jx,yxc->ijc", down, across, image.astype(float))
        assert np.abs(small - means).max() <= 0.501


def test_a_budget_of_no_time_still_gives_the_first_hierarchies():
    image = make_scenes(1, 0)[0].read()
    for mode, plan in PLANS.items():
        least = selective_search(image, mode, time_budget=0)
        assert (least == hierarchies(image, plan[:1])).all()
        assert (selective_search(image, mode, time_budget=1e9) == selective_search(image, mode)).all()


def test_steps_add_up():
    image = make_scenes(1, 0)[0].read()
    plan = (Step("hsv", 100, 50, (ALL,)), Step("lab", 100, 50, (ALL,)), Step("hsv", 300, 50, (ALL, WAYS[5])))
    together = {tuple(box) for box in hierarchies(image, plan)}
    apart = {tuple(box) for step in plan for box in hierarchies(image, [step])}
    assert together == apart


def test_modes_have_as_many_hierarchies_as_they_say():
    counts = {mode: sum(len(step.groupings) for step in plan) for mode, plan in PLANS.items()}
    assert (counts["single"], counts["fast"], counts["quality"]) == (1, 8, 80)
    for plan in PLANS.values():
        assert len(set(plan)) == len(plan)
        assert all(step.space in SPACES for step in plan)


def test_threads_find_the_same_bits():
    images = [record.read() for record in make_scenes(6, 0)]
    alone = [selective_search(image, "fast") for image in images]
    for n_threads in (2, 5):
        with ThreadPoolExecutor(n_threads) as pool:
            together = list(pool.map(lambda image: selective_search(image, "fast"), images))
        assert all((a == b).all() for a, b in zip(alone, together, strict=True))


def test_views_and_orders_of_memory_do_not_matter():
    image = make_scenes(1, 0)[0].read()
    expected = selective_search(image, "single")
    for view in (np.asfortranarray(image), image[:, ::-1].copy()[:, ::-1], np.repeat(image, 2, axis=0)[::2]):
        assert (selective_search(view, "single") == expected).all()


def test_boxes_of_a_drawing_stay_what_they_are():
    """Anything that changes them must raise `VERSION`, which is part of the key of cached windows."""
    y, x = np.mgrid[:60, :90]
    image = np.stack([x * 2, y * 4, (x * y) % 256], axis=2).astype(np.uint8)
    image[10:30, 15:50] = (200, 30, 40)
    image[25:50, 60:80] = (20, 180, 60)
    found = hashlib.sha256(selective_search(image, "fast").tobytes()).hexdigest()[:16]
    assert found == "6ad33b6224fc2dd0"
