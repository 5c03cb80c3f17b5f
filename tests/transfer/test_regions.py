"""Regions, what is known of them, and the trees that judge them: against slow loops, and in pictures of any shape."""

import numpy as np
import pytest

from eesvm import InputError
from eesvm._support.tensors import write_arrays
from eesvm.transfer.region_features import FEATURES, Said, region_features
from eesvm.transfer.region_trees import RegionTrees, default_trees, load_trees
from eesvm.transfer.regions import regions_of_image


def picture(height, width, seed=0):
    """Blocks of colours, with noise."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 255, (-(-height // 12), -(-width // 12), 3)).repeat(12, axis=0).repeat(12, axis=1)
    return np.clip(blocks[:height, :width] + random.normal(0, 4, (height, width, 3)), 0, 255).astype(np.uint8)


def said(height, width, seed=1):
    return Said(*np.random.default_rng(seed).random((2, height, width)))


def test_regions_are_counted_pixel_by_pixel():
    image = picture(40, 60)
    regions = regions_of_image(image)
    labels, n = regions.fine.labels, len(regions.sizes)
    borders = np.zeros((n, n))
    for y, x in np.ndindex(40, 60):
        for other in ([labels[y, x + 1]] if x < 59 else []) + ([labels[y + 1, x]] if y < 39 else []):
            if other != labels[y, x]:
                borders[min(labels[y, x], other), max(labels[y, x], other)] += 1
    assert regions.sizes.tolist() == [(labels == k).sum() for k in range(n)]
    for (first, second), length in zip(regions.ends.T, regions.borders, strict=True):
        assert borders[first, second] == length
    assert borders.sum() == regions.borders.sum()
    slow = [[regions.planes[c][labels == k].mean() for c in range(3)] for k in range(n)]
    np.testing.assert_allclose(regions.colours, slow)
    assert [len(one.sizes) for one in regions.coarser] == sorted(len(one.sizes) for one in regions.coarser)[::-1]


def test_features_against_loops():
    box, spoken = np.array([10.0, 5, 50, 35]), said(40, 60)
    regions = regions_of_image(picture(40, 60))
    table = dict(zip(FEATURES, region_features(regions, box, spoken).T, strict=True))
    labels = regions.fine.labels
    y, x = np.mgrid[:40, :60] + 0.5
    inside = (x > 10) & (x < 50) & (y > 5) & (y < 35)
    for k in range(len(regions.sizes)):
        own = labels == k
        share = spoken.vote[own].mean()
        assert table["vote"][k] == pytest.approx(np.log((share + 0.05) / (1.05 - share)))
        assert table["inside"][k] == pytest.approx(inside[own].mean())
        assert table["across"][k] == pytest.approx(((x - 10) / 40)[own].mean())
        assert table["down"][k] == pytest.approx(((y - 5) / 30)[own].mean())
        coarse = regions.coarser[0].labels
        mean = np.mean(
            [inside[coarse == coarse[place]].mean() for place in np.argwhere(own).tolist() for place in [tuple(place)]]
        )
        assert table["inside 1"][k] == pytest.approx(np.log((mean + 0.05) / (1.05 - mean)))
    assert (table["way from outside"][table["inside"] < 0.3] == 0).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 3), (160, 90)])
@pytest.mark.parametrize("box", [(0.0, 0, 1, 1), (-30, -30, 200, 200), (0.2, 0.2, 0.9, 0.9)])
def test_features_are_finite_in_pictures_of_any_shape(shape, box):
    for image in (picture(*shape), np.zeros((*shape, 3), dtype=np.uint8)):
        table = region_features(regions_of_image(image), np.array(box, dtype=np.float64), said(*shape))
        assert table.shape[1] == len(FEATURES)
        assert np.isfinite(table).all()
        assert np.isfinite(default_trees().odds(table)).all()


def slow_odds(trees, row):
    total = trees.prices[0]
    for root in trees.roots:
        node = root
        while trees.right[node]:
            node = node + 1 if row[trees.features[node]] <= trees.thresholds[node] else trees.right[node]
        total += trees.values[node]
    return total


def test_trees_against_a_walk():
    table = np.random.default_rng(3).normal(0, 2, (40, len(FEATURES)))
    trees = default_trees()
    np.testing.assert_allclose(trees.odds(table), [slow_odds(trees, row) for row in table])
    assert trees.border > 0


def stump(**changes):
    """One question, two leaves."""
    arrays = {
        "roots": np.array([0], dtype=np.int32),
        "features": np.array([2, 0, 0], dtype=np.int32),
        "thresholds": np.array([0.5, 0, 0]),
        "right": np.array([2, 0, 0], dtype=np.int32),
        "values": np.array([0, -1.0, 1.0]),
        "prices": np.array([0.25, 1.0]),
    }
    return RegionTrees(**(arrays | changes))


def test_trees_are_read_back(tmp_path):
    stump().save(tmp_path / "trees.safetensors")
    again = load_trees(tmp_path / "trees.safetensors")
    rows = np.zeros((2, len(FEATURES)))
    rows[1, 2] = 0.6
    assert again.odds(rows).tolist() == [-0.75, 1.25]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"right": np.array([0, 0], dtype=np.int32)}, "its arrays do not fit each other"),
        ({"prices": np.zeros(3)}, "its arrays do not fit each other"),
        ({"right": np.array([1, 0, 0], dtype=np.int32)}, "its trees are damaged"),  # left and right are one
        ({"right": np.array([3, 0, 0], dtype=np.int32)}, "its trees are damaged"),
        ({"right": np.array([2, -1, 0], dtype=np.int32)}, "its trees are damaged"),
        ({"features": np.array([99, 0, 0], dtype=np.int32)}, "its trees are damaged"),
        ({"roots": np.array([3], dtype=np.int32)}, "its trees are damaged"),
    ],
)
def test_damaged_trees_are_refused(tmp_path, changes, message):
    path = tmp_path / "trees.safetensors"
    stump(**changes).save(path)
    with pytest.raises(InputError) as error:
        load_trees(path)
    assert str(error.value) == f"{path}: {message}"


def test_trees_of_other_features_are_refused(tmp_path):
    path = tmp_path / "trees.safetensors"
    write_arrays(path, "eesvm region trees", 1, stump()._asdict(), {"features": "vote, luck"})
    with pytest.raises(InputError) as error:
        load_trees(path)
    assert str(error.value) == f"{path}: its trees ask for other features than this version of eesvm has"
