"""The setting `early_stopping`, of a whole training or of one of its phases."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strategos.pipeline.config.types import Metric, NotNegative, Section

Mode = Literal["auto", "min", "max"]
"""The values of `mode`."""

MODE = (
    "Whether a smaller (`min`) or a larger value of the metric is better. `auto` "
    "decides by the class of the compiled metric, of which all of Keras's own are "
    "known, and takes smaller losses as better; a metric of your own needs `min` or "
    "`max`."
)
"""The description of `mode`."""


class EarlyStopping(Section):
    """Ends training, or a phase of it, when a metric no longer improves."""

    monitor: Metric = Field("val_loss", description="Metric to monitor.")
    patience: NotNegative = Field(
        2, description="Epochs without improvement after which training ends."
    )
    mode: Mode = Field("auto", description=MODE)
