"""The command `eesvm`, and `python -m eesvm`, from its first moment: Ctrl-C during imports ends it as later on.

In: the arguments of the process. Out: its exit status. Not here: everything else, see `cli`.
"""

from __future__ import annotations

import sys

from eesvm._support.version import __version__


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


if __name__ == "__main__":
    sys.exit(main())
