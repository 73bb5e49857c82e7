from __future__ import annotations

import pytest

from strategos.components.errors import UserError


@pytest.fixture
def keeper_of(tmp_path):
    """Makes a `Keeper` for a small model, for epochs of the given number of steps."""
    import tensorflow as tf

    from strategos.components.trainer.gang.agreement import Agreement
    from strategos.components.trainer.loop.cadence import Cadence
    from strategos.components.trainer.loop.checkpoint_callback import Keeper
    from strategos.components.trainer.loop.checkpoints import Checkpoints
    from strategos.components.trainer.loop.position import Position

    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def make(steps_per_epoch: int):
        store = Checkpoints(str(tmp_path / "checkpoints"), keep=2, is_chief=True)
        agreement = Agreement(tf.distribute.get_strategy(), 1)
        position = Position(steps_per_epoch)
        keeper = Keeper(store, Cadence(steps=1), agreement, position, [])
        keeper.set_model(model)
        return keeper, position, model

    return make


def test_a_checkpoint_with_other_steps_per_epoch_is_rejected_by_name(keeper_of):
    before, position, model = keeper_of(10)
    before.restore(model)
    position.step = 27
    before.on_epoch_end(2)
    same, position, model = keeper_of(10)
    same.restore(model)
    assert (position.epoch, position.offset) == (2, 7)
    other, _, _ = keeper_of(9)
    with pytest.raises(UserError, match=r"step-0000000027 counts 10 .* --from-scratch"):
        other.restore(model)
