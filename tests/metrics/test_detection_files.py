"""Files of detections: there and back, through other people's code, and whatever may be wrong with them."""

import contextlib
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import InputError
from eesvm.datasets import open_dataset, write_coco
from eesvm.datasets.scenes import make_scenes
from eesvm.metrics.detection_files import (
    locate_detections,
    read_annotation_ids,
    read_coco_results,
    read_csv_detections,
    read_detections,
    read_voc_detections,
    write_coco_results,
    write_csv_detections,
    write_detections,
    write_voc_detections,
)
from eesvm.structures import Detections
from helpers.dataset_files import save_text

HEADER = "image_id,class,score,x1,y1,x2,y2,exemplar\n"
CUT_OFF = (
    "the last line has no end, so the file may be cut off: eesvm ends every line that it writes; if the file is whole, "
    "add the line end"
)


def found(image_id, *rows):
    """Detections; rows are (class, score, box) or (class, score, box, exemplar)."""
    full = [(*row, -1)[:4] for row in rows]
    return Detections(
        image_id,
        np.array([row[2] for row in full], dtype=float).reshape(-1, 4),
        np.array([row[1] for row in full], dtype=float),
        np.array([row[0] for row in full], dtype=str),
        np.array([row[3] for row in full], dtype=np.int64),
    )


def assert_equal(one, other, tolerance=0.0, exemplars=True):
    kept = {entry.image_id: entry for entry in one if len(entry)}
    assert list(kept) == [entry.image_id for entry in other]
    for entry in other:
        mine = kept[entry.image_id]
        np.testing.assert_array_equal(mine.scores, entry.scores)
        np.testing.assert_array_equal(mine.class_names, entry.class_names)
        np.testing.assert_allclose(mine.boxes, entry.boxes, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(mine.exemplars if exemplars else np.full(len(mine), -1), entry.exemplars)
        assert [a.dtype.kind for a in (entry.boxes, entry.scores, entry.class_names, entry.exemplars)] == list("ffUi")


SOME = [
    found(
        "2008_000007",
        ("dog", 0.9, (0.1, 0, 10, 10.5), 3),
        ("cat", 0.1 + 0.2, (-3, 4, 5, 6)),
        ("dog", -7e-300, (0, 0, 0, 0), 0),
    ),
    found("empty"),
    found("b", ("cat", 1e300, (1 / 3, 2 / 3, 400, 500), 12345)),
]


@st.composite
def detection_lists(draw, ids):
    number = st.floats(-1e4, 1e4)
    side = st.floats(0, 1e3)
    names = st.sampled_from(["dog", "potted plant", "ü_1", 'a "b", c'])
    entries = []
    for image_id in draw(st.lists(ids, unique=True, max_size=4)):
        rows = draw(st.lists(st.tuples(names, number, number, number, side, side, st.integers(-1, 10**9)), max_size=5))
        rows = sorted(rows, key=lambda row: -row[1])
        entries.append(found(image_id, *((n, s, (x, y, x + w, y + h), e) for n, s, x, y, w, h, e in rows)))
    return entries


TEXT_IDS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\r\n"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(detection_lists(st.one_of(TEXT_IDS, st.sampled_from(["a b", "1, 2", '"']))))
def test_csv_is_exact(tmp_path_factory, entries):
    path = tmp_path_factory.getbasetemp() / "exact.csv"
    write_csv_detections(path, entries)
    by_image = {entry.image_id: entry for entry in read_csv_detections(path)}
    assert_equal(entries, [by_image[entry.image_id] for entry in entries if len(entry)])


@settings(max_examples=60, deadline=None)
@given(detection_lists(st.one_of(TEXT_IDS, st.integers(0, 10**12).map(str))))
def test_coco_results_come_back(tmp_path_factory, entries):
    path = tmp_path_factory.getbasetemp() / "back.json"
    write_coco_results(path, entries)
    assert_equal(entries, read_coco_results(path), tolerance=1e-9)


@settings(max_examples=60, deadline=None)
@given(detection_lists(TEXT_IDS))
def test_voc_files_come_back(tmp_path_factory, entries):
    folder = tmp_path_factory.getbasetemp() / "voc"
    write_voc_detections(folder, entries, classes=["nothing of this"], overwrite=True)
    read = {entry.image_id: entry for entry in read_voc_detections(folder)}
    assert set(read) == {entry.image_id for entry in entries if len(entry)}
    for entry in entries:
        for name in set(entry.class_names.tolist()):  # equal scores of different classes come file by file
            mine, theirs = entry.class_names == name, read[entry.image_id].class_names == name
            np.testing.assert_array_equal(entry.scores[mine], read[entry.image_id].scores[theirs])
            np.testing.assert_allclose(entry.boxes[mine], read[entry.image_id].boxes[theirs], rtol=0, atol=1e-9)
        if len(entry):
            assert (read[entry.image_id].exemplars == -1).all()


def test_the_suffix_says_what_to_write(tmp_path):
    for name, tolerance in (("d.csv", 0), ("d.json", 1e-12), ("voc", 1e-12)):
        write_detections(tmp_path / name, SOME)
        assert_equal(SOME, read_detections(tmp_path / name), tolerance, exemplars=name != "voc")
    write_detections(tmp_path / "d.csv", [])  # replaces it
    assert read_detections(tmp_path / "d.csv") == []
    write_detections(tmp_path / "d.json", [found("a")])
    assert read_detections(tmp_path / "d.json") == []
    with pytest.raises(InputError, match=r"d.txt must end in .csv or .json, or be a folder for VOC text files"):
        write_detections(tmp_path / "d.txt", SOME)
    with pytest.raises(InputError, match=r"nowhere.csv does not exist"):
        read_detections(tmp_path / "nowhere.csv")
    with pytest.raises(
        InputError, match=r"d.txt is no file of detections: those are .csv, COCO results as .json, or a"
    ):
        read_detections(save_text(tmp_path / "d.txt", ""))


def test_what_the_files_look_like(tmp_path):
    entries = [found("7", ("dog", 0.5, (0, 2, 10, 12), 4))]
    write_csv_detections(tmp_path / "d.csv", entries)
    assert (tmp_path / "d.csv").read_text() == HEADER + "7,dog,0.5,0.0,2.0,10.0,12.0,4\n"
    write_coco_results(tmp_path / "d.json", entries)
    assert json.loads((tmp_path / "d.json").read_text()) == [
        {"image_id": 7, "category_id": 1, "bbox": [0, 2, 10, 10], "score": 0.5, "category_name": "dog", "exemplar": 4}
    ]
    write_voc_detections(tmp_path / "voc", entries, ["cat"])
    # From 1, both ends included: the box of ten by ten pixels goes from 1 to 10 and from 3 to 12.
    assert (tmp_path / "voc" / "comp3_det_test_dog.txt").read_text() == "7 0.5 1.0 3.0 10.0 12.0\n"
    assert (tmp_path / "voc" / "comp3_det_test_cat.txt").read_text() == ""


def test_columns_in_any_order_and_without_exemplar(tmp_path):
    text = "\ufeffscore, y1 ,x1,x2,y2,class,image_id,note\n0.1,2,1,3,4,dog,a,x\n\n0.7,2,1,3,4,cat,a,y\n"
    (entry,) = read_csv_detections(save_text(tmp_path / "d.csv", text))
    assert (entry.class_names.tolist(), entry.scores.tolist()) == (["cat", "dog"], [0.7, 0.1])  # best first
    assert entry.boxes.tolist() == [[1, 2, 3, 4]] * 2
    assert entry.exemplars.tolist() == [-1, -1]


def test_other_names_of_voc_files(tmp_path):
    save_text(tmp_path / "comp4_det_val_potted plant.txt", "a 0.5 1 1 10 10\r\n")
    save_text(tmp_path / "README.txt", "nothing to do with it")
    (entry,) = read_voc_detections(tmp_path)
    assert (entry.class_names.tolist(), entry.boxes.tolist()) == (["potted plant"], [[0, 0, 10, 10]])
    save_text(tmp_path / "mine_dog.txt", "a 0.5 1 1 10 10\n")
    assert read_voc_detections(tmp_path, "mine")[0].class_names.tolist() == ["dog"]
    save_text(tmp_path / "comp3_det_val_dog.txt", "a 0.5 1 1 10 10\n")
    with pytest.raises(InputError, match="holds several sets of detections, comp3_det_val and comp4_det_val: keep one"):
        read_voc_detections(tmp_path)


def test_coco_tools_load_the_results_of_any_dataset(tmp_path):
    """Image ids that are texts get the numbers that `write_coco` gives them, and come back as texts."""
    scenes = make_scenes(3, 3)
    entries = [found(r.image_id, *((i.class_name, 0.5, i.box) for i in r.instances)) for r in scenes]
    write_coco(scenes, tmp_path / "set")
    write_coco_results(tmp_path / "d.json", entries, scenes)
    write_coco_results(tmp_path / "same.json", entries, tmp_path / "set" / "instances.json")
    assert (tmp_path / "d.json").read_text() == (tmp_path / "same.json").read_text()
    assert_equal(entries, read_coco_results(tmp_path / "d.json"), 1e-9)
    for package in ("pycocotools.coco", "faster_coco_eval"):
        tools = pytest.importorskip(package)
        with contextlib.redirect_stdout(io.StringIO()):
            truth = tools.COCO(str(tmp_path / "set" / "instances.json"))
            loaded = truth.loadRes(str(tmp_path / "d.json"))
        for annotation, mine in zip(truth.dataset["annotations"], loaded.dataset["annotations"], strict=True):
            assert annotation["category_id"] == mine["category_id"]
            assert annotation["image_id"] == mine["image_id"]
            assert annotation["bbox"] == pytest.approx(mine["bbox"])


def test_results_of_others_take_names_from_the_annotations(tmp_path):
    document = {
        "images": [{"id": 9, "file_name": "x.jpg"}, {"id": 4, "eesvm_id": "own"}],
        "categories": [{"id": 18, "name": "dog"}],
    }
    path = save_text(tmp_path / "instances.json", json.dumps(document))
    plain = [{"image_id": k, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5} for k in (4, 9)]
    results = save_text(tmp_path / "d.json", json.dumps(plain))
    for ids in (path, document, read_annotation_ids([path])):
        entries = read_coco_results(results, ids)
        assert [entry.image_id for entry in entries] == ["own", "9"]
        assert entries[0].class_names.tolist() == ["dog"]
        assert entries[0].boxes.tolist() == [[1, 2, 4, 6]]
    write_coco_results(tmp_path / "again.json", entries, path)
    again = json.loads((tmp_path / "again.json").read_text())
    assert [{key: entry[key] for key in plain[0]} for entry in again] == plain
    with pytest.raises(
        InputError, match=r"d.json, entry 1: the name of its category_id 18 is not known: the annotation file of"
    ):
        read_coco_results(results)
    with pytest.raises(InputError, match=r"entry 1: its category_id 18 is not in the annotations"):
        read_coco_results(results, {**document, "categories": []})
    with pytest.raises(InputError, match=r"entry 1: its image_id 4 is not in the annotations"):
        read_coco_results(results, {**document, "images": []})
    with pytest.raises(InputError, match=r"the annotations: entry 1 of `categories` has no id or no name"):
        read_coco_results(results, {**document, "categories": [{"id": 18}]})
    with pytest.raises(InputError, match=r"d.json: it is no COCO file: it has no list `images`"):
        read_coco_results(results, results)
    with pytest.raises(InputError, match=r"cannot write .*bad.json: the category 'cow' has no COCO id"):
        write_coco_results(tmp_path / "bad.json", [found("own", ("cow", 1, (0, 0, 1, 1)))], path)
    assert not (tmp_path / "bad.json").exists()


def test_ids_pass_over_what_the_reader_passes_over(tmp_path):
    document = {
        "images": [{"id": 1, "eesvm_id": None}, {"file_name": "b.jpg"}, 7, {"id": 1, "eesvm_id": "late"}],
        "categories": [{"id": 5, "name": "dog"}, {"id": 6}, {"name": "cat"}, None, {"id": 8, "name": " "}],
    }
    good = save_text(tmp_path / "good.json", json.dumps(document))
    cut = save_text(tmp_path / "cut.json", json.dumps(document)[:50])
    other = save_text(tmp_path / "other.json", "{}")
    ids = read_annotation_ids([cut, good, other, tmp_path / "gone.json"])
    write_coco_results(tmp_path / "d.json", [found("1", ("dog", 1, (0, 0, 1, 1)))], ids)
    (entry,) = json.loads((tmp_path / "d.json").read_text())
    assert (entry["image_id"], entry["category_id"]) == (1, 5)
    with pytest.raises(InputError, match=r"cut\.json:1: it is not valid JSON"):
        read_annotation_ids([cut, other])


def test_classes_that_the_ids_do_not_have_get_the_next_numbers(tmp_path):
    ids = {"images": [{"id": 1}], "categories": [{"id": 5, "name": "dog"}]}
    entries = [found("1", *((name, 0.5, (0, 0, 1, 1)) for name in ("cow", "dog", "ant")))]
    write_coco_results(tmp_path / "d.json", entries, ids, ("ant", "dog", "cow"))
    numbers = {entry["category_name"]: entry["category_id"] for entry in json.loads((tmp_path / "d.json").read_text())}
    assert numbers == {"dog": 5, "ant": 6, "cow": 7}
    # Our own results of other images are still told by their numbers; those of others are not.
    assert [one.image_id for one in read_coco_results(tmp_path / "d.json", {**ids, "images": [{"id": 9}]})] == ["1"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "d.csv:1: there is no column image_id: image_id, class, score, x1, y1, x2, y2 are needed"),
        (
            "image_id,class,score,x1,y1,x2\n",
            "d.csv:1: there is no column y2: image_id, class, score, x1, y1, x2, y2 are needed",
        ),
        ("class," + HEADER, "d.csv:1: the column class is there twice"),
        (HEADER + "a,dog,1,0,0,1,1\n", "d.csv:2: the line has 7 columns, the header 8"),
        (HEADER + "a,dog,high,0,0,1,1,0\n", "d.csv:2: its score must be a number, got 'high'"),
        (HEADER + "a,dog,nan,0,0,1,1,0\n", "d.csv:2: its score is NaN or infinite"),
        (HEADER + "a,dog,1,0,0,inf,1,0\n", "d.csv:2: its x2 is NaN or infinite"),
        (HEADER + "a,dog,1,0,0,1,1,0\na,dog,1,5,0,1,1,0\n", "d.csv:3: its box has the negative width -4"),
        (HEADER + "a,dog,1,0,0,1,-1,0\n", "d.csv:2: its box has the negative height -1"),
        (HEADER + "a,dog,1,0,0,1e12,1,0\n", "d.csv:2: its box has a coordinate beyond 1e+09"),
        (HEADER + "a,dog,1,0,0,1,1,0.5\n", "d.csv:2: its exemplar must be a whole number from -1, got 0.5"),
        (HEADER + "a,dog,1,0,0,1,1,-2\n", "d.csv:2: its exemplar must be a whole number from -1, got -2"),
        (HEADER + ",dog,1,0,0,1,1,0\n", "d.csv:2: its image id is empty"),
        (HEADER + "a,,1,0,0,1,1,0\n", "d.csv:2: its class is empty"),
        (HEADER + 'a,"dog,1,0,0,1,1,0\n', "d.csv:2: it is not valid CSV: unexpected end of data"),
        (HEADER + "a,dog,1,0,0,1,1,12\na,dog,1,0,0,1,1,1", f"d.csv:3: {CUT_OFF}"),
        (HEADER + "a,dog,1,0,0,1", f"d.csv:2: {CUT_OFF}"),
        (HEADER.rstrip(), f"d.csv:1: {CUT_OFF}"),
    ],
)
def test_malformed_csv(text, sentence, tmp_path):
    with pytest.raises(InputError, match=f"{re.escape(sentence)}$"):
        read_detections(save_text(tmp_path / "d.csv", text))


@pytest.mark.parametrize("text", [
    "image_id,class,score,x1,y1,x2,y2\na,dog,1,0,0,1,1",  # not ours
    "class,image_id,score,x1,y1,x2,y2,exemplar\ndog,a,1,0,0,1,1,-1",
    "\ufeff" + HEADER + "a,dog,1,0,0,1,1,-1\r\n",
    HEADER.replace("\n", "\r") + "a,dog,1,0,0,1,1,-1\r",
])  # fmt: skip
def test_ends_of_csv_that_are_fine(text, tmp_path):
    (tmp_path / "d.csv").write_bytes(text.encode())
    assert_equal([found("a", ("dog", 1.0, (0, 0, 1, 1)))], read_detections(tmp_path / "d.csv"))


def test_no_cut_off_csv_of_ours_changes_a_number(tmp_path):
    write_csv_detections(tmp_path / "d.csv", SOME)
    text = (tmp_path / "d.csv").read_text()
    lines = text.splitlines(keepends=True)
    whole = {sum(map(len, lines[: k + 1])) for k in range(len(lines))}
    for length in range(len(HEADER), len(text)):
        path = save_text(tmp_path / "cut.csv", text[:length])
        if length in whole:
            read_detections(path)
        else:
            with pytest.raises(InputError, match=re.escape(CUT_OFF)):
                read_detections(path)


def test_a_folder_with_files_of_its_own_is_read_as_such(tmp_path):
    write_voc_detections(tmp_path / "d", SOME)
    write_csv_detections(tmp_path / "d" / "detections.csv", SOME[:1])
    assert locate_detections(tmp_path / "d") == tmp_path / "d"
    assert len(read_detections(tmp_path / "d")) == len([entry for entry in SOME if len(entry)])
    write_csv_detections(tmp_path / "detections.csv", SOME)
    assert locate_detections(tmp_path) == tmp_path / "detections.csv"
    assert_equal(SOME, read_detections(tmp_path))


ENTRY = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1, "category_name": "dog"}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"annotations": []}, "d.json holds no COCO results: they are a list of detections"),
        ([1], "d.json, entry 1: it is no detection with image_id, category_id, bbox and score"),
        ([ENTRY, {k: v for k, v in ENTRY.items() if k != "bbox"}], "d.json, entry 2: it has no bbox"),
        ([{**ENTRY, "score": "1"}], "d.json, entry 1: its score must be a number, got '1'"),
        ([{**ENTRY, "score": True}], "d.json, entry 1: its score must be a number, got 'True'"),
        ([{**ENTRY, "score": float("nan")}], "d.json, entry 1: its score is NaN or infinite"),
        ([{**ENTRY, "score": 10**400}], "d.json, entry 1: its score is NaN or infinite"),
        ([{**ENTRY, "bbox": [0, 0, 1]}], "d.json, entry 1: its bbox must be four numbers, x, y, width and height"),
        ([{**ENTRY, "bbox": [0, 0, None, 1]}], "d.json, entry 1: its bbox must be a number, got 'None'"),
        ([{**ENTRY, "bbox": [0, 0, -3, 1]}], "d.json, entry 1: its box has the negative width -3"),
        ([{**ENTRY, "bbox": [0, 0, 1, float("inf")]}], "d.json, entry 1: its bbox is NaN or infinite"),
        ([{**ENTRY, "image_id": 1.5}], "d.json, entry 1: its image_id must be a whole number or a text, got '1.5'"),
        ([{**ENTRY, "exemplar": None}], "d.json, entry 1: its exemplar must be a number, got 'None'"),
    ],
)
def test_malformed_results(document, sentence, tmp_path):
    with pytest.raises(InputError, match=f"{re.escape(sentence)}$"):
        read_detections(save_text(tmp_path / "d.json", json.dumps(document)))


def test_files_that_are_cut_off_or_no_text(tmp_path):
    whole = json.dumps([ENTRY] * 3, indent=1)
    with pytest.raises(InputError, match=r"d\.json:\d+: it is not valid JSON: "):
        read_detections(save_text(tmp_path / "d.json", whole[: len(whole) // 2]))
    for name in ("d.json", "d.csv", "comp3_det_test_dog.txt"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00rubbish\xff" * 10)
    with pytest.raises(InputError, match=r"d\.json: it is not usable JSON"):
        read_detections(tmp_path / "d.json")
    with pytest.raises(InputError, match=r"d\.csv is not a text file in UTF-8"):
        read_detections(tmp_path / "d.csv")
    with pytest.raises(InputError, match=r"dog\.txt is not a text file in UTF-8"):
        read_detections(tmp_path)
    with pytest.raises(InputError, match=r"it is not usable JSON"):
        read_detections(save_text(tmp_path / "deep.json", "[" * 100_000))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a 0.5 1 1 10", "dog.txt:2: the line has 5 columns, not image_id, score, x1, y1, x2, y2"),
        ("a 0.5 1 1 10 ten", "dog.txt:2: its y2 must be a number, got 'ten'"),
        ("a nan 1 1 10 10", "dog.txt:2: its score is NaN or infinite"),
        ("a 0.5 12 1 10 10", "dog.txt:2: its box has the negative width -1"),
    ],
)
def test_malformed_voc_files(line, sentence, tmp_path):
    save_text(tmp_path / "comp3_det_test_dog.txt", f"a 0.5 1 1 10 10\n{line}\n")
    with pytest.raises(InputError, match=f"{re.escape(sentence)}$"):
        read_detections(tmp_path)


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no files of detections: looked for comp3_det_test_CLASS\.txt"):
        read_detections(tmp_path / "empty")
    with pytest.raises(InputError, match="the image id 'a b' has spaces or is empty: VOC text files cannot hold it"):
        write_voc_detections(tmp_path / "voc", [found("a b", ("dog", 1, (0, 0, 1, 1)))])
    with pytest.raises(InputError, match=r"the class '../dog' cannot be part of a file name"):
        write_voc_detections(tmp_path / "voc", [found("a", ("../dog", 1, (0, 0, 1, 1)))])
    bad = [
        ([found("a", ("dog", np.nan, (0, 0, 1, 1)))], "have a score that is NaN or infinite, which files do not hold"),
        (
            [found("a", ("dog", 1, (5, 0, 1, 1)))],
            "the detections of the image 'a' have a box of negative width or height",
        ),
        ([found("a"), found("a")], "`detections` has two entries for the image 'a'"),
        (
            [Detections("a", np.zeros((2, 4)), np.zeros(1), np.array(["dog"]), np.zeros(1))],
            "must have equally many boxes",
        ),
    ]
    for entries, sentence in bad:
        for name in ("d.csv", "d.json", "voc"):
            with pytest.raises(InputError, match=sentence):
                write_detections(tmp_path / name, entries)
            assert not (tmp_path / name).exists()
    write_voc_detections(tmp_path / "voc", SOME)
    with pytest.raises(InputError, match="already exists"):
        write_voc_detections(tmp_path / "voc", SOME)


def test_results_for_a_dataset_that_was_read_from_coco(tmp_path):
    scenes = make_scenes(2, 0)
    write_coco(scenes, tmp_path / "set")
    dataset = open_dataset(tmp_path / "set")
    entries = [found(r.image_id, *((i.class_name, 0.5, i.box) for i in r.instances)) for r in dataset]
    write_coco_results(tmp_path / "d.json", entries, tmp_path / "set" / "instances.json")
    assert_equal(entries, read_coco_results(tmp_path / "d.json", dataset), 1e-9)
