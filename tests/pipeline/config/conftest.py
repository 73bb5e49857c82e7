from __future__ import annotations

import pytest

from strategos.pipeline.config.loading import ConfigError, load


@pytest.fixture
def trainer(workload):
    """Loads the section `trainer` with changes: `trainer("epochs=3", …)`."""

    def load_trainer(*sets):
        return load(workload, sets=[f"trainer.{text}" for text in sets]).config.trainer

    return load_trainer


@pytest.fixture
def problem(trainer):
    """The only problem of such changes: `problem("epochs=0", …)`."""

    def only_problem(*sets):
        with pytest.raises(ConfigError) as caught:
            trainer(*sets)
        assert len(caught.value.problems) == 1, str(caught.value)
        return caught.value.problems[0]

    return only_problem
