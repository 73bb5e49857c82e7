"""Ends a phase of a training early, on the weights of its best epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from strategos.components.trainer.loop.callbacks import BestWeights
from strategos.components.trainer.loop.phases.order import PhaseOrder
from strategos.components.trainer.model.known_metrics import Monitor
from strategos.components.trainer.phases import Phase


def of(phases: Sequence[Phase], order: PhaseOrder) -> tuple[list[Any], dict[str, str]]:
    """Makes the callbacks that end phases early; each is active in its phase only.

    Args:
      phases: All phases.
      order: The order of the phases.

    Returns:
      The callbacks, and the metric that each monitors by the name of its setting.
    """
    made: list[Any] = []
    monitored = {}
    for number, phase in enumerate(phases):
        if not phase.early_stopping:
            continue
        metric, key = phase.early_stopping["monitor"], phase.key("early_stopping")
        patience = phase.early_stopping["patience"]
        stopping = PhaseStopping(order, number, metric, patience)
        mode = phase.early_stopping.get("mode", "auto")
        made += [Monitor(stopping, metric, mode, key), stopping]
        monitored[key.removeprefix("trainer.")] = metric
    return made, monitored


def end_phase(model: Any, order: PhaseOrder, callbacks: Iterable[Any]) -> bool:
    """Ends the current phase; its early stopping restores the best weights.

    Args:
      model: The model of the phase.
      order: The order of the phases.
      callbacks: All callbacks of the training.

    Returns:
      Whether another phase follows. False if the whole training was stopped.
    """
    mine = [x for x in callbacks if isinstance(x, PhaseStopping) and x.is_current]
    if model.stop_training and not any(each.has_ended for each in mine):
        return False
    for each in mine:
        each.end_phase()
    return not order.is_last


class PhaseStopping(BestWeights):
    """Ends a phase when a metric no longer improves; keeps its best epoch's weights.

    Args:
      order: The order of the phases.
      number: Index of the phase.
      monitor: Name of the metric.
      patience: Epochs without improvement after which the phase ends.

    Attributes:
      wait: Epochs without improvement so far.
      has_ended: Whether the phase was ended early.
    """

    def __init__(self, order: PhaseOrder, number: int, monitor: str, patience: int):
        super().__init__(monitor)
        self._order, self._number, self._patience = order, number, patience
        self.wait = 0
        self.has_ended = False

    @property
    def is_current(self) -> bool:
        """Whether training is in this callback's phase."""
        return self._order.number == self._number

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the weights of a better epoch, or ends the phase."""
        if not self.is_current:
            return
        before = self.best
        super().on_epoch_end(epoch, logs)
        self.wait = self.wait + 1 if self.best == before else 0
        # Another callback may have ended the whole training in this epoch.
        if self.wait and self.wait >= self._patience and not self.model.stop_training:
            self.has_ended = self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Does nothing: `end_phase` has restored the best weights."""

    def end_phase(self) -> None:
        """Restores the best weights of the phase, and forgets them."""
        super().on_train_end()
        self.best_weights = None
