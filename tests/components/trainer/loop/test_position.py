from __future__ import annotations

import pytest

from strategos.components.errors import UserError


@pytest.fixture
def keeper_of(tmp_path):
    """Makes a `Keeper` for a small model, for epochs of the given number of steps."""
    import tensorflow as tf

    from strategos.components.trainer.gang.agreement import Agreement
    from strategos.components.trainer.loop.checkpoint.cadence import Cadence
    from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints
    from strategos.components.trainer.loop.checkpoint_callback import Keeper, newest
    from strategos.components.trainer.loop.position import Position

    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def make(steps_per_epoch: int):
        store = Checkpoints(str(tmp_path / "checkpoints"), keep=2, is_chief=True)
        agreement = Agreement(tf.distribute.get_strategy(), 1)
        position = Position(steps_per_epoch)
        keeper = Keeper(store, Cadence(steps=1), agreement, position, [])
        keeper.set_model(model)

        def restore():
            keeper.restore(model, newest(store, agreement))

        return keeper, position, restore

    return make


def test_a_checkpoint_with_other_steps_per_epoch_is_rejected_by_name(keeper_of):
    before, position, restore = keeper_of(10)
    restore()
    position.step = 27
    before.on_epoch_end(2)
    _, position, restore = keeper_of(10)
    restore()
    assert (position.epoch, position.offset) == (2, 7)
    _, _, restore = keeper_of(9)
    with pytest.raises(UserError, match=r"step-0000000027 counts 10 .* --from-scratch"):
        restore()
