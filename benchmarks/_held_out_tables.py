"""The public tables of the held-out trials. Nothing is fetched: a table whose files are not there is named as missing.

In: a folder with `unsmile_pred.npy`, `unsmile_gt_usecase_1.npy` and `unsmile_gt_usecase_2.npy` (github.com/hyperconnect/
trusthresh, dataset/), `data_full.json` and `domains.json` (github.com/clinc/oos-eval, data/); real tables of exemplars
where they lie beside the repository; what scikit-learn carries. Out: `ScoreTable`s; `benchmarks/results/held_out_rules.md`
says what is in each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from _common import INSTANCES
from eesvm.calibration.tables.examples import digit_score_table
from eesvm.calibration.tables.score_table import ScoreTable

N_EXAMPLES = 8  # sentences a route is trained on
N_OTHERS = 4  # sentences of every other intent, as negatives
UNSMILE = "misogyny religion regionalism ageism sexual_minority male race_and_nationality other_hate swearwords"


def unsmile(folder: Path, use_case: int) -> ScoreTable:
    """Probabilities of nine kinds of hate speech; what the use case blocks is positive."""
    scores = np.load(folder / "unsmile_pred.npy")[:, ::2].astype(np.float32)
    labels = np.load(folder / f"unsmile_gt_usecase_{use_case}.npy").astype(np.int8)
    return ScoreTable(scores, labels, exemplar_names=UNSMILE.split())


def clinc(folder: Path, domain: str) -> ScoreTable:
    """Fifteen routes of one domain; out of scope, or of another domain, is negative."""
    intents = json.loads((folder / "domains.json").read_text())[domain]
    data = json.loads((folder / "data_full.json").read_text())
    training = [(text, name) for intent in intents for text, name in _first(data["train"], intent, N_EXAMPLES)]
    positives = [text for part in ("val", "test") for text, name in data[part] if name in intents]
    others = sorted({name for _, name in data["test"]} - set(intents))
    negatives = [text for part in ("oos_val", "oos_test") for text, _ in data[part]]
    negatives += [text for name in others for text, _ in _first(data["test"], name, N_OTHERS)]
    words = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    known = words.fit_transform([text for text, _ in training])
    rows = words.transform(positives + negatives)
    columns = []
    for intent in intents:
        route = LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000)
        route.fit(known, [name == intent for _, name in training])
        columns.append(route.predict_proba(rows)[:, 1])
    labels = np.repeat([1, 0], [len(positives), len(negatives)]).astype(np.int8)
    return ScoreTable(np.stack(columns, axis=1).astype(np.float32), labels, exemplar_names=list(intents))


def _first(rows: list[list[str]], name: str, count: int) -> list[tuple[str, str]]:
    return [(text, found) for text, found in rows if found == name][:count]


def exemplars(name: str, n_exemplars: int = 60, n_positives: int = 1200, n_negatives: int = 4000) -> ScoreTable:
    """Exemplar SVMs of the real tables, a random part of each; groups are images, a negative's are not known."""
    with np.load(INSTANCES / f"{name}.npz") as stored:
        random = np.random.default_rng(0)
        chosen = [
            np.sort(random.permutation(len(stored[key]))[:count])
            for key, count in (
                ("weights", n_exemplars),
                ("positive_windows", n_positives),
                ("negative_windows", n_negatives),
            )
        ]
        weights, bias = stored["weights"][chosen[0]].T.astype(np.float64), stored["bias"][chosen[0]]
        windows = np.concatenate([stored["positive_windows"][chosen[1]], stored["negative_windows"][chosen[2]]])
        scores = (windows.astype(np.float64) @ weights + bias).astype(np.float32)
        images = stored["positive_image"][chosen[1]].astype(np.int64)
        exemplar_images = stored["exemplar_image"][chosen[0]].astype(np.int64)
    positives, negatives = len(chosen[1]), len(chosen[2])
    own = max(int(images.max()), int(exemplar_images.max())) + 1 + np.arange(negatives)
    labels = np.repeat([1, 0], [positives, negatives]).astype(np.int8)
    return ScoreTable(scores, labels, np.concatenate([images, own]), exemplar_images)


def digits(n_exemplars: int = 60, n_positives: int = 800, n_negatives: int = 3000) -> ScoreTable:
    """Exemplars of a handwritten nine, groups are the images that windows are made from."""
    table = digit_score_table().train
    random = np.random.default_rng(0)
    rows = [
        np.sort(random.permutation(np.flatnonzero(table.labels == label))[:count])
        for label, count in ((1, n_positives), (0, n_negatives))
    ]
    columns = np.sort(random.permutation(table.n_exemplars)[:n_exemplars])
    return table.rows(np.concatenate(rows)).exemplars(columns)


def measurements(data: object, is_positive: np.ndarray) -> ScoreTable:
    """Each measurement is a detector; `oriented` turns it so that more of it speaks for the positives."""
    scores = np.asarray(data.data, dtype=np.float32)  # type: ignore[attr-defined]
    return ScoreTable(scores, is_positive.astype(np.int8), exemplar_names=[str(name) for name in data.feature_names])  # type: ignore[attr-defined]


def oriented(train: ScoreTable, test: ScoreTable) -> tuple[ScoreTable, ScoreTable]:
    """Columns whose mean is lower for the training positives are negated, in both."""
    from dataclasses import replace

    means = [train.scores[train.labels == label].mean(axis=0) for label in (1, 0)]
    signs = np.where(means[0] >= means[1], 1, -1).astype(np.float32)
    return replace(train, scores=train.scores * signs), replace(test, scores=test.scores * signs)


def breast_cancer() -> ScoreTable:
    data = load_breast_cancer()
    return measurements(data, data.target == 0)


def wine() -> ScoreTable:
    data = load_wine()
    return measurements(data, data.target == 1)


def diabetes() -> ScoreTable:
    data = load_diabetes()
    return measurements(data, data.target > np.quantile(data.target, 0.75))


ORIENTED = ("breast_cancer", "wine", "diabetes")


def tables(folder: Path) -> dict[str, Callable[[], ScoreTable]]:
    """How to make each table, in the order in which they were written down."""
    made: dict[str, Callable[[], ScoreTable]] = {f"unsmile_{k}": lambda k=k: unsmile(folder, k) for k in (1, 2)}
    for domain in ("banking", "credit_cards", "travel"):
        made[f"clinc_{domain}"] = lambda domain=domain: clinc(folder, domain)
    made |= {"breast_cancer": breast_cancer, "digits": digits}
    for name in ("bccd_platelets", "bccd_wbc", "pets_cat"):
        made[name] = lambda name=name: exemplars(name)
    return made | {"wine": wine, "diabetes": diabetes}
