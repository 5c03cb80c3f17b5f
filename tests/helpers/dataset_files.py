"""Small dataset files, written by hand, for the tests of the readers."""

import json
from pathlib import Path

import numpy as np
import pytest

from eesvm.images import write_image

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def real_data(name):
    """The folder of a real dataset, or a skip where it is absent."""
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"the real dataset {name} is not at ../shared/data")
    return folder


def pixels(width, height, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save_image(path, width=40, height=30, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, pixels(width, height, seed))
    return path


def save_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def voc_object(name="dog", box=(1, 1, 10, 10), extra=""):
    xmin, ymin, xmax, ymax = box
    return (
        f"<object>\n<name>{name}</name>\n<bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin>"
        f"<xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox>\n{extra}</object>\n"
    )


def voc_xml(objects="", filename="a.jpg", size=(40, 30)):
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>\n" if size else ""
    name = f"<filename>{filename}</filename>\n" if filename is not None else ""
    return f"<annotation>\n{name}{sides}{objects}</annotation>\n"


def save_voc(root, image_id="a", objects="", size=(40, 30), suffix=".jpg", **options):
    """One image and its annotation in a devkit."""
    save_image(root / "JPEGImages" / f"{image_id}{suffix}", *size)
    xml = voc_xml(objects, filename=f"{image_id}{suffix}", **{"size": size, **options})
    return save_text(root / "Annotations" / f"{image_id}.xml", xml)


def coco_document(annotations=(), images=None, categories=None):
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}] if images is None else images,
        "categories": [{"id": 5, "name": "dog"}, {"id": 3, "name": "cat"}] if categories is None else categories,
        "annotations": list(annotations),
    }


def save_coco(root, annotations=(), name="instances.json", **parts):
    """One image and a COCO file."""
    save_image(root / "images" / "a.jpg")
    return save_text(root / name, json.dumps(coco_document(annotations, **parts)))


def kinds(dataset):
    return [problem.kind for problem in dataset.problems]
