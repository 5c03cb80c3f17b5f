"""How much is tested: by default a part of the random problems, of the cases and of the windows, and nothing long.

Where the environment says EXAMPLES=all, tests try all of their random problems and cases, small detectors are trained
on all windows of an image, products take as many threads as there are, and tests with the marker `long` run.
`make test` is for people who wait; `make test-all` and continuous integration do everything.
"""

import os

ALL = os.environ.get("EXAMPLES") == "all"


def many(n):
    """`n` random problems, or a twentieth of them, but never fewer than 15."""
    return n if ALL else min(n, max(15, n // 20))


def few(cases, n=1):
    """The first `n` of these cases of a test, or all of them."""
    return list(cases) if ALL else list(cases)[:n]
