"""Scores: the plain product, whatever the blocks, the source and the place they go to."""

import numpy as np
import pytest

from eesvm import InputError
from eesvm.exemplars.rows import PartedRows, StreamedRows
from eesvm.exemplars.scoring import score_windows
from helpers.reference_svm import relu_features

WEIGHTS, WINDOWS = relu_features(7, 501, 20)
BIASES = np.linspace(-1, 1, 7)
EXPECTED = WINDOWS.astype(np.float64) @ WEIGHTS.T.astype(np.float64) + BIASES


@pytest.mark.parametrize("block_rows", [None, 1, 13, 10_000])
def test_blocks_do_not_matter(block_rows):
    scores = score_windows(WINDOWS, WEIGHTS, BIASES, block_rows=block_rows)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, EXPECTED, rtol=1e-5)


def test_any_source_will_do():
    parts = [WINDOWS[:3], WINDOWS[3:3], WINDOWS[3:400], WINDOWS[400:]]
    for source in (
        PartedRows(parts),
        StreamedRows(lambda: parts, WINDOWS.shape),
        WINDOWS.astype(np.float64),
        WINDOWS.tolist(),
    ):
        np.testing.assert_allclose(score_windows(source, WEIGHTS, BIASES, block_rows=50), EXPECTED, rtol=1e-5)


def test_parts_can_be_thinned():
    parts, masks = [WINDOWS[:100], WINDOWS[100:]], [np.arange(100) % 2 == 0, np.arange(5)]
    rows = PartedRows(parts, masks)
    kept = np.concatenate([np.arange(0, 100, 2), 100 + np.arange(5)])
    np.testing.assert_allclose(score_windows(rows, WEIGHTS, BIASES, block_rows=7), EXPECTED[kept], rtol=1e-5)
    np.testing.assert_array_equal(rows.take(np.array([0, 1, 49, 50, 54])), WINDOWS[kept[[0, 1, 49, 50, 54]]])
    np.testing.assert_array_equal(rows.part_of_row, [0] * 50 + [1] * 5)


def test_into_an_array_of_the_caller():
    out = np.full(EXPECTED.shape, np.nan, dtype=np.float32)
    assert score_windows(WINDOWS, WEIGHTS, BIASES, out) is out
    np.testing.assert_allclose(out, EXPECTED, rtol=1e-5)


def test_into_a_file_that_is_mapped(tmp_path):
    path = tmp_path / "scores.npy"
    scores = score_windows(WINDOWS, WEIGHTS, BIASES, path, block_rows=100)
    assert isinstance(scores, np.memmap)
    np.testing.assert_allclose(scores, EXPECTED, rtol=1e-5)
    np.testing.assert_array_equal(np.load(path), scores)
    assert score_windows(WINDOWS[:0], WEIGHTS, BIASES, tmp_path / "empty.npy").shape == (0, 7)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    def breaks():
        yield WINDOWS[:300]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_windows(StreamedRows(breaks, WINDOWS.shape), WEIGHTS, BIASES, tmp_path / "scores.npy")
    assert list(tmp_path.iterdir()) == []


BAD = {
    "`windows` must have 20 columns, as `weights` have, got 19": (WINDOWS[:, :19], WEIGHTS, BIASES),
    "`biases` must have shape (7,), got (6,)": (WINDOWS, WEIGHTS, BIASES[:6]),
    "`biases` must hold numbers": (WINDOWS, WEIGHTS, ["a"] * 7),
    "`biases` holds 1 value that is NaN or infinite, the first at index 0": (WINDOWS, WEIGHTS, [np.inf, *BIASES[1:]]),
    "`weights` holds a value that is NaN, infinite or beyond float32, in row 6": (WINDOWS, np.where(np.arange(7)[:, None] == 6, np.nan, WEIGHTS), BIASES),
    "`windows` must hold finite numbers within the range of float32, which row 300 does not": (np.where(np.arange(501)[:, None] == 300, np.nan, WINDOWS), WEIGHTS, BIASES),
    "`windows` says that it has 502 rows but gives 501": (StreamedRows(lambda: [WINDOWS], (502, 20)), WEIGHTS, BIASES),
    "`windows` says that it has 500 rows but gives more": (StreamedRows(lambda: [WINDOWS], (500, 20)), WEIGHTS, BIASES),
    "`out` must be a writeable float32 array of shape (501, 7), or the path of a file": (WINDOWS, WEIGHTS, BIASES, np.empty((501, 7))),
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_gets_one_sentence(sentence):
    with pytest.raises(InputError) as error:
        score_windows(*BAD[sentence])
    assert str(error.value) == sentence


def test_bad_rows_get_one_sentence():
    both = [WINDOWS[:5], WINDOWS[5:9]]
    for parts, kept, sentence in (
        ([], None, "`parts` is empty: at least one array of descriptors is needed"),
        ([WINDOWS, WINDOWS[:, :3]], None, "`parts` must have the same number of columns, got 3, 20"),
        ([WINDOWS[0]], None, "`parts[0]` must have two dimensions (rows, descriptor), got shape (20,)"),
        (both, [[0]], "`kept` must have one entry for each of 2 parts, got 1"),
        (both, [[0], np.ones(5, dtype=bool)], "`kept[1]` must have shape (4,), got (5,)"),
        (both, [[0], [0, 4]], "`kept[1]` must be a mask or increasing numbers of rows from 0 to 3"),
        (both, [[1, 0], [0]], "`kept[0]` must be a mask or increasing numbers of rows from 0 to 4"),
    ):
        with pytest.raises(InputError) as error:
            PartedRows(parts, kept)
        assert str(error.value) == sentence


@pytest.mark.parametrize("n_rows", [1, 3, 7, 64, 1000])
def test_rows_that_are_held_come_in_the_same_blocks_without_a_copy(n_rows):
    random = np.random.default_rng(n_rows)
    parts = [random.normal(size=(n, 4)).astype(np.float32) for n in (0, 5, 30, 0, 1, 12, 0)]
    rows = PartedRows(parts, [random.random(len(part)) < 0.7 for part in parts])
    held = rows.held(1 << 20)
    assert held.shape == rows.shape
    for (start, block), (own_start, own) in zip(rows.blocks(n_rows), held.blocks(n_rows), strict=True):
        assert start == own_start
        assert (block == own).all()
        assert not len(own) or np.shares_memory(own, held.values)
    some = np.flatnonzero(random.random(rows.shape[0]) < 0.5)
    assert (held.take(some) == rows.take(some)).all()
    assert rows.held(4 * 4 * rows.shape[0] - 1) is rows
