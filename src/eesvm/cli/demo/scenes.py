"""`eesvm demo`: the whole road on the embedded scenes, from pixels to detections with their reasons.

In: a folder to write. Out: that folder: the model, detections, tables, pictures, and a report to open in a browser.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eesvm._support.figures import save_png
from eesvm._support.files import atomic_folder, atomic_write, write_csv
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.cli.console import Screen
from eesvm.cli.demo.scenes_report import (
    SHARED,
    TABLE_HEADER,
    TITLE,
    Judged,
    introduction,
    reading,
    search_table,
    sections,
    table_rows,
)
from eesvm.cli.stages import report_profile, stage_bar, timed
from eesvm.datasets import select
from eesvm.datasets.scenes import make_scenes
from eesvm.descriptors import DescriptorCache
from eesvm.descriptors.base import Descriptor
from eesvm.detector.class_calibration import STORED_AS, own_scales_only
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import StageProgress, describe_windows, propose_windows
from eesvm.experiments.tables.detections import PAPER_RULES, Hit, Rule, RuleResult, judge_rules, transfer_choices
from eesvm.images.files import write_image
from eesvm.metrics import break_down_errors, evaluate_detections
from eesvm.metrics.detection_files import write_detections
from eesvm.report.figures import detection_curves
from eesvm.report.gather import gather
from eesvm.report.page import render
from eesvm.report.transfer_pictures import grid, panel, superimposed
from eesvm.structures import Dataset, Detections, ExemplarAnnotation
from eesvm.transfer.quality import TransferQuality

_SECONDS = 8.0  # for the search of each class
_FLOOR_SECONDS = 0.1  # for each lower recall floor
_PER_CLASS = 4  # pictures


def run(output: str, overwrite: bool, screen: Screen, quiet: bool) -> None:
    show(
        make_scenes(),
        DetectorOptions.make(changes={"calibration.time_limit": _SECONDS}),
        output,
        overwrite,
        screen,
        quiet,
    )


def show(
    scenes: Dataset, options: DetectorOptions, output: str, overwrite: bool, screen: Screen, quiet: bool = False
) -> None:
    """Train on the split "train" of the scenes, search the split "test", and write what came of it."""
    started = time.perf_counter()
    train, test = select(scenes, split="train"), select(scenes, split="test")
    screen.say(introduction(train, test))
    detector = ExemplarDetector(options)
    with tempfile.TemporaryDirectory(prefix="eesvm-demo-") as kept, stage_bar(quiet) as progress:
        cache = DescriptorCache(kept)
        detector.fit(train, calibrators="all", cache=cache, progress=progress)
        seconds = dict(detector.seconds_)
        with timed(seconds, "detection in the test scenes"):
            detections = detector.predict(test, cache=cache, progress=progress)
        with timed(seconds, "comparison of calibrators"):
            judged = _judge(detector, train, test, detections, cache, progress)
    screen.say()
    screen.table(TABLE_HEADER, table_rows(judged.results))
    screen.say()
    screen.say(reading(judged.results))
    screen.say()
    screen.table(*search_table(judged.results))
    with atomic_folder(output, overwrite) as folder:
        with timed(seconds, "model, tables and pictures"):
            _write(folder, detector, test, judged)
        with timed(seconds, "report with recall floors"):
            _write_report(folder, detector, test, judged)
    total = time.perf_counter() - started
    report_profile(seconds, total, screen)
    screen.say(f"\nDone in {total:.0f} s. Open {Path(output, 'report.html')} in a browser.")
    screen.say(f"Next: eesvm detect {Path(output, 'model')} YOUR_IMAGES -o found")
    screen.say("or eesvm train YOUR_DATA -o model; eesvm train --help says what data should look like.")


def _judge(
    detector: ExemplarDetector,
    train: Dataset,
    test: Dataset,
    detections: Sequence[Detections],
    cache: DescriptorCache,
    progress: StageProgress | None,
) -> Judged:
    """Every calibration on the test scenes, and what the winners transfer."""
    options = detector.checked_options()
    proposed = list(propose_windows(test, options.windows, options.n_jobs, False, cache))
    windows = describe_windows(test, proposed, detector.descriptor_, cache=cache, progress=progress)
    results: dict[str, list[RuleResult]] = {}
    transfers: list[TransferQuality] = []
    rules = (*PAPER_RULES, Rule(SHARED, options.calibration.calibrator))
    for model in detector.models_:
        calibrator_of = partial(_calibrator_of, model)
        found = judge_rules(
            windows,
            model.class_name,
            model.exemplars,
            model.single,
            calibrator_of,
            options,
            rules,
            regressor=model.regressor,
        )
        results[model.class_name] = found
        best = found[-1]
        described = _describe(model.annotations, train, detector.descriptor_)
        transfers.append(transfer_choices(windows, model.exemplars, described, model.annotations, best))
    return Judged(
        results=results,
        transfers=transfers,
        detections=detections,
        report=evaluate_detections(test, detections),
        errors=break_down_errors(test, detections),
    )


def _calibrator_of(model: ClassModel, rule: Rule) -> ScoreCalibrator:
    """As the detector uses it in its own row; as the paper has it, with scales of each exemplar, in the others."""
    calibrator = model.calibrators[STORED_AS[rule.calibrator]]
    return calibrator if rule.name == SHARED else own_scales_only(calibrator)


def _describe(
    annotations: Sequence[ExemplarAnnotation], dataset: Dataset, descriptor: Descriptor
) -> NDArray[np.float32]:
    """(E, d) the exemplars' own windows."""
    records = {record.image_id: record for record in dataset}
    return np.concatenate([descriptor.describe(records[one.image_id].read(), one.box[None]) for one in annotations])


def _write(folder: Path, detector: ExemplarDetector, test: Dataset, judged: Judged) -> None:
    detector.save(folder / "model")
    write_detections(folder / "detections.csv", judged.detections)
    write_csv(folder / "tables.csv", [TABLE_HEADER, *table_rows(judged.results)])
    write_csv(folder / "evaluation.csv", judged.report.to_csv_rows())
    write_csv(folder / "errors.csv", judged.errors.to_csv_rows())
    save_png(detection_curves(judged.report), folder / "precision_recall.png")
    records = {record.image_id: record for record in test}
    looks, panels, captions = [], [], []
    for model in detector.models_:
        for hit in _shown_hits(judged.results[model.class_name]):
            image = records[hit.instance.image_id].read()
            exemplar = model.annotations[hit.exemplars[0]]
            looks.append(superimposed(image, hit.box, exemplar, height=150))
            panels.append(panel(image, hit.box, exemplar, height=110))
            captions.append(f"{model.class_name}, by\n{exemplar.name}")
    write_image(folder / "transfer.png", grid(looks, columns=_PER_CLASS, height=150, captions=captions))
    write_image(folder / "panels.png", grid(panels, columns=2, height=110, captions=captions))


def _write_report(folder: Path, detector: ExemplarDetector, test: Dataset, judged: Judged) -> None:
    data = gather(
        detector,
        test,
        judged.detections,
        title=TITLE,
        frontier_seconds=_FLOOR_SECONDS,
        sections=sections(folder, judged),
    )
    with atomic_write(folder / "report.html", text=True) as handle:
        handle.write(render(data))


def _shown_hits(results: Sequence[RuleResult]) -> list[Hit]:
    """Hits of different exemplars, spread over all that were found."""
    hits = results[-1].hits
    first = {hit.exemplars[0]: hit for hit in reversed(hits)}
    different = [first[exemplar] for exemplar in sorted(first)]
    places = np.linspace(0, len(different) - 1, min(_PER_CLASS, len(different))).round().astype(int)
    return [different[k] for k in places]
