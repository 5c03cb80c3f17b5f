"""Fuzz the readers of files with atheris: `python fuzz/readers.py TARGET [-runs=100000 ...]`, or `all`.

`make fuzz` runs all of them. Needs `pip install atheris`. Further arguments go to libFuzzer. Coverage of eesvm guides the search from valid files; the
inputs of interest are kept in build/fuzz/TARGET, and a finding stops the run with its traceback and its input.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

SEEDS = "--seeds"
MEMORY_MB = 2048  # a reader that wants more for a file of a few kilobytes is a finding


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == SEEDS:
        write_seeds(*sys.argv[2:])
        return
    if sys.argv[1] == "all":
        sys.exit(run_all(sys.argv[2:]))
    fuzz(sys.argv[1], sys.argv[2:])


def run_all(arguments: list[str]) -> int:
    """Every target in a process of its own; returns how many had a finding."""
    from helpers.fuzz_targets import TARGETS

    n_findings = 0
    for name in TARGETS:
        started = time.monotonic()
        command = [sys.executable, __file__, name, *(arguments or ["-runs=20000"])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        n_findings += done.returncode != 0
        lines = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        outcome = lines[-1] if done.returncode == 0 and lines else f"FINDING\n{done.stderr[-3000:]}"
        print(f"{name}: {time.monotonic() - started:.0f} s, {outcome}", flush=True)
    return n_findings


def write_seeds(name: str, corpus: str) -> None:
    """The valid files of a target, to begin with."""
    from helpers.fuzz_targets import TARGETS

    if name not in TARGETS:
        sys.exit(f"there is no target {name}: those are {', '.join(TARGETS)}")
    Path(corpus).mkdir(parents=True, exist_ok=True)
    for k, seed in enumerate(TARGETS[name].seeds()):
        Path(corpus, f"seed_{k}").write_bytes(seed)


def fuzz(name: str, arguments: list[str]) -> None:
    import atheris

    corpus = ROOT / "build" / "fuzz" / name
    # Valid files are made by a process of its own: numba cannot compile code that is instrumented.
    made = subprocess.run([sys.executable, __file__, SEEDS, name, str(corpus)], check=False)
    if made.returncode:
        sys.exit(made.returncode)
    with atheris.instrument_imports(include=["eesvm"], enable_loader_override=False):
        from helpers.fuzz_targets import TARGETS
    target = TARGETS[name]
    options = ["-max_len=16384", f"-rss_limit_mb={MEMORY_MB}", "-timeout=20", f"-artifact_prefix={corpus.parent}/"]
    atheris.Setup([sys.argv[0], str(corpus), *options, *arguments], target.try_reading)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
