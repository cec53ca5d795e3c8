"""joblib's backend: what scikit-learn spreads over jobs runs in sandboxes, limits and errors come through."""

from __future__ import annotations

import os
import time
from pathlib import Path

import joblib
import pytest

import ipysandbox
from ipysandbox import LimitExceeded, ValueRefused


@pytest.fixture(autouse=True)
def _in_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    ipysandbox.register_joblib()


def test_scikit_learn_validates_a_model_in_sandboxes() -> None:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_score

    class Curious(LogisticRegression):  # type: ignore[misc]
        """Someone's model, which looks at what is none of its business."""

        def fit(self, x: object, y: object) -> Curious:
            if os.path.exists(os.path.expanduser("~/.ssh")) or os.path.exists(".env"):
                raise RuntimeError("out of the sandbox")
            super().fit(x, y)
            return self

    x, y = load_iris(return_X_y=True)
    with joblib.parallel_config("ipysandbox", n_jobs=2, timeout="60s"):
        scores = cross_val_score(Curious(max_iter=500), x, y, cv=3, error_score="raise")
        search = GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.01, 1.0]}, cv=2, refit=False).fit(x, y)
    assert scores.min() > 0.9
    assert search.best_params_ == {"C": 1.0}


def test_errors_and_limits_of_jobs_come_through_and_end_the_others() -> None:
    def job(x: int) -> float:
        return 1 / x

    with joblib.parallel_config("ipysandbox", n_jobs=2, timeout="2s"):
        assert joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(8)) == [n * n for n in range(8)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(job)(2 - n) for n in range(50))
        with pytest.raises(LimitExceeded, match="time"):
            joblib.Parallel()(joblib.delayed(time.sleep)(n) for n in (0, 1000))
        with pytest.raises(ValueRefused):
            joblib.Parallel()(joblib.delayed(object)() for _ in range(2))
