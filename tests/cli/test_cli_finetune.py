"""`eesvm finetune`: end to end, killed and resumed, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from eesvm.cli import main
from eesvm.datasets import write_voc
from eesvm.structures import Dataset
from helpers.finetuning_help import CLASSES, one_thread_of_torch, scenes

torch = one_thread_of_torch()

QUICK = [
    *("--windows", "grid", "--max-windows", "120", "--input-size", "64", "--epochs", "2", "--batches", "3"),
    *("--positives", "6", "--backgrounds", "10", "--held-out", "0.3", "--jobs", "1", "--device", "cpu", "--no-cache"),
]
MODULE = """
import torch
def make():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, stride=8, padding=2), torch.nn.ReLU())
def number():
    return 3
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dataset on disk with two splits, and a file with a network."""
    folder = tmp_path_factory.mktemp("finetune")
    train, test = scenes("train"), scenes("test")
    splits = {name: tuple(r.image_id for r in part) for name, part in (("train", train), ("test", test))}
    write_voc(Dataset("both", (*train, *test), CLASSES, splits), folder / "data")
    (folder / "tinynet.py").write_text(MODULE)
    return folder


@pytest.fixture
def arguments(place, monkeypatch):
    monkeypatch.chdir(place)
    return ["finetune", "data", "--split", "train", "--network", "tinynet:make", *QUICK]


def refusal(capsys, *arguments, status=1):
    assert main(list(arguments)) == status
    *progress, error = capsys.readouterr().err.splitlines(keepends=True)
    assert all(line.startswith("[") for line in progress)
    return error


def test_from_images_to_a_network_to_a_detector(arguments, tmp_path, capsys):
    output = tmp_path / "net.onnx"
    assert main([*arguments, "-o", str(output)]) == 0
    told = capsys.readouterr()
    epochs = [line for line in told.err.splitlines() if line.startswith("epoch")]  # among the lines of stages
    assert [line.split(":")[0] for line in epochs] == [f"epoch {k} of at most 2" for k in range(3)]
    assert "left" in epochs[1]
    assert f"eesvm train DATA -o model --set descriptor.backbone={output}" in told.out
    assert "held-out loss" in told.out
    train = ["train", "data", "--split", "train", "--windows", "grid", "--max-windows", "40", "--jobs", "1"]
    quick = [
        "--set",
        "descriptor.n_components=none",
        "--set",
        "descriptor.kernel_map=none",
        "--set",
        "calibration.method=greedy",
        "--no-cache",
        "--quiet",
    ]
    model = tmp_path / "model"
    assert main([*train, *quick, "--set", f"descriptor.backbone={output}", "-o", str(model)]) == 0
    card = json.loads((model / "model.json").read_text())
    assert card["descriptor"]["plain_dimension"] == 8
    assert "map" in json.dumps(card["descriptor"]["parameters"])


@pytest.mark.long
def test_the_second_time_there_is_nothing_to_do(arguments, tmp_path, capsys):
    output = tmp_path / "net.onnx"
    assert main([*arguments, "--quiet", "-o", str(output)]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*arguments, "-o", str(output)]) == 0
    assert f"{output} is up to date: there was nothing to do\n" in capsys.readouterr().out
    other = [*arguments, "--seed", "1", "-o", str(output)]
    assert "already exists and was made from other things" in refusal(capsys, *other)
    assert main([*other, "--overwrite", "--quiet"]) == 0
    assert json.loads(output.with_suffix(".json").read_text())["options"]["random_state"] == 1


@pytest.mark.long
def test_windows_from_a_file_and_a_split_to_stop_by(arguments, tmp_path, capsys):
    windows = ["windows", "data", "--method", "grid", "--max-windows", "60", "--ground-truth", "--quiet", "--jobs", "1"]
    assert main([*windows, "-o", str(tmp_path / "w.npz")]) == 0
    more = [
        "--windows-from",
        str(tmp_path / "w.npz"),
        "--held-out-split",
        "test",
        "--hidden",
        "6",
        "--classes",
        "three",
    ]
    assert main([*arguments, *more, "-o", str(tmp_path / "net.onnx"), "--quiet"]) == 0
    card = json.loads((tmp_path / "net.json").read_text())
    assert card["inputs"]["n_held_out"] == len(scenes("test"))
    assert card["options"]["hidden"] == 6
    assert list(card["inputs"]["objects"]) == ["three"]


def test_what_it_refuses(arguments, tmp_path, capsys):
    output = ["-o", str(tmp_path / "net.onnx")]
    whole = [argument for argument in arguments if argument not in ("--split", "train")]
    assert "data has the splits test, train: say by --split which of them to train on" in refusal(
        capsys, *whole, *output
    )
    assert "the output must end in .onnx" in refusal(capsys, *arguments, "-o", "net.pt", status=2)
    assert "there is no folder" in refusal(capsys, *arguments, "-o", str(tmp_path / "no" / "net.onnx"))
    assert "has no object to learn from" in refusal(capsys, *arguments, *output, "--classes", "nine")
    assert "and fine-tuning needs 900" in refusal(capsys, *arguments, *output, "--min-objects", "900")
    assert "is both to be trained on and held out" in refusal(capsys, *arguments, *output, "--held-out-split", "train")
    wrong = refusal(capsys, *arguments, *output, "--network", "resnet", status=2)
    assert "--network must be lite0, lite1, lite2 or MODULE:FUNCTION, got 'resnet'" in wrong
    for network, message in (
        ("nofile:make", "--network nofile:make: No module named 'nofile'"),
        ("tinynet:none", "has no attribute 'none'"),
        ("tinynet:number", "`module` must be a torch module, got int"),
    ):
        assert message in refusal(capsys, *arguments, *output, "--network", network)
    if not torch.cuda.is_available():
        assert "`device` is 'cuda', but" in refusal(capsys, *arguments, *output, "--device", "cuda")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_file_of_somebody_else_is_replaced_only_when_asked_for(arguments, tmp_path, capsys):
    output = tmp_path / "net.onnx"
    output.write_text("not a network of ours")
    assert "net.onnx already exists and was not made by this" in refusal(capsys, *arguments, "-o", str(output))
    assert output.read_text() == "not a network of ours"
    assert main([*arguments, "-o", str(output), "--overwrite", "--quiet"]) == 0
    assert json.loads((tmp_path / "net.json").read_text())["format"] == "eesvm-backbone"


@pytest.mark.parametrize("wrong", [["--epochs", "0"], ["--jitter", "0.9"], ["--preset", "huge"], ["--hidden", "x"]])
def test_a_wrong_call_is_2(arguments, wrong, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, *wrong, "-o", "net.onnx"])
    assert stopped.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_without_torch_it_says_what_to_install(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    expected = "eesvm: error: this needs the package torch, which is not installed: pip install 'eesvm[torch]'\n"
    assert refusal(capsys, *arguments, "-o", str(tmp_path / "net.onnx")) == expected


def test_interrupted(arguments, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("eesvm.cli.finetune.finetune", interrupt)
    assert main([*arguments, "-o", str(tmp_path / "net.onnx")]) == 130
    assert capsys.readouterr().err == "eesvm: interrupted: the same command resumes from the last checkpoint\n"


@pytest.mark.slow
def test_killed_for_real_and_started_again(arguments, place, tmp_path):
    command = [sys.executable, "-m", "eesvm", *arguments, "--epochs", "60", "--patience", "60"]
    environment = os.environ | {"PYTHONPATH": str(place)}
    subprocess.run([*command, "-o", str(tmp_path / "whole.onnx"), "--quiet"], check=True, env=environment, cwd=place)
    output = tmp_path / "killed" / "whole.onnx"  # the same name: it is in the graph
    output.parent.mkdir()
    process = subprocess.Popen(
        [*command, "-o", str(output)], stderr=subprocess.PIPE, env=environment, cwd=place, text=True
    )
    for line in process.stderr:
        if line.startswith("epoch 5 "):
            time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
            break
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL
    assert not output.exists()
    again = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, env=environment, cwd=place)
    assert again.returncode == 0, again.stderr
    assert not again.stderr.startswith("epoch 0")
    assert output.read_bytes() == (tmp_path / "whole.onnx").read_bytes()
