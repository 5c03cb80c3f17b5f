"""How many random problems a test tries: a part of them by default, all where the environment says EXAMPLES=all.

`make test` is for people who wait; `make test-all` and continuous integration try all.
"""

import os

ALL = os.environ.get("EXAMPLES") == "all"


def many(n):
    """`n` random problems, or a tenth of them, but never fewer than 20."""
    return n if ALL else min(n, max(20, n // 10))
