"""How the command starts: help and refusals at once, verbs with what they need and nothing else."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import eesvm
from eesvm.cli.parsers import VERBS

HEAVY = ("numba", "sklearn", "matplotlib", "scipy", "rich", "PIL", "onnxruntime")
LAZY_ROOMS = ("windows", "descriptors", "metrics", "exemplars", "transfer", "detector", "finetuning")


def loaded_by(script):
    """Which heavy modules a new process has loaded after a script."""
    script += f"\nsys.stderr.write(repr([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stderr)


def test_help_and_wrong_calls_load_nothing_heavy():
    words = [verb.__name__.rpartition(".")[2] for verb in VERBS]
    calls = [["--help"], *([word, "--help"] for word in words), ["data", "info", "--help"]]
    calls += [[], ["tran"], ["train", "--preset", "papr"], ["calibrate", "--min-recal", "1"], ["detect"]]
    script = f"""
import contextlib, io, sys
from eesvm.cli import main
for call in {calls!r}:
    out, error = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            main(call)
    except SystemExit as end:
        assert end.code == (0 if "--help" in call else 2), call
        assert ("usage: eesvm" in out.getvalue()) == ("--help" in call), call
    else:
        raise AssertionError(call)
"""
    assert loaded_by(script) == []


def test_looking_at_data_does_not_wait_for_what_trains():
    assert loaded_by("import sys, eesvm.cli.data, eesvm.cli.cache") == ["rich"]
    assert "sklearn" not in loaded_by("import sys, eesvm.cli.windows, eesvm.cli.evaluate")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__.rpartition(".")[2])
def test_every_verb_has_a_module_that_runs_it(verb):
    """Named as text, and only looked for when the verb runs."""
    calls = [node for node in ast.walk(ast.parse(Path(verb.__file__).read_text())) if isinstance(node, ast.Call)]
    works = [call.args[2].value for call in calls if getattr(call.func, "id", "") == "add_verb"]
    assert works
    for module, function in (work.split(":") for work in works if work is not None):
        assert callable(getattr(import_module(f"eesvm.cli.{module}"), function))


@pytest.mark.parametrize("room", LAZY_ROOMS)
def test_names_of_a_room_are_those_that_type_checkers_see(room):
    package = import_module(f"eesvm.{room}")
    tree = ast.parse((Path(eesvm.__file__).parent / room / "__init__.py").read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for block in blocks for node in block.body for alias in node.names}
    assert sorted(seen) == sorted(package.__all__)
    assert set(seen) <= set(dir(package))
    for name, home in seen.items():
        assert getattr(package, name) is getattr(import_module(home), name)
    with pytest.raises(AttributeError, match=f"module 'eesvm.{room}' has no attribute 'nothing'"):
        _ = package.nothing


def test_garbage_is_collected_again_once_a_verb_is_loaded():
    script = """
import gc, sys
from eesvm.cli import main
states = []
for off in (False, True):
    gc.disable() if off else gc.enable()
    assert main(["data", "info", "nowhere"]) == 1
    states.append(gc.isenabled())
    sys.modules.pop("eesvm.cli.data")
sys.stdout.write(repr(states))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, False]"
