"""Exemplar SVMs and exemplar LDA: as good as liblinear, for every exemplar, and clear about bad input."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from eesvm import ExemplarLDA, ExemplarSVMs, InputError
from eesvm.exemplars.rows import ArrayRows, PartedRows, StreamedRows
from helpers.examples import few
from helpers.reference_svm import INSTANCES, coordinate_descent, liblinear, objective, relu_features

LOSSES = ["hinge", "squared_hinge"]


def excess(svms, exemplars, negatives, best, chosen=None):
    """The largest relative excess of an exemplar's objective over that of the reference."""
    squared, worst = svms.loss == "squared_hinge", 0.0
    for j in range(len(exemplars)) if chosen is None else chosen:
        options = (svms.C, svms.positive_weight, squared, svms.bias_multiplier)
        mine = objective(svms.coef_[j], svms.intercept_[j], exemplars[j], negatives, *options)
        theirs = objective(*best(exemplars[j], negatives, *options), exemplars[j], negatives, *options)
        worst = max(worst, mine / theirs - 1)
    return worst


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("C", "positive_weight", "multiplier"), [(1e-4, 1, 1), (1e-2, 50, 1), (1e-3, 2, 10)])
def test_every_exemplar_is_within_a_thousandth_of_liblinear(loss, C, positive_weight, multiplier):
    exemplars, negatives = relu_features(20, 2000, 64)
    svms = ExemplarSVMs(C, positive_weight, loss, bias_multiplier=multiplier).fit(exemplars, negatives)
    assert svms.converged_.all()
    assert excess(svms, exemplars, negatives, liblinear) <= 1e-3


@pytest.mark.parametrize("name", ["pets_cat", "bccd_wbc"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.long
def test_real_descriptors_are_within_a_thousandth_of_liblinear(name, loss):
    if not (INSTANCES / f"{name}.npz").exists():
        pytest.skip(f"no real descriptors: {INSTANCES / name}.npz is not there")
    with np.load(INSTANCES / f"{name}.npz") as stored:
        exemplars = stored["positive_windows"][::160].astype(np.float32)
        negatives = stored["negative_windows"][::12].astype(np.float32)
    for svms in (ExemplarSVMs(loss=loss), ExemplarSVMs.original(loss=loss)):
        svms.fit(exemplars, negatives)
        assert svms.converged_.all()
        assert excess(svms, exemplars, negatives, liblinear, chosen=range(0, len(exemplars), 6)) <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pets_cat", "bccd_wbc", "bccd_rbc"])
@pytest.mark.parametrize("loss", LOSSES)
def test_all_real_descriptors_are_within_a_thousandth_of_liblinear(name, loss):
    if not (INSTANCES / f"{name}.npz").exists():
        pytest.skip(f"no real descriptors: {INSTANCES / name}.npz is not there")
    with np.load(INSTANCES / f"{name}.npz") as stored:
        exemplars = stored["positive_windows"][::40].astype(np.float32)
        negatives = stored["negative_windows"].astype(np.float32)
    for svms in (ExemplarSVMs(loss=loss), ExemplarSVMs.original(loss=loss)):
        svms.fit(exemplars, negatives)
        assert svms.converged_.all()
        assert excess(svms, exemplars, negatives, liblinear, chosen=range(0, len(exemplars), 9)) <= 1e-3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", few([1e-3, 0.1]))
def test_a_prior_is_bent_and_only_the_difference_is_penalised(loss, C):
    exemplars, negatives = relu_features(4, 100, 12)
    random = np.random.default_rng(1)
    prior = (0.1 * random.standard_normal(12), -0.4)
    squared = loss == "squared_hinge"
    svms = ExemplarSVMs(C, 2.0, loss, prior=prior).fit(exemplars, negatives)
    for j, exemplar in enumerate(exemplars):
        options = (exemplar, negatives, C, 2.0, squared, 1.0, prior)
        best = objective(*coordinate_descent(*options, n=700), *options)
        assert objective(svms.coef_[j], svms.intercept_[j], *options) <= best * 1.001
        assert svms.objective_[j] == pytest.approx(best, rel=2e-3)


def test_with_little_to_gain_the_prior_stays():
    exemplars, negatives = relu_features(5, 100, 10)
    prior = np.arange(10) / 100, 0.5
    svms = ExemplarSVMs(C=1e-12, prior=prior).fit(exemplars, negatives)
    np.testing.assert_allclose(svms.coef_, np.tile(prior[0], (5, 1)), atol=1e-6)
    np.testing.assert_allclose(svms.intercept_, 0.5, atol=1e-6)


def test_a_fitted_svm_serves_as_prior():
    from sklearn.svm import LinearSVC

    exemplars, negatives = relu_features(5, 100, 10)
    X, y = np.concatenate([exemplars, negatives]), np.arange(105) < 5
    single = LinearSVC(C=1e-3, max_iter=100_000).fit(X, y)
    by_object = ExemplarSVMs(C=1e-3, prior=single).fit(exemplars, negatives)
    by_tuple = ExemplarSVMs(C=1e-3, prior=(single.coef_[0], single.intercept_[0])).fit(exemplars, negatives)
    np.testing.assert_array_equal(by_object.coef_, by_tuple.coef_)


@pytest.mark.parametrize("loss", LOSSES)
def test_windows_of_the_own_image_are_no_negatives(loss):
    exemplars, negatives = relu_features(6, 200, 16)
    names, images = np.array(["a", "b", "c"])[np.arange(6) % 3], np.array(list("abcde"))[np.arange(200) % 5]
    svms = ExemplarSVMs(1e-2, 5.0, loss).fit(exemplars, negatives, names, images)
    alone = [
        ExemplarSVMs(1e-2, 5.0, loss).fit(exemplars[j : j + 1], negatives[images != names[j]]).objective_[0]
        for j in range(6)
    ]
    np.testing.assert_allclose(svms.objective_, alone, rtol=1e-3)


def test_blocks_streams_and_memory_maps_give_the_same(tmp_path):
    exemplars, negatives = relu_features(12, 900, 24)
    whole = ExemplarSVMs(1e-3).fit(exemplars, negatives)
    np.save(tmp_path / "negatives.npy", negatives)
    cut = [0, 10, 10, 400, 401, 900]
    parts = [negatives[a:b] for a, b in itertools.pairwise(cut)]
    sources = {
        "memory map": np.load(tmp_path / "negatives.npy", mmap_mode="r"),
        "parts": PartedRows(parts),
        "stream": StreamedRows(lambda: iter(parts), negatives.shape),
        "rows": ArrayRows(negatives),
        "float64": negatives.astype(np.float64),
        "fortran": np.asfortranarray(negatives),
    }
    for name, source in sources.items():
        np.testing.assert_array_equal(ExemplarSVMs(1e-3).fit(exemplars, source).coef_, whole.coef_, err_msg=name)


def test_budget_threads_and_order_do_not_matter():
    exemplars, negatives = relu_features(30, 1200, 40)
    whole = ExemplarSVMs.original().fit(exemplars, negatives)
    order = np.random.default_rng(0).permutation(30)
    shuffled = ExemplarSVMs.original().fit(exemplars[order], negatives)
    np.testing.assert_allclose(shuffled.objective_, whole.objective_[order], rtol=1e-3)
    for options in (
        {"n_jobs": 1},
        {"n_jobs": 3},
        {"memory_budget": 3_000_000},
        {"memory_budget": 3_000_000, "n_jobs": 16},
    ):
        other = ExemplarSVMs.original(**options).fit(exemplars, negatives)
        np.testing.assert_allclose(other.objective_, whole.objective_, rtol=1e-3, err_msg=str(options))


def test_interrupted_training_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("eesvm.exemplars.svms._MAX_CHECKPOINT_BLOCK", 4)
    exemplars, negatives = relu_features(14, 400, 20)
    whole = ExemplarSVMs(1e-3, checkpoint=tmp_path / "other").fit(exemplars, negatives)

    def interrupt(progress):
        if progress.n_done > 6:
            raise KeyboardInterrupt

    folder = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        ExemplarSVMs(1e-3, checkpoint=folder, progress=interrupt).fit(exemplars, negatives)
    kept = {path.name for path in folder.iterdir()}
    assert len(kept) == 1
    assert not any(name.endswith(".part") for name in kept)
    seen = []
    resumed = ExemplarSVMs(1e-3, checkpoint=folder, progress=seen.append).fit(exemplars, negatives)
    assert min(step.n_done for step in seen) >= 4  # the first block was not trained again
    for name in ("coef_", "intercept_", "objective_", "gap_", "violation_", "n_support_"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))


def test_checkpoints_are_not_taken_for_others(tmp_path):
    exemplars, negatives = relu_features(4, 100, 8)
    other = negatives.copy()
    other[0, 0] += 0.5
    runs = [
        (ExemplarSVMs(1e-3), negatives, None),
        (ExemplarSVMs(2e-3), negatives, None),
        (ExemplarSVMs(1e-3), other, None),
        (ExemplarSVMs(1e-3, prior=(np.ones(8) / 10, 0)), negatives, None),
        (ExemplarSVMs(1e-3), negatives, (np.arange(4), np.arange(100) % 7)),
    ]
    for number, (svms, rows, groups) in enumerate(runs, start=1):
        svms.set_params(checkpoint=tmp_path).fit(exemplars, rows, *(groups or ()))
        assert len(list(tmp_path.iterdir())) == number
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:50])  # damaged: computed again
    again = ExemplarSVMs(1e-3, checkpoint=tmp_path).fit(exemplars, negatives)
    np.testing.assert_array_equal(again.coef_, ExemplarSVMs(1e-3).fit(exemplars, negatives).coef_)


def test_progress_is_reported():
    exemplars, negatives = relu_features(10, 300, 16)
    seen = []
    ExemplarSVMs.original(progress=seen.append).fit(exemplars, negatives)
    assert seen[-1].n_done == seen[-1].n_exemplars == 10
    assert all(a.n_done <= b.n_done for a, b in itertools.pairwise(seen))


def test_one_object_and_an_exemplar_that_is_also_a_negative():
    exemplars, negatives = relu_features(1, 50, 40)
    svms = ExemplarSVMs(1e-2, 10.0).fit(exemplars, negatives)
    assert svms.decision_function(exemplars)[0, 0] > svms.decision_function(negatives).max()
    twin = ExemplarSVMs(1e-2, 10.0).fit(negatives[:1], negatives)
    assert twin.converged_.all()


def test_scores_are_products():
    exemplars, negatives = relu_features(5, 60, 8)
    svms = ExemplarSVMs(1e-3).fit(exemplars, negatives)
    expected = negatives @ svms.coef_.T + svms.intercept_
    assert svms.decision_function(negatives).dtype == np.float32
    np.testing.assert_allclose(svms.decision_function(negatives), expected, atol=1e-5)
    with pytest.raises(
        NotFittedError, match=r"^This ExemplarSVMs is not fitted yet: call `fit` with exemplars and negatives$"
    ):
        ExemplarSVMs().decision_function(negatives)


def test_without_bias_there_is_none():
    exemplars, negatives = relu_features(4, 80, 10)
    assert not ExemplarSVMs(1e-2, bias_multiplier=0).fit(exemplars, negatives).intercept_.any()


def test_float32_input_is_not_copied_to_float64():
    import tracemalloc

    exemplars, negatives = relu_features(4, 20_000, 64)
    ExemplarSVMs(1e-4).fit(exemplars[:2], negatives[:100])  # compiles
    tracemalloc.start()
    ExemplarSVMs(1e-4, n_jobs=1).fit(exemplars, negatives)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < negatives.nbytes


def test_what_did_not_converge_says_so(monkeypatch):
    monkeypatch.setattr("eesvm.exemplars.solver.solve._MAX_ROUNDS", 1)
    monkeypatch.setattr("eesvm.exemplars.solver.newton._MAX_STAGES", 1)
    monkeypatch.setattr("eesvm.exemplars.solver.coordinate.worthwhile_visits", lambda *_: 0.0)
    exemplars, negatives = relu_features(3, 2000, 20)
    with pytest.warns(
        ConvergenceWarning, match=r"^3 of 3 exemplars did not reach `tol` 1e-05: see `gap_` and `violation_`, and "
    ):
        svms = ExemplarSVMs.original(tol=1e-5).fit(exemplars, negatives)
    assert not svms.converged_.any()


EXEMPLARS, NEGATIVES = relu_features(3, 30, 4)
BAD_ARRAYS = {
    "`negatives` is empty: an exemplar SVM needs at least one negative": (EXEMPLARS, NEGATIVES[:0]),
    "`exemplars` is empty: at least one is needed": (EXEMPLARS[:0], NEGATIVES),
    "`negatives` must have 4 columns, as `exemplars` have, got 3": (EXEMPLARS, NEGATIVES[:, :3]),
    "`exemplars` must have two dimensions (rows, descriptor), got shape (4,)": (EXEMPLARS[0], NEGATIVES),
    "`exemplars` holds a descriptor of zeros, row 1: it describes nothing": (EXEMPLARS * [[1], [0], [1]], NEGATIVES),
    "`negatives` holds the same descriptor 30 times: there is nothing to learn from": (EXEMPLARS, NEGATIVES[[0] * 30]),
    "`negatives` holds a value that is NaN, infinite or beyond float32, in row 7": (EXEMPLARS, np.where(np.arange(30)[:, None] == 7, np.nan, NEGATIVES)),
    "`exemplars` holds a value that is NaN, infinite or beyond float32, in row 0": (EXEMPLARS.astype(np.float64) * 1e300, NEGATIVES),
    "`negatives` holds numbers too large for float32 products, the longest row is 3: scale them": (EXEMPLARS, np.where(np.arange(30)[:, None] == 3, np.float32(1e18), NEGATIVES)),
    "`exemplars` must hold real numbers, got dtype object": (EXEMPLARS.astype(object), NEGATIVES),
    "`negatives` has masked entries: fill them, or leave their rows out": (EXEMPLARS, np.ma.masked_greater(NEGATIVES, 5)),
    "the cost, `C` or `C` times `positive_weight`, times the squared length of the longest descriptor, bias feature included, is 2e+15, more than 1e+12: scale the descriptors to a mean length of about 20, or choose a smaller C": (EXEMPLARS, NEGATIVES * np.float32(1e9 / 20)),
    "`negatives` must hold real numbers, got dtype complex64": (EXEMPLARS, NEGATIVES.astype(np.complex64)),
    "`negatives` must hold real numbers, got dtype <U3": (EXEMPLARS, np.full((30, 4), "abc")),
    "`exemplars` must be a table of numbers, got rows of different lengths": ([[1.0, 2.0], [3.0]], NEGATIVES),
    "`negatives` must have at least one column, got shape (30, 0)": (EXEMPLARS, NEGATIVES[:, :0]),
    "`negatives` says that it has 31 rows but gives 30": (EXEMPLARS, StreamedRows(lambda: [NEGATIVES], (31, 4))),
    "`negatives` says that it has 29 rows but gives more": (EXEMPLARS, StreamedRows(lambda: [NEGATIVES], (29, 4))),
    "`negatives` must give blocks with 5 columns, got shape (30, 4) at row 0": (np.ones((2, 5)), StreamedRows(lambda: [NEGATIVES], (30, 5))),
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD_ARRAYS)
def test_bad_arrays_get_one_sentence(sentence):
    with pytest.raises(InputError) as error:
        ExemplarSVMs().fit(*BAD_ARRAYS[sentence])
    assert str(error.value) == sentence


BAD_PARAMETERS = {
    "`C` must be > 0, got 0": {"C": 0},
    "`C` must be > 0, got -1.0": {"C": -1.0},
    "`C` must be finite, got nan": {"C": float("nan")},
    "`C` and `positive_weight` must make costs of at least 1e-30, got 1e-300": {"C": 1e-300},
    "`progress` must be a function, got 3": {"progress": 3},
    "`prior` scores some descriptors beyond 1e+09: scale it": {"prior": (np.full(4, 1e38), 0.0)},
    "`positive_weight` must be > 0, got 0": {"positive_weight": 0},
    "`loss` must be one of 'hinge', 'squared_hinge', got 'log'": {"loss": "log"},
    "`bias_multiplier` must be >= 0, got -1": {"bias_multiplier": -1},
    "`tol` must be >= 1e-05, got 1e-09": {"tol": 1e-9},
    "`n_jobs` must be >= 1, got 0": {"n_jobs": 0},
    "`memory_budget` must be an integer, got 1.5": {"memory_budget": 1.5},
    "`prior` must be (weights, bias) or a fitted linear SVM with one weight vector": {"prior": 3},
    "`prior` must have weights of shape (4,) and one bias, got (3,) and ()": {"prior": (np.ones(3), 0.0)},
    "`prior` holds 1 value that is NaN or infinite, the first at index 2": {"prior": ([0, 0, np.nan, 0], 0.0)},
}


@pytest.mark.parametrize("sentence", BAD_PARAMETERS)
def test_bad_parameters_get_one_sentence(sentence):
    with pytest.raises(InputError) as error:
        ExemplarSVMs(**BAD_PARAMETERS[sentence]).fit(EXEMPLARS, NEGATIVES)
    assert str(error.value) == sentence


BAD_GROUPS = {
    "`exemplar_groups` is given, `negative_groups` is not: the group of each negative is missing": ([1, 2, 3], None),
    "`negative_groups` is given, `exemplar_groups` is not: the group of each exemplar is missing": (None, [0] * 30),
    "`exemplar_groups` must have one group per exemplar, shape (3,), got shape (2,)": ([1, 2], [0] * 30),
    "`negative_groups` leaves exemplar 1 without negatives: all are of its own group": ([1, 0, 3], [0] * 30),
}


@pytest.mark.parametrize("sentence", BAD_GROUPS)
def test_bad_groups_get_one_sentence(sentence):
    with pytest.raises(InputError) as error:
        ExemplarSVMs().fit(EXEMPLARS, NEGATIVES, *BAD_GROUPS[sentence])
    assert str(error.value) == sentence


def test_a_budget_that_is_too_small_names_the_bytes():
    with pytest.raises(
        InputError,
        match=r"^`memory_budget` is too small: one exemplar needs at least [\d,]+ bytes, got 1,000; None takes as much as is needed$",
    ) as error:
        ExemplarSVMs(memory_budget=1000).fit(EXEMPLARS[:1], NEGATIVES)
    needed = int(str(error.value).split("at least ")[1].split(" bytes")[0].replace(",", ""))
    ExemplarSVMs(memory_budget=needed).fit(EXEMPLARS[:1], NEGATIVES)  # few negatives, so the first pool is the last
    with pytest.raises(InputError, match=r"^`memory_budget` is too small"):
        ExemplarSVMs(memory_budget=needed - 1000).fit(EXEMPLARS[:1], NEGATIVES)


def test_the_default_budget_gives_way_to_what_is_needed(monkeypatch):
    """Where nearly every negative supports every exemplar, a pool is the whole table."""
    monkeypatch.setattr("eesvm.exemplars.svms._LEAST_BUDGET", 1000)
    exemplars, negatives = relu_features(12, 500, 30)
    whole = ExemplarSVMs(1e-6, loss="squared_hinge").fit(exemplars, negatives)
    assert (whole.n_support_ == 500).all()
    alone = ExemplarSVMs(1e-2, 50.0).fit(exemplars, negatives)
    assert whole.converged_.all()
    assert alone.converged_.all()


def test_a_checkpoint_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^`checkpoint` must be a folder, and .*file is not one$"):
        ExemplarSVMs(checkpoint=tmp_path / "file").fit(EXEMPLARS, NEGATIVES)
    for folder in (tmp_path / "file" / "below", 3):
        with pytest.raises(InputError, match=r"^`checkpoint` must be a folder that can be made, got "):
            ExemplarSVMs(checkpoint=folder).fit(EXEMPLARS, NEGATIVES)


def test_lda_is_whitening_and_a_product():
    exemplars, negatives = relu_features(6, 500, 12)
    lda = ExemplarLDA(shrinkage=0.1).fit(exemplars, negatives)
    covariance = np.cov(negatives.T.astype(np.float64), bias=True)
    covariance = 0.9 * covariance + 0.1 * np.trace(covariance) / 12 * np.eye(12)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    mean = negatives.mean(axis=0, dtype=np.float64)
    whitened = (exemplars - mean) @ root.T
    expected = ((negatives - mean) @ root.T) @ whitened.T - (whitened**2).sum(axis=1) / 2
    np.testing.assert_allclose(lda.decision_function(negatives), expected, rtol=1e-3, atol=1e-2)
    centre = (exemplars + mean) / 2
    np.testing.assert_allclose(np.diag(lda.decision_function(centre)), 0, atol=1e-2)


def test_lda_shrinks_as_ledoit_and_wolf_say_and_streams():
    _, negatives = relu_features(1, 200, 30)
    exemplars = negatives[:3] + 1
    lda = ExemplarLDA().fit(exemplars, negatives)
    assert lda.shrinkage_ == pytest.approx(ledoit_wolf(negatives.astype(np.float64))[1], rel=1e-4)
    parts = [negatives[:70], negatives[70:]]
    streamed = ExemplarLDA().fit(exemplars, StreamedRows(lambda: parts, negatives.shape))
    np.testing.assert_allclose(streamed.coef_, lda.coef_, rtol=1e-4, atol=1e-5)


def test_lda_refuses_what_it_cannot_use():
    for shrinkage, sentence in (
        ("some", "`shrinkage` must be a number from 0 to 1 or 'auto', got 'some'"),
        (1.5, "`shrinkage` must be <= 1, got 1.5"),
    ):
        with pytest.raises(InputError) as error:
            ExemplarLDA(shrinkage).fit(EXEMPLARS, NEGATIVES)
        assert str(error.value) == sentence
    with pytest.raises(
        InputError, match=r"^`negatives` must hold at least 2 rows, as their covariance is needed, got 1$"
    ):
        ExemplarLDA().fit(EXEMPLARS, NEGATIVES[:1])
    with pytest.raises(InputError, match=r"^`negatives` vary by too little for float32: scale them$"):
        ExemplarLDA().fit(EXEMPLARS, NEGATIVES * np.float32(1e-30))


def test_nothing_warns_on_the_way():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExemplarSVMs.original().fit(EXEMPLARS, NEGATIVES)
        ExemplarLDA().fit(EXEMPLARS, NEGATIVES)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_exemplars", [1, 12])
def test_a_prior_that_leaves_nothing_to_do_is_kept(loss, n_exemplars):
    random = np.random.default_rng(0)
    exemplars = random.uniform(4, 5, (n_exemplars, 6)).astype(np.float32)
    negatives = random.uniform(0, 1, (50, 6)).astype(np.float32)
    prior = np.full(6, 1.0), -15.0
    svms = ExemplarSVMs(loss=loss, prior=prior).fit(exemplars, negatives)
    np.testing.assert_array_equal(svms.coef_, np.ones((n_exemplars, 6)))
    assert svms.converged_.all()
    assert not svms.n_support_.any()
    assert not svms.objective_.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_single_negative_is_enough(loss):
    svms = ExemplarSVMs(1.0, loss=loss).fit(EXEMPLARS, NEGATIVES[:1])
    assert svms.converged_.all()
    assert (svms.decision_function(NEGATIVES[:1]) < 0).all()
