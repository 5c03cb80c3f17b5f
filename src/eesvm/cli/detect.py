"""`eesvm detect`: find objects in images, each with the training object that it looks like.

In: a model folder and images. Out: detections as CSV, COCO results or VOC text files.
"""

from __future__ import annotations

import argparse
import glob
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eesvm._support.amounts import counted, duration, enumeration
from eesvm._support.files import atomic_folder, check_output_file, check_output_folder, check_room
from eesvm._support.validation import InputError, check_image_name
from eesvm.cli.arguments import UsageError, judging_options
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.parsers.detect import OUTPUTS
from eesvm.cli.stages import n_images_given, report_problems, report_profile, stage_bar
from eesvm.datasets.coco import annotation_files
from eesvm.datasets.formats import detect_format
from eesvm.datasets.tree import is_image
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.class_calibration import check_calibrators
from eesvm.detector.detector import ExemplarDetector, named_apart
from eesvm.detector.options import AUTO
from eesvm.detector.suggestions import NothingSuggestedError, why_none
from eesvm.images.files import write_image
from eesvm.metrics.detection_files import (
    Ids,
    check_voc_names,
    coco_numbers,
    read_annotation_ids,
    write_coco_results,
    write_csv_detections,
    write_voc_detections,
)
from eesvm.metrics.searched_images import SEARCH_NAME, write_search
from eesvm.report.annotated import annotated
from eesvm.structures import Dataset, Detections, ImageRecord, Problem
from eesvm.transfer.choices import BOX_FORMATS, MASK_FORMATS
from eesvm.transfer.labelling_files import labelled_images, write_labels
from eesvm.transfer.refinement import mean_masks

_OWN_SCORE = "--score with a number leaves out what scores less"


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    started = time.perf_counter()
    formats = _formats(arguments)
    check_calibrator(arguments.calibrator)
    detector = ExemplarDetector.load(arguments.model)
    detector.options = _options(detector, arguments)
    suggested = suggested_scores(detector, arguments)
    sources = [open_images(name, arguments) for name in arguments.images]
    opening: list[Problem] = [problem for source in sources for problem in source.problems]
    problems = list(opening)
    records = together([record for source in sources for record in source], problems)
    ids = coco_ids(sources, arguments) if "coco" in formats else None
    _check_names(records, formats, detector, ids)
    try:
        with stage_bar(arguments.quiet) as progress:
            found = detector.predict(
                records,
                calibrator=arguments.calibrator,
                cache=None if arguments.no_cache else DescriptorCache(arguments.cache),
                progress=progress,
                problems=problems,
            )
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: interrupted: the same command finds the windows that are done in the cache\n")
        return 130
    if suggested is not None:
        found = [one.at_least(suggested) for one in found]
    if not found:
        raise InputError(f"none of the images can be looked at: {problems[-1]}")
    unreadable = _unreadable(records, found, problems)
    files = _write(found, records, unreadable, formats, detector, ids, arguments)
    total = time.perf_counter() - started
    _report(found, n_images_given(records, opening), total, screen)
    if suggested is not None:
        screen.note("least scores: " + ", ".join(f"{name} {least:.3g}" for name, least in suggested.items()))
        _note_unjudged(detector, suggested, arguments.calibrator, screen)
    most = detector.checked_options().detection.max_detections
    if arguments.score is None and most is not None and any(len(one) >= most for one in found):
        kept = f"the {most:,} best detections of an image are kept, however low they score"
        screen.note(f"{kept}: --score auto keeps those worth a look")
    report_problems(problems, screen)
    if unreadable and Path(arguments.output).suffix.lower() in (".csv", ".json"):
        screen.note(_not_listed(arguments.output, len(unreadable)))
    screen.say(f"\nwritten to {', '.join(files)}")
    if arguments.profile:
        report_profile(detector.seconds_, total, screen)
    return 0


def _formats(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What to write; refuses an output that could not be written before any work is done."""
    suffix = Path(arguments.output).suffix.lower()
    wanted = tuple(dict.fromkeys(arguments.format.split(","))) if arguments.format else ()
    for name in wanted:
        if name not in OUTPUTS:
            masks = ": `eesvm transfer` writes masks" if name in MASK_FORMATS else ""
            raise UsageError(f"--format must be some of {', '.join(OUTPUTS)}, joined by commas, got {name!r}{masks}")
    of_suffix = {".csv": "csv", ".json": "coco"}.get(suffix)
    if of_suffix is not None and arguments.draw:
        raise UsageError(f"{arguments.output} is one file: for --draw, name a folder")
    if of_suffix is None:
        check_output_folder(arguments.output, arguments.overwrite)
        check_room(arguments.output)
        return wanted or ("csv",)
    if wanted and wanted != (of_suffix,):
        raise UsageError(f"{arguments.output} holds {of_suffix} alone: for {arguments.format}, name a folder")
    check_output_file(arguments.output, arguments.overwrite)
    check_room(arguments.output)
    return (of_suffix,)


def check_calibrator(name: str | None) -> None:
    """Refuse a calibrator that no model has."""
    if name is not None:
        with judging_options():
            check_calibrators(name)


def _check_names(
    records: Sequence[ImageRecord], formats: Sequence[str], detector: ExemplarDetector, ids: Ids | None
) -> None:
    """Refuse names that the files to be written cannot hold, before any work is done."""
    if formats != ("coco",):  # JSON has a way to write any name, text files have not
        for record in records:
            check_image_name(record.image_id)
    if "voc" in formats:
        check_voc_names((record.image_id for record in records), detector.classes_)
    if ids is not None:
        numbers, _ = coco_numbers((), ids)
        for record in records:
            if record.image_id not in numbers:
                raise InputError(f"cannot write COCO results: the image {record.image_id!r} has no COCO id")


def suggested_scores(detector: ExemplarDetector, arguments: argparse.Namespace) -> dict[str, float] | None:
    """The least score of each class with --score auto, else None."""
    if arguments.score != AUTO:
        if arguments.precision is not None:
            raise UsageError("--precision needs --score auto")
        return None
    try:
        return detector.suggested_scores(arguments.calibrator, arguments.precision)
    except NothingSuggestedError as error:
        raise InputError(f"{error}; {_OWN_SCORE}") from None


def _note_unjudged(
    detector: ExemplarDetector, suggested: Mapping[str, float], calibrator: str | None, screen: Screen
) -> None:
    """Say of which classes --score auto leaves nothing out, why, and what would."""
    name = calibrator or detector.checked_options().calibration.calibrator
    whys: dict[str, list[str]] = {}
    for model in detector.models_:
        if model.class_name not in suggested:
            whys.setdefault(why_none(model, name), []).append(model.class_name)
    for why, classes in whys.items():
        screen.note(f"--score auto keeps every detection of {enumeration(classes)}, as {why}: {_OWN_SCORE}")


def _options(detector: ExemplarDetector, arguments: argparse.Namespace) -> Any:
    flags = {
        "detection.min_score": None if arguments.score == AUTO else arguments.score,
        "detection.max_detections": arguments.max_detections,
        "detection.nms": arguments.nms,
        "detection.box_regression": False if arguments.no_box_regression else None,
        "n_jobs": arguments.jobs,
    }
    changes = {name: value for name, value in flags.items() if value is not None}
    return detector.checked_options().changed(changes)


def open_images(name: str, arguments: argparse.Namespace) -> Dataset:
    """The images that one argument stands for."""
    if not glob.has_magic(name) or Path(name).exists():
        return _open_one(name, arguments)
    files = sorted(glob.glob(name, recursive=True))
    if not files:
        raise InputError(f"no file matches {name}")
    parts = [_open_one(file, arguments) for file in files if Path(file).is_file()]
    images = tuple(record for part in parts for record in part)
    return Dataset(name, images, (), {}, tuple(problem for part in parts for problem in part.problems))


def _open_one(name: str, arguments: argparse.Namespace) -> Dataset:
    if _is_photo(Path(name)):  # it may stand beside a dataset, and is of no split and no format
        return open_data(name, None, None, strict=False)
    return open_data(name, arguments.annotations, arguments.split, strict=False)


def _is_photo(path: Path) -> bool:
    return path.is_file() and is_image(path.name)


def together(records: Sequence[ImageRecord], problems: Sequence[Problem] = ()) -> list[ImageRecord]:
    """All images under different names: where two have the same, their paths are their names."""
    if not records:
        raise InputError(f"there are no images to look at{f': {problems[0]}' if problems else ''}")
    apart = named_apart(records)
    return list({record.image_id: record for record in apart}.values())  # a file that is named twice is one image


def _unreadable(
    records: Sequence[ImageRecord], found: Sequence[Detections], problems: Sequence[Problem]
) -> dict[str, str]:
    """Ids of the images that could not be looked at, and why; last those that could not even be opened."""
    seen, whys = {one.image_id for one in found}, {problem.path: problem.reason for problem in problems}
    left = {
        record.image_id: whys.get(record.path, whys.get(record.image_id, ""))
        for record in records
        if record.image_id not in seen
    }
    opened = {record.path for record in records}
    unopened = {
        one.image_id or Path(one.path).stem: one.reason
        for one in problems
        if one.kind == "image" and one.path not in opened
    }
    return left | {name: why for name, why in unopened.items() if name not in seen and name not in left}


def _not_listed(output: str, n: int) -> str:
    """What becomes of images that could not be read where the output is one file."""
    whose = "its" if n == 1 else "their"
    return (
        f"{output} does not list the {counted(n, 'image')} that could not be read; {whose} objects count as missed in "
        "`eesvm evaluate`: write to a folder to have them counted apart"
    )


def _write(
    found: Sequence[Detections],
    records: Sequence[ImageRecord],
    unreadable: Mapping[str, str],
    formats: Sequence[str],
    detector: ExemplarDetector,
    ids: Ids | None,
    arguments: argparse.Namespace,
) -> list[str]:
    out = Path(arguments.output)
    if out.suffix.lower() in (".csv", ".json"):
        _write_file(out, formats[0], found, detector, ids)
        return [str(out)]
    with atomic_folder(out, arguments.overwrite) as folder:
        for name in formats:
            if name == "voc":
                write_voc_detections(folder / "voc", found, detector.classes_)
            elif name in BOX_FORMATS:
                images = labelled_images(records, found, detector.exemplars_)
                write_labels(folder, name, images, detector.classes_, place=out)
            else:
                _write_file(folder / f"detections.{'csv' if name == 'csv' else 'json'}", name, found, detector, ids)
        if set(formats) - set(BOX_FORMATS):  # what `eesvm evaluate` reads
            write_search(folder / SEARCH_NAME, found, unreadable)
        if arguments.draw:
            _draw(found, records, detector, folder / "pictures")
        names = sorted(entry.name for entry in folder.iterdir())
    return [str(out / name) for name in names]


def _draw(
    found: Sequence[Detections], records: Sequence[ImageRecord], detector: ExemplarDetector, folder: Path
) -> None:
    """Each image with its detections, as JPEG."""
    means = mean_masks(detector.exemplars_)
    for image, own in zip(labelled_images(records, found, detector.exemplars_), found, strict=True):
        (folder / image.stem).parent.mkdir(parents=True, exist_ok=True)
        picture = annotated(image.record.read(), own, detector.exemplars_, detector.classes_, means)
        write_image(folder / f"{image.stem}.jpg", picture)


def _write_file(
    path: Path, kind: str, found: Sequence[Detections], detector: ExemplarDetector, ids: Ids | None
) -> None:
    if kind == "csv":
        write_csv_detections(path, found)
    else:  # the model may know classes that the images of a split do not show
        write_coco_results(path, found, ids, () if ids is None else detector.classes_)


def coco_ids(sources: Sequence[Dataset], arguments: argparse.Namespace) -> Ids | None:
    """The numbers that images have in the dataset they are from; where there is no such dataset, their own names."""
    root = Path(arguments.images[0])
    if len(sources) != 1 or not root.exists() or _is_photo(root):
        return None
    if (arguments.annotations or detect_format(root)) == "coco":
        return read_annotation_ids(annotation_files(root, arguments.split))
    return sources[0] if sources[0].classes else None


def _report(found: Sequence[Detections], n_given: int, total: float, screen: Screen) -> None:
    counts: Counter[str] = Counter(name for one in found for name in one.class_names.tolist())
    per_image = total / max(1, len(found))
    facts = [
        ("images", f"{len(found):,} of {n_given:,}"),
        ("detections", f"{sum(counts.values()):,}"),
        ("time", f"{duration(total)}, {per_image:.2f} s an image"),
    ]
    screen.facts(facts)
    if counts:
        screen.say()
        screen.table(("class", "detections"), [[name, f"{n:,}"] for name, n in counts.most_common()])
