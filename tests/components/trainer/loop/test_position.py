from __future__ import annotations

import pytest

from strategos.components.errors import UserError


@pytest.fixture
def keeper_of(tmp_path):
    """Makes a `Keeper` for a small model, for passes of the given number of steps."""
    import tensorflow as tf

    from strategos.components.trainer.gang.agreement import Agreement
    from strategos.components.trainer.loop.checkpoint.cadence import Cadence
    from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints
    from strategos.components.trainer.loop.checkpoint_callback import Keeper, newest
    from strategos.components.trainer.loop.position import Position

    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def make(steps_per_pass: int, evaluate_every: int | None):
        store = Checkpoints(str(tmp_path / "checkpoints"), keep=2, is_chief=True)
        agreement = Agreement(tf.distribute.get_strategy(), 1)
        position = Position(steps_per_pass, evaluate_every=evaluate_every)
        keeper = Keeper(store, Cadence(steps=1), agreement, position, [])
        keeper.set_model(model)

        def restore():
            keeper.restore(model, newest(store, agreement))

        return keeper, position, restore

    return make


@pytest.mark.parametrize(("every", "place"), [(None, (2, 7)), (5, (5, 2))])
def test_a_checkpoint_with_other_steps_per_pass_is_rejected_by_name(
    keeper_of, every, place
):
    before, position, restore = keeper_of(10, every)
    restore()
    position.step = 27
    with before.writing():
        before.on_epoch_end(2)
    _, position, restore = keeper_of(10, every)
    restore()
    assert (position.epoch, position.offset) == place
    _, _, restore = keeper_of(9, every)
    with pytest.raises(UserError, match=r"step-0000000027 counts 10 .* --from-scratch"):
        restore()


@pytest.mark.parametrize(
    ("step", "epoch", "offset", "left"),
    [
        *((0, 0, 0, 6), (4, 0, 4, 2), (6, 1, 0, 6), (18, 3, 0, 2), (19, 3, 1, 1)),
        (20, 4, 0, 0),
    ],
)
def test_the_last_epoch_is_shorter_if_training_ends_within_it(
    step, epoch, offset, left
):
    from strategos.components.trainer.loop.position import Position

    position = Position(10, step=step, total=20, evaluate_every=6)
    assert (position.epoch, position.offset) == (epoch, offset)
    assert position.left_in_epoch == left
    assert position.epochs_in(passes=2) == 4
