"""Safetensors files: the same content gives the same bytes, and safetensors reads them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from eesvm._support.tensors import read_tensors, tensor_bytes

ARRAYS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([True, False]), "c": np.empty((0, 2))}


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=6))
def test_bytes_depend_on_the_content_alone(tmp_path_factory, metadata):
    written = tensor_bytes(ARRAYS, metadata)
    backwards = dict(reversed(metadata.items()))
    assert all(tensor_bytes(dict(reversed(ARRAYS.items())), backwards) == written for _ in range(5))
    assert int.from_bytes(written[:8], "little") % 8 == 0
    assert {name: array.tolist() for name, array in load(written).items()} == {n: a.tolist() for n, a in ARRAYS.items()}
    path = tmp_path_factory.mktemp("tensors") / "file.safetensors"
    path.write_bytes(written)
    arrays, read = read_tensors(path)
    assert read == metadata
    assert {name: (array.dtype, array.shape) for name, array in arrays.items()} == {
        name: (array.dtype, array.shape) for name, array in ARRAYS.items()
    }


def test_arrays_of_all_types_have_the_bytes_of_safetensors():
    kinds = [*"?bBhHiIlLqQefd", "F", ">f4", ">i8"]
    arrays = {f"{kind}{n}": np.arange(n).astype(kind) for kind in kinds for n in (0, 1, 3, 8)}
    arrays |= {"zero-dimensional": np.array(2.5, dtype=np.float32), "columns": np.arange(12.0).reshape(3, 4).T}
    plain = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    assert tensor_bytes(arrays, {"one": "two"}) == save(plain, {"one": "two"})
