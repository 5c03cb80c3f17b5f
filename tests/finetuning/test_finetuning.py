"""Fine-tuning from a dataset to a file: the same result after a kill, the card, the detector, and what goes wrong."""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eesvm
from eesvm import InputError
from eesvm.datasets.roles import PictureCodes
from eesvm.descriptors.backbones import tuned_images
from eesvm.detector import ExemplarDetector
from eesvm.finetuning import finetune
from eesvm.finetuning.run import check_output
from eesvm.finetuning.windows_sampler import WindowSampler, fixed_windows, label_windows
from eesvm.structures import Dataset
from helpers.detector_scenes import quick_options as detector_options
from helpers.detector_scenes import scenes, trained
from helpers.examples import few
from helpers.finetuning_help import CLASSES, grid_of, one_thread_of_torch, quick_options, tiny_network, tune
from helpers.imports import imported_modules

torch = one_thread_of_torch()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run of lite0, and what it told."""
    folder = tmp_path_factory.mktemp("finetuned")
    told = []
    result = tune(folder / "net.onnx", on_epoch=lambda state, n_all: told.append((state.history[-1], n_all)))
    return result, told


class Stop(Exception):
    """What kills a run in these tests."""


def stop_at(batch):
    def progress(stage, done, total):
        if stage.startswith("fine-tuning") and done == batch:
            raise Stop

    return progress


def losses(card):
    return [(epoch["loss"], epoch["held_out_loss"], epoch["held_out_ap"]) for epoch in card["history"]]


# -- a run


def test_it_learns_and_says_what_it_did(finished):
    result, told = finished
    card = result.card
    assert result.is_new
    assert [epoch.number for epoch, _ in told] == [0, 1, 2]
    assert {n_all for _, n_all in told} == {6}
    assert card["history"][2]["loss"] < card["history"][1]["loss"]
    assert card["best_epoch"] == int(np.argmin([epoch["held_out_loss"] for epoch in card["history"][1:]])) + 1
    assert card["stopped"] == "all 2 epochs are done"
    assert list(card["inputs"]["objects"]) == list(CLASSES)
    assert card["inputs"]["n_train"] + card["inputs"]["n_held_out"] == len(scenes("train"))
    assert card["options"]["positives"] == 6
    assert card["sha256"] == hashlib.sha256(result.output.read_bytes()).hexdigest()
    assert json.loads(result.output.with_suffix(".json").read_text()) == json.loads(json.dumps(card))
    assert sorted(path.name for path in result.output.parent.iterdir()) == ["net.json", "net.md", "net.onnx", "net.png"]
    page = result.output.with_suffix(".md").read_text()
    assert "![learning curves](net.png)" in page
    assert "--set descriptor.backbone=net.onnx --set descriptor.mode=pooled   # layer head@1+stride_16@3" in page


def test_the_weights_have_moved_and_statistics_have_not(finished):
    from eesvm.descriptors import make_descriptor

    image = scenes("test")[0].read()
    before, after = (
        make_descriptor(mode="crop", backbone=backbone, layer="features").describe(image, [[10, 10, 60, 60]])
        for backbone in ("lite0", finished[0].output)
    )
    assert np.abs(before - after).max() > 1e-3


def test_a_finished_run_is_not_repeated_and_another_does_not_replace_it(finished):
    result, _ = finished
    stamp = result.output.stat().st_mtime_ns
    again = tune(result.output)
    assert not again.is_new
    assert again.card == json.loads(json.dumps(result.card))
    with pytest.raises(
        InputError,
        match=r"net\.onnx already exists and was made from other things: choose another name or allow overwriting",
    ):
        tune(result.output, learning_rate=0.02)
    assert result.output.stat().st_mtime_ns == stamp


def test_a_killed_run_goes_on_to_the_same_bits(finished, tmp_path):
    whole, _ = finished
    output = tmp_path / "net.onnx"
    with pytest.raises(Stop):
        tune(output, progress=stop_at(4), save_every=0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx.checkpoints"]
    done = []
    result = tune(output, progress=lambda stage, n, total: done.append(n) if stage.startswith("fine") else None)
    assert done[0] == 4 - 1  # the state after batch 4 was not yet kept
    assert output.read_bytes() == whole.output.read_bytes()
    assert losses(result.card) == losses(whole.card)
    assert not output.with_name("net.onnx.checkpoints").exists()


@pytest.mark.parametrize("batch", few([2, 1, 3, 5]))
def test_killed_at_any_batch(tmp_path, batch):
    whole = tune(tmp_path / "net.onnx", module=tiny_network(torch), hidden=5)
    (tmp_path / "killed").mkdir()
    for _ in range(2):  # twice: the second time before it gets anywhere
        with pytest.raises(Stop):
            tune(
                tmp_path / "killed/net.onnx",
                module=tiny_network(torch),
                hidden=5,
                progress=stop_at(batch),
                save_every=0,
            )
    result = tune(tmp_path / "killed/net.onnx", module=tiny_network(torch), hidden=5)
    assert losses(result.card) == losses(whole.card)
    assert result.output.read_bytes() == whole.output.read_bytes()


def test_a_killed_export_goes_on_without_training(tmp_path, monkeypatch):
    output = tmp_path / "net.onnx"
    with monkeypatch.context() as patch:

        def fail(*_):
            raise Stop

        patch.setattr("eesvm.finetuning.export.check_outputs", fail)
        with pytest.raises(Stop):
            tune(output, module=tiny_network(torch))
    assert not output.exists()

    def no_training(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr("eesvm.finetuning.training.Trainer._step", no_training)
    card = tune(output, module=tiny_network(torch)).card
    assert card["stopped"] == "all 2 epochs are done"
    assert card["sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()


@pytest.mark.long
def test_a_damaged_checkpoint_starts_anew(tmp_path, caplog):
    (tmp_path / "whole").mkdir()
    whole = tune(tmp_path / "whole/net.onnx", module=tiny_network(torch))
    with pytest.raises(Stop):
        tune(tmp_path / "net.onnx", module=tiny_network(torch), progress=stop_at(5), save_every=0.0)
    (state,) = (tmp_path / "net.onnx.checkpoints").iterdir()
    state.write_bytes(state.read_bytes()[:-100])
    result = tune(tmp_path / "net.onnx", module=tiny_network(torch))
    assert "the checkpoint cannot be used, and the run starts over" in caplog.text
    assert result.output.read_bytes() == whole.output.read_bytes()


def test_other_options_do_not_find_the_checkpoint(tmp_path):
    module = tiny_network(torch)
    with pytest.raises(Stop):
        tune(tmp_path / "net.onnx", module=module, progress=stop_at(4))
    seen = []
    tune(
        tmp_path / "net.onnx",
        module=tiny_network(torch, seed=1),
        progress=lambda stage, n, total: seen.append(n) if stage.startswith("fine") else None,
    )
    assert seen[0] == 0


def test_checkpoints_hold_what_they_were_given(tmp_path):
    from eesvm.finetuning.checkpoints import CheckpointFile  # needs torch, which may not be there

    kept = CheckpointFile(tmp_path / "a.onnx", "key")
    assert kept.load() is None
    tensors = {"network": {"a.b": torch.randn(3, 2).to(memory_format=torch.preserve_format)}, "best": {}}
    kept.save(tensors, {"n": 3, "x": 0.1 + 0.2})
    groups, facts = kept.load()
    assert torch.equal(groups["network"]["a.b"], tensors["network"]["a.b"])
    assert facts == {"n": 3, "x": 0.1 + 0.2}
    (kept.folder / "mine.txt").write_text("do not touch")
    kept.remove()
    assert [path.name for path in kept.folder.iterdir()] == ["mine.txt"]


# -- what it is for


def test_a_detector_with_the_network(finished, tmp_path):
    path = str(finished[0].output)
    options = detector_options(
        descriptor__name="cnn", descriptor__backbone=path, descriptor__size=128, windows__method="grid",
        windows__max_windows=60,
    )  # fmt: skip
    detector = trained(options, scenes("train", 6), ["three"])
    assert detector.descriptor_.dimension == 2288
    found = detector.predict(scenes("test").images[:1])
    detector.save(tmp_path / "model")
    again = ExemplarDetector.load(tmp_path / "model").predict(scenes("test").images[:1])
    assert sum(map(len, found)) > 0
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)


def test_the_file_tells_which_images_it_was_tuned_on(finished, tmp_path):
    output = finished[0].output
    copied = Path(shutil.copy(output, tmp_path / "elsewhere.onnx"))  # without its card
    found = tuned_images(copied)
    own = PictureCodes.of(scenes("train"), "scenes")
    assert len(found) == len(own) == finished[0].card["inputs"]["n_coded"]
    assert {name for name, _ in own.shared_with(found)} == set(own.names)
    assert PictureCodes.of(scenes("test"), "scenes").shared_with(found) == []
    assert "holds codes of 12 of them" in output.with_suffix(".md").read_text()


def test_a_model_on_the_network_s_own_images_says_so(finished, tmp_path):
    path = str(finished[0].output)
    options = detector_options(
        descriptor__name="cnn", descriptor__backbone=path, descriptor__size=128, windows__method="grid",
        windows__max_windows=60,
    )  # fmt: skip
    detector = trained(options, scenes("train"), ["three"], folder=tmp_path / "model", test=scenes("test"))
    roles = detector.inputs_["roles"]
    assert roles == {
        "n_exemplar_images": 12,
        "network": {"source": scenes("train").name, "n_images": 12},
        "n_shared": 12,
        "test": {"source": scenes("test").name, "n_images": 6},
    }
    shares = detector.models_[0].facts["separability"]
    assert 0 <= shares["own"] <= shares["across"] <= 1
    page = (tmp_path / "model" / "MODEL.md").read_text()
    assert "## Which images had which role" in page
    assert "among them 12 of the 12 images that exemplars and calibration come from, as in the paper" in page
    assert "How separable the calibration windows are" in page
    assert "None of the 6 test images of" in page
    again = trained(options, scenes("train"), ["three"], folder=tmp_path / "model", test=scenes("test"))
    assert again.changed_ == []


def test_a_test_image_that_the_network_has_seen_is_refused(finished):
    options = detector_options(descriptor__name="cnn", descriptor__backbone=str(finished[0].output))
    seen = replace(scenes("train")[0], image_id="another name")
    test = replace(scenes("test"), images=(*scenes("test").images[:2], seen))
    others = replace(scenes("test"), images=scenes("test").images[2:])
    with pytest.raises(
        InputError, match=r"^the test image another name \(1 there\) is among the images the network was"
    ):
        trained(options, others, test=test)


def test_the_paper_s_layer_describes_crops(tmp_path):
    result = tune(tmp_path / "net.onnx", module=tiny_network(torch), hidden=4096)
    assert result.card["layers"] == {"crop": "hidden", "pooled": "map@1"}
    options = detector_options(
        descriptor__name="cnn", descriptor__mode="crop", descriptor__backbone=str(result.output),
        windows__method="grid", windows__max_windows=20,
    )  # fmt: skip
    assert trained(options, classes=["three"]).descriptor_.dimension == 4096


# -- other ways to train


def test_training_sees_the_images_it_is_given_and_no_others(tmp_path):
    seen = set()

    def watched(record):
        def read():
            seen.add(record.image_id)
            return record.read()

        return replace(record, read=read)

    whole = Dataset("both", tuple(watched(r) for split in ("train", "test") for r in scenes(split)), CLASSES)
    train_ids = {record.image_id for record in scenes("train")}
    train = replace(whole, images=tuple(r for r in whole if r.image_id in train_ids))
    tune(tmp_path / "net.onnx", dataset=train, module=tiny_network(torch))
    assert seen == train_ids


def test_images_of_their_own_decide_when_to_stop(tmp_path):
    windows = (*grid_of("train"), *grid_of("test"))
    result = tune(tmp_path / "net.onnx", module=tiny_network(torch), held_out=scenes("test"), windows=windows)
    assert result.card["inputs"]["n_train"] == len(scenes("train"))
    assert result.card["inputs"]["held_out_images"] == sorted(record.image_id for record in scenes("test"))


def test_it_stops_when_held_out_windows_say_so(tmp_path):
    result = tune(tmp_path / "net.onnx", module=tiny_network(torch), epochs=30, patience=1, learning_rate=0.3)
    history = [epoch["held_out_loss"] for epoch in result.card["history"][1:]]
    assert len(history) < 30
    assert result.card["stopped"] == "the loss on the held-out windows has not fallen for 1 epochs"
    assert result.card["best_epoch"] == len(history) - 1
    assert history[-1] >= history[-2]


def test_statistics_that_follow_the_windows(tmp_path):
    for name in ("frozen", "adapted"):
        module = torch.nn.Sequential(tiny_network(torch), torch.nn.BatchNorm2d(8))
        tune(tmp_path / f"{name}.onnx", module=module, batch_norm=name)
        assert (module[1].running_mean.abs().max() > 0) == (name == "adapted")


def test_frozen_stages_stay_as_they_are(tmp_path):
    module = torch.nn.Sequential(*tiny_network(torch)[:2], torch.nn.BatchNorm2d(4), *tiny_network(torch)[2:])
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    tune(tmp_path / "net.onnx", module=module, stages=1, batch_norm="adapted")
    changed = [name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])]
    assert changed == ["3.weight", "3.bias"]


def test_pixels_made_on_the_device_train_alike(tmp_path):
    from eesvm.finetuning.crops import CropReader
    from eesvm.finetuning.crops_torch import DeviceCrops
    from eesvm.finetuning.runtime import choose_runtime
    from eesvm.finetuning.starts import make_classifier, start_from
    from eesvm.finetuning.training import Trainer

    windows = label_windows(scenes("train").images, grid_of("train"), CLASSES, 0.5)
    runtime, options = choose_runtime("cpu", 1), quick_options()
    found = []
    for reader in (
        CropReader(windows.records, 64, (1.0, 2.0, 3.0), 1),
        DeviceCrops(windows.records, 64, (1.0, 2.0, 3.0), runtime.device),
    ):
        start = start_from(options, tiny_network(torch))
        sampler, fixed = WindowSampler(windows, options), fixed_windows(windows, options)
        trainer = Trainer(
            make_classifier(start, 3, options), sampler, reader, (reader, fixed), start.normalisation, options, runtime
        )
        trainer._set_mode()
        found.append([trainer._step(*trainer._read(number)) for number in range(3)] + [*trainer.evaluate()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


def test_the_caller_s_torch_is_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    module = tiny_network(torch)
    torch.manual_seed(5)
    tune(tmp_path / "net.onnx", module=module, n_threads=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == 1


# -- what goes wrong


class Fading(torch.nn.Module):
    """A network that gives nothing but NaN after so many batches of training."""

    def __init__(self, n_batches):
        super().__init__()
        self.inside, self.left = tiny_network(torch), n_batches

    def forward(self, x):
        if self.training:
            self.left -= 1
        return self.inside(x) * (float("nan") if self.left < 0 and self.training else 1.0)


@pytest.mark.long
def test_nan_ends_training_with_the_last_good_weights(tmp_path):
    fine = tune(tmp_path / "fine.onnx", module=tiny_network(torch), epochs=5)
    result = tune(tmp_path / "net.onnx", module=Fading(7), epochs=5)
    assert result.card["stopped"] == "the loss became nan in batch 2 of epoch 3"
    assert len(result.card["history"]) == 3
    assert losses(result.card) == losses(fine.card)[:3]
    assert result.card["best_epoch"] in (1, 2)


def test_nan_before_anything_was_learned(tmp_path):
    sentence = r"^nothing was learned: the loss became nan in batch 2 of epoch 1, before the first epoch was done: lower `learning_rate`, which is 0\.01$"
    with pytest.raises(InputError, match=sentence):
        tune(tmp_path / "net.onnx", module=Fading(1))
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"`device` is 'cuda', but .*: leave it out to train on the CPU"):
        tune(tmp_path / "net.onnx", device="cuda")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": ["three", "nine"]}, "the class 'nine' has no object to learn from in scenes"),
        ({"min_objects": 500}, "the class 'three' has .* objects to learn from, and fine-tuning needs 500"),
        ({"held_out": scenes("train")}, "the image .* is both to be trained on and held out"),
        ({"windows": grid_of("test")}, "none of the images has windows: there is nothing to train on"),
        ({"n_threads": 0}, "`n_threads` must be >= 1, got 0"),
        ({"held_out": [1]}, "`held_out` must be a Dataset, got list"),
        ({"device": "tpu"}, "`device` must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        tune(tmp_path / "net.onnx", module=tiny_network(torch), **arguments)


def test_held_out_images_with_other_classes(tmp_path):
    only = tuple(replace(r, instances=tuple(i for i in r.instances if i.class_name == "three")) for r in scenes("test"))
    held_out = Dataset("threes", only, ("three",))
    with pytest.raises(InputError, match="the class 'eight' has no object in the held-out images"):
        tune(tmp_path / "net.onnx", module=tiny_network(torch), held_out=held_out)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net.pt", r"the output must end in \.onnx, got .*net\.pt"),
        ("nowhere/net.onnx", r"cannot write .*nowhere/net\.onnx: there is no folder .*nowhere"),
        ("folder.onnx", r"cannot write .*folder\.onnx: it is a folder"),
    ],
)
def test_outputs_that_cannot_be(tmp_path, name, message):
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(InputError, match=message):
        finetune(scenes("train"), tmp_path / name)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_is_no_card_is_never_replaced(tmp_path, overwrite):
    annotations = tmp_path / "cards.json"
    annotations.write_text('{"images": []}')
    with pytest.raises(InputError, match=r"cards\.json is there, and it is not the card of a network"):
        finetune(scenes("train"), tmp_path / "cards.onnx", overwrite=overwrite)
    assert annotations.read_text() == '{"images": []}'


@pytest.mark.parametrize("name", ["README.md", "README.png", "README.onnx"])
def test_other_files_are_replaced_only_when_asked_for(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=rf"{name} already exists and was not made by this.*--overwrite"):
        finetune(scenes("train"), tmp_path / "README.onnx")
    assert check_output(tmp_path / "README.onnx", overwrite=True) == tmp_path / "README.onnx"
    (tmp_path / "README.onnx.checkpoints").mkdir()  # of a run that was killed while it wrote
    if name != "README.onnx":
        assert check_output(tmp_path / "README.onnx") == tmp_path / "README.onnx"


def test_an_output_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(InputError, match=r"cannot write .*net\.onnx: no permission to write in"):
        finetune(scenes("train"), tmp_path / "net.onnx")


@pytest.mark.long
def test_torch_is_loaded_by_nobody_else():
    package = Path(eesvm.__file__).parent
    for path in package.rglob("*.py"):
        if "finetuning" not in path.relative_to(package).parts:
            assert "torch" not in {module.split(".")[0] for module in imported_modules(path)}, path
    script = "import sys, eesvm.finetuning, eesvm.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
