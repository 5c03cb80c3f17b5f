"""`eesvm evaluate`: how good detections are, and what is wrong with those that are not.

In: a file of detections and the dataset that they are of. Out: average precision per class and the kinds of errors on
the screen; if wanted, a folder with tables, precision-recall curves, and lists of false positives and missed objects.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, Self

from eesvm._support.amounts import counted
from eesvm._support.extras import MissingPackageError
from eesvm._support.figures import save_png
from eesvm._support.files import atomic_folder, atomic_write, check_output_folder, write_csv
from eesvm._support.validation import InputError
from eesvm.cli.arguments import UsageError
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.parsers.evaluate import EVERY
from eesvm.datasets.coco import annotation_files
from eesvm.datasets.formats import detect_format
from eesvm.metrics import (
    PROTOCOLS,
    DetectionReport,
    ErrorBreakdown,
    FalsePositive,
    MissedObject,
    break_down_errors,
    evaluate_detections,
)
from eesvm.metrics.detection_files import locate_detections, read_annotation_ids, read_detections
from eesvm.metrics.searched_images import SEARCH_NAME, Search, read_search
from eesvm.report.figures import detection_curves
from eesvm.structures import Dataset, Detections, ImageRecord


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet or arguments.json)
    if arguments.intervals and arguments.protocol == "coco":
        raise UsageError("--intervals is not for --protocol coco: intervals are made for VOC and ILSVRC")
    if arguments.output is not None:
        check_output_folder(arguments.output, arguments.overwrite)
    place = locate_detections(arguments.detections)
    truth, ids = _open(arguments, place)
    detections = read_detections(place, ids)
    if place != Path(arguments.detections):
        screen.note(f"of the folder {arguments.detections}, {place} is read")
    truth, detections = _judged(truth, detections, screen)
    classes = arguments.classes.split(",") if arguments.classes else None
    reports = _evaluate(truth, detections, classes, arguments, screen)
    if not reports[0].n_objects:
        raise InputError(f"{arguments.data} has no object that must be found, so average precision means nothing")
    errors = break_down_errors(
        truth,
        detections,
        protocol="ilsvrc" if arguments.protocol == "ilsvrc" else "voc10",
        iou=arguments.iou or 0.5,
        classes=classes,
    )
    _print(truth, reports, errors, screen)
    judged, search = [each.class_name for each in reports[0].classes], read_search(place)
    is_known = search is not None and search.searched.issuperset(one.image_id for one in detections)
    unseen = _Unseen.of(truth, search, judged) if search is not None and is_known else None
    if unseen is not None:
        for note in unseen.notes(len(truth)):
            screen.note(note)
    elif arguments.split is not None or not _note_empty_images(truth, detections, screen):
        _note_unsearched_images(truth, detections, judged, place, screen)
    if arguments.json:
        _print_json(reports, errors, unseen)
    if arguments.output is not None:
        with atomic_folder(arguments.output, arguments.overwrite) as folder:
            _write(folder, reports, errors, [] if unseen is None else unseen.notes(len(truth)))
            names = sorted(path.name for path in folder.iterdir())
        screen.say(f"written to {arguments.output}: {', '.join(names)}")
    return 0


def _open(arguments: argparse.Namespace, detections: Path) -> tuple[Dataset, dict[str, Any] | None]:
    """The truth, and of COCO data the ids by which results speak of images and categories."""
    root = Path(arguments.data)
    format = arguments.annotations or (detect_format(root) if root.exists() else None)
    truth = open_data(arguments.data, format, arguments.split, arguments.strict, arguments.unlabelled)
    if not root.exists() or format != "coco" or detections.suffix.lower() != ".json":
        return truth, None
    return truth, read_annotation_ids(annotation_files(root, arguments.split))


def _judged(truth: Dataset, detections: list[Detections], screen: Screen) -> tuple[Dataset, list[Detections]]:
    """Both without the images that nobody has annotated: a detection there is neither right nor wrong."""
    known = truth.annotated()
    left_out = {record.image_id for record in truth} - {record.image_id for record in known}
    if left_out:
        are = "is" if len(left_out) == 1 else "are"
        screen.note(f"{counted(len(left_out), 'image')} without annotation {are} not judged")
    return known, [found for found in detections if found.image_id not in left_out]


def _evaluate(
    truth: Dataset, detections: list[Any], classes: list[str] | None, arguments: argparse.Namespace, screen: Screen
) -> list[DetectionReport]:
    """One report per protocol; where every one is wanted, COCO's only if its package is there."""
    wanted = PROTOCOLS if arguments.protocol == EVERY else (arguments.protocol,)
    reports = []
    for protocol in wanted:
        is_extra = arguments.protocol == EVERY and protocol == "coco"
        try:
            report = evaluate_detections(
                truth,
                detections,
                protocol=protocol,
                iou=arguments.iou,
                classes=classes,
                n_resamples=0 if is_extra else arguments.intervals,
                random_state=arguments.random_state,
            )
        except MissingPackageError as error:
            if not is_extra:
                raise
            screen.note(f"coco is left out: {error}")
            continue
        reports.append(report)
    return reports


def _print(truth: Dataset, reports: list[DetectionReport], errors: ErrorBreakdown, screen: Screen) -> None:
    screen.say(truth.name, "bold")
    for report in reports:
        screen.say(report.headline())
        screen.table(*report.to_table())
        screen.say()
    screen.say(f"errors among the N best-scoring detections of a class with N objects, IoU {errors.iou:g}")
    screen.table(*errors.to_table())
    if truth.problems:
        n = len(truth.problems)
        screen.note(f"the annotations have {n:,} problem{'s' * (n > 1)}: see `eesvm data info`")


def _splits(truth: Dataset) -> dict[str, set[str]]:
    """Not the halves "test=1" and "test=-1" of a list of one class: what they hold was chosen by what it shows."""
    return {name: set(ids) for name, ids in truth.splits.items() if "=" not in name}


def _home(truth: Dataset, ids: Set[str]) -> str | None:
    """The smallest split that has all of these images, but not all of the dataset; of equal ones the shortest name."""
    known, splits = {record.image_id for record in truth}, _splits(truth)
    homes = [name for name, own in splits.items() if ids <= own and not known <= own]
    return min(homes, key=lambda name: (len(splits[name]), len(name), name), default=None)


def _note_empty_images(truth: Dataset, detections: list[Detections], screen: Screen) -> bool:
    """Without --split every object of the other splits counts as missed: say so, and whether it was."""
    known = {record.image_id for record in truth}
    seen = {found.image_id for found in detections if len(found)}
    home = _home(truth, seen) if seen else None
    if home is None and (not _splits(truth) or 2 * len(seen) > len(known)):
        return False
    text = f"{len(known - seen):,} of {len(known):,} images have no detections, and their objects count as missed"
    if home is not None:
        text += f": all detections are in the split {home}; if only that was searched, add --split {home}"
    else:
        text += ": if only one split was searched, choose it by --split"
    screen.note(text)
    return True


def _note_unsearched_images(
    truth: Dataset, detections: list[Detections], classes: Sequence[str], place: Path, screen: Screen
) -> None:
    """Where most images with objects have no detection of any class, they may never have been searched."""
    seen = {found.image_id for found in detections if len(found)}
    wanted = [record.image_id for record in truth if any(each.class_name in classes for each in record.instances)]
    n_unseen = sum(image_id not in seen for image_id in wanted)
    if 2 * n_unseen > len(wanted):
        screen.note(
            f"{n_unseen:,} of {len(wanted):,} images with objects have no detections at all in {place}, and their "
            "objects count as missed: if they were not searched, average precision says little"
        )


class _Unseen(NamedTuple):
    """Images that the detector has not looked at, and how many objects in them count as missed."""

    n_unreadable: int
    n_objects_unreadable: int
    n_not_given: int
    n_objects_not_given: int
    home: str | None  # the smallest split that has all images which the detector was given

    @classmethod
    def of(cls, truth: Dataset, search: Search, classes: Sequence[str]) -> Self:
        unread = [record for record in truth if record.image_id in search.unreadable]
        given = search.searched | search.unreadable
        others = [record for record in truth if record.image_id not in given]
        n_unread, n_others = _n_judged(unread, classes), _n_judged(others, classes)
        return cls(len(unread), n_unread, len(others), n_others, _home(truth, given))

    def notes(self, n_images: int) -> list[str]:
        """In words; nothing where no object is concerned."""
        found = []
        if self.n_objects_unreadable:
            found.append(
                f"{counted(self.n_objects_unreadable, 'object')} in {counted(self.n_unreadable, 'image')} that `eesvm "
                f"detect` could not read count{'s' * (self.n_objects_unreadable == 1)} as missed: see {SEARCH_NAME} "
                "beside the detections"
            )
        if self.n_objects_not_given:
            split = "choose the split" if self.home is None else f"add --split {self.home}, the one"
            found.append(
                f"{counted(self.n_objects_not_given, 'object')} in {self.n_not_given:,} of {n_images:,} images that "
                f"`eesvm detect` was not given count{'s' * (self.n_objects_not_given == 1)} as missed: if they are not "
                f"meant, {split} that was searched"
            )
        return found

    def as_dict(self) -> dict[str, int]:
        return {name: value for name, value in self._asdict().items() if name != "home"}


def _n_judged(records: Iterable[ImageRecord], classes: Sequence[str]) -> int:
    """How many objects in these images have to be found."""
    wanted = set(classes)
    return sum(
        one.class_name in wanted and not (one.is_difficult or one.is_crowd)
        for record in records
        for one in record.instances
    )


def _print_json(reports: list[DetectionReport], errors: ErrorBreakdown, unseen: _Unseen | None) -> None:
    header, *rows = errors.to_csv_rows()
    document: dict[str, Any] = {
        "reports": [report.as_dict() for report in reports],
        "errors": [dict(zip(header, row, strict=True)) for row in rows],
    }
    if unseen is not None:
        document["unseen"] = unseen.as_dict()
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _write(folder: Path, reports: list[DetectionReport], errors: ErrorBreakdown, notes: Sequence[str]) -> None:
    for report in reports:
        write_csv(folder / f"{report.protocol}.csv", report.to_csv_rows())
        save_png(detection_curves(report), folder / f"precision_recall_{report.protocol}.png")
    with atomic_write(folder / "evaluation.md", text=True) as handle:
        remarks = [f"{note[0].upper()}{note[1:]}.\n" for note in notes]
        handle.write("\n".join([*(report.to_markdown() for report in reports), errors.to_markdown(), *remarks]))
    write_csv(folder / "errors.csv", errors.to_csv_rows())
    write_csv(folder / "false_positives.csv", [FalsePositive._fields, *errors.false_positives])
    write_csv(folder / "missed_objects.csv", [MissedObject._fields, *errors.missed])
