"""The Brier score: the mean squared error of a probability."""

from __future__ import annotations

import numpy as np

from strategos import Batch, Metric, OneAnswer


class Brier(Metric):
    """Mean squared distance of the predicted probability from the label."""

    description = "mean squared error of the probability"
    tasks = ("binary",)
    direction = "lower"

    def sums(self, batch: Batch) -> np.ndarray:
        error = (batch.prediction - batch.label) ** 2
        return np.stack([batch.total(error), batch.total(np.ones_like(error))])

    def finish(self, sums: np.ndarray) -> np.ndarray:
        error, rows = sums
        return error / rows

    def trivial(self, one: OneAnswer) -> np.ndarray:
        return one.answer * (1 - one.answer)
