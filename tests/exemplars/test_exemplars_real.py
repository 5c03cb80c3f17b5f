"""The whole road on photographs: windows, network descriptors and exemplars that are as good as liblinear's."""

from dataclasses import dataclass

import numpy as np
import pytest

from eesvm import ExemplarSVMs
from eesvm.datasets import open_dataset
from eesvm.descriptors import DescriptorCache, MeanNormScaler, Transformed, describe_dataset, make_descriptor
from eesvm.exemplars.mining import mine, overlap_with, windows_of_class
from eesvm.windows import propose_dataset
from helpers.dataset_files import real_data
from helpers.examples import few
from helpers.network_files import weights_file
from helpers.reference_svm import liblinear, objective, optimality_error

CLASS = "king"
SETTINGS = {
    "paper": {},
    "original": {"C": 0.01, "positive_weight": 50.0},
}


@dataclass
class Table:
    """Rows of some photographs of playing cards, of mean length 20."""

    images: list
    cache: DescriptorCache
    windows: list
    descriptor: Transformed
    exemplars: np.ndarray  # ground-truth boxes of the class
    exemplar_images: np.ndarray
    negatives: np.ndarray  # windows that overlap no object of the class by 0.3
    negative_images: np.ndarray

    def describe(self):
        return describe_dataset(self.images, self.windows, self.descriptor, cache=self.cache)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    weights_file("lite0")  # skips where the network is not installed
    images = [image for image in open_dataset(real_data("cards"), split="train") if has_class(image)][::12][:8]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EESVM_CACHE", str(tmp_path_factory.mktemp("network")))
        plain = make_descriptor()
    windows = list(propose_dataset(images, include_ground_truth=True, mode="single", max_windows=100))
    cache = DescriptorCache(tmp_path_factory.mktemp("rows"))
    rows = np.concatenate([item.descriptors for item in describe_dataset(images, windows, plain, cache=cache)])
    names = np.concatenate([[item.image_id] * len(item) for item in windows])
    is_own = np.concatenate([is_ground_truth(*pair) for pair in zip(images, windows, strict=True)])
    overlap = np.concatenate([overlap_of(*pair) for pair in zip(images, windows, strict=True)])
    scaler = MeanNormScaler().fit(rows)
    rows = scaler.transform(rows)
    others = overlap < 0.3
    return Table(
        images, cache, windows, Transformed(plain, scaler), rows[is_own], names[is_own], rows[others], names[others]
    )


def has_class(image):
    return any(instance.class_name == CLASS for instance in image.instances)


def is_ground_truth(image, windows):
    classes = [image.instances[k].class_name if k >= 0 else "" for k in windows.instance]
    return np.array(classes) == CLASS


def overlap_of(image, windows):
    return overlap_with(windows.boxes, [i.box for i in image.instances if i.class_name == CLASS])


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("settings", few(SETTINGS))
def test_every_exemplar_is_within_a_thousandth_of_liblinear_and_optimal_to_tol(table, settings, loss):
    svms = ExemplarSVMs(loss=loss, **SETTINGS[settings]).fit(table.exemplars, table.negatives)
    assert svms.converged_.all()
    options = (svms.C, svms.positive_weight, loss == "squared_hinge")
    for j, exemplar in enumerate(table.exemplars):
        case = exemplar, table.negatives, *options
        best = objective(*liblinear(*case), *case)
        assert objective(svms.coef_[j], svms.intercept_[j], *case) <= best * 1.001
        assert svms.objective_[j] == pytest.approx(best, rel=1e-3)
        assert optimality_error(svms.coef_[j], svms.intercept_[j], *case, tol=svms.tol) <= svms.tol
    case = table.exemplars[0], table.negatives, *options
    assert optimality_error(1.01 * svms.coef_[0], svms.intercept_[0], *case, tol=svms.tol) > svms.tol  # it can tell


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_blocks_threads_and_order_do_not_matter(table, loss, monkeypatch):
    whole = ExemplarSVMs.original(loss=loss).fit(table.exemplars, table.negatives)
    order = np.random.default_rng(0).permutation(len(table.exemplars))
    shuffled = ExemplarSVMs.original(loss=loss).fit(table.exemplars[order], table.negatives)
    np.testing.assert_allclose(shuffled.objective_, whole.objective_[order], rtol=1e-3)
    monkeypatch.setattr("eesvm.exemplars.svms._MAX_BLOCK", 3)
    for options in ({}, {"n_jobs": 1}, {"n_jobs": 3}):
        other = ExemplarSVMs.original(loss=loss, **options).fit(table.exemplars, table.negatives)
        np.testing.assert_allclose(other.objective_, whole.objective_, rtol=1e-3, err_msg=str(options))


def test_mining_from_the_descriptor_cache(table):
    """A list of what the cache has mapped, and a source that asks the cache anew each time, are the rows in memory."""
    instances = {image.image_id: image.instances for image in table.images}

    class FromCache:
        def __iter__(self):
            for item in table.describe():
                yield windows_of_class(item.windows, item.descriptors, instances[item.image_id], CLASS, 0.2999999)

    list(table.describe())  # now they are on disk
    listed = list(FromCache())
    assert all(isinstance(image.descriptors, np.memmap) for image in listed)
    expected = ExemplarSVMs.original().fit(
        table.exemplars, table.negatives, table.exemplar_images, table.negative_images
    )
    for source in (listed, FromCache()):
        svms = ExemplarSVMs.original()
        report = mine(svms, table.exemplars, table.exemplar_images, source)
        assert report.n_windows == len(table.negatives)
        assert report.converged.all()
        np.testing.assert_array_equal(svms.coef_, expected.coef_)
