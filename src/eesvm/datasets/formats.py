"""Which format a path holds.

In: a file or folder. Out: the name of the one format whose signs are there. Signs of two formats are an error that
names them both; without any, the error says what was looked for. A folder of several datasets is an error that names
their folders.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from eesvm._support.validation import InputError
from eesvm.datasets import coco, ilsvrc, voc, yolo
from eesvm.datasets._voc_xml import XmlError, parse_xml
from eesvm.datasets._yolo_config import find_config
from eesvm.datasets.build import Builder, Options
from eesvm.datasets.tree import ImageIndex, is_image, key, scan

_SIGNS = """a VOC devkit (Annotations and JPEGImages), XML annotations, ILSVRC's Data/DET, COCO .json files, \
YOLO's data.yaml or labels, and images"""
_MOST_NAMED = 10  # datasets below a folder that an error names
_SAMPLE = 20  # files of a kind that are opened to see what they are


def detect_format(path: Path) -> str:
    """One of the names in `FORMATS`."""
    if path.is_file():
        return _file_format(path)
    files = scan(path, Builder(Options()))
    _refuse_several(path, files)
    signs = {
        "ilsvrc": _ilsvrc_sign(files),
        "voc": _voc_sign(path, files),
        "coco": _coco_sign(path),
        "yolo": _yolo_sign(path, files),
    }
    if signs["ilsvrc"]:
        signs["voc"] = ""  # its annotations are XML too
    found = {name: sign for name, sign in signs.items() if sign}
    if len(found) > 1:
        listed = " and ".join(f"{name} ({sign})" for name, sign in found.items())
        raise InputError(f"{path} holds annotations in several formats, {listed}: say which one to read (`format`)")
    if found:
        return next(iter(found))
    if any(map(is_image, files)):
        return "folder"
    raise InputError(f"{path} holds nothing that can be opened: looked for {_SIGNS}")


def _refuse_several(path: Path, files: list[str]) -> None:
    """Refuse a folder that has no dataset of its own but some below it: read together, they would be misread."""
    if find_config(path) is not None or coco.find_files(path) or ilsvrc.find_pairs(files):
        return
    devkits = voc.find_devkits(files)
    if "" in devkits:
        return
    others = _folders_with_a_dataset(path, files, devkits)
    found = sorted({*devkits, *others})
    if others or len(found) > 1:
        shown = ", ".join(found[:_MOST_NAMED]) + (", ..." if len(found) > _MOST_NAMED else "")
        if len(found) == 1:
            raise InputError(f"{path} holds a dataset in a folder of its own: choose {path / shown}")
        raise InputError(f"{path} holds several datasets: choose one of {shown}")


def _folders_with_a_dataset(path: Path, files: list[str], devkits: list[str]) -> list[str]:
    """Folders below `path` with a data.yaml or with COCO files, the topmost of nested ones; none within a devkit."""
    folders = {name.rpartition("/")[0] for name in files if name.lower().endswith((".yaml", ".yml", ".json"))}
    folders |= {folder.rpartition("/")[0] for folder in folders if folder.endswith("/annotations")}
    kept: list[str] = []
    for folder in sorted(folders - {""}):
        is_inside = any(f"{folder}/".startswith(f"{other}/") for other in (*devkits, *kept))
        if not is_inside and (find_config(path / folder) is not None or coco.find_files(path / folder)):
            kept.append(folder)
    return kept


def _file_format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".json":
        return "coco"
    if suffix in (".yaml", ".yml"):
        return "yolo"
    if is_image(path.name):
        return "folder"
    raise InputError(f"{path} is not a folder, a COCO .json, a YOLO .yaml or an image")


def _ilsvrc_sign(files: list[str]) -> str:
    pairs = ilsvrc.find_pairs(files)
    return pairs[0][0] if pairs else ""


def _voc_sign(path: Path, files: list[str]) -> str:
    devkits = voc.find_devkits(files)
    if devkits:
        return f"{devkits[0]}/Annotations".removeprefix("/")
    xml = (name for name in files if name.lower().endswith(".xml"))
    return next((name for name in islice(xml, _SAMPLE) if _is_annotation(path / name)), "")


def _is_annotation(path: Path) -> bool:
    """A file whose root is <annotation>; one that is broken counts too, so that it is reported and not passed over."""
    try:
        return parse_xml(path.read_bytes()).tag == "annotation"
    except XmlError:
        return True
    except OSError:
        return False


def _coco_sign(path: Path) -> str:
    found = coco.find_files(path)
    return found[0].name if found else ""


def _yolo_sign(path: Path, files: list[str]) -> str:
    config = find_config(path)
    if config is not None:
        return config.name
    images = ImageIndex(files)
    texts = [name for name in files if name.lower().endswith(".txt") and _may_be_label(name, images)]
    return next((name for name in texts[:_SAMPLE] if yolo.is_label_file(path / name)), "")


def _may_be_label(name: str, images: ImageIndex) -> bool:
    return "labels" in name.split("/")[:-1] or bool(images.by_key.get(key(name)))
