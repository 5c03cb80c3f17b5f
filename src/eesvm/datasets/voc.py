"""PASCAL VOC: one XML file for each image.

In: a devkit folder (JPEGImages, Annotations, ImageSets, SegmentationObject), or any folder with XML files beside the
images or in a folder of their own. Out: a `Dataset`. VOC counts pixels from 1 and includes both ends, so the box
xmin, ymin, xmax, ymax of a file becomes the half-open xmin - 1, ymin - 1, xmax, ymax; tools that count from 0 are
read with `first_pixel=0`. Object i of a file owns the pixels i + 1 of its SegmentationObject image; those of 255 are
void, labelled by nobody. Tags without a place in `Instance` become metadata.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.validation import InputError, check_choice
from eesvm.datasets._image_sets import read_splits
from eesvm.datasets._voc_xml import Node, XmlError, corners, is_true, metadata, parse_annotation, stated_size
from eesvm.datasets.build import Builder, Options, Picture, choose_split, without_annotation
from eesvm.datasets.tree import ImageIndex, below, common_folder, folder_splits, key, safe_name, scan
from eesvm.images.files import ImageError, image_size, read_index_image
from eesvm.images.masks import VOID, index_mask
from eesvm.structures import Dataset, Instance, Part

_LIST_FOLDERS = (("ImageSets/Main", ""), ("ImageSets/Segmentation", "Segmentation/"))  # and how splits are prefixed


@dataclass(frozen=True)
class Layout:
    """Where the files are; annotations and images have the same path below their folders."""

    image_root: Path
    images: ImageIndex  # relative to `image_root`
    annotation_root: Path
    annotations: list[str]  # relative to `annotation_root`
    is_loose: bool = False  # annotations may lie in other folders than their images
    id_folder: str = ""  # image ids are relative to this folder below `image_root`
    mask_root: Path | None = None
    masks: frozenset[str] = frozenset()
    first_pixel: int = 1
    needs_annotations: bool = True  # an image without one is a problem
    class_name: Callable[[str], str] = str  # from the name in the file
    name_key: str = ""  # metadata that keeps the name in the file, "" for none

    def image_id(self, path: str) -> str:
        return key(path).removeprefix(f"{self.id_folder}/")


def read_voc(
    root: Path, options: Options, *, first_pixel: int = 1, images: str | os.PathLike[str] | None = None
) -> Dataset:
    """The dataset in `root`; `images` is the folder of the images where they lie elsewhere."""
    check_choice(first_pixel, "first_pixel", (0, 1))
    builder = Builder(options)
    files = scan(root, builder)
    devkits = find_devkits(files)
    if len(devkits) > 1 and images is None:
        raise InputError(f"{root} holds several datasets: choose one of {', '.join(devkits)}")
    if devkits and images is None:
        base = root / devkits[0]
        layout = _devkit(base, below(files, devkits[0]))
    else:
        base = root
        layout = _loose(root, files, builder, images)
    layout = replace(layout, first_pixel=first_pixel)
    splits = _splits(layout, base, builder)
    chosen = None if options.split is None else choose_split(options.split, splits, root)
    read_annotated_images(layout, builder, None if chosen is None else frozenset(chosen))
    builder.sort()
    return builder.dataset(base.resolve().name, splits)


def find_devkits(files: Iterable[str]) -> list[str]:
    """Folders among the relative paths that hold both Annotations with XML and JPEGImages; "" is the root."""
    with_xml, with_images = set(), set()
    for name in files:
        folder, found, _ = f"/{name}".rpartition("/Annotations/")
        if found and name.lower().endswith(".xml"):
            with_xml.add(folder)
        folder, found, _ = f"/{name}".rpartition("/JPEGImages/")
        if found:
            with_images.add(folder)
    return sorted(folder.removeprefix("/") for folder in with_xml & with_images)


def read_annotated_images(layout: Layout, builder: Builder, chosen: Collection[str] | None = None) -> None:
    """Add every image of the layout, or those with the ids `chosen`, with the objects of its annotation file."""
    files = layout.images.files
    wanted = files if chosen is None else [image for image in files if layout.image_id(image) in chosen]
    part = None if chosen is None else frozenset(wanted)
    seen: set[str] = set()
    unread: set[str] = set()  # their annotations cannot be read
    without_image = []  # of their name
    for annotation in layout.annotations:
        candidates = _candidates(layout, annotation)
        seen.update(candidates)
        if not candidates:
            without_image.append(annotation)
        elif part is None or not part.isdisjoint(candidates):
            _add_annotation(layout, annotation, candidates, part, unread, builder)
    # Which image these mean stands inside them, so that all must be read, unless every image of a part has its objects.
    if part is None or any(layout.image_id(image) not in builder.records for image in wanted):
        seen.update(_add_annotation(layout, annotation, [], part, unread, builder) for annotation in without_image)
    for image in wanted:
        if image not in seen:
            _add_bare(layout, image, builder)
        elif image in unread and layout.image_id(image) not in builder.records:
            _add_unread(layout, image, builder)


def _add_annotation(
    layout: Layout,
    annotation: str,
    candidates: list[str],
    part: frozenset[str] | None,
    unread: set[str],
    builder: Builder,
) -> str:
    """Add the image of an annotation file if it is one of `part`; returns that image, "" for none.

    The image of a file that cannot be read goes to `unread`, since another file may speak of it.
    """
    source = layout.annotation_root / annotation
    root = _parse(source, builder)
    if root is None:
        unread.update(candidates[:1])
        return ""
    if part is not None and not candidates:
        name = safe_name(root.value("filename"))
        if name is None or part.isdisjoint(_named(layout, annotation, name)):
            return ""  # what may be wrong with it concerns other images
    image = _choose_image(layout, candidates, annotation, root, builder)
    if image is not None and (part is None or image in part):
        _add_annotated(layout, image, source, root, builder)
    return image or ""


def _add_unread(layout: Layout, image: str, builder: Builder) -> None:
    """Keep the image of an annotation that cannot be read: one may want to search it, though not to learn from it."""
    image_id = layout.image_id(image)
    picture = builder.picture(layout.image_root / image, image_id)
    if picture is not None:
        builder.add(image_id, picture, (), {"is_annotated": False, "has_annotation": True})


def _devkit(base: Path, files: list[str]) -> Layout:
    masks = frozenset(name for name in below(files, "SegmentationObject") if name.lower().endswith(".png"))
    return Layout(
        image_root=base / "JPEGImages",
        images=ImageIndex(below(files, "JPEGImages")),
        annotation_root=base / "Annotations",
        annotations=_xml_files(below(files, "Annotations")),
        mask_root=base / "SegmentationObject",
        masks=masks,
    )


def _loose(root: Path, files: list[str], builder: Builder, images: str | os.PathLike[str] | None) -> Layout:
    image_root = root if images is None else Path(images)
    image_files = files if images is None else scan(image_root, builder)
    own = [name for name in image_files if "SegmentationObject/" not in f"/{name}" and "SegmentationClass/" not in name]
    index = ImageIndex(own)
    mask_folder = next(
        (name[: name.index("SegmentationObject/") + 18] for name in files if "SegmentationObject/" in name), ""
    )
    masks = below(files, mask_folder) if mask_folder else []
    return Layout(
        image_root=image_root,
        images=index,
        annotation_root=root,
        annotations=_xml_files(files),
        is_loose=True,
        id_folder=common_folder(index.files),
        mask_root=root / mask_folder,
        masks=frozenset(masks),
    )


def _xml_files(files: Iterable[str]) -> list[str]:
    return [name for name in files if name.lower().endswith(".xml")]


def _splits(layout: Layout, base: Path, builder: Builder) -> dict[str, tuple[str, ...]]:
    """Splits from the lists of a devkit, else from folders that are called train, test, ..."""
    known = {layout.image_id(name) for name in layout.images.files}
    splits: dict[str, tuple[str, ...]] = {}
    for folder, prefix in _LIST_FOLDERS:
        if (base / folder).is_dir():
            for path in sorted((base / folder).glob("*.txt")):
                splits.update(read_splits(path, f"{prefix}{path.stem}", known, builder))
    return splits or folder_splits((name, layout.image_id(name)) for name in layout.images.files)


def _candidates(layout: Layout, annotation: str) -> list[str]:
    """Images that carry the name of an annotation file."""
    found = layout.images.at(key(annotation))
    return found if found or not layout.is_loose else layout.images.like(key(annotation))


def _parse(source: Path, builder: Builder) -> Node | None:
    try:
        return parse_annotation(source.read_bytes())
    except XmlError as error:
        builder.problem(source, f"{error}; nothing is learnt from its image", "annotation", error.line)
    except OSError as error:
        builder.problem(source, f"{os.strerror(error.errno or 0)}; nothing is learnt from its image", "annotation")
    return None


def _choose_image(layout: Layout, candidates: list[str], annotation: str, root: Node, builder: Builder) -> str | None:
    """The image with the name of the annotation; where there is none or more than one, as <filename> says."""
    written = root.value("filename")
    source, line = layout.annotation_root / annotation, getattr(root.find("filename"), "line", None)
    name = safe_name(written)
    if written and name is None:
        builder.problem(
            source, f"<filename> leads out of the dataset: {written[:100]!r}; it is not followed", "path", line
        )
    if len(candidates) == 1:
        return candidates[0]
    named = _named(layout, annotation, name) if name else []
    if candidates:
        taken = next((image for image in candidates if image in named), candidates[0])
        several = f"several images have the name of this annotation, {', '.join(candidates)}"
        builder.problem(source, f"{several}; {taken} is taken", "duplicate")
        return taken
    if len(named) == 1:
        return named[0]
    reason = "there is no image for this annotation" if not named else f"there are several images called {name}"
    builder.problem(source, f"{reason}; it is left out", "missing image")
    return None


def _named(layout: Layout, annotation: str, name: str) -> list[str]:
    """Images that <filename> may mean."""
    folder = annotation.rpartition("/")[0]
    beside = f"{folder}/{name}" if folder else name
    if beside in layout.images.by_key.get(key(beside), []):
        return [beside]
    found = layout.images.at(key(beside)) or layout.images.at(beside)  # <filename> with and without an ending
    return found or (layout.images.like(key(name)) or layout.images.like(name) if layout.is_loose else [])


def _add_annotated(layout: Layout, image: str, source: Path, root: Node, builder: Builder) -> None:
    image_id = layout.image_id(image)
    picture = builder.picture(layout.image_root / image, image_id, stated_size(root), source)
    if picture is None:
        return
    mask = _mask_file(layout, image_id, picture, builder)
    instances = (
        _instance(layout, node, index, image_id, picture, mask, source, builder)
        for index, node in enumerate(root.all("object"))
    )
    builder.add(image_id, picture, [instance for instance in instances if instance is not None])


def _add_bare(layout: Layout, image: str, builder: Builder) -> None:
    """An image without annotation: kept, since one may want to search it, but marked."""
    image_id, path = layout.image_id(image), layout.image_root / image
    if image_id in builder.records:
        builder.problem(path, f"another image is called {image_id} too; this one is left out", "duplicate")
        return
    asked = builder.options.unlabelled
    if layout.needs_annotations and asked is None:
        builder.problem(path, "there is no annotation for this image: nothing is learnt from it", "missing annotation")
    picture = builder.picture(path, image_id)
    if picture is not None:
        is_kept = not layout.needs_annotations if asked is None else asked == "keep"
        builder.add(image_id, picture, (), without_annotation(is_kept))


def _instance(
    layout: Layout,
    node: Node,
    index: int,
    image_id: str,
    picture: Picture,
    mask: Path | None,
    source: Path,
    builder: Builder,
) -> Instance | None:
    place = (source, node.line)
    written = node.value("name")
    what = f"object {index + 1}" + (f" ({written[:50]})" if written else "")
    name = layout.class_name(written)
    if not builder.accepts_class(name, what, place):
        return None
    box = _box(layout, node, what, picture, place, builder)
    if box is None:
        return None
    values = metadata(node)
    if layout.name_key:
        values[layout.name_key] = written
    pose = node.value("pose")
    read_mask = _mask_reader(mask, index + 1, what, place, builder)
    return Instance(
        class_name=name,
        box=box,
        image_id=image_id,
        index=index,
        mask=read_mask,
        parts=tuple(_parts(layout, node, what, picture, source, builder)),
        is_difficult=is_true(node, "difficult"),
        is_truncated=is_true(node, "truncated"),
        pose=None if pose.lower() in ("", "unspecified") else pose,
        metadata=values,
        source=f"{source}:{node.line}",
        void=None if read_mask is None else partial(index_mask, str(mask), VOID),
    )


def _box(
    layout: Layout, node: Node, what: str, picture: Picture, place: tuple[Path, int], builder: Builder
) -> np.ndarray | None:
    """The half-open box of an object or part."""
    written = corners(node)
    if written is None:
        builder.problem(place[0], f"{what} has no box of four numbers; it is left out", "box", place[1])
        return None
    xmin, ymin, xmax, ymax = written
    text = f"{what}: its box {xmin:g}, {ymin:g}, {xmax:g}, {ymax:g}"
    shift = layout.first_pixel
    box = builder.box((xmin - shift, ymin - shift, xmax + 1 - shift, ymax + 1 - shift), picture, text, place)
    if box is not None and xmax == xmin and ymax == ymin:
        # One pixel is a legal box where both ends are included; hardly anybody meant to draw it.
        builder.problem(place[0], f"{text} is a single point; it is kept as one pixel", "box", place[1])
    return box


def _parts(layout: Layout, node: Node, what: str, picture: Picture, source: Path, builder: Builder) -> Iterable[Part]:
    for part in node.all("part"):
        name = part.value("name")
        box = _box(layout, part, f"{what}, part {name[:50]!r}", picture, (source, part.line), builder)
        if box is not None:
            yield Part(name, box)


def _mask_file(layout: Layout, image_id: str, picture: Picture, builder: Builder) -> Path | None:
    """The image that numbers the objects of this image, if it exists and fits."""
    name = f"{image_id}.png"
    if layout.mask_root is None or name not in layout.masks:
        return None
    path = layout.mask_root / name
    try:
        width, height = image_size(path)
        if builder.options.check == "full":
            read_index_image(path)
    except ImageError as error:
        builder.problem(path, f"{str(error).removeprefix(f'{path}: ')}; its masks are left out", "mask")
        return None
    if (width, height) != (picture.width, picture.height):
        reason = f"it has {width} x {height} pixels, but its image {picture.width} x {picture.height}"
        builder.problem(path, f"{reason}; its masks are left out", "mask")
        return None
    return path


def _mask_reader(path: Path | None, number: int, what: str, place: tuple[Path, int], builder: Builder) -> Any:
    if path is None or number >= VOID:
        return None
    if builder.options.check == "full" and not index_mask(path, number).any():
        builder.problem(place[0], f"{what} has no pixel in {path.name}; it is kept without mask", "mask", place[1])
        return None
    return partial(index_mask, str(path), number)
