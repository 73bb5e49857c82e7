"""Names and settings of plug-ins in the YAML, and what is said of wrong ones."""

from __future__ import annotations

import json
import sys

import pytest

from strategos.components import plugins
from strategos.pipeline.checks import files
from strategos.pipeline.config.loading import ConfigError, load

POINTS = "[strategos.launchers]\nqueue = queues:QUEUE\nbroken = nowhere:QUEUE\n"
SOURCE = """
from pydantic import BaseModel
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.launchers.local import launch

class Settings(BaseModel, frozen=True, extra="forbid", strict=True):
    queue: str
    priority: int = 3

QUEUE = Launcher("queue", "waits in a queue", launch, settings=Settings)
"""


@pytest.fixture(autouse=True)
def queues(install):
    install("queues", SOURCE, POINTS)
    yield
    plugins.use("", ())


def distribution(workload, text):
    return load(workload, sets=[f"trainer.distribution={text}"]).config


def problem(workload, *sets):
    with pytest.raises(ConfigError) as caught:
        load(workload, sets=list(sets))
    assert len(caught.value.problems) == 1, str(caught.value)
    return caught.value.problems[0]


def test_a_launcher_gets_the_settings_that_it_declares(workload):
    config = distribution(workload, "{launcher: queue, settings: {queue: gpus}}")
    assert config.operation().launcher == "queue"
    assert config.operation().job == {"queue": "gpus", "priority": 3}


@pytest.mark.parametrize(
    ("value", "key", "said"),
    [
        ("{launcher: queu}", "launcher", "Did you mean `queue`?"),
        ("{launcher: queu}", "launcher", "tfjob, vertex, queue or broken"),
        ("{launcher: broken}", "launcher", "of queues 1.2 cannot be imported"),
        ("{launcher: queue}", "settings.queue", "the required key is missing"),
        (
            "{launcher: queue, settings: {queue: a, priorty: 1}}",
            "settings.priorty",
            "Did you mean `priority`?",
        ),
        (
            "{launcher: queue, settings: {queue: a, priority: high}}",
            "settings.priority",
            'received "high" (text)\n    Allowed: a whole number',
        ),
        ("{settings: {queue: a}}", "settings", "the plug-in takes no settings"),
    ],
)
def test_wrong_names_and_settings_are_named(workload, value, key, said):
    found = problem(workload, f"trainer.distribution={value}")
    assert found.key == f"trainer.distribution.{key}"
    assert said in str(found)


def test_settings_are_blamed_by_file_and_line(workload):
    text = workload.read_text()
    number = text.splitlines().index("trainer:") + 2
    added = "  distribution:\n    launcher: queue\n    settings:\n      queue: 3\n"
    workload.write_text(text.replace("trainer:\n", f"trainer:\n{added}"))
    place = problem(workload).place
    assert (place.origin, place.column) == (f"pipeline.yaml:{number + 3}", 14)


def test_plug_ins_of_the_workload_have_names_in_its_yaml(workload):
    source = f"{SOURCE}PLUGINS = {{'strategos.launchers': {{'own_queue': QUEUE}}}}\n"
    (workload.parent / "own_queues.py").write_text(source)
    value = "{launcher: own_queue, settings: {queue: a}}"
    sets = ["plugins=[own_queues]", f"trainer.distribution={value}"]
    assert load(workload, sets=sets).config.plugins == ("own_queues",)
    found = problem(workload, sets[1])  # of another pipeline, they are not known
    assert found.key == "trainer.distribution.launcher"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "own.py not found\n    Write it"),
        ("import nowhere", "No module named 'nowhere'\n    Correct the module, or"),
        ("import tfx", "module own imports tfx at the top"),
        ("x = 1", "defines no plug-ins"),
    ],
)
def test_modules_of_plug_ins_that_cannot_be_used_are_named(
    workload, monkeypatch, source, said
):
    monkeypatch.delitem(sys.modules, "tfx", raising=False)
    if source:
        (workload.parent / "own.py").write_text(source)
    found = problem(workload, "plugins=[own]")
    assert found.key == "plugins"
    assert said in str(found)


def test_a_metric_is_judged_by_what_it_says_of_itself(workload, install):
    install(
        "worst",
        """
from strategos.components.evaluation.metrics import Metric

class Worst(Metric):
    description, tasks, direction = "largest error", ("regression",), "lower"

    def sums(self, batch):
        raise NotImplementedError

    def finish(self, sums):
        raise NotImplementedError
""",
        "[strategos.metrics]\nworst = worst:Worst\ngone = nowhere:Gone\n",
    )
    section = (
        "evaluator={task: %s, metrics: [worst], slices: [], bounds: {auc: null%s}}"
    )
    found = load(
        workload,
        sets=[section % ("regression", ", worst: {at_most: 3, may_rise: 0.1}")],
    )
    assert found.config.evaluator.metrics == ("worst",)
    for bounds, said in {
        "worst: {may_drop: 0.1}": "worst is better when lower",
        "worst: {better_than: trivial}": "worst does not tell a model that has",
        "wurst: {at_most: 3}": "Did you mean `worst`?",
        "gone: {at_most: 3}": "of worst 1.2 cannot be imported",
    }.items():
        assert said in str(problem(workload, section % ("regression", f", {bounds}")))
    binary = section % ("binary", "")
    assert "not defined for the task binary" in str(problem(workload, binary))


def test_a_metric_beside_the_yaml_is_tried_before_the_run(workload):
    source = """
import numpy as np
from strategos.components.evaluation.metrics import Batch, Metric

class Mean(Metric):
    description, tasks = "mean of each part", ("binary",)

    def sums(self, batch: Batch) -> np.ndarray:
        return batch.total(batch.prediction) / batch.total(np.ones_like(batch.label))

    def finish(self, sums):
        return sums

PLUGINS = {"strategos.metrics": {"mean": Mean}}
"""
    (workload.parent / "additions.py").write_text(source)
    sets = ["plugins=[additions]", "evaluator.metrics=[auc, mean]"]
    config = load(workload, sets=sets).config
    (found,) = files.check(config, config.data.listing())
    assert found.key == "evaluator.metrics"
    assert "`mean` does not merge: 0.5 from 8 rows at once" in str(found)


ENGINE = """
from pydantic import BaseModel
from strategos import BeamEngine

class Settings(BaseModel, extra="forbid"):
    bundles: int = 2

class Counted(BeamEngine):
    settings = Settings

    def make_pipeline(self, engine):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"runner": "cuonted"}, "Did you mean `counted`?"),
        ({"runner": "counted", "settings": {"bundels": 1}}, "Did you mean `bundles`?"),
        ({"runner": "flink", "settings": {"bundles": 1}}, "takes no settings"),
    ],
)
def test_a_wrong_engine_is_named(install, workload, settings, said):
    install("counted", ENGINE, "[strategos.engines]\ncounted = counted:Counted\n")
    with pytest.raises(ConfigError) as caught:
        load(workload, sets=[f"run.engine={json.dumps(settings)}"])
    assert said in str(caught.value)
