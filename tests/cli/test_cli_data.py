"""`eesvm data`: what it prints, and its status."""

import json
import subprocess
import sys

import pytest

from eesvm.cli import main
from helpers.dataset_files import save_image, save_text, save_voc, voc_object


@pytest.fixture
def folder(tmp_path):
    save_voc(tmp_path, "a", voc_object() + voc_object("cat", (9, 9, 2, 2)), size=(40, 30))
    save_voc(tmp_path, "b", voc_object("cat", extra="<difficult>1</difficult>"))
    return tmp_path


def test_info_prints_counts_and_every_problem(folder, capsys):
    assert main(["data", "info", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "objects      2, 1 difficult" in out
    assert "1 problem (box: 1)" in out
    problem = "object 2 (cat): its box 9, 9, 2, 2 is inverted; it is left out"
    assert f"  {folder}/Annotations/a.xml:8: {problem}\n" in out


def test_strict_is_a_matter_of_status(folder, capsys):
    assert main(["data", "info", str(folder), "--strict"]) == 1
    assert "is inverted" in capsys.readouterr().out
    (folder / "Annotations/a.xml").unlink()
    (folder / "JPEGImages/a.jpg").unlink()
    assert main(["data", "info", str(folder), "--strict"]) == 0
    assert "no problems found" in capsys.readouterr().out


def test_json(folder, capsys):
    assert main(["data", "info", str(folder), "--json", "--classes", "dog", "--check", "full"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n_images"] == 2
    assert document["classes"] == {"dog": 1}
    assert document["problem_kinds"] == {"class": 2}
    assert [problem["line"] for problem in document["problems"]] == [8, 4]


def test_errors_are_one_line(tmp_path, capsys):
    assert main(["data", "info", str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err == f"eesvm: error: {tmp_path}/nothing does not exist\n"
    assert main(["data", "fetch", "voc2007", "-o", str(tmp_path), "--part", "x"]) == 2
    with pytest.raises(SystemExit) as error:
        main(["data"])
    assert error.value.code == 2


def test_fetch(server, tmp_path, capsys):
    assert main(["data", "fetch", "voc2007", "-o", str(tmp_path), "--base-url", server.url]) == 0
    folder = tmp_path / "VOCdevkit" / "VOC2007"
    assert capsys.readouterr().out == f"voc2007 is in {folder}: eesvm data info {folder}\n"
    assert main(["data", "info", str(folder), "--split", "test", "--strict"]) == 0


def test_the_installed_command(folder):
    done = subprocess.run(
        [sys.executable, "-m", "eesvm", "data", "info", str(folder)], capture_output=True, text=True, check=True
    )
    assert "is inverted" in done.stdout
    assert done.stderr == ""


def test_importing_the_package_loads_no_image_library():
    script = (
        "import sys, eesvm.cli, eesvm.datasets; print([m for m in ('PIL', 'cv2', 'defusedxml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def save_partly_labelled(root, config=""):
    save_text(root / "data.yaml", f"names: [dog]\n{config}")
    for name, label in (("a", "0 0.5 0.5 0.2 0.2\n"), ("b", ""), ("c", None)):
        save_image(root / f"images/{name}.jpg")
        if label is not None:
            save_text(root / f"labels/{name}.txt", label)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            [],
            "such images are left out of training and evaluation: --unlabelled keep takes them as images without objects",
        ),
        (["--unlabelled", "keep"], "such images count as images without objects: --unlabelled skip leaves them out"),
    ],
)
def test_images_without_label_file_are_counted_apart(tmp_path, capsys, options, sentence):
    save_partly_labelled(tmp_path)
    assert main(["data", "info", str(tmp_path), *options]) == 0
    out = capsys.readouterr().out
    assert "images       3, 1 without objects, 1 without annotation\n" in out
    assert f"note: 1 of 3 images has no annotation; {sentence}\n" in out


def test_what_was_not_checked_is_said(tmp_path, capsys):
    path = save_voc(tmp_path, "a", voc_object()).parent.parent / "JPEGImages/a.jpg"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])  # opens, and breaks off
    expected = {
        "none": (
            "annotations alone; images were not opened (--check header opens them, --check full decodes them)",
            "no problems found in what was checked",
        ),
        "header": (
            "annotations, and that images open; pixels and masks were not decoded (--check full does that)",
            "no problems found in what was checked",
        ),
        "full": ("annotations, and every image and mask decoded", "1 problem (image: 1)"),
    }
    for check, (checked, found) in expected.items():
        assert main(["data", "info", str(tmp_path), "--check", check]) == 0
        assert f"checked: {checked}\n{found}\n" in capsys.readouterr().out
        main(["data", "info", str(tmp_path), "--check", check, "--json"])
        assert json.loads(capsys.readouterr().out)["check"] == check


def test_long_lists_of_problems_are_cut(tmp_path, capsys):
    save_voc(tmp_path, "a", voc_object("cat", (9, 9, 2, 2)))
    for number in range(25):
        save_image(tmp_path / f"JPEGImages/bare{number:02d}.jpg")
    main(["data", "info", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("26 problems (missing annotation: 25, box: 1)") == 1
    listed = [line for line in lines if "there is no annotation for this image" in line]
    assert len(listed) == 10
    assert "bare09.jpg" in listed[-1]
    assert any("is inverted" in line for line in lines)  # other kinds are not lost in it
    assert lines[-1] == "  and 15 more of the kind missing annotation: --json prints all"
    main(["data", "info", str(tmp_path), "--json"])
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 26
