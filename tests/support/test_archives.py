"""Archives of strangers: text that is no text."""

import numpy as np
import pytest

from eesvm._support.archives import load_arrays
from eesvm._support.validation import InputError


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_text_of_numbers_that_are_no_characters_is_refused(tmp_path, order, shape):
    good = np.full(shape, "a\U0010ffff", dtype=f"{order}U2")
    np.savez(tmp_path / "good.npz", names=good, numbers=np.arange(3))
    read = load_arrays(tmp_path / "good.npz", {"names", "numbers"})
    assert read["names"].tolist() == good.tolist()
    assert read["names"].shape == shape

    codes = good.reshape(-1).view(f"{order}u4")
    codes[-1] = 0x110061
    np.savez(tmp_path / "bad.npz", names=good, numbers=np.arange(3))
    with pytest.raises(InputError, match="`names` holds text with a character that does not exist"):
        load_arrays(tmp_path / "bad.npz", {"names", "numbers"})
    assert load_arrays(tmp_path / "bad.npz", {"numbers"})["numbers"].tolist() == [0, 1, 2]  # it is not looked at


def test_text_of_no_length_is_text(tmp_path):
    np.savez(tmp_path / "empty.npz", none=np.empty(0, dtype="<U4"), blank=np.array(["", ""], dtype="<U0"))
    read = load_arrays(tmp_path / "empty.npz", {"none", "blank"})
    assert read["none"].tolist() == []
    assert read["blank"].tolist() == ["", ""]
