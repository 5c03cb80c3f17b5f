"""Methods of windows side by side: threads, keys of caches, OpenCV's windows, any file."""

import io
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets.scenes import make_scenes
from eesvm.images.files import read_image
from eesvm.structures import ImageRecord
from eesvm.windows import propose, propose_dataset
from eesvm.windows.proposals import _parameters
from eesvm.windows.settings import WindowSettings
from helpers.examples import few


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(5, 0)


@pytest.mark.parametrize("n_jobs", few([2, 3, -1]))
@pytest.mark.parametrize("mode", few(["default", "fast"]))
def test_the_same_windows_for_any_number_of_threads(scenes, n_jobs, mode):
    alone = list(propose_dataset(scenes, mode=mode))
    together = list(propose_dataset(scenes, mode=mode, n_jobs=n_jobs))
    assert [w.image_id for w in together] == [r.image_id for r in scenes]
    assert all((a.boxes == b.boxes).all() for a, b in zip(alone, together, strict=True))


def test_images_are_read_in_threads_and_only_a_few_ahead():
    names, n_read = set(), []

    def read():
        names.add(threading.current_thread().name)
        n_read.append(1)
        time.sleep(0.01)
        return np.zeros((20, 20, 3), dtype=np.uint8)

    records = [ImageRecord(str(k), read, 20, 20) for k in range(50)]
    stream = propose_dataset(records, n_jobs=2, mode="single")
    assert n_read == []
    next(stream)
    assert len(n_read) <= 4
    stream.close()
    assert len(n_read) <= 4
    assert threading.main_thread().name not in names


def test_what_a_thread_does_not_expect_is_raised(scenes):
    def read():
        raise KeyError("a mistake in a reader")

    with pytest.raises(KeyError, match="a mistake in a reader"):
        list(propose_dataset([replace(scenes[0], read=read)] * 3, n_jobs=2))


def test_keys_of_cached_windows_differ_by_method():
    pytest.importorskip("cv2", reason="the key of OpenCV's windows holds its version")
    ours, theirs = (_parameters(WindowSettings(method)) for method in ("selective_search", "opencv"))
    assert ours["selective_search"] == 1
    assert "opencv" not in ours
    assert "selective_search" not in theirs
    assert theirs["opencv"]


@pytest.mark.long
def test_windows_of_opencv(scenes):
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    image = scenes[0].read()[:120, :160]
    found = {mode: propose(image, "opencv", mode) for mode in ("single", "fast", "quality", "default")}
    assert (found["default"] == found["fast"]).all()
    assert len(found["single"]) < len(found["fast"]) < len(found["quality"])
    for n_jobs in (1, 2):
        windows = list(propose_dataset(scenes.images[:3], method="opencv", mode="single", n_jobs=n_jobs))
        assert all(
            (w.boxes == propose(r.read(), "opencv", "single")).all() for w, r in zip(windows, scenes, strict=False)
        )


def test_a_budget_of_time_gives_windows(scenes):
    image = scenes[0].read()
    everything = {tuple(box) for box in propose(image, max_windows=10**6)}
    least = propose(image, max_windows=10**6, time_budget=0)
    assert 10 < len(least) < len(everything)
    assert {tuple(box) for box in least} <= everything
    assert {tuple(box) for box in propose(image, max_windows=10**6, time_budget=1e9)} == everything


@pytest.mark.parametrize("kind", ["grey", "alpha", "16 bit", "CMYK", "palette", "turned"])
def test_any_file_has_windows(scenes, kind):
    pillow = pytest.importorskip("PIL.Image")
    picture = pillow.fromarray(scenes[0].read())
    options = {"format": "PNG"}
    if kind == "grey":
        picture = picture.convert("L")
    elif kind == "alpha":
        picture = picture.convert("RGBA")
        picture.putalpha(128)
    elif kind == "16 bit":
        picture = pillow.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    elif kind == "CMYK":
        picture, options = picture.convert("CMYK"), {"format": "JPEG"}
    elif kind == "palette":
        picture = picture.convert("P")
    else:
        tags = pillow.Exif()
        tags[0x0112] = 6
        options = {"format": "JPEG", "exif": tags}
    stream = io.BytesIO()
    picture.save(stream, **options)
    image = read_image(stream.getvalue())
    found = propose(image, mode="fast")
    assert len(found) > 20
    assert (found <= [image.shape[1], image.shape[0]] * 2).all()
    if kind == "turned":
        assert image.shape[:2] == (picture.width, picture.height)


def test_wrong_pixels_are_one_sentence():
    for shape, kind in (((0, 5, 3), np.uint8), ((5, 5), np.uint8), ((5, 5, 4), np.uint8), ((5, 5, 3), np.uint16)):
        text = f"^`image` must be uint8 of shape \\(height, width, 3\\), got {np.dtype(kind)} "
        with pytest.raises(InputError, match=text):
            propose(np.zeros(shape, dtype=kind))


def test_lack_of_memory_skips_an_image(scenes):
    def read():
        raise MemoryError

    problems = []
    records = [replace(scenes[0], read=read, path="huge.png"), scenes[1]]
    assert len(list(propose_dataset(records, problems=problems, n_jobs=2, mode="single"))) == 1
    assert [str(p) for p in problems] == ["huge.png: there is not enough memory for it"]
