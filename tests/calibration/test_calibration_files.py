"""Calibrations on disk: loaded ones score alike, damaged ones are refused, and nothing is ever half written."""

import contextlib
import errno
import json
import os
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import (
    AffineCalibrator,
    InputError,
    IsotonicCalibrator,
    JointCalibrator,
    SigmoidCalibrator,
    Uncalibrated,
    load_calibration,
    save_calibration,
)
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.files import arrays
from eesvm.calibration.files.arrays import load_calibrator, save_calibrator
from eesvm.calibration.files.calibrations import atomic_folder, atomic_write, check_output_folder, fitted_calibrator
from eesvm.calibration.result import CalibrationResult
from helpers.examples import many


def table(seed=0, n=60, n_exemplars=5, dtype=np.float32):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3 == 0
    return (random.normal(size=(n, n_exemplars)) + labels[:, None]).astype(dtype), labels.astype(int)


def fitted(**options):
    return JointCalibrator(**options).fit(*table())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "calibrator"),
    [("sigmoid", SigmoidCalibrator), ("isotonic", IsotonicCalibrator), ("affine", AffineCalibrator)],
)
def test_calibrators_of_single_columns_can_be_read_again_whatever_they_were_fitted_to(
    tmp_path, name, calibrator, dtype
):
    scores, labels = table(dtype=dtype)
    saved = calibrator().fit(scores, labels)
    save_calibrator(tmp_path / "c.safetensors", name, saved)
    loaded = load_calibrator(tmp_path / "c.safetensors", name, scores.shape[1])
    for new in (scores, table(seed=1, dtype=dtype)[0]):
        np.testing.assert_array_equal(loaded.transform(new), saved.transform(new))


class Doubled(ScoreCalibrator):
    """A calibrator that has no file."""

    def __init__(self, pos_label=None, missing="refuse"):
        self.pos_label, self.missing = pos_label, missing

    def _calibrate(self, scores):
        return 2 * scores


@pytest.mark.parametrize(
    ("name", "calibrator", "sentence"),
    [
        ("doubled", Doubled(), "`name` must be one of 'none', 'sigmoid', 'isotonic', 'affine', got 'doubled'"),
        ("none", Doubled(), "`calibrator` must be of a kind that has a file, none, sigmoid, isotonic, affine, got Doubled()"),
        ("affine", Uncalibrated(), "`calibrator` must be of the kind 'affine', got Uncalibrated()"),
        ("sigmoid", AffineCalibrator(), "`calibrator` must be of the kind 'sigmoid', got AffineCalibrator()"),
    ],
)  # fmt: skip
def test_a_calibrator_without_a_file_is_not_written(tmp_path, name, calibrator, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        save_calibrator(tmp_path / "c.safetensors", name, calibrator.fit(*table()))
    assert not any(tmp_path.iterdir())


def test_a_kind_that_has_no_file_is_not_read(tmp_path):
    save_calibrator(tmp_path / "c.safetensors", "none", Uncalibrated().fit(*table()))
    assert isinstance(load_calibrator(tmp_path / "c.safetensors", "none", 5), Uncalibrated)
    sentence = "`name` must be one of 'none', 'sigmoid', 'isotonic', 'affine', got 'doubled'"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        load_calibrator(tmp_path / "c.safetensors", "doubled", 5)


def test_a_kind_with_arrays_that_nothing_makes_a_calibrator_of_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setitem(arrays._ARRAYS, "doubled", {"scale": np.dtype(float), "offset": np.dtype(float)})
    save_calibrator(tmp_path / "c.safetensors", "doubled", AffineCalibrator().fit(*table()))
    sentence = r"c\.safetensors: nothing makes a calibrator of the kind 'doubled' from its arrays$"
    with pytest.raises(InputError, match=sentence):
        load_calibrator(tmp_path / "c.safetensors", "doubled", 5)


def test_steps_of_another_dtype_are_refused(tmp_path):
    saved = IsotonicCalibrator().fit(*table())
    saved.steps_ = [(begins.astype(np.int64), values) for begins, values in saved.steps_]
    save_calibrator(tmp_path / "c.safetensors", "isotonic", saved)
    with pytest.raises(InputError, match=r"c\.safetensors: `begins` must be float32 or float64, got int64$"):
        load_calibrator(tmp_path / "c.safetensors", "isotonic", 5)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_calibration_scores_like_the_saved_one(tmp_path, sigmoid, dtype):
    scores, labels = table(dtype=dtype)
    saved = JointCalibrator(sigmoid=sigmoid, min_recall=0.8).fit(scores, labels)
    save_calibration(tmp_path / "calibration.json", saved, ["a", "ü", '"', "d,e", "5"])
    for path in (tmp_path / "calibration.json", tmp_path):
        loaded = load_calibration(path)
        new, _ = table(seed=1, dtype=dtype)
        assert loaded.exemplar_names_ == ["a", "ü", '"', "d,e", "5"]
        assert loaded.thresholds_.dtype == dtype
        assert loaded.get_params() == saved.get_params()
        for method in ("transform", "decision_function", "predict", "assign"):
            np.testing.assert_array_equal(getattr(loaded, method)(new), getattr(saved, method)(new))
        for name in ("loss", "lower_bound", "gap", "status", "method", "recall", "n_nodes", "n_redundant", "history"):
            assert getattr(loaded.result_, name) == getattr(saved.result_, name)


def test_units_of_margins_are_kept(tmp_path):
    scores, labels = table()
    saved = JointCalibrator(scale="spread").fit(scores, labels)
    save_calibration(tmp_path / "c.json", saved)
    loaded = load_calibration(tmp_path / "c.json")
    np.testing.assert_array_equal(loaded.transform(scores), saved.transform(scores))
    content = json.loads((tmp_path / "c.json").read_text())
    for wrong in ([1.0], [0.0] * 5, "1"):
        (tmp_path / "d.json").write_text(json.dumps(content | {"scales": wrong}))
        with pytest.raises(InputError, match=r"d.json: `scales` must be a list of 5 numbers > 0$"):
            load_calibration(tmp_path / "d.json")
    del content["scales"]  # as earlier versions wrote it
    (tmp_path / "d.json").write_text(json.dumps(content))
    loaded = load_calibration(tmp_path / "d.json")
    np.testing.assert_array_equal(loaded.transform(scores), scores - saved.thresholds_)


def test_times_can_be_kept_apart(tmp_path):
    scores, labels = table()
    texts = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        saved = JointCalibrator().fit(scores, labels)
        save_calibration(tmp_path / name / "calibration.json", saved, times_apart=True)
        loaded = load_calibration(tmp_path / name)
        assert (loaded.result_.seconds, loaded.result_.history) == (saved.result_.seconds, saved.result_.history)
        texts.append((tmp_path / name / "calibration.json").read_bytes())
    assert texts[0] == texts[1]
    (tmp_path / "one" / "search.json").write_text('{"format": "eesvm-search", "seconds": 1, "history": [[1, 2]]}')
    message = f"{tmp_path / 'one' / 'search.json'}: `history` must be a list of triples of numbers >= 0"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_calibration(tmp_path / "one")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, width=32), min_size=1),
    st.sampled_from([np.float32, np.float64]),
)
def test_thresholds_survive_to_the_last_bit(tmp_path_factory, thresholds, dtype):
    path = tmp_path_factory.mktemp("json") / "c.json"
    result = CalibrationResult(
        np.array(thresholds, dtype=dtype), 1.0, 0.5, "feasible", "greedy", np.zeros(3, dtype=np.intp), 1.0, 1, 0.1, [],
        {"n_positives": 3, "n_negatives": 4},
    )  # fmt: skip
    save_calibration(path, fitted_calibrator(JointCalibrator(), result))
    loaded = load_calibration(path)
    assert loaded.thresholds_.tobytes() == result.thresholds.tobytes()
    assert loaded.exemplar_names_ is None
    save_calibration(path.with_name("again.json"), loaded)
    assert path.read_text() == path.with_name("again.json").read_text()


def test_names_of_a_data_frame_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    scores, labels = table()
    frame = pandas.DataFrame(scores, columns=list("abcde"))
    save_calibration(tmp_path / "c.json", JointCalibrator().fit(frame, labels))
    loaded = load_calibration(tmp_path / "c.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.predict(frame)
    assert loaded.exemplar_names_ == list("abcde")
    with pytest.raises(InputError, match="`S` has other columns than in `fit`"):
        loaded.predict(frame[list("edcba")])


def test_labels_are_kept(tmp_path):
    scores, labels = table()
    save_calibration(tmp_path / "c.json", JointCalibrator(pos_label="no").fit(scores, np.where(labels, "no", "yes")))
    loaded = load_calibration(tmp_path / "c.json")
    assert loaded.classes_.tolist() == ["yes", "no"]
    assert loaded.pos_label == "no"  # so that it can be fitted again
    np.testing.assert_array_equal(loaded.predict(scores) == "no", JointCalibrator().fit(scores, labels).predict(scores))


def test_only_fitted_joint_calibrators_are_saved(tmp_path):
    with pytest.raises(InputError, match=r"^`calibrator` must be a fitted JointCalibrator or CooccurrenceCalibrator$"):
        save_calibration(tmp_path / "c.json", JointCalibrator())
    message = r"^`exemplar_names` must hold 5 different names, got 2 with 2 different ones$"
    with pytest.raises(InputError, match=message):
        save_calibration(tmp_path / "c.json", fitted(), ["a", "b"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "it is not JSON (line 1: Expecting value)"),
        ('{\n"format": ', "it is not JSON (line 2: Expecting value)"),
        ("[1, 2]", 'it is not a calibration: there is no "format": "eesvm-calibration"'),
        ("{}", 'it is not a calibration: there is no "format": "eesvm-calibration"'),
        ('{"format": NaN}', "the number NaN has no place in it"),
        ("[" * 100_000, "it is not JSON text"),
        (b"\xff\xfe\x00", "it is not JSON text"),
    ],
)
def test_files_that_are_no_calibration(tmp_path, content, complaint):
    path = tmp_path / "c.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert str(caught.value) == f"{path}: {complaint}"


def test_missing_and_enormous_files(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"calibration\.json: there is no such file$"):
        load_calibration(tmp_path)
    save_calibration(tmp_path / "calibration.json", fitted())
    monkeypatch.setattr("eesvm.calibration.files.calibrations._MAX_BYTES", 100)
    with pytest.raises(InputError, match=r"calibration\.json: it is too large to be a calibration \([\d,]+ bytes\)$"):
        load_calibration(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("format_version", 2, "`format_version` must be 1, which this eesvm 0.1.0 reads, got 2"),
        ("dtype", "int8", "`dtype` must be float32 or float64, got 'int8'"),
        ("thresholds", [], "`thresholds` must be a list with one entry per detector"),
        ("thresholds", [1, "x"], "`thresholds` must hold finite numbers, \"-inf\", and null for redundant detectors"),
        ("thresholds", [True] * 5, "`thresholds` must hold finite numbers, \"-inf\", and null for redundant detectors"),
        ("thresholds", [10**400] * 5, "`thresholds` must hold finite numbers, \"-inf\", and null for redundant detectors"),
        ("thresholds", [0.1] * 5, "`thresholds` holds a number that is not a float32"),
        ("thresholds", [1e300] * 5, "`thresholds` holds a number that is not a float32"),
        ("thresholds", [1.0] * 4, "`sigmoids` must be a list of 4 pairs of finite numbers"),
        ("sigmoids", None, "`sigmoids` must be a list of 5 pairs of finite numbers"),
        ("sigmoids", [[1, 2]] * 4 + [[1]], "`sigmoids` must be a list of 5 pairs of finite numbers"),
        ("muted", [0] * 5, "`muted` must be a list of 5 booleans"),
        ("parameters", {}, "`parameters` must hold sigmoid, method, min_recall, time_limit, node_limit, gap, "
         "criterion, min_positives, max_negatives_per_positive, random_state, n_jobs"),
        ("parameters.sigmoid", "yes", "`parameters.sigmoid` must be true or false, got 'yes'"),
        ("parameters.gap", [1], "`parameters.gap` must be a number, a text, true, false or null"),
        ("parameters.min_recall", "abc", "`parameters` cannot be used: `min_recall` must be a number, got 'abc'"),
        ("parameters.method", 7, "`parameters` cannot be used: `method` must be one of 'exact', 'algorithm1', 'exhaustive', 'greedy', got 7"),
        ("result.n_nodes", 1.5, "`result.n_nodes` must be a whole number >= 0, got 1.5"),
        ("format_version", True, "`format_version` must be 1, which this eesvm 0.1.0 reads, got True"),
        ("classes", [1, "a"], "`classes` must be two numbers or two texts"),
        ("classes", [1, 1], "`classes` must be a list of two different labels"),
        ("classes", [1, None], "`classes` must hold numbers, texts or booleans"),
        ("result", 3, "`result` must be an object"),
        ("result.loss", -1, "`result.loss` must be a number >= 0, got -1"),
        ("result.recall", 1.5, "`result` must have recall <= 1 and lower_bound <= loss"),
        ("result.status", "perfect", "`result.status` must be one of optimal, gap_reached, time_limit, node_limit, "
         "feasible, got 'perfect'"),
        ("result.method", None, "`result.method` must be a text, got None"),
        ("result.history", [[1, 2]], "`result.history` must be a list of triples of numbers >= 0"),
        ("result.history", [[1, 2, None]], "`result.history` must be a list of triples of numbers >= 0"),
        ("result.min_recall", 1.5, "`result.min_recall` must be a number > 0 and <= 1, got 1.5"),
        ("across_groups", 1, "`across_groups` must be true or false, got 1"),
        ("exemplar_names", ["a"], "`exemplar_names` must be null or a list of 5 texts"),
        ("exemplar_names", ["a"] * 5, "`exemplar_names` holds a name twice"),
    ],
)  # fmt: skip
def test_every_field_is_checked(tmp_path, field, value, complaint):
    path = tmp_path / "c.json"
    save_calibration(path, fitted(sigmoid=True))
    content = json.loads(path.read_text())
    *outer, name = field.split(".")
    (content[outer[0]] if outer else content)[name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert str(caught.value) == f"{path}: {complaint}"


@settings(max_examples=many(150), deadline=None)
@given(st.data())
def test_damage_never_surfaces_as_another_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "c.json"
    save_calibration(path, fitted(sigmoid=True))
    content = json.loads(path.read_text())
    name = data.draw(st.sampled_from(sorted(content)))
    junk = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
    if data.draw(st.booleans()):
        del content[name]
    else:
        content[name] = data.draw(junk)
    path.write_text(json.dumps(content))
    with contextlib.suppress(InputError):
        load_calibration(path).predict(table()[0])


class Failure(Exception):
    pass


def write_file(path, text, error=None):
    with atomic_write(path, text=True) as handle:
        handle.write(text)
        if error is not None:
            raise error


def write_folder(path, text, overwrite=False, error=None, meanwhile=None):
    with atomic_folder(path, overwrite) as folder:
        (folder / "a.txt").write_text(text)
        if meanwhile is not None:
            meanwhile.write_text("mine")
        if error is not None:
            raise error


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "f.txt"
    with pytest.raises(Failure):
        write_file(path, "half", Failure())
    assert list(tmp_path.iterdir()) == []
    with atomic_write(path, text=True) as handle:
        handle.write("whole\n")
        assert not path.exists()
    assert path.read_bytes() == b"whole\n"
    with pytest.raises(KeyboardInterrupt):
        write_file(path, "other", KeyboardInterrupt())
    assert path.read_bytes() == b"whole\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("function", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, function, number):
    path = tmp_path / "f.txt"
    path.write_text("old")

    def fail(*_):
        raise OSError(number, "no")

    monkeypatch.setattr(function, fail)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        write_file(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_folders_and_devices(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_write(link, text=True) as handle:
        handle.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    with pytest.raises(InputError, match=r"^cannot write .*: it is a folder$"), atomic_write(tmp_path):
        pass
    with atomic_write(os.devnull) as handle:
        handle.write(b"nothing")
    assert not os.path.isfile(os.devnull)


def test_new_files_have_ordinary_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_write(tmp_path / "ours"):
        pass
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "out"
    with pytest.raises(Failure):
        write_folder(path, "a", error=Failure())
    assert not path.exists()
    with atomic_folder(path) as folder:
        (folder / "a.txt").write_text("a")
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text("b")
        assert not path.exists()
    assert sorted(entry.name for entry in path.iterdir()) == [".eesvm-output", "a.txt", "sub"]
    assert [entry.name for entry in path.parent.iterdir()] == ["out"]


def test_only_our_own_folders_are_replaced(tmp_path):
    path = tmp_path / "out"
    write_folder(path, "first")
    message = r"out already exists: choose another folder or allow overwriting it \(--overwrite\)$"
    with pytest.raises(InputError, match=message):
        write_folder(path, "second")
    write_folder(path, "second", overwrite=True)
    assert (path / "a.txt").read_text() == "second"
    (path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"out is not replaced: it holds notes\.txt, which eesvm did not write$"):
        write_folder(path, "third", overwrite=True)
    assert (path / "notes.txt").read_text() == "mine"
    assert (path / "a.txt").read_text() == "second"
    stranger = tmp_path / "stranger"
    (stranger / "photos").mkdir(parents=True)
    with pytest.raises(InputError, match=r"stranger is not replaced: it holds photos, which eesvm did not write$"):
        write_folder(stranger, "x", overwrite=True)
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", "x", overwrite=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["empty", "out", "stranger"]


def test_something_put_into_the_folder_meanwhile_survives(tmp_path):
    path = tmp_path / "out"
    write_folder(path, "first")
    with pytest.raises(InputError, match=r"it holds late\.txt"):
        write_folder(path, "second", overwrite=True, meanwhile=path / "late.txt")
    assert (path / "late.txt").read_text() == "mine"
    assert (path / "a.txt").read_text() == "first"


@pytest.mark.parametrize("failing_call", [1, 2])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no"), KeyboardInterrupt()])
def test_a_failing_rename_leaves_the_old_folder(tmp_path, monkeypatch, failing_call, error):
    path = tmp_path / "out"
    write_folder(path, "first")
    rename, calls = os.rename, []

    def fail_once(source, target):
        calls.append(source)
        if len(calls) == failing_call:
            raise error
        rename(source, target)

    monkeypatch.setattr("os.rename", fail_once)
    with pytest.raises(type(error)):
        write_folder(path, "second", overwrite=True)
    assert (path / "a.txt").read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_places_where_no_folder_can_be(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file already exists and is not a folder$"):
        check_output_folder(tmp_path / "file", overwrite=True)
    with pytest.raises(InputError, match=r"^cannot create .*out: .*file is not a folder$"):
        check_output_folder(tmp_path / "file" / "out")
    with pytest.raises(InputError, match=r"^the output folder has an empty name$"):
        check_output_folder("")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match=r"^cannot create .*new: no permission to write in "):
        check_output_folder(tmp_path / "new")


@pytest.mark.parametrize("labels", [["neg", "pos"], [False, True], [-1.0, 2.0], [0, 1]])
@pytest.mark.parametrize("dtype", [object, None])
def test_labels_of_every_kind_are_kept(tmp_path, labels, dtype):
    y = np.array([labels[1], labels[0], labels[0]], dtype=dtype)
    saved = JointCalibrator(pos_label=labels[1]).fit(np.array([[3.0], [1.0], [2.0]]), y)
    save_calibration(tmp_path / "c.json", saved)
    assert load_calibration(tmp_path / "c.json").predict(np.array([[4.0], [0.0]])).tolist() == labels[::-1]


def test_labels_that_json_cannot_hold_are_refused(tmp_path):
    saved = JointCalibrator(pos_label=b"b").fit(np.array([[3.0], [1.0]]), np.array([b"b", b"a"], dtype=object))
    with pytest.raises(
        InputError, match=r"^`calibrator` has labels that cannot be saved: they must be numbers or texts"
    ):
        save_calibration(tmp_path / "c.json", saved)
    assert not (tmp_path / "c.json").exists()


def test_a_threshold_below_every_float_is_kept(tmp_path):
    lowest = np.finfo(np.float32).min
    scores = np.array([[lowest], [0]], dtype=np.float32)
    saved = JointCalibrator().fit(scores, [1, 0])
    save_calibration(tmp_path / "c.json", saved)
    loaded = load_calibration(tmp_path / "c.json")
    assert saved.thresholds_.tolist() == loaded.thresholds_.tolist() == [-np.inf]
    assert loaded.predict(scores).tolist() == saved.predict(scores).tolist() == [1, 1]
    assert loaded.active_.tolist() == [True]


def test_a_new_fit_forgets_the_names_of_the_last(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [3.0, 1.0], "b": [0.0, 1.0]})
    save_calibration(tmp_path / "c.json", JointCalibrator().fit(frame, [1, 0]))
    loaded = load_calibration(tmp_path / "c.json")
    loaded.fit(frame.set_axis(["x", "y"], axis=1), [1, 0])
    save_calibration(tmp_path / "d.json", loaded)
    assert load_calibration(tmp_path / "d.json").exemplar_names_ == ["x", "y"]
    loaded.fit(frame.to_numpy(), [1, 0])
    save_calibration(tmp_path / "e.json", loaded)
    assert load_calibration(tmp_path / "e.json").exemplar_names_ is None
