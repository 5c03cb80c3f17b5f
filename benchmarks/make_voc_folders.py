"""Folders in VOC's layout for `bench_voc`, from public copies: `python benchmarks/make_voc_folders.py OUT ...`.

In: git repositories that hold copies of Pascal VOC, as no single one has all of it: photographs of VOC 2007 whose names
begin with their ids (github.com/nekloyh/VOC_2007_in_Coco_format), lists of all objects of VOC 2007
(github.com/justHungryMan/object_detection-1), its splits (github.com/varun-nagaraja/BING-Objectness) and VOC 2012
(github.com/nader-bitstrapped-com/pascal-voc-2012, commit 105e0956); and annotations and masks of some photographs of VOC
2007 that are better known (`--known`). Out: OUT/VOC2007 with the splits train and val, and OUT/VOC2012 with the split
train, whose photographs are scaled down and tune the network alone. Photographs that show the same as one of another
role are left out of VOC 2012, judged by content; if train and val share one, it ends.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import xml.etree.ElementTree as trees
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from eesvm.datasets import open_dataset, select
from eesvm.datasets.roles import PictureCodes

LISTS = "ssd"  # folder of the lists of objects
SAME_YEAR = "2007_"  # VOC 2012 has photographs of VOC 2007 under such names


class Copy:
    """The files of one commit of a bare or ordinary repository."""

    def __init__(self, text: str) -> None:
        folder, _, commit = text.partition("@")
        self.folder, self.commit = folder, commit or "HEAD"
        listing = self._git("ls-tree", "-r", "-z", self.commit).decode()
        entries = (entry.partition("\t") for entry in listing.split("\0") if entry)
        self.files = {path: head.split()[2] for head, _, path in entries}

    def read(self, path: str) -> bytes:
        return self._git("cat-file", "blob", self.files[path])

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """By one process, in their order."""
        words = ["git", f"--git-dir={self.folder}", "cat-file", "--batch"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for path in paths:
                process.stdin.write(f"{self.files[path]}\n".encode())
                process.stdin.flush()
                head = process.stdout.readline().split()
                if head[1] != b"blob":
                    raise SystemExit(f"{self.folder} lacks {path}")
                yield process.stdout.read(int(head[2]) + 1)[:-1]
            process.stdin.close()

    def _git(self, *words: str) -> bytes:
        return subprocess.run(["git", f"--git-dir={self.folder}", *words], capture_output=True, check=True).stdout


def main() -> None:
    arguments = parse_arguments()
    make_2007(arguments)
    roles = {split: codes_of(arguments.out / "VOC2007", split) for split in ("train", "val")}
    shared = roles["val"].shared_with(roles["train"])
    if shared:
        raise SystemExit(f"train and val share photographs: {shared}")
    make_2012(arguments, [*roles.values()])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=Path)
    for name in ("photographs", "objects", "splits", "later"):
        add(f"--{name}", type=Copy, required=True, help="git directory, or that with @ and a commit")
    add("--known", type=Path, required=True, help="folder of VOC 2007 with annotations and masks of some photographs")
    add("--number", type=int, default=4000, help="photographs of VOC 2012 (4,000)")
    add("--side", type=int, default=360, help="their longer side (360)")
    add("--quality", type=int, default=80, help="of their encoding (80)")
    return parser.parse_args()


# VOC 2007


def make_2007(arguments: argparse.Namespace) -> None:
    root = arguments.out / "VOC2007"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main", "SegmentationObject"):
        (root / name).mkdir(parents=True, exist_ok=True)
    places: dict[str, str] = {}
    for path in sorted(arguments.photographs.files):
        name = path.rpartition("/")[2]
        if name.endswith(".jpg") and name[:6].isdigit():
            places.setdefault(name[:6], path)
    objects, lacking, differing = objects_of(arguments.objects), [], []
    for split in ("train", "val"):
        wanted = arguments.splits.read(f"VOC2007/ImageSets/Main/{split}.txt").decode().split()
        ids = [one for one in wanted if one in places]
        lacking += sorted(set(wanted) - set(ids))
        (root / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{one}\n" for one in ids))
        for image_id, content in zip(ids, arguments.photographs.read_many([places[one] for one in ids]), strict=True):
            (root / "JPEGImages" / f"{image_id}.jpg").write_bytes(content)
            known = arguments.known / "Annotations" / f"{image_id}.xml"
            is_known = known.exists() and boxes_in(known.read_text()) == sorted(objects[image_id])
            differing += [image_id] if known.exists() and not is_known else []
            width, height = Image.open(io.BytesIO(content)).size
            text = known.read_text() if is_known else annotation(image_id, width, height, objects[image_id])
            (root / "Annotations" / f"{image_id}.xml").write_text(text)
            mask = arguments.known / "SegmentationObject" / f"{image_id}.png"
            if mask.exists() and is_known:
                if Image.open(mask).size != (width, height):
                    raise SystemExit(f"{mask} has another size than the photograph")
                (root / "SegmentationObject" / mask.name).write_bytes(mask.read_bytes())
        print(f"VOC 2007 {split}: {len(ids)} photographs", flush=True)
    print(f"not in the copy: {', '.join(lacking)}; annotations that differ from the list: {', '.join(differing)}")


def objects_of(copy: Copy) -> dict[str, list[tuple[Any, ...]]]:
    """(class, is difficult, four sides as in VOC's files) of every object by the id of its photograph."""
    number = json.loads(copy.read(f"{LISTS}/label_map.json"))
    names = {value: name for name, value in number.items()}
    found = {}
    for part in ("TRAIN", "TEST"):
        images, objects = (json.loads(copy.read(f"{LISTS}/{part}_{what}.json")) for what in ("images", "objects"))
        for image, own in zip(images, objects, strict=True):
            found[Path(image).stem] = [
                (names[label], bool(is_difficult), *(side + 1 for side in box))
                for label, is_difficult, box in zip(own["labels"], own["difficulties"], own["boxes"], strict=True)
            ]
    return found


def boxes_in(text: str) -> list[tuple[Any, ...]]:
    """The same of an annotation, in one order."""
    rows = []
    for one in trees.fromstring(text).iter("object"):
        sides = [round(float(one.findtext(f"bndbox/{side}") or "nan")) for side in ("xmin", "ymin", "xmax", "ymax")]
        rows.append((str(one.findtext("name")), one.findtext("difficult") == "1", *sides))
    return sorted(rows)


def annotation(image_id: str, width: int, height: int, objects: Sequence[tuple[Any, ...]]) -> str:
    lines = [
        f"<annotation><filename>{image_id}.jpg</filename><size><width>{width}</width><height>{height}</height>"
        "<depth>3</depth></size><segmented>0</segmented>"
    ]
    for name, is_difficult, *sides in objects:
        box = "".join(
            f"<{tag}>{side}</{tag}>" for tag, side in zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True)
        )
        lines.append(
            f"<object><name>{name}</name><difficult>{is_difficult:d}</difficult><bndbox>{box}</bndbox></object>"
        )
    return "\n".join([*lines, "</annotation>", ""])


# VOC 2012


def make_2012(arguments: argparse.Namespace, others: Sequence[PictureCodes]) -> None:
    root, inside = arguments.out / "VOC2012", "VOCdevkit/VOC2012"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / name).mkdir(parents=True, exist_ok=True)
    every = arguments.later.read(f"{inside}/ImageSets/Main/trainval.txt").decode().split()
    every = [one for one in every if not one.startswith(SAME_YEAR)]
    chosen = np.random.default_rng(0).permutation(len(every))[: arguments.number]
    ids = [every[k] for k in np.sort(chosen)]
    pictures, texts = (
        arguments.later.read_many([f"{inside}/{folder}/{one}.{end}" for one in ids])
        for folder, end in (("JPEGImages", "jpg"), ("Annotations", "xml"))
    )

    def write(job: tuple[str, bytes, bytes]) -> None:
        image_id, picture, text = job
        image = Image.open(io.BytesIO(picture)).convert("RGB")
        factor = min(1.0, arguments.side / max(image.size))
        width, height = (max(1, round(side * factor)) for side in image.size)
        file = root / "JPEGImages" / f"{image_id}.webp"
        image.resize((width, height), Image.Resampling.LANCZOS).save(file, quality=arguments.quality, method=4)
        sides = (width / image.size[0], height / image.size[1])
        (root / "Annotations" / f"{image_id}.xml").write_text(scaled(text.decode(), image_id, (width, height), sides))

    with ThreadPoolExecutor(1) as pool:
        list(pool.map(write, zip(ids, pictures, texts, strict=True)))
    split = root / "ImageSets" / "Main" / "train.txt"
    split.write_text("".join(f"{one}\n" for one in ids))
    own = codes_of(root, "train")
    shared = {mine: other for codes in others for mine, other in own.shared_with(codes)}
    for image_id in shared:
        for folder, end in (("JPEGImages", "webp"), ("Annotations", "xml")):
            (root / folder / f"{image_id}.{end}").unlink()
    split.write_text("".join(f"{one}\n" for one in ids if one not in shared))
    print(f"VOC 2012: {len(ids) - len(shared)} photographs; left out, as they are in VOC 2007: {shared or 'none'}")


def scaled(text: str, image_id: str, size: tuple[int, int], factors: tuple[float, float]) -> str:
    """The annotation of a photograph that was scaled; sides count from 1."""
    objects: list[tuple[Any, ...]] = []
    for name, is_difficult, *sides in boxes_in(text):
        x1, y1, x2, y2 = (
            value * factor for value, factor in zip((sides[0] - 1, sides[1] - 1, *sides[2:]), factors * 2, strict=True)
        )
        objects.append((name, is_difficult, *(round(side, 2) for side in (x1 + 1, y1 + 1, x2, y2))))
    return annotation(image_id, *size, objects)


def codes_of(folder: Path, split: str) -> PictureCodes:
    """To recognise photographs by content."""
    return PictureCodes.of(select(open_dataset(folder), split=split), f"{folder.name} {split}")


if __name__ == "__main__":
    main()
