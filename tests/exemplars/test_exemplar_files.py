"""Exemplars in a file: what comes back is what went in, and nothing else is believed."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from eesvm import ExemplarLDA, ExemplarSVMs, InputError
from eesvm.exemplars.files import ExemplarIdentity, load_exemplars, save_exemplars
from eesvm.structures import Instance
from helpers.reference_svm import relu_features

EXEMPLARS, NEGATIVES = relu_features(3, 60, 10)
IDENTITIES = [
    ExemplarIdentity("a.jpg", (1.0, 2.0, 30.5, 40.0), "cat", 0, {"pose": "left", "tags": ["ä", None, 1.5]}),
    ExemplarIdentity("a.jpg", (5.0, 2.0, 30.5, 40.0), "cat", 1),
    Instance("cat", np.array([0.0, 0.0, 7.0, 8.0]), "b.jpg", 4, metadata={"breed": "Manx"}),
]


@pytest.fixture
def saved(tmp_path):
    svms = ExemplarSVMs(1e-3, 2.0).fit(EXEMPLARS, NEGATIVES)
    save_exemplars(tmp_path / "cats.safetensors", svms, IDENTITIES, {"name": "hog", "cell": 8})
    return svms, tmp_path / "cats.safetensors"


def test_a_round_trip_is_exact(saved):
    svms, path = saved
    loaded = load_exemplars(path)
    for name in ("coef_", "intercept_", "objective_", "gap_", "violation_", "n_support_", "converged_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(svms, name))
        assert getattr(loaded, name).dtype == getattr(svms, name).dtype
    np.testing.assert_array_equal(loaded.decision_function(NEGATIVES), svms.decision_function(NEGATIVES))
    assert isinstance(loaded, ExemplarSVMs)
    assert (loaded.C, loaded.positive_weight, loaded.loss) == (1e-3, 2.0, "hinge")
    assert loaded.exemplars_[0] == IDENTITIES[0]
    assert loaded.exemplars_[2] == ExemplarIdentity("b.jpg", (0.0, 0.0, 7.0, 8.0), "cat", 4, {"breed": "Manx"})
    assert loaded.descriptor_ == {"name": "hog", "cell": 8}


def test_lda_goes_the_same_way(tmp_path):
    lda = ExemplarLDA(0.2).fit(EXEMPLARS, NEGATIVES)
    save_exemplars(tmp_path / "lda", lda, IDENTITIES)
    loaded = load_exemplars(tmp_path / "lda")
    assert isinstance(loaded, ExemplarLDA)
    assert loaded.shrinkage == 0.2
    assert loaded.descriptor_ is None
    np.testing.assert_array_equal(loaded.decision_function(EXEMPLARS), lda.decision_function(EXEMPLARS))


def test_what_cannot_be_saved_leaves_no_file(tmp_path):
    svms = ExemplarSVMs(1e-3).fit(EXEMPLARS, NEGATIVES)
    bad_box = ExemplarIdentity("a", (3.0, 0.0, 1.0, 1.0), "cat")
    cases = [
        ("`exemplars` must be fitted ExemplarSVMs or ExemplarLDA", ExemplarSVMs(), IDENTITIES, None),
        ("`identities` must hold one for each of 3 exemplars, got 2", svms, IDENTITIES[:2], None),
        ("`identities` must hold ExemplarIdentity or Instance, got str", svms, ["a", "b", "c"], None),
        ("`identities` must have boxes x1, y1, x2, y2 with x1 < x2 and y1 < y2, got (3.0, 0.0, 1.0, 1.0)", svms, [bad_box] * 3, None),
        ("`identities` and `descriptor` must hold what JSON can hold: Object of type set is not JSON serializable", svms, IDENTITIES, {"layers": {1, 2}}),
    ]  # fmt: skip
    for sentence, exemplars, identities, descriptor in cases:
        with pytest.raises(InputError) as error:
            save_exemplars(tmp_path / "file", exemplars, identities, descriptor)
        assert str(error.value) == sentence
    assert list(tmp_path.iterdir()) == []


def rewrite(path, change_arrays=None, change_content=None, **metadata):
    """The same file with something else in it."""
    with safe_open(path, framework="numpy") as handle:
        kept = dict(handle.metadata())
    arrays = load_file(path)
    if change_arrays:
        change_arrays(arrays)
    if change_content:
        content = json.loads(kept["content"])
        change_content(content)
        kept["content"] = json.dumps(content)
    save_file(arrays, path, {**kept, **metadata})


def put(**values):
    return lambda target: target.update(values)


def put_in_first(**values):
    return lambda content: content["exemplars"][0].update(values)


ARRAY_FAULTS = {
    "`arrays` must be coef, converged, gap, intercept, n_support, objective, violation, got coef, converged, gap, n_support, objective, violation": lambda a: (
        a.pop("intercept")
    ),
    "`coef` must be float32, got float64": put(coef=np.zeros((3, 10))),
    "`coef` must have shape (exemplars, dimensions), got (30,)": put(coef=np.zeros(30, dtype=np.float32)),
    "`intercept` must have shape (3,), got (4,)": put(intercept=np.zeros(4, dtype=np.float32)),
    "`coef` holds a value that is NaN or infinite": put(coef=np.full((3, 10), np.nan, dtype=np.float32)),
}
CONTENT_FAULTS = {
    "`estimator` must be one of ExemplarSVMs, ExemplarLDA, got 'os.system'": put(estimator="os.system"),
    "`estimator` must be one of ExemplarSVMs, ExemplarLDA, got []": put(estimator=[]),
    "`parameters` must hold C, positive_weight, loss, bias_multiplier, tol": put(parameters={"C": 1}),
    "`parameters.C` must be a number or a text, got None": lambda c: c["parameters"].update(C=None),
    "`parameters` cannot be used: `C` must be > 0, got -1": lambda c: c["parameters"].update(C=-1),
    "`exemplars` must be a list of 3": put(exemplars=[]),
    "`exemplars[0]` must hold image_id, box, class_name, index, metadata": lambda c: c["exemplars"][0].pop("box"),
    "`exemplars[0].image_id` must be a text, got 7": put_in_first(image_id=7),
    "`exemplars[0].index` must be an integer >= 0, got -1": put_in_first(index=-1),
    "`exemplars[0].metadata` must be an object": put_in_first(metadata=[1]),
    "`exemplars[0].box` must be four numbers x1, y1, x2, y2 with x1 < x2 and y1 < y2": put_in_first(box=[1, 2, 3]),
    "`descriptor` must be null or an object": put(descriptor=3),
}


@pytest.mark.parametrize("sentence", ARRAY_FAULTS)
def test_arrays_are_checked(saved, sentence):
    _, path = saved
    rewrite(path, change_arrays=ARRAY_FAULTS[sentence])
    with pytest.raises(InputError) as error:
        load_exemplars(path)
    assert str(error.value) == f"{path}: {sentence}"


@pytest.mark.parametrize("sentence", CONTENT_FAULTS)
def test_json_is_checked(saved, sentence):
    _, path = saved
    rewrite(path, change_content=CONTENT_FAULTS[sentence])
    with pytest.raises(InputError) as error:
        load_exemplars(path)
    assert str(error.value) == f"{path}: {sentence}"


def test_the_format_is_checked(saved, tmp_path):
    _, path = saved
    rewrite(path, format_version="2")
    with pytest.raises(InputError, match=r": `format_version` must be 1, which this eesvm \S+ reads, got '2'$"):
        load_exemplars(path)
    rewrite(path, format_version="1", content="{")
    with pytest.raises(InputError, match=r": `content` is not JSON$"):
        load_exemplars(path)
    rewrite(path, content="[]")
    with pytest.raises(InputError, match=r": `content` must be an object$"):
        load_exemplars(path)
    save_file({"a": np.zeros(2)}, tmp_path / "other")
    with pytest.raises(InputError, match=r': it holds no exemplars: there is no "format": "eesvm-exemplars"$'):
        load_exemplars(tmp_path / "other")


def test_files_that_are_none_of_ours(tmp_path, saved):
    _, path = saved
    with pytest.raises(InputError, match=r": there is no such file$"):
        load_exemplars(tmp_path / "missing")
    with pytest.raises(InputError, match=r": it cannot be read \(Is a directory\)$"):
        load_exemplars(tmp_path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for n in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(InputError, match=r": it is not a safetensors file, or it is damaged$"):
            load_exemplars(path)
    for _ in range(30):  # single bytes turned over in the head: an error of ours, or a file that says what it said
        damaged = bytearray(whole)
        damaged[random.integers(0, 900)] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(bytes(damaged))
        try:
            load_exemplars(path)
        except InputError:
            continue
