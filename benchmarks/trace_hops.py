"""How far a reader walks through the files of the package to follow one `train` and one `detect`.

Run: python benchmarks/trace_hops.py            (about a minute; 24 embedded scenes, written as a VOC dataset)

Functions are listed in the order in which they are first called. Reading them in that order, one changes from file to
file: each change is a hop, and a file is entered as often as hops lead into it. Left out are comprehensions and lambdas,
which are read where they stand, and `_support`, the vocabulary of all files rather than a place on the way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import eesvm
from eesvm.datasets.scenes import make_scenes
from eesvm.datasets.writers import write_voc

PACKAGE = str(Path(eesvm.__file__).parent) + "/"


class Walk:
    """Notes each function of the package when it is first called; the profile function of every thread."""

    def __init__(self) -> None:
        self._seen: set[CodeType] = set()
        self.files: list[str] = []  # entered one after the other

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen or not code.co_filename.startswith(PACKAGE):
            return
        self._seen.add(code)
        name = code.co_filename.removeprefix(PACKAGE)
        if not code.co_name.startswith("<") and not name.startswith("_support/") and name not in self.files[-1:]:
            self.files.append(name)

    def trace(self, arguments: list[str]) -> None:
        """One run of the command."""
        from eesvm.cli import main

        threading.setprofile(self)
        sys.setprofile(self)
        try:
            status = main(arguments)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        if status:
            raise SystemExit(status)

    def summary(self, top: int) -> list[str]:
        """Lines for people: hops, files, and the files that are entered most often."""
        entries = Counter(self.files)
        rooms = [room for room, _ in groupby(name.split("/")[0] for name in self.files)]
        lines = [f"{len(self.files)} hops over {len(entries)} files, {len(rooms)} of them from room to room"]
        return lines + [f"  {n:3d} into {name}" for name, n in entries.most_common(top)]


def main() -> None:
    """Train and detect on a few scenes, in this process, and print the hops of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--top", type=int, default=12, help="files to list (default 12)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, model, found, cache = (f"{folder}/{name}" for name in ("data", "model", "found.csv", "cache"))
        write_voc(make_scenes(24, 0), data)
        quiet = ["--cache", cache, "--quiet"]
        commands = {
            "train": ["train", data, "-o", model, "--jobs", "1", *quiet],
            "detect": ["detect", model, data, "-o", found, "--jobs", "1", *quiet],
        }
        for name, command in commands.items():
            walk = Walk()
            walk.trace(command)
            print(f"{name}: " + "\n".join(walk.summary(arguments.top)))


if __name__ == "__main__":
    main()
