"""Sums over workers are exact, and the same on each worker."""

from __future__ import annotations

# Mirrored replicas stand in for those of two workers with seven each.
TOTALS = """
import json
import tensorflow as tf
from strategos.components.trainer.gang.agreement import Agreement

(cpu,) = tf.config.list_physical_devices("CPU")
devices = [tf.config.LogicalDeviceConfiguration() for _ in range(14)]
tf.config.set_logical_device_configuration(cpu, devices)
strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(14)])
agreement = Agreement(strategy, workers=2)
print(json.dumps([agreement.total(step, True) for step in range(1, 40)]))
"""


def test_values_are_summed_exactly_over_many_replicas(script):
    assert script(TOTALS).answer() == [[2 * step, 2] for step in range(1, 40)]
