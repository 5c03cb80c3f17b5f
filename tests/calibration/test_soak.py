"""Random problems with everything at once, against an oracle that tries every cut; `make soak` runs many more of them."""

import pytest

from helpers.examples import many
from helpers.soak import run_case
from helpers.soak_core import run_core_case


@pytest.mark.parametrize("first", range(0, many(1000), 50))
def test_every_answer_is_right_and_verified(first):
    assert [fault for seed in range(first, first + 50) for fault in run_case(seed)[1]] == []


@pytest.mark.parametrize("first", range(0, many(1000), 50))
def test_hard_positives_at_tiny_limits_end_at_the_optimum(first):
    assert [fault for seed in range(first, first + 50) for fault in run_core_case(seed)[1]] == []


# Few detectors, and weights so far apart that a price fit for a bad solution hides what the good ones lose.
@pytest.mark.parametrize(
    "seed", [237, 25210, 30346, 30647, 47939, 51813, 59919, 61310, 61682, 67835, 68736, 73364, 77702]
)
def test_prices_of_detectors_fit_the_best_solution(seed):
    assert run_case(seed)[1] == []


# The best solution with few detectors costs more than one with all, above which weights were cut down (the first), or
# so little beside the price that rounding left a gap.
@pytest.mark.parametrize("seed", [1039350, 1075118, 381622, 647691])
def test_a_search_with_few_detectors_that_is_complete_is_a_proof(seed):
    assert run_case(seed)[1] == []
