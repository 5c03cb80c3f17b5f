"""A reproduction is measured part by part: what is there is read, what is missing is made, nothing is mixed up."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm._support.run_folder import RunFolder
from eesvm.datasets.scenes import make_scenes
from eesvm.detector.training_descriptor import training_windows
from eesvm.experiments.figures.paper_figures import PaperFigure
from eesvm.experiments.reproduction.files import check_folder, read_figures, read_problem, write_figures
from eesvm.experiments.reproduction.measure import ClassWork
from eesvm.experiments.reproduction.recipes import DEFAULT_PRESET, Recipe, make_recipes
from eesvm.experiments.reproduction.results import FULL, SMALL, STAGES, Results
from eesvm.experiments.reproduction.run import Reproduction
from eesvm.experiments.reproduction.splits import own_split, scene_splits
from eesvm.experiments.tables.detections import PAPER_RULES
from eesvm.experiments.tables.windows import Method
from eesvm.structures import Dataset
from helpers.detector_scenes import quick_options, scenes, shared_cache

QUICK = {
    "windows.mode": "single",
    "windows.max_windows": 60,
    "descriptor.name": "hog",
    "descriptor.n_components": None,
    "descriptor.kernel_map": None,
    "training.max_images": 4,
    "n_jobs": 1,
}


def small_splits(n_splits=1):
    return scene_splits(n_splits, 9, ("eight",))


class Interrupted(Reproduction):
    """Ends after some parts, as a killed run does."""

    parts_left = 2

    def _part(self, name, *arguments, **options):
        known = len(self.made)
        if known == self.parts_left:
            raise KeyboardInterrupt
        return super()._part(name, *arguments, **options)


def run(folder, splits=None, kind=Reproduction, **options):
    recipes = make_recipes(1.0, QUICK | options.pop("changes", {}))
    options = {"study_seconds": 0.02, "with_figures": False} | options
    return kind(splits or small_splits(), recipes, folder, **options).measure(["eesvm", "x"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction") / "run"
    return folder, run(folder)


def without_seconds(results):
    def plain(row):
        return {**row, "search": {name: v for name, v in row["search"].items() if name != "seconds"}}

    return [{**part.as_dict(), "rows": [plain(row) for row in part.as_dict()["rows"]]} for part in results.parts]


def test_every_method_is_measured_in_every_stage(finished):
    _, found = finished
    results = found.results
    assert results.classes == ("eight",)
    assert [part.stage for part in results.parts] == list(STAGES)
    methods = dict(results.methods(SMALL))
    assert {rule.name for rule in PAPER_RULES} <= set(methods)
    assert methods[DEFAULT_PRESET] is True
    assert methods[Method.SIGMOID] is False
    small, full = (results.of(stage)[0] for stage in (SMALL, FULL))
    assert small.facts["n_exemplars"] < full.facts["n_exemplars"]
    recalls = {row.recall for row in small.rows}
    assert len(recalls) == 1  # all methods are counted where the joint thresholds are
    joint = next(row for row in small.rows if row.method == Method.JOINT)
    assert joint.accepted >= joint.false_positives > 0
    assert small.facts["transfer_winner"] > 0
    assert found.study.depth_reduction is not None
    assert len(found.made) == len(STAGES) + 1


def test_a_second_run_measures_nothing(finished):
    folder, found = finished
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    again = run(folder)
    assert again.made == ()
    assert without_seconds(again.results) == without_seconds(found.results)
    assert again.study == found.study
    assert again.inputs == found.inputs
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
def test_an_interrupted_run_goes_on_to_the_same_end(finished, tmp_path):
    _, found = finished
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", kind=Interrupted)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "parts").iterdir()}
    assert kept
    again = run(tmp_path / "run")
    assert again.made == ("split 1, HOG, eight", "pruning")
    assert without_seconds(again.results) == without_seconds(found.results)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


@pytest.mark.long
def test_a_damaged_or_missing_part_is_measured_again(finished, tmp_path):
    folder, found = finished
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "parts" / "split1_val1_eight.json").write_text("{}")
    (tmp_path / "run" / "parts" / "split1_hog_eight.json").unlink()
    again = run(tmp_path / "run")
    assert again.made == ("split 1, Val1, eight", "split 1, HOG, eight")
    assert without_seconds(again.results) == without_seconds(found.results)


@pytest.mark.long
def test_parts_are_filed_under_what_they_depend_on(finished, tmp_path):
    def keys(changes, splits=None, n_resamples=0):
        new = Reproduction(
            splits or small_splits(), make_recipes(1.0, QUICK | changes), tmp_path / "run", n_resamples=n_resamples
        )
        return new._keys(new._fingerprints())

    known = keys({})
    assert keys({"n_jobs": 2}) == known
    assert len(set(known.values())) == len(STAGES)
    for other in (
        keys({"detection.nms": 0.5}),
        keys({"training.C": 2.0}),
        keys({}, scene_splits(1, 10, ("eight",))),
        keys({}, n_resamples=9),
    ):
        assert other.keys() == known.keys()
        assert not set(other.values()) & set(known.values())


@pytest.mark.long
def test_more_splits_keep_those_that_are_there(finished, tmp_path):
    folder, found = finished
    shutil.copytree(folder, tmp_path / "run")
    again = run(tmp_path / "run", small_splits(2))
    assert again.made == tuple(f"split 2, {stage}, eight" for stage in STAGES)
    assert again.results.n_splits == 2
    assert without_seconds(Results(again.results.parts[:3])) == without_seconds(found.results)
    estimate = again.results.mean(SMALL, Method.SIGMOID, "window_ap").estimate()
    assert estimate.low < estimate.value < estimate.high


def test_score_tables_of_the_study_are_those_of_the_search(finished):
    folder, found = finished
    problem = read_problem(folder, "parts/split1_val1_train_eight")
    part = found.results.of(FULL)[0]
    assert problem.n_exemplars == part.facts["n_exemplars"]
    assert problem.n_positives == part.facts["n_calibration_positives"]
    assert problem.n_negatives == part.facts["n_calibration_negatives"]


def with_dot(record):
    """A record with an object that is too small for any proposal."""
    dot = replace(record.instances[0], class_name="dot", box=np.array([3.0, 3.0, 6.0, 6.0]), index=99, mask=None)
    return replace(record, instances=(*record.instances, dot))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The own split of a dataset with a class that no window shows, which is known only once windows are there."""
    scenes = make_scenes(6, 4, classes=("eight",))
    dotted = Dataset("dots", tuple(with_dot(record) for record in scenes), ("eight", "dot"), scenes.splits)
    return run(tmp_path_factory.mktemp("own") / "run", own_split(dotted, None, 10), n_resamples=20)


@pytest.mark.long
def test_an_own_split_has_intervals_over_resamples(own):
    found = own.results
    assert found.is_resampled
    for measure in ("recall", "accepted"):
        assert len(found.mean(SMALL, Method.JOINT, measure).resamples) == 20
    sample, other = (found.mean(SMALL, name, "detection_ap") for name in (Method.JOINT_SIGMOID, Method.SIGMOID))
    estimate = (sample - other).estimate()
    assert estimate.n == 20
    assert estimate.low < estimate.high


@pytest.mark.long
def test_a_class_that_no_window_shows_is_left_out(own):
    assert own.results.classes == ("eight",)
    assert own.results.skipped == (
        "the class dot is left out: no window of the test images shows an object of the class 'dot' (split 1, Val1)",
    )


def test_figures_are_read_as_they_were_written(tmp_path):
    figures = [
        PaperFigure(1, "figure1_windows", b"\x89PNG...", "windows", "a picture"),
        PaperFigure(2, "figure2_pipeline", None, "Figure 2 is not drawn: no positives.", ""),
    ]
    assert write_figures(tmp_path, "parts/figures", figures) == ["parts/figures.json", "figures/figure1_windows.png"]
    assert read_figures(tmp_path, "parts/figures") == figures


# Folders


def test_a_folder_of_another_dataset_is_refused(finished):
    folder, _ = finished
    with pytest.raises(InputError, match=r"run holds a reproduction on scenes, not on cards: choose another folder"):
        check_folder(folder, "cards")


def test_a_folder_of_another_command_is_refused(tmp_path):
    RunFolder(tmp_path / "model").begin(["eesvm", "train"], {}, {"name": "scenes"}, [])
    with pytest.raises(InputError, match="model is not written to: it holds the run of another command"):
        Reproduction(small_splits(), make_recipes(1.0, QUICK), tmp_path / "model")
    assert json.loads((tmp_path / "model" / "run.json").read_text())["inputs"] == {"name": "scenes"}


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("...")
    with pytest.raises(InputError, match=r"it holds thesis\.tex, and no run\.json of an earlier run"):
        Reproduction(small_splits(), make_recipes(1.0, QUICK), tmp_path / "mine")


@pytest.mark.long
@pytest.mark.parametrize("mirror", [False, True])
def test_mirrored_exemplars_hand_on_mirrored_annotations(mirror):
    options = quick_options("paper", training__mirror=mirror)
    train = training_windows(scenes("train"), options, cache=shared_cache())
    work = ClassWork([Recipe(options, PAPER_RULES)], lambda _: (train, train), "three")
    found, trained = work.annotations(train), work.trained()
    assert len(found) == len(trained.exemplars.coef_) == len(trained.objects) * (1 + mirror)
    assert [one.is_mirrored for one in found] == trained.is_mirrored.tolist()
    n = len(trained.objects)
    for first, second in zip(found[:n], found[n:], strict=False):
        np.testing.assert_array_equal(second.mask, first.mask[:, ::-1])
        np.testing.assert_array_equal(second.picture, first.picture[:, ::-1])
