"""Parts of a run: what is read, what is made, what is noted."""

from dataclasses import dataclass

from eesvm._support.parts import Held, PartKey, Parts
from eesvm._support.run_folder import RunFolder


@dataclass(frozen=True)
class Remark:
    text: str


def run(folder, key, *, remark=None):
    """One run with one part, a text; (text, whether it was made, problems)."""
    problems = []
    parts = Parts(None if folder is None else RunFolder(folder), problems, Remark)

    def make():
        if remark is not None:
            problems.append(Remark(remark))
        return f"made for {key}"

    def write(root, made):
        (root / "part.txt").write_text(made)
        return ["part.txt"]

    part = PartKey("part", key)
    had = parts.has(part)
    text = parts.get(part, read=lambda root, files: (root / files[0]).read_text(), make=make, write=write)
    assert parts.changed == ([] if had else ["part"])
    assert had or folder is None or parts.seconds["files"] >= 0
    return text, not had, problems


def test_a_part_is_made_once_for_each_key(tmp_path):
    assert run(tmp_path / "a", "one") == ("made for one", True, [])
    assert run(tmp_path / "a", "one") == ("made for one", False, [])
    assert run(tmp_path / "a", "two") == ("made for two", True, [])


def test_without_a_folder_everything_is_made():
    assert run(None, "one") == ("made for one", True, [])
    assert run(None, "one") == ("made for one", True, [])


def test_a_damaged_file_is_made_again(tmp_path):
    run(tmp_path / "a", "one")
    (tmp_path / "a" / "part.txt").write_text("something else")
    assert run(tmp_path / "a", "one") == ("made for one", True, [])


def test_problems_are_told_by_runs_that_read_the_part(tmp_path):
    assert run(tmp_path / "a", "one", remark="too small")[2] == [Remark("too small")]
    assert run(tmp_path / "a", "one", remark="never made") == ("made for one", False, [Remark("too small")])


def test_notes_of_strangers_are_ignored(tmp_path):
    run(tmp_path / "a", "one")
    RunFolder(tmp_path / "a").note("part", problems=[{"another": "field"}])
    assert run(tmp_path / "a", "one") == ("made for one", False, [])


def test_a_held_value_is_fetched_again_once_forgotten():
    fetched = []
    held = Held(lambda: fetched.append(1) or len(fetched))
    assert not held.is_held
    assert (held(), held(), held.is_held) == (1, 1, True)
    held.forget()
    assert (held.is_held, held()) == (False, 2)
