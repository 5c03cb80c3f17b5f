"""`python -m eesvm`, the same as the command `eesvm`."""

import sys

from eesvm._command import main

if __name__ == "__main__":
    sys.exit(main())
