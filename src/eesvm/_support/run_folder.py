"""`run.json` in an output folder: which parts of a long run are done, and from what.

In: names of parts, keys, files. Out: whether a part is there, made from the same things and undamaged. The file is
replaced after every part, whole or not at all, so killing the run at any moment loses the part that was being made.
A folder that is neither empty nor has a `run.json` of ours is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eesvm._support.digests import file_digest
from eesvm._support.documents import write_json
from eesvm._support.validation import InputError
from eesvm._support.version import __version__

FORMAT = "eesvm-run"
FORMAT_VERSION = 1
NAME = "run.json"

_LEFTOVER = ".part"  # how temporary files of a killed run end


class RunFolder:
    """The state of a run in its output folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.fspath(path):
            raise InputError("the output folder has an empty name")
        self.root = Path(path)
        self._state = self._open()
        self._known: dict[str, bool] = {}  # parts whose files have been looked at

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What the run before was made from; empty where there was none."""
        found = self._state.get("inputs")
        return found if isinstance(found, dict) else {}

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the run before; empty where there was none."""
        found = self._state.get("options")
        return found if isinstance(found, dict) else {}

    @property
    def parts(self) -> list[str]:
        """Names of the parts that an earlier run has left."""
        return list(self._state["parts"])

    def discard(self) -> None:
        """Remove the folder if nothing was written to it."""
        if not (self.root / NAME).exists():
            with suppress(OSError):
                self.root.rmdir()

    def begin(
        self, command: Sequence[str], options: Mapping[str, Any], inputs: Mapping[str, Any], parts: Iterable[str]
    ) -> None:
        """Note what the run is about to do; parts that it does not name stay where they are."""
        plan = {"options": _plain(options), "inputs": _plain(inputs), "planned": list(parts)}
        if self._state.get("state") == "done" and all(self._state.get(name) == plan[name] for name in plan):
            return  # nothing to note unless something turns out to be missing
        self._state |= plan | {"command": list(command), "state": "running", "started": _now()}
        self._state.pop("finished", None)
        self._write()

    def has(self, part: str, key: str) -> bool:
        """Whether a part with this key is there, with all its files as they were written."""
        entry = self._state["parts"].get(part)
        if not isinstance(entry, dict) or entry.get("key") != key:
            return False
        if part not in self._known:
            self._known[part] = self._is_whole(entry)
        return self._known[part]

    def entry(self, part: str) -> dict[str, Any]:
        """What is noted about a part."""
        return self._state["parts"].get(part, {})

    def keep(self, part: str, key: str, files: Iterable[str], seconds: float) -> None:
        """Note that a part is done."""
        digests = {name: file_digest(self.root / name) for name in files}
        self._state["parts"][part] = {
            "key": key,
            "files": digests,
            "seconds": round(seconds, 3),
            "eesvm_version": __version__,
        }
        self._state["state"] = "running"
        self._known[part] = True
        self._write()

    def note(self, part: str, **facts: Any) -> None:
        """Add to what is noted about a part."""
        self._state["parts"][part] |= facts
        self._write()

    def files(self, parts: Iterable[str]) -> dict[str, str]:
        """Files of some parts, with their hashes."""
        return {name: value for part in parts for name, value in self.entry(part).get("files", {}).items()}

    def end(self, parts: Iterable[str]) -> None:
        """Note that all is done, and remove the files of parts that are not part of it any more."""
        kept = {part: self._state["parts"][part] for part in parts}
        wanted = {name for entry in kept.values() for name in entry["files"]}
        if self._state["state"] == "done" and set(self._state["parts"]) == set(kept):
            return
        for entry in self._state["parts"].values():
            for name in entry.get("files", {}):
                if name not in wanted:
                    _remove(self.root, name)
        for leftover in [*self.root.glob(f"**/.*{_LEFTOVER}")]:
            leftover.unlink(missing_ok=True)
        self._state |= {"parts": kept, "state": "done", "finished": _now()}
        self._write()

    def checkpoints(self, name: str) -> Path:
        """A folder for what a part keeps while it is being made."""
        return self.root / "checkpoints" / name

    def _is_whole(self, entry: dict[str, Any]) -> bool:
        files = entry.get("files")
        if not isinstance(files, dict):
            return False
        try:
            return all(file_digest(self.root / name) == digest for name, digest in files.items())
        except OSError:
            return False

    def _open(self) -> dict[str, Any]:
        root, file = self.root, self.root / NAME
        new = {"format": FORMAT, "format_version": FORMAT_VERSION, "eesvm_version": __version__, "parts": {}}
        if root.exists() and not root.is_dir():
            raise InputError(f"{root} already exists and is not a folder")
        if not file.exists():
            strangers = (
                sorted(p.name for p in root.iterdir() if not p.name.endswith(_LEFTOVER)) if root.exists() else []
            )
            if strangers:
                raise InputError(f"{root} is not written to: it holds {strangers[0]}, and no {NAME} of an earlier run")
            self._make(root)
            return new
        if not os.access(root, os.W_OK | os.X_OK):
            raise InputError(f"cannot write in {root}: no permission")
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            raise InputError(f"{file}: it is damaged, or not a file of eesvm: choose another folder") from None
        if not isinstance(state, dict) or state.get("format") != FORMAT or not isinstance(state.get("parts"), dict):
            raise InputError(f"{root} is not written to: its {NAME} is not of a run of eesvm")
        if state.get("format_version") != FORMAT_VERSION:
            rule = f"must be {FORMAT_VERSION}, which this eesvm {__version__} resumes"
            raise InputError(f"{file}: `format_version` {rule}, got {state.get('format_version')!r}")
        return state

    def _make(self, root: Path) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {root}: {error.strerror or error}") from None
        if not os.access(root, os.W_OK | os.X_OK):
            raise InputError(f"cannot write in {root}: no permission")

    def _write(self) -> None:
        write_json(self.root / NAME, self._state)


def _remove(root: Path, name: str) -> None:
    """A file of ours, and its folders where that leaves them empty."""
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        return  # a name that somebody has put into the file
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == root.resolve():
            break
        try:
            folder.rmdir()
        except OSError:
            break


def _plain(value: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(value))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
