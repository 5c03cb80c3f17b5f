"""Options: presets, YAML, changes and what is wrong with them."""

import pytest

from eesvm import InputError
from eesvm.detector.options import PRESETS, DetectorOptions


def test_the_default_preset_is_the_default():
    assert DetectorOptions() == DetectorOptions.make() == DetectorOptions.make("default")


def test_presets_set_the_same_options():
    names = set(PRESETS["default"])
    assert all(set(preset) == names for preset in PRESETS.values())
    paper = DetectorOptions.make("paper")
    assert (paper.training.loss, paper.training.C, paper.training.prior) == ("hinge", 1e-4, None)
    assert (paper.calibration.coverage, paper.calibration.min_recall) == ("own-image", 1.0)
    assert paper.detection.pooling == 1


def test_a_file_is_changed_by_the_command_line(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("preset: paper\ntraining:\n  C: 1e-3\n  own_image: no\ndetection: {nms: 0.4}\n")
    options = DetectorOptions.make(config=file, changes={"detection.nms": "0.5", "descriptor.n_components": "64"})
    assert options.training.loss == "hinge"
    assert options.training.C == 1e-3  # which YAML reads as a text
    assert options.training.own_image is False
    assert options.detection.nms == 0.5
    assert options.descriptor.n_components == 64
    assert DetectorOptions.make(None, file).training.loss == "hinge"
    assert (
        DetectorOptions.make("default", file).training.loss == "squared_hinge"
    )  # who names a preset overrules the file
    assert DetectorOptions.make("paper", {"preset": "default"}).training.loss == "hinge"  # the caller's wins


def test_options_survive_a_round_trip():
    options = DetectorOptions.make("paper", changes={"calibration.time_limit": None, "random_state": 3})
    assert DetectorOptions.make(config=options.as_dict()) == options


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"training.c": 1}, "there is no option `training.c`: did you mean `training.C`?"),
        ({"nms": 0.5}, "there is no option `nms`: did you mean `detection.nms`?"),
        ({"training.C": 0}, "`training.C` must be > 0, got 0.0"),
        ({"training.C": "much"}, "`training.C` must be a number, got 'much'"),
        ({"training.trainer": "lda"}, "`training.prior` must be none with the trainer lda, which has no prior"),
        ({"training.own_image": 3}, "`training.own_image` must be one of True, False, got 3"),
        ({"descriptor.backbone": None}, "`descriptor.backbone` must be a text, got None"),
        ({"detection.pooling": 0}, "`detection.pooling` must be >= 1, got 0"),
        ({"calibration.calibrator": "platt"}, "`calibration.calibrator` must be one of 'none', "),
        (
            {"calibration.negative_overlap": 0.6},
            "`calibration.negative_overlap` must be < `calibration.positive_overlap`, got 0.6 and 0.5",
        ),
        ({"n_jobs": 0}, "`n_jobs` must be >= 1, got 0"),
        ({"training": 3}, "there is no option `training`"),
    ],
)
def test_wrong_values_are_named(changes, sentence):
    with pytest.raises(InputError) as caught:
        DetectorOptions.make(changes=changes)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("training: [1", "it is not YAML, line 1"),
        ("- training", "it must hold options by name, such as `training:` and below it `C: 1.0e-4`"),
        ("training:\n  D: 1\n", "there is no option `training.D`: did you mean `training.C`?"),
        ("preset: best\n", "`preset` must be one of 'default', 'paper', got 'best'"),
        ("!!python/object/apply:os.system ['true']", "it is not YAML, line 1"),
    ],
)
def test_wrong_files_are_named(text, sentence, tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        DetectorOptions.make(config=file)
    assert str(caught.value) in (f"{file}: {sentence}", sentence)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no\.yaml: it cannot be read \(No such file or directory\)"):
        DetectorOptions.make(config=tmp_path / "no.yaml")


@pytest.mark.parametrize("name", ["kernel_map", "kernel_components"])
@pytest.mark.parametrize("value", [0, -3, 2.5, 9000, "many"])
def test_a_kernel_map_of_a_wrong_size_is_a_sentence(name, value):
    with pytest.raises(InputError, match=rf"^`descriptor\.{name}` must be "):
        DetectorOptions.make(changes={f"descriptor.{name}": value})


def test_the_default_preset_has_a_kernel_map_and_the_paper_none():
    own = DetectorOptions.make().descriptor
    assert (own.n_components, own.kernel_map, own.kernel_components) == (512, 1024, 512)
    assert DetectorOptions.make("paper").descriptor.kernel_map is None
    assert DetectorOptions.make(changes={"descriptor.kernel_map": "none"}).descriptor.kernel_map is None
    assert DetectorOptions.make(changes={"descriptor.kernel_map": "512"}).descriptor.kernel_map == 512
