"""`eesvm transfer`: what is known of the winning exemplars, carried onto detections.

In: a model folder, detections that it made, and their images. Out: a folder with the annotations as COCO file, pictures
as figure 7 of the paper, on request masks and VOC files, and, where the images are annotated themselves, a table of how
good the annotations are.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.amounts import counted
from eesvm._support.files import atomic_folder, atomic_write, check_output_folder, write_csv
from eesvm._support.validation import InputError
from eesvm.cli import detect
from eesvm.cli.arguments import UsageError
from eesvm.cli.console import Screen
from eesvm.cli.stages import report_problems, stage_bar
from eesvm.detector.consensus import classes_with_moved_boxes, with_consensus
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.training_table import StageProgress
from eesvm.images.files import write_image, write_picture
from eesvm.metrics.detection_files import read_detections
from eesvm.report.transfer_pictures import grid, is_drawn, pair, panel, superimposed
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord, Problem
from eesvm.transfer.choices import MASK_FORMATS
from eesvm.transfer.detections import (
    ImageDetections,
    choose_detections,
    hand_on,
    measure_transfer,
    pixels_of,
    why_nothing_compared,
)
from eesvm.transfer.files import (
    MOST_MASKS,
    CocoNames,
    Handed,
    coco_names,
    file_stem,
    handed_labels,
    index_image,
    voc_xml,
    write_coco_transfer,
)
from eesvm.transfer.inheritance import TransferredAnnotation
from eesvm.transfer.labelling_files import LabelledImage, labelled_images, write_labels
from eesvm.transfer.quality import TransferQuality
from eesvm.transfer.refinement import Means, mean_masks

_HANDED = ("mask", "parts", "keypoints", "pose", "metadata")
_SHEET, _SHEET_COLUMNS, _SHEET_HEIGHT, _SHEET_WIDTH = "contact_sheet.png", 4, 176, 240  # the last two of a picture
_SHEET_TITLE = (
    "Detections in green, what they inherit in yellow; beside each the exemplar that won it. Numbered as in pictures/."
)
_WINNERS_SHOWN = (
    "pictures lay the winning exemplars over detections; outlined, and in pictures/*_panel.png, is the outcome of votes"
)


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    if arguments.calibrator is not None and arguments.consensus is None:
        raise UsageError("--calibrator is for --consensus alone: winners are read from the file of detections")
    detect.check_calibrator(arguments.calibrator)
    formats = _formats(arguments.format)
    check_output_folder(arguments.output, arguments.overwrite)
    detector = ExemplarDetector.load(arguments.model)
    sources = [detect.open_images(name, arguments) for name in arguments.images]
    ids = detect.coco_ids(sources, arguments)
    found = _read(arguments, ids)
    with stage_bar(arguments.quiet) as progress:
        job = _Job(arguments, detector.exemplars_, progress, classes_with_moved_boxes(detector))
        job.problems.extend(problem for source in sources for problem in source.problems)
        job.chosen = _choose(job, found, detect.together([record for source in sources for record in source]))
        if arguments.consensus is not None:
            job.chosen = with_consensus(
                job.chosen,
                detector,
                arguments.consensus,
                calibrator=arguments.calibrator,
                progress=job.stage("describing images"),
                problems=job.problems,
            )
        job.names = coco_names([one.record for one in job.chosen], job.exemplars, ids)
        with atomic_folder(arguments.output, arguments.overwrite) as folder:
            text = f"{arguments.detections}, annotations transferred by {arguments.model}"
            write_coco_transfer(folder / "annotations.json", _handed(job, folder), job.exemplars, job.names, text)
            for name in formats:
                write_labels(folder, name, _labelled(job), detector.classes_, place=arguments.output)
            _draw(job, folder)
            quality = None if arguments.no_quality else _measure(job, folder)
            written = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    _report(job, found, quality, screen)
    report_problems(job.problems, screen)
    screen.say(f"\nwritten to {arguments.output}: {', '.join(written)}")
    if job.has_sheet:
        screen.say(f"look at {Path(arguments.output) / _SHEET} first")
    return 0


@dataclass
class _Job:
    """What the steps share."""

    arguments: argparse.Namespace
    exemplars: Sequence[ExemplarAnnotation]
    progress: StageProgress | None
    moved: set[str]  # classes whose boxes are elsewhere than the windows that the winners won
    problems: list[Problem] = field(default_factory=list)
    chosen: list[ImageDetections] = field(default_factory=list)
    names: CocoNames = field(default_factory=lambda: CocoNames({}, {}, {}, {}))
    counts: Counter[str] = field(default_factory=Counter)  # of annotations that have each thing
    has_sheet: bool = False

    @cached_property
    def means(self) -> Means | None:
        return mean_masks(self.exemplars) if self.arguments.refine else None

    def stage(self, name: str) -> Callable[[int, int], object] | None:
        return None if self.progress is None else partial(self.progress, name)


def _read(arguments: argparse.Namespace, ids: Any) -> list[Detections]:
    """The detections, which must name exemplars."""
    found = read_detections(arguments.detections, ids)
    if not found:
        raise InputError(f"{arguments.detections} holds no detections")
    if not any((one.exemplars >= 0).any() for one in found):
        raise InputError(
            f"{arguments.detections} does not say which exemplars won: VOC text files, detections of the single SVM "
            "and those of other detectors do not"
        )
    return found


def _choose(job: _Job, found: Sequence[Detections], records: Sequence[ImageRecord]) -> list[ImageDetections]:
    """What is left of the detections, which must be something."""
    arguments = job.arguments
    known = {record.image_id for record in records}
    if not any(one.image_id in known for one in found):
        raise InputError(
            f"none of the images of {arguments.detections} is among {' '.join(arguments.images)}: "
            f"there is no {found[0].image_id}, but {records[0].image_id}"
        )
    chosen = choose_detections(
        job.exemplars, found, records, min_score=arguments.score, top=arguments.top, problems=job.problems
    )
    if not chosen:
        best = max(float(one.scores.max()) for one in found)
        if arguments.score is not None and best < arguments.score:
            raise InputError(f"no detection is left: the best scores {best:g}, less than {arguments.score:g}")
        raise InputError(f"no detection is left: {job.problems[-1] if job.problems else 'none names an exemplar'}")
    return chosen


def _handed(job: _Job, folder: Path) -> Iterator[Handed]:
    """Image by image what is transferred, counted, and its masks and XML written where they are wanted."""
    progress = job.stage("annotations")
    for done, image in enumerate(job.chosen):
        if progress is not None:
            progress(done, len(job.chosen))
        pixels = pixels_of(image.record, job.problems) if job.arguments.refine else None
        annotations = hand_on(job.exemplars, image, pixels, job.means)
        for annotation in annotations:
            job.counts.update(_things(annotation))
        stem = file_stem(image.record.image_id, job.names)
        picture = index_image(image.record, annotations) if job.arguments.masks else None
        if picture is not None:
            write_picture(_made(folder / "masks" / f"{stem}.png"), picture)
        if job.arguments.voc:
            text = voc_xml(image, annotations, job.exemplars, Path(job.names.files[image.record.image_id]).name)
            _made(folder / "voc" / f"{stem}.xml").write_text(text, encoding="utf-8")
        yield image, annotations


def _formats(given: str | None) -> tuple[str, ...]:
    """Names of formats, each once."""
    wanted = tuple(dict.fromkeys(given.split(","))) if given else ()
    for name in wanted:
        if name not in MASK_FORMATS:
            raise UsageError(f"--format must be some of {', '.join(MASK_FORMATS)}, joined by commas, got {name!r}")
    return wanted


def _labelled(job: _Job) -> Iterator[LabelledImage]:
    """The images as other tools want them, transferred again one by one: their masks are never in memory together."""
    records, found = [one.record for one in job.chosen], [one.detections for one in job.chosen]
    pixels = (pixels_of(record, []) if job.arguments.refine else None for record in records)
    handed = (hand_on(job.exemplars, one, seen, job.means) for one, seen in zip(job.chosen, pixels, strict=True))
    return labelled_images(records, found, job.exemplars, handed)


def _draw(job: _Job, folder: Path) -> None:
    """The best detections, each with its exemplar laid over it and side by side; on one sheet beside it."""
    progress = job.stage("pictures")
    places = [(k, row) for k, one in enumerate(job.chosen) for row in range(len(one.detections))]
    scores = np.concatenate([one.detections.scores for one in job.chosen])
    best = np.argsort(-scores, kind="stable")[: job.arguments.pictures]
    ranks = {places[place]: rank for rank, place in enumerate(best.tolist(), start=1)}
    drawn: dict[int, tuple[NDArray[np.uint8], str]] = {}
    for k in sorted({k for k, _ in ranks}):
        image = job.chosen[k]
        pixels = pixels_of(image.record, None if job.arguments.refine else job.problems)
        if pixels is None:
            continue
        handed = hand_on(job.exemplars, image, pixels if job.arguments.refine else None, job.means)
        for row in (row for other, row in ranks if other == k):
            drawn[ranks[k, row]] = _draw_one(job, folder / "pictures", ranks[k, row], pixels, image, row, handed[row])
            if progress is not None:
                progress(len(drawn), len(ranks))
    if drawn:
        pictures, captions = zip(*(drawn[rank] for rank in sorted(drawn)), strict=True)
        votes = (
            ""
            if job.arguments.consensus is None
            else "\nWhat they inherit is by vote; beside them is the winner alone."
        )
        sheet = grid(pictures, _SHEET_COLUMNS, _SHEET_HEIGHT, captions, _SHEET_TITLE + votes, min_width=_SHEET_WIDTH)
        write_image(folder / _SHEET, sheet)
        job.has_sheet = True


def _draw_one(
    job: _Job,
    folder: Path,
    rank: int,
    pixels: NDArray[np.uint8],
    image: ImageDetections,
    row: int,
    handed: TransferredAnnotation,
) -> tuple[NDArray[np.uint8], str]:
    """Write both pictures of a detection; returns the one for the sheet and the text below it."""
    (found,) = image.detections[row]
    winner = job.exemplars[found.exemplar]
    text = f"{found.class_name} {_score_text(found.score)}"
    origin = f"#{found.exemplar} {winner.name}"
    laid = superimposed(pixels, found.box, winner, transferred=handed)
    captions = (f"{found.image_id}\n{text}", f"winning exemplar\n{origin}", handed_text(image, row, handed))
    beside = panel(pixels, found.box, winner, handed, captions=captions)
    write_image(_made(folder / f"{rank:04d}.png"), laid)
    write_image(folder / f"{rank:04d}_panel.png", beside)
    return pair(pixels, found.box, winner, handed, height=_SHEET_HEIGHT), f"{rank}: {text}\n{origin}"


def _score_text(score: float) -> str:
    """Three digits, or four where three would make a 1 of what is less."""
    for text in (f"{score:.3g}", f"{score:.4g}"):
        if score >= 1 or float(text) != 1:
            return text
    return ">0.9999"


def handed_text(image: ImageDetections, row: int, handed: TransferredAnnotation) -> str:
    """What the picture of what was transferred is called: by whom, and what of it cannot be seen."""
    lines = ["transferred"]
    voters, winner = image.voters[row], int(image.detections.exemplars[row])
    if voters != (winner,):
        speaking = [voter for voter, weight in zip(voters, image.weights[row], strict=True) if weight > 0]
        n_silent = len(voters) - len(speaking)
        lines = [f"vote of {len(voters)}" + (f", {n_silent} silent" if n_silent else "")]
        if winner not in speaking:
            lines.append("without the winner")
    if not is_drawn(handed):
        lines.append("labels alone" if _things(handed) else "nothing but the box")
    return "\n".join(lines)


def _things(handed: TransferredAnnotation) -> set[str]:
    """What was transferred beside the box."""
    things = set(_HANDED).difference(handed.missing)
    return things if handed_labels(handed) else things - {"metadata"}


def _measure(job: _Job, folder: Path) -> TransferQuality | None:
    labels = job.arguments.labels
    quality = measure_transfer(
        job.exemplars,
        job.chosen,
        refined=job.arguments.refine,
        labels=labels.split(",") if labels else None,
        random_state=job.arguments.random_state,
        progress=job.stage("comparison with the truth"),
        problems=job.problems,
    )
    if quality is not None:
        write_csv(folder / "quality.csv", quality.to_csv_rows())
        with atomic_write(folder / "quality.md", text=True) as handle:
            handle.write(quality.to_markdown())
    return quality


def _report(job: _Job, found: Sequence[Detections], quality: TransferQuality | None, screen: Screen) -> None:
    used = {exemplar for one in job.chosen for voters in one.voters for exemplar in voters}
    facts = [
        ("images", f"{len(job.chosen):,}"),
        ("detections", f"{sum(len(one.detections) for one in job.chosen):,} of {sum(map(len, found)):,}"),
        ("exemplars used", f"{len(used):,} of {len(job.exemplars):,}"),
    ]
    screen.facts(facts + [(f"with {name}", f"{job.counts[name]:,}") for name in _HANDED if job.counts[name]])
    if quality is not None:
        screen.say("\nannotations beside the truth")
        screen.table(*quality.to_table())
        screen.say(quality.note())
    for note in _notes(job, found, quality):
        screen.note(note)


def _notes(job: _Job, found: Sequence[Detections], quality: TransferQuality | None) -> Iterator[str]:
    n_without = sum(int((one.exemplars < 0).sum()) for one in found)
    if n_without:
        yield (
            counted(n_without, "detection names no exemplar and is", "detections name no exemplar and are")
            + " left out"
        )
    if not job.counts:
        yield "the exemplars of the model have boxes alone: only their identity was transferred"
    if quality is None and not job.arguments.no_quality:
        yield why_nothing_compared(job.chosen)
    if job.arguments.consensus is not None and job.has_sheet:
        yield f"the {_WINNERS_SHOWN}"
    winners = [
        (image, voters[0], winner)
        for image in job.chosen
        for voters, winner in zip(image.voters, image.detections.exemplars.tolist(), strict=True)
    ]
    as_proposed = [pair for _, *pair in winners if job.exemplars[pair[1]].class_name not in job.moved]
    n_other = sum(best != winner for best, winner in as_proposed)
    if n_other:
        yield (
            f"the best exemplar of {n_other:,} of {counted(len(as_proposed), 'window')} is not the winner in the file: "
            "if that was made with another calibrator, name it (--calibrator)"
        )
    n_own = sum(image.record.image_id == job.exemplars[winner].image_id for image, _, winner in winners)
    if n_own and quality is not None:
        lie = counted(n_own, "detection lies in the image of its", "detections lie in the image of their")
        yield f"{lie} own exemplar, which flatters the comparison"
    n_beyond = sum(max(0, len(image.detections) - MOST_MASKS) for image in job.chosen)
    if n_beyond and job.arguments.masks:
        missing = counted(n_beyond, "annotation is", "annotations are")
        yield f"{missing} not in the masks: an image numbers at most {MOST_MASKS}"


def _made(path: Path) -> Path:
    """`path`, once the folder it lies in is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
