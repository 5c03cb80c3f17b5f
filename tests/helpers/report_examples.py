"""Reports that several tests look at: one of a small model, one with hostile names, one that is large."""

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from eesvm.metrics import ERROR_KINDS
from eesvm.report.data import (
    ACTIVE,
    REDUNDANT,
    RIGHT,
    Class,
    Coverage,
    Curve,
    Exemplar,
    Fact,
    Floor,
    Histogram,
    Missed,
    Object,
    ReportData,
    Scene,
    Search,
    Section,
    ShownDetection,
)
from eesvm.report.gather import EXEMPLAR_BYTES, gather
from eesvm.report.page import render
from eesvm.report.pictures import fitted_jpeg, share
from eesvm.report.scenes import SCENE_BYTES
from helpers.detector_scenes import detections, quick_options, scenes, trained

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&amp;<!-- \u2028"


@cache
def small_model():
    """A detector of two classes, with the joint calibration searched for."""
    return trained(quick_options(calibration__method="exact", calibration__time_limit=0.5))


@cache
def small_detections():
    return detections(small_model(), "joint-sigmoid")


@cache
def small_report():
    """Of the small model on its test scenes."""
    return gather(small_model(), scenes("test"), small_detections(), max_detections=120, frontier_seconds=0.0)


@cache
def selective_report():
    """Of a model with a recall floor and a least score: it misses objects, and has exemplars without a part in it."""
    search = {"calibration__method": "exact", "calibration__time_limit": 0.5, "calibration__min_recall": 0.9}
    before = {"training__C": 1e-3, "training__single_loss": "hinge", "calibration__shrink": None}
    model = trained(quick_options(**search, **before, detection__min_score=0.1))
    return gather(model, scenes("test"), detections(model, "joint-sigmoid"), max_detections=120, frontier_seconds=0.0)


@cache
def page_of(make):
    """The address of the page that shows what `make` gives."""
    folder = Path(tempfile.mkdtemp(prefix="eesvm-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "report.html"
    path.write_text(render(make()), encoding="utf-8")
    return path.as_uri()


@cache
def hostile_report():
    """The small report in which every text that comes from data is an attack."""
    data = small_report()
    names = [f"{HOSTILE}{k}" for k in range(len(data.classes))]
    old = {each.name: name for each, name in zip(data.classes, names, strict=True)}
    return replace(
        data,
        title=HOSTILE,
        headline=HOSTILE,
        footer=HOSTILE,
        notes=(HOSTILE,),
        facts=(Fact(HOSTILE, HOSTILE, HOSTILE),),
        options=((HOSTILE, HOSTILE),),
        classes=tuple(replace(each, name=name) for each, name in zip(data.classes, names, strict=True)),
        exemplars=tuple(
            replace(
                each, image_id=HOSTILE, index=k, labels=((HOSTILE, HOSTILE),), parts=((HOSTILE, (0.1, 0.1, 0.9, 0.5)),)
            )
            for k, each in enumerate(data.exemplars)
        ),
        scenes=tuple(
            replace(
                each,
                image_id=HOSTILE,
                objects=tuple(replace(one, class_name=old.get(one.class_name, HOSTILE)) for one in each.objects),
            )
            for each in data.scenes
        ),
        sections=(Section(HOSTILE, (HOSTILE,)),),
    )


def photographs(n, width=500, height=375, seed=0):
    """Pictures with the size and about the detail of photographs."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        fine = rng.normal(0, 12, (height, width, 3))
        coarse = rng.integers(0, 256, (height // 25, width // 25, 3)).repeat(25, axis=0).repeat(25, axis=1)
        yield (coarse[:height, :width] + fine).clip(0, 255).astype(np.uint8)


@cache
def large_report(n_detections=500, n_scenes=500, n_exemplars=2000):
    """As many detections and exemplars as a page must bear, each with a picture of its own size of a photograph."""
    rng = np.random.default_rng(0)
    scene_images = [fitted_jpeg(pixels, share(SCENE_BYTES, n_scenes)) for pixels in photographs(20)]
    pictures = [fitted_jpeg(p, share(EXEMPLAR_BYTES, n_exemplars)) for p in photographs(20, 200, 150, seed=1)]
    images = [scene_images[k % 20] for k in range(n_scenes)] + [pictures[k % 20] for k in range(n_exemplars)]
    objects = (Object("thing", (50, 50, 200, 200), True), Object("other", (250, 60, 400, 300), True))
    kinds = (RIGHT, *ERROR_KINDS)
    bars = Histogram(-2.0, 1.0, tuple(range(40)), tuple(range(1000, 0, -25)))
    return ReportData(
        title="Five hundred detections by two thousand exemplars",
        headline="Made up, to see whether the page bears it.",
        facts=(Fact("mean average precision", "50.0 %"),),
        has_truth=True,
        classes=tuple(_large_class(name, n_exemplars // 2) for name in ("thing", "other")),
        exemplars=tuple(
            Exemplar(
                class_id=k % 2,
                image_id=f"train_{k:04d}",
                index=0,
                width=200,
                height=150,
                image=n_scenes + k,
                outline="M0 40l40 -40 40 40 -40 40z",
                outline_size=(80, 80),
                state=REDUNDANT if k % 4 == 0 else ACTIVE,
                threshold=None if k % 4 == 0 else -0.5,
                scores=bars,
                coverage=Coverage(k % 30, 2 * (k % 30), 10, 3, tuple((j % n_exemplars, 2) for j in range(k, k + 9))),
                n_windows=9,
                n_detections=3,
                n_right=1,
                n_wrong=1,
            )
            for k in range(n_exemplars)
        ),
        scenes=tuple(Scene(f"test_{k:04d}", 500, 375, k, objects) for k in range(n_scenes)),
        detections=tuple(
            ShownDetection(
                scene=k % n_scenes,
                class_id=k % 2,
                score=1 - k / n_detections,
                box=(*rng.integers(0, 200, 2).tolist(), *rng.integers(210, 370, 2).tolist()),
                exemplar=int(rng.integers(n_exemplars)),
                kind=kinds[k % 5],
                iou=0.6,
                object=k % 2,
                is_surest=k < 100,
            )
            for k in range(n_detections)
        ),
        n_detections=n_detections,
        missed=tuple(Missed(k % n_scenes, k % 2, k % 2, 0.3) for k in range(200)),
        n_missed=200,
        images=tuple(images),
    )


def _large_class(name, n_exemplars):
    recall = tuple((np.arange(400) / 500).tolist())
    precision = tuple((1 - np.arange(400) / 800).tolist())
    score = tuple((1 - np.arange(400) / 400).tolist())
    search = Search(900, 880, 0.02, "time_limit", 1.0, 1.0, True, 10.0, 50, 4000, 50000, n_exemplars // 4,
                    ((0.1, 1000.0, 200.0), (1.0, 900.0, 800.0), (9.0, 900.0, 880.0)),
                    (Floor(1.0, 900, 880, 0, "time_limit"), Floor(0.9, 200, 150, 400, "time_limit")))  # fmt: skip
    return Class(
        name, n_exemplars, 250, 500, 400, 0.5, Curve(score, recall, precision, tuple(range(400))), search=search
    )
