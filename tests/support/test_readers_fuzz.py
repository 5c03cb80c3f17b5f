"""Damaged files of every kind: each reader reads them or refuses them with its own error, and nothing else happens."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.fuzz_targets import TARGETS, packed, unpacked

SEEDS = {name: tuple(target.seeds()) for name, target in TARGETS.items()}
DAMAGE = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", TARGETS)
def test_valid_files_can_be_read(name):
    for seed in SEEDS[name]:
        assert TARGETS[name].try_reading(seed) is not TARGETS[name].needs_more


@st.composite
def damaged(draw, content):
    """Some bytes changed, some cut out, some put in, or the end cut off."""
    text = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(text) - 1)))
        way = draw(st.sampled_from(["change", "cut", "put", "end"]))
        if way == "change" and text:
            text[place] = draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0-9.eN"<{[\\')))
        elif way == "cut":
            del text[place : place + draw(st.integers(1, 12))]
        elif way == "put":
            text[place:place] = draw(st.sampled_from([b"-1", b"1e999", b"NaN", b"9" * 25, b'"', b"[]", b"\0", b"<a>"]))
        else:
            del text[max(1, place) :]
    return bytes(text)


@pytest.mark.parametrize("name", TARGETS)
@DAMAGE
@given(data=st.data())
def test_damaged_files(name, data):
    seed = data.draw(st.sampled_from(SEEDS[name]))
    members = unpacked(seed)
    if members is not None and data.draw(st.booleans()):  # inside the archive: its own check would refuse it otherwise
        k = data.draw(st.integers(0, len(members) - 1))
        members[k] = (members[k][0], data.draw(damaged(members[k][1])))
        TARGETS[name].try_reading(packed(members))
    else:
        TARGETS[name].try_reading(data.draw(damaged(seed)))


@pytest.mark.parametrize("name", TARGETS)
@settings(DAMAGE, max_examples=15)
@given(content=st.binary(max_size=200))
def test_any_bytes(name, content):
    TARGETS[name].try_reading(content)
