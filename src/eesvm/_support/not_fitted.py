"""What an estimator says that is asked for an answer before `fit`; a module of its own, as it loads scikit-learn."""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from eesvm._support.validation import InputError


class NotFittedInputError(InputError, NotFittedError):
    """An estimator was asked for an answer before `fit`; scikit-learn knows it as its own NotFittedError."""
