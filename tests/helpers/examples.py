"""How much is tested: by default a part of the random problems and nothing that takes long.

Where the environment says EXAMPLES=all, tests try all of their random problems, and those with the marker `long` run.
`make test` is for people who wait; `make test-all` and continuous integration do everything.
"""

import os

ALL = os.environ.get("EXAMPLES") == "all"


def many(n):
    """`n` random problems, or a tenth of them, but never fewer than 20."""
    return n if ALL else min(n, max(20, n // 10))
