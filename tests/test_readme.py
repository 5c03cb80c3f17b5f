"""The commands of the README, line by line, in a clean environment with just what the lines above have installed."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eesvm.calibration.tables.examples import digit_score_table
from eesvm.datasets import write_voc
from eesvm.datasets.scenes import make_scenes
from eesvm.images import write_image

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("I have scores", "I have photographs")
TOOLS = ("pip", "eesvm")


def commands(section):
    """The lines of the shell blocks below a heading, without comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    below = text.split(f"## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", below, flags=re.S)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines() if line.strip()]


def test_the_readme_has_both_paths_and_each_begins_with_an_installation():
    for section in SECTIONS:
        lines = commands(section)
        assert lines[0][:2] == ["pip", "install"]
        assert {line[0] for line in lines} == set(TOOLS)
        assert ["eesvm", "demo"] in [line[:2] for line in lines]


@pytest.fixture
def folder(tmp_path):
    """What the lines speak of: a table of scores, new rows, a VOC devkit and photographs."""
    example = digit_score_table()
    train, test = example.train, example.test
    is_positive = train.labels == 1
    np.savez(
        tmp_path / "scores.npz", positive_scores=train.scores[is_positive], negative_scores=train.scores[~is_positive]
    )
    names = train.names
    lines = [",".join(names), *(",".join(map(str, row)) for row in test.scores[:20].tolist())]
    (tmp_path / "new_scores.csv").write_text("\n".join(lines) + "\n")
    scenes = make_scenes(8, 4, classes=("three", "eight"))
    splits = {"trainval": scenes.splits["train"], "test": scenes.splits["test"]}
    write_voc(replace(scenes, splits=splits), tmp_path / "VOCdevkit" / "VOC2007")
    (tmp_path / "photographs").mkdir()
    for record in scenes:
        if record.image_id in splits["test"]:
            write_image(tmp_path / "photographs" / f"{record.image_id}.png", record.read())
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_every_line_runs_with_what_is_installed_above_it(section, folder):
    clone = folder / "clone"  # pip builds in the folder that it installs from
    shutil.copytree(ROOT, clone, ignore=_is_made)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "venv", "clean"], cwd=folder, check=True)
    for tool, *arguments in commands(section):
        if tool == "pip":
            arguments = [re.sub(r"^\.(?=$|\[)", str(clone), each) for each in arguments] + ["--quiet"]
        line = [str(folder / "clean" / "bin" / tool), *arguments]
        if arguments[0] == "serve":
            _serve(line, folder, clean)
            continue
        done = subprocess.run(line, cwd=folder, env=clean, capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == 0, f"{shlex.join(line)}\n{done.stdout}\n{done.stderr}"


def _is_made(folder, names):
    """What tools and `make demo` have written; the package has a `demo` of its own."""
    made = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")(folder, names)
    return made | {"demo"} if Path(folder) == ROOT else made


def _serve(line, folder, environment):
    """The line that goes on until Ctrl-C: its page answers, and Ctrl-C is no error."""
    with subprocess.Popen(line, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = next(found[0] for text in process.stdout if (found := re.search(r"http://\S+", text)))
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
