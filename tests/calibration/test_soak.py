"""Random problems with everything at once, against an oracle that tries every cut; `make soak` runs many more of them."""

import pytest

from helpers.examples import many
from helpers.soak import run_case


@pytest.mark.parametrize("first", range(0, many(1000), 50))
def test_every_answer_is_right_and_verified(first):
    assert [fault for seed in range(first, first + 50) for fault in run_case(seed)[1]] == []
