"""Model folders: what is written is read again, what is damaged is refused, and training is resumed."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eesvm import ExemplarDetector, InputError
from eesvm.cli import main
from eesvm.detector.files import class_folder
from eesvm.detector.options import CALIBRATORS
from eesvm.detector.training_run import TrainingRun
from eesvm.structures import ExemplarAnnotation, Part
from eesvm.transfer.annotations import load_annotations, plain_json, save_annotations
from helpers.detector_scenes import detections, quick_options, same_detections, scenes, trained
from helpers.trainings import fitted, model_files


@pytest.fixture(scope="module")
def detector():
    return trained(quick_options(calibration__method="exact", calibration__node_limit=5), calibrators="all")


@pytest.fixture(scope="module")
def saved(detector, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    detector.save(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(saved, tmp_path / "model")


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_loaded_model_predicts_the_same_to_the_bit(detector, saved, name):
    assert same_detections(detections(detector, name), detections(ExemplarDetector.load(saved), name))


def test_a_loaded_model_knows_its_exemplars(detector, saved):
    loaded = ExemplarDetector.load(saved)
    assert loaded.classes_ == detector.classes_
    assert loaded.checked_options() == replace(detector.options, n_jobs=None)
    for one, other in zip(detector.exemplars_, loaded.exemplars_, strict=True):
        assert (one.class_name, one.image_id, one.index, one.pose) == (
            other.class_name, other.image_id, other.index, other.pose,
        )  # fmt: skip
        assert (one.mask == other.mask).all()
        assert (one.picture == other.picture).all()
        assert (one.box == other.box).all()
        assert [part.name for part in one.parts] == [part.name for part in other.parts]
        assert plain_json(one.metadata) == other.metadata


@pytest.mark.long
def test_equal_runs_have_equal_files_whenever_they_ended(tmp_path):
    fitted(tmp_path / "one")
    fitted(tmp_path / "other")
    assert model_files(tmp_path / "one") == model_files(tmp_path / "other")


@pytest.mark.long
def test_equal_models_have_equal_files_whenever_they_were_trained(saved, tmp_path):
    again = trained(quick_options(calibration__method="exact", calibration__node_limit=5), calibrators="all")
    again.save(tmp_path / "again")
    first, second = ({**model_files(folder)} for folder in (saved, tmp_path / "again"))
    assert {name for name in first if name.endswith("calibration.json")} <= set(second)
    assert "model.json" in first
    assert first == second


def test_how_long_a_search_took_is_kept_apart(detector, model):
    def result_of(one):
        return one.models_[0].calibrators["joint"].result_

    files = model / "classes" / class_folder(detector.models_[0].class_name) / "joint"
    result, loaded = result_of(detector), result_of(ExemplarDetector.load(model))
    assert (loaded.seconds, loaded.history) == (result.seconds, result.history)
    content, times = (json.loads((files / each).read_text()) for each in ("calibration.json", "search.json"))
    assert not {"seconds", "history"} & set(content["result"])
    assert set(times) == {"format", "seconds", "history"}

    (files / "search.json").write_text('{"format": "eesvm-search", "seconds": -1, "history": []}')
    with pytest.raises(InputError, match=r"search.json: `seconds` must be a number >= 0, got -1$"):
        ExemplarDetector.load(model)
    (files / "search.json").unlink()
    loaded = result_of(ExemplarDetector.load(model))
    assert (loaded.seconds, loaded.history) == (0.0, [])


def test_a_model_can_be_saved_again(saved, tmp_path):
    loaded = ExemplarDetector.load(saved)
    loaded.save(tmp_path / "again")
    again = ExemplarDetector.load(tmp_path / "again")
    assert same_detections(loaded.predict(scenes("test")[:2]), again.predict(scenes("test")[:2]))
    for one, other in zip(loaded.models_, again.models_, strict=True):
        assert one.facts == other.facts
        assert (one.read_scores().table.scores == other.read_scores().table.scores).all()


def test_the_card_says_what_there_is(saved):
    page = (saved / "MODEL.md").read_text()
    assert page.startswith("# Detector of three and eight\n")
    assert "| three | " in page
    card = json.loads((saved / "model.json").read_text())
    assert card["inputs"]["n_images"] == 12
    assert {"loss", "lower_bound", "gap", "status", "n_redundant"} <= set(card["classes"][0]["calibration"])
    assert set(card["files"]) == {
        path.relative_to(saved).as_posix()
        for path in saved.rglob("*")
        if path.is_file() and path.name not in ("MODEL.md", "model.json", "search.json", ".eesvm-output")
    }


def test_the_proof_of_a_class_can_be_verified(saved, capsys):
    folder = saved / "classes" / "three"
    assert main(["verify", str(folder / "scores.npz"), str(folder / "joint")]) == 0
    assert "both hold" in capsys.readouterr().out


def test_the_proof_survives_being_loaded_and_saved(saved, tmp_path, capsys):
    ExemplarDetector.load(saved).save(tmp_path / "again")
    folder = tmp_path / "again" / "classes" / "three"
    assert (folder / "joint" / "certificate.npz").exists()
    assert main(["verify", str(folder / "scores.npz"), str(folder / "joint")]) == 0
    assert "both hold" in capsys.readouterr().out


@pytest.mark.long
def test_the_proof_of_a_run_that_went_on_is_saved(tmp_path):
    options = quick_options(calibration__method="exact", calibration__node_limit=5)
    trained(options, scenes("train", 4), folder=tmp_path / "run")
    again = trained(options, scenes("train", 4), folder=tmp_path / "run")
    assert again.changed_ == []
    again.save(tmp_path / "model")
    assert (
        main(["verify", *(str(tmp_path / "model" / "classes" / "three" / name) for name in ("scores.npz", "joint"))])
        == 0
    )


def test_a_damaged_proof_is_not_saved_again(model, tmp_path):
    (model / "classes" / "three" / "joint" / "certificate.npz").write_bytes(b"damaged")
    loaded = ExemplarDetector.load(model)
    with pytest.raises(InputError, match=r"certificate\.npz: it is damaged or of another model"):
        loaded.save(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_folder_is_not_replaced_unless_asked_for(detector, model):
    with pytest.raises(InputError, match="already exists: choose another folder or allow overwriting it"):
        detector.save(model)
    detector.save(model, overwrite=True)
    (model / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match=r"is not replaced: it holds mine\.txt, which eesvm did not write"):
        detector.save(model, overwrite=True)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("model.json", "there is no model.json in it"),
        ("classes/three/exemplars.safetensors", "there is no such file, but model.json lists it"),
        ("classes/eight/joint/calibration.json", "there is no such file, but model.json lists it"),
        ("descriptor/scaler.npz", "there is no such file, but model.json lists it"),
    ],
)
def test_a_missing_file_is_named(model, file, sentence):
    (model / file).unlink()
    with pytest.raises(InputError) as caught:
        ExemplarDetector.load(model)
    assert sentence in str(caught.value)
    assert str(model if file == "model.json" else model / file) in str(caught.value)


@pytest.mark.parametrize("file", ["exemplars.safetensors", "annotations.safetensors", "isotonic.safetensors"])
def test_a_truncated_file_is_named(model, file):
    path = model / "classes" / "three" / file
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=f"{file}: it is damaged or of another model: its content is not what"):
        ExemplarDetector.load(model)


def test_damaged_scores_are_noticed_when_they_are_needed(model):
    card = json.loads((model / "model.json").read_text())
    for entry in card["classes"]:
        entry["calibrators"] = ["joint"]
    (model / "model.json").write_text(json.dumps(card))
    path = model / "classes" / "three" / "scores.npz"
    path.write_bytes(path.read_bytes()[:-30])
    loaded = ExemplarDetector.load(model)
    assert len(loaded.predict(scenes("test")[:1])) == 1
    with pytest.raises(InputError, match=r"scores\.npz: it is damaged or of another model"):
        loaded.predict(scenes("test")[:1], calibrator="affine")


def rewrite(model, change):
    """Change the card as somebody who knows what he does would: hashes are made to fit."""
    from eesvm._support.digests import file_digest

    card = json.loads((model / "model.json").read_text())
    change(card)
    card["files"] = {name: file_digest(model / name) if (model / name).exists() else "" for name in card["files"]}
    (model / "model.json").write_text(json.dumps(card))


def test_weights_that_do_not_fit_the_descriptor_are_refused(model):
    rewrite(model, lambda card: card["descriptor"].update(plain_dimension=77))
    with pytest.raises(InputError) as caught:
        ExemplarDetector.load(model)
    file = model / "classes" / "three" / "exemplars.safetensors"
    assert str(caught.value) == f"{file}: the weights have 1984 numbers, but the descriptor of the model has 77"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c.update(format_version=4), "`format_version` must be 1 to 3, which this eesvm"),
        (lambda c: c.update(format_version=True), "`format_version` must be 1 to 3, which this eesvm"),
        (lambda c: c.update(format="other"), "it is not the card of a model"),
        (lambda c: c.pop("classes"), "`classes` must be a list"),
        (lambda c: c.update(classes=[]), "`classes` must name at least one class, and none twice"),
        (lambda c: c["classes"][0].update(calibrators=["platt"]), "`classes` must hold calibrators among none, "),
        (lambda c: c["options"]["training"].update(C=-1), "`options` cannot be used: `training.C` must be > 0, got -1"),
        (lambda c: c["descriptor"].update(transforms=["../../x"]), "`descriptor.transforms` must be a list of files"),
        (lambda c: c["files"].pop("descriptor/scaler.npz"), "`files` must list descriptor/scaler.npz"),
    ],
)
def test_a_wrong_card_is_refused(model, change, sentence):
    rewrite(model, change)
    with pytest.raises(InputError) as caught:
        ExemplarDetector.load(model)
    assert str(caught.value).startswith(f"{model / 'model.json'}: {sentence}")


def test_a_model_of_before_asks_for_the_windows_of_opencv(model, monkeypatch):
    def as_before(card):
        card["format_version"] = 1
        card["options"]["windows"].pop("time_budget")
        card["options"]["windows"]["mode"] = "fast"

    assert ExemplarDetector.load(model).checked_options().windows.method == "selective_search"
    rewrite(model, as_before)
    loaded = ExemplarDetector.load(model)
    assert (loaded.checked_options().windows.method, loaded.checked_options().windows.mode) == ("opencv", "fast")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(InputError, match=r"this needs the package cv2, .* pip install 'eesvm\[opencv\]'$"):
        loaded.predict(scenes("test")[:1])


def test_a_model_with_a_kernel_map_is_the_same_again_for_any_number_of_jobs(tmp_path):
    changes = {"descriptor__n_components": 24, "descriptor__kernel_map": 60, "descriptor__kernel_components": 40}
    changes["calibration__calibrator"] = "none"
    one, two = (ExemplarDetector(quick_options(**changes, n_jobs=n)).fit(scenes("train", 6)) for n in (1, 2))
    one.save(tmp_path / "one")
    two.save(tmp_path / "two")
    assert model_files(tmp_path / "one") == model_files(tmp_path / "two")
    card = json.loads((tmp_path / "one" / "model.json").read_text())
    assert card["format_version"] == 3
    assert card["descriptor"]["dimension"] == 40
    assert [Path(name).name for name in card["descriptor"]["transforms"]] == ["pca.npz", "kernel_map.npz", "scaler.npz"]
    assert "PCA to 24, kernel map of 60 landmarks, 40 numbers a window" in (tmp_path / "one" / "MODEL.md").read_text()
    loaded = ExemplarDetector.load(tmp_path / "one")
    images = scenes("test")[:2]
    assert same_detections(list(one.predict(images)), list(loaded.predict(images)))


def test_a_model_of_before_there_were_kernel_maps_has_none(model):
    def as_before(card):
        card["format_version"] = 2
        del card["options"]["descriptor"]["kernel_map"]
        del card["options"]["descriptor"]["kernel_components"]
        del card["options"]["calibration"]["cross_fit"]

    rewrite(model, as_before)
    options = ExemplarDetector.load(model).checked_options()
    assert options.descriptor.kernel_map is None
    assert options.calibration.cross_fit is False


def test_a_grid_of_before_stays_a_grid(model):
    def as_before(card):
        card["format_version"] = 1
        card["options"]["windows"] = {"method": "grid", "max_windows": 7}

    rewrite(model, as_before)
    windows = ExemplarDetector.load(model).checked_options().windows
    assert (windows.method, windows.max_windows) == ("grid", 7)


def test_another_network_is_refused_when_it_is_opened(model):
    rewrite(model, lambda card: card["descriptor"]["parameters"].update(of={}))
    loaded = ExemplarDetector.load(model)
    with pytest.raises(InputError, match="the model was trained with another descriptor than hog"):
        loaded.predict(scenes("test")[:1])


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a model: there is no such folder"):
        ExemplarDetector.load(tmp_path / "nowhere")
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(InputError, match=r"model\.json: it is not JSON, or it is damaged"):
        ExemplarDetector.load(tmp_path)


def test_folders_of_classes_differ():
    names = ["cat", "Cat", "a/b", "a_b", "..", "ü", "x" * 100, "x" * 101, "con fusion"]
    folders = [class_folder(name) for name in names]
    assert len({folder.lower() for folder in folders}) == len(names)
    assert all("/" not in folder and "." not in folder and len(folder) < 60 for folder in folders)
    assert folders[0] == "cat"


def test_annotations_round_trip(tmp_path):
    box = np.array([1.5, 2, 30, 40])
    whole = ExemplarAnnotation("a", "i", 3, box, np.eye(5, 7, dtype=bool), (Part("head", box),), "left", {"k": [1, None]},
                               np.full((4, 5, 3), 9, dtype=np.uint8))  # fmt: skip
    bare = ExemplarAnnotation("a", "i", 0, box)
    path = tmp_path / "a.safetensors"
    save_annotations(path, [whole, bare])
    first, second = load_annotations(path)
    assert (first.mask == whole.mask).all()
    assert (first.picture == whole.picture).all()
    assert (first.parts[0].name, first.parts[0].box.tolist(), first.pose) == ("head", box.tolist(), "left")
    assert first.metadata == {"k": [1, None]}
    assert second.mask is None
    assert second.picture is None
    save_annotations(path, [])
    assert load_annotations(path) == ()
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"a\.safetensors: it is not a safetensors file, or it is damaged"):
        load_annotations(path)


def parts(detector):
    return sorted({name.split(": ")[-1] for name in detector.changed_})


@pytest.mark.long
def test_a_second_run_does_what_is_missing(tmp_path):
    folder = tmp_path / "model"
    options = quick_options()
    first = trained(options, scenes("train", 4), folder=folder, command=["eesvm", "train"])
    assert parts(first) == ["boxes", "descriptor", "joint", "kept windows", "model", "none", "scores", "training"]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    again = trained(options, scenes("train", 4), folder=folder)
    assert again.changed_ == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
    found = detections(first, "joint-sigmoid")
    assert same_detections(found, detections(again, "joint-sigmoid"))
    assert same_detections(found, detections(ExemplarDetector.load(folder), "joint-sigmoid"))
    run = json.loads((folder / "run.json").read_text())
    assert run["state"] == "done"
    assert run["command"] == ["eesvm", "train"]
    assert len(run["inputs"]["images"]) == 4
    # Other options redo what depends on them.
    assert parts(trained(quick_options(detection__nms=0.5), scenes("train", 4), folder=folder)) == ["model"]
    lower = {"calibration__min_recall": 0.9}
    same_scores = quick_options(**lower, calibration__cross_fit=False)
    assert parts(trained(same_scores, scenes("train", 4), folder=folder)) == ["joint", "model"]
    assert parts(trained(quick_options(**lower), scenes("train", 4), folder=folder)) == [
        "joint",
        "kept windows",
        "model",
        "none",
        "scores",
    ]
    fewer = quick_options(calibration__max_negatives=500)
    assert parts(trained(fewer, scenes("train", 4), folder=folder)) == [
        "joint",
        "kept windows",
        "model",
        "none",
        "scores",
    ]
    more = trained(fewer, scenes("train", 4), folder=folder, calibrators=["affine", "isotonic"])
    assert parts(more) == ["affine", "isotonic", "model"]
    affine = folder / "classes" / "eight" / "affine.safetensors"
    intact = affine.read_bytes()
    affine.write_bytes(b"damaged")
    mended = trained(fewer, scenes("train", 4), folder=folder, calibrators=["affine", "isotonic"])
    assert mended.changed_ == ["classes/eight: affine"]  # the same to the byte, so that the card need not change
    assert affine.read_bytes() == intact
    plain = quick_options(training__prior=None)
    assert parts(trained(plain, scenes("train", 4), folder=folder)) == [
        "joint",
        "kept windows",
        "model",
        "none",
        "scores",
        "training",
    ]
    assert not (folder / "classes" / "three" / "affine.safetensors").exists()
    with pytest.raises(InputError) as caught:
        trained(plain, scenes("train", 4), folder=folder, classes=["three"])
    assert str(caught.value) == (
        f"{folder} holds a model with the class eight, which this training leaves out and would remove: choose another "
        "folder or allow replacing it (--overwrite)"
    )
    trained(plain, scenes("train", 4), folder=folder, classes=["three"], overwrite=True)
    assert ExemplarDetector.load(folder).classes_ == ("three",)
    assert not (folder / "classes" / "eight").exists()


@pytest.mark.long
def test_a_model_of_an_older_training_detects_and_is_made_anew(tmp_path, monkeypatch):
    folder, options = tmp_path / "model", quick_options()
    with monkeypatch.context() as older:
        older.setattr("eesvm.detector.keys._VERSION", 2)
        first = trained(options, scenes("train", 4), folder=folder)
    loaded = ExemplarDetector.load(folder)
    assert same_detections(detections(first, "joint-sigmoid"), detections(loaded, "joint-sigmoid"))
    assert {"joint", "none", "scores", "training"} <= set(parts(trained(options, scenes("train", 4), folder=folder)))
    assert trained(options, scenes("train", 4), folder=folder).changed_ == []


@pytest.mark.long
def test_other_images_and_annotations_are_noticed(tmp_path):
    folder = tmp_path / "model"
    dataset = scenes("train", 4)
    trained(quick_options(), dataset, folder=folder)
    moved = replace(dataset[0], instances=dataset[0].instances[1:])
    other = trained(quick_options(), replace(dataset, images=(moved, *dataset[1:])), folder=folder)
    assert parts(other) == ["boxes", "joint", "kept windows", "model", "none", "scores", "training"]
    assert other.replaced_ == ["the annotations have changed"]
    fewer = trained(quick_options(), replace(dataset, images=dataset[1:]), folder=folder, overwrite=True)
    assert fewer.replaced_ == ["it was of other images (scenes)"]
    assert "descriptor" in parts(fewer)


def begin(folder, monkeypatch, options, dataset, **arguments):
    """Begin a training that is interrupted before its first class; what it replaces."""
    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "_train_classes", interrupt)
        run = TrainingRun(dataset, options, ["three"], ["joint"], folder=folder, **arguments)
        with pytest.raises(KeyboardInterrupt):
            run.train()
    return run.replaced


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_resumed_change_still_says_what_it_replaces(tmp_path, monkeypatch):
    folder, dataset = tmp_path / "model", scenes("train", 4)
    trained(quick_options(), dataset, folder=folder, classes=["three"], calibrators=["joint"])
    other = quick_options(detection__nms=0.45)
    moved = replace(dataset, images=(replace(dataset[0], instances=dataset[0].instances[1:]), *dataset[1:]))
    fewer = replace(dataset, images=dataset[1:])
    nms = f"detection.nms is 0.45, not {quick_options().detection.nms}"
    for _ in range(2):
        assert begin(folder, monkeypatch, other, dataset) == [nms]
    for _ in range(2):
        assert begin(folder, monkeypatch, other, moved) == ["the annotations have changed", nms]
    for _ in range(2):
        found = begin(folder, monkeypatch, other, fewer, overwrite=True)
        assert found == ["it was of other images (scenes)", nms]
    assert begin(folder, monkeypatch, quick_options(), dataset, overwrite=True) == []


def test_damaged_notes_on_a_finished_model_are_passed_over(tmp_path, monkeypatch):
    folder, dataset = tmp_path / "model", scenes("train", 4)
    trained(quick_options(), dataset, folder=folder, classes=["three"], calibrators=["joint"])
    notes, card = (json.loads((folder / name).read_text()) for name in ("run.json", "model.json"))
    notes["inputs"]["images"] = None
    (folder / "run.json").write_text(json.dumps(notes))
    assert begin(folder, monkeypatch, quick_options(), dataset) == []
    for classes in ([{}], ["three"], [{"folder": [], "name": 3}]):
        (folder / "model.json").write_text(json.dumps(card | {"classes": classes}))
        with pytest.raises(InputError, match="a model with the class three, which this training leaves out"):
            trained(quick_options(), dataset, folder=folder, classes=["eight"])


def test_scores_of_finished_classes_are_left_to_the_folder(tmp_path):
    detector = trained(quick_options(), scenes("train", 4), folder=tmp_path / "model")
    for model in detector.models_:
        assert not model.read_scores.is_held
        assert model.read_scores().table.n_rows > 0


def test_a_lost_scaling_is_made_again_before_the_card_is_written(tmp_path):
    folder = tmp_path / "model"
    options = quick_options(descriptor__n_components=8)
    trained(options, scenes("train", 4), folder=folder)
    (folder / "descriptor" / "pca.npz").unlink()
    mended = trained(options, scenes("train", 4), folder=folder)
    assert "descriptor" in mended.changed_
    assert json.loads((folder / "run.json").read_text())["state"] == "done"
    assert ExemplarDetector.load(folder).predict(scenes("test")[:1])


@pytest.mark.long
def test_the_card_follows_inputs_and_classes_that_change_no_part(tmp_path):
    folder = tmp_path / "model"
    dataset = scenes("train", 4)
    trained(quick_options(), dataset, folder=folder, classes=["three"], command=["first"])
    before = json.loads((folder / "model.json").read_text())["inputs"]
    other = dataset[0].instances[0]
    posed = replace(dataset[0], instances=(replace(other, pose="another"), *dataset[0].instances[1:]))
    trained(quick_options(), replace(dataset, images=(posed, *dataset[1:])), folder=folder, classes=["three"])
    assert json.loads((folder / "model.json").read_text())["inputs"] != before
    trained(quick_options(), dataset, folder=folder, classes=["three", "eight"], command=["second"])
    assert json.loads((folder / "run.json").read_text())["command"] == ["second"]
    trained(quick_options(), dataset, folder=folder, classes=["eight", "three"], command=["third"])
    assert ExemplarDetector.load(folder).classes_ == ("eight", "three")


def test_foreign_folders_are_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        trained(quick_options(), folder=tmp_path)
    assert str(caught.value) == f"{tmp_path} is not written to: it holds holiday.jpg, and no run.json of an earlier run"
    (tmp_path / "run.json").write_text('{"format": "of another program", "parts": {}}')
    with pytest.raises(InputError, match=r"is not written to: its run\.json is not of a run of eesvm"):
        trained(quick_options(), folder=tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: it is damaged, or not a file of eesvm: choose another folder"):
        trained(quick_options(), folder=tmp_path)
    with pytest.raises(InputError, match=r"holiday\.jpg already exists and is not a folder"):
        trained(quick_options(), folder=tmp_path / "holiday.jpg")


@pytest.mark.long
def test_a_model_of_before_an_option_has_what_it_was_trained_with(tmp_path):
    """Not what the default preset has become since."""
    trained(quick_options(calibration__shrink=None, training__single_loss="hinge")).save(tmp_path / "model")
    card = tmp_path / "model" / "model.json"
    content = json.loads(card.read_text())
    del content["options"]["calibration"]["shrink"], content["options"]["training"]["single_loss"]
    del content["options"]["training"]["mirror"]
    card.write_text(json.dumps(content))
    options = ExemplarDetector.load(tmp_path / "model").checked_options()
    assert (options.calibration.shrink, options.training.single_loss) == (None, "hinge")
    assert not options.training.mirror
