"""`eesvm serve`: the installed command, and what it refuses before it listens."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from eesvm.cli import main
from eesvm.detector.options import CALIBRATORS
from eesvm.images import write_image
from helpers.serving_help import PATIENCE, quick_detector, scene


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve") / "model"
    quick_detector().save(folder)
    return folder


def started(model, *arguments):
    """The command in a process of its own, and the address that it prints once it listens."""
    process = subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "eesvm"), "serve", str(model), "--port", "0", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # whatever the shell has set
    )  # fmt: skip
    lines = []
    while not (lines and lines[-1].startswith("http://")):
        lines.append(process.stdout.readline())
        if not lines[-1]:
            pytest.fail(process.communicate(timeout=PATIENCE)[1])
    return process, lines


def interrupted(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=3 * PATIENCE)
    return process.returncode, out, err


def test_from_start_to_ctrl_c(model, tmp_path):
    process, lines = started(model, "--floors", "1,0.9", "--floor-time", "0.2", "--jobs", "1")
    try:
        n = len(quick_detector().exemplars_)
        assert lines[0] == f"{n} exemplars of 2 classes; open this address in a browser, Ctrl-C ends:\n"
        address = lines[-1].strip()
        assert address.startswith("http://127.0.0.1:")
        write_image(tmp_path / "scene.png", scene())
        content = (tmp_path / "scene.png").read_bytes()
        request = urllib.request.Request(f"{address}api/detect", content, {"Content-Type": "image/png"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            answer = json.load(response)
        expected = quick_detector().predict([scene()])[0]
        kept = [one for one in answer["detections"] if one["without_floor"]]
        assert [one["exemplar"] for one in kept] == expected.exemplars.tolist()
        with urllib.request.urlopen(address, timeout=PATIENCE) as response:
            assert b"<h1" in response.read()
        broken = urllib.request.Request(f"{address}api/detect", b"not an image", {"Content-Type": "image/png"})
        with pytest.raises(urllib.error.HTTPError, match="422"):
            urllib.request.urlopen(broken, timeout=PATIENCE)
    finally:
        status, out, err = interrupted(process)
    assert (status, err) == (0, "")
    assert out.endswith("stopped: the page is no longer served\n")


@pytest.mark.long
def test_quiet_prints_the_address_alone(model):
    process, lines = started(model, "--quiet", "--floors", "none", "--host", "localhost")
    status, out, err = interrupted(process)
    assert (status, out, err) == (0, "", "")
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines, and the page asks for no password: add --allow-outside if that is meant"),
        (["--host", "example.org"], "example.org can be reached from other machines, and the page asks for no password: add --allow-outside if that is meant"),
        (["--floors", "1,2"], "--floors must be numbers above 0 and up to 1, joined by commas, or none, got '1,2'"),
        (["--floors", "a"], "--floors must be numbers above 0 and up to 1, joined by commas, or none, got 'a'"),
        (["--floors", "nan"], "--floors must be numbers above 0 and up to 1, joined by commas, or none, got 'nan'"),
        (["--calibrator", "magic"], f"`calibrator` must be one of {', '.join(map(repr, CALIBRATORS))}, got 'magic'"),
    ],
)  # fmt: skip
def test_what_is_refused_before_listening(model, arguments, sentence, capsys):
    assert main(["serve", str(model), *arguments]) == 2
    assert capsys.readouterr() == ("", f"eesvm: error: {sentence}\n")


def test_a_model_that_is_none(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err == f"eesvm: error: {tmp_path / 'nothing'} is not a model: there is no such folder\n"
    assert main(["serve", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"eesvm: error: {tmp_path} is not a model: there is no model.json in it\n"


@pytest.mark.long
def test_a_port_in_use(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "eesvm", "serve", str(model), "--port", str(port)]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    sentence = f"port {port} of 127.0.0.1 is in use: choose another with --port, or 0 for any that is free"
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", f"eesvm: error: {sentence}\n")


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--port", "-1"], ["--max-upload", "0"], ["--max-pixels", "1e9"], ["--jobs", "0"], ["--queue", "-1"], []])  # fmt: skip
def test_wrong_calls(model, arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["serve", *arguments, *([str(model)] if arguments else [])])
    assert stopped.value.code == 2
    assert "usage: eesvm serve" in capsys.readouterr().err
