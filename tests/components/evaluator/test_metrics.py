from __future__ import annotations

import subprocess
import sys

import pytest

from strategos.components.evaluation import metrics


def test_every_task_has_metrics_and_every_metric_a_known_task():
    for task in metrics.TASKS:
        assert metrics.names(task)
    for name in metrics.METRICS.own:
        metric = metrics.METRICS[name]
        assert metric.tasks and set(metric.tasks) <= set(metrics.TASKS)


@pytest.mark.parametrize(
    ("name", "better", "worse"),
    [("auc", 0.8, 0.7), ("log_loss", 0.1, 0.2), ("calibration", 0.95, 1.2)],
)
def test_badness_is_larger_for_worse_values(name, better, worse):
    metric = metrics.METRICS[name]
    assert metric.badness(worse) > metric.badness(better)


def test_a_metric_without_better_or_worse_has_no_badness():
    metric = metrics.METRICS["mean_label"]
    assert metric.badness(0.1) == metric.badness(0.9) == 0


def test_reading_the_table_imports_no_heavy_package():
    code = (
        "import sys, strategos.components.evaluation.metrics, "
        "strategos.components.evaluation.outcome.summary\n"
        "assert not {'numpy', 'tensorflow', 'tfx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
