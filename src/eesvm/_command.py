"""The command `eesvm`, from its first moment: Ctrl-C while libraries are still being imported ends it as later on.

In: the arguments of the process. Out: its exit status. Absent on purpose: everything else, see `cli`.

Before: `cli`. After: nothing.
"""

from __future__ import annotations

import sys

from eesvm._version import __version__


def main() -> int:
    """Run the command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"eesvm {__version__}\n")
        return 0
    try:
        from eesvm.cli import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: error: interrupted, nothing was written\n")
        return 130
