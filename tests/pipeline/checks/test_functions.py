"""Checks of the functions of user modules, which are not imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from strategos.pipeline.checks import files
from strategos.pipeline.config.loading import load
from strategos.pipeline.config.trainer import Trainer


def found(path: Path, *sets: str) -> list:
    config = load(path, sets=sets).config
    return files.check(config, config.data.listing())


def only(path: Path, *sets: str):
    problems = found(path, *sets)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def test_a_module_named_like_its_file_is_understood(workload):
    assert "Write `model`, without `.py`." in str(
        only(workload, "trainer.module=model.py")
    )


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("model.py", "def build_modell(c): ...\n", "Rename `build_modell`, or define"),
        ("model.py", "x = 1\n", "functions there: none"),
        (
            "model.py",
            "class A:\n  def build_model(s): ...\n",
            "no function `build_model`",
        ),
        ("model.py", "def f(:\n", "model.py:1: is not valid Python"),
        (
            "preprocessing.py",
            "def g(x): ...\n",
            "Define `def preprocessing_fn(inputs)`",
        ),
    ],
)
def test_a_module_without_its_function_is_rejected(
    write, workload, file, text, expected
):
    write(file, text)
    assert expected in str(only(workload))


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere import build_model\n",
        "from elsewhere import *\n",
        "build_model = lambda context: None\n",
        "try:\n  import x\nexcept ImportError:\n  def build_model(c): ...\n",
        "if True:\n  from a import b as build_model\n",
    ],
)
def test_a_function_may_be_bound_in_any_way(write, workload, text):
    write("elsewhere.py", "")
    write("model.py", text)
    assert found(workload) == []


def test_modules_are_not_imported(write, workload):
    write("model.py", "raise SystemExit\ndef build_model(context): ...\n")
    assert found(workload) == []


@pytest.mark.parametrize("argument", ["context", "fn_args"])
def test_a_module_may_have_a_loop_of_its_own(write, workload, argument):
    build_model = "def build_model(context): ...\n" if argument == "context" else ""
    write("model.py", f"{build_model}def run_fn({argument}): ...\n")
    assert found(workload) == []
    assert found(workload, "trainer.distribution.strategy=mirrored") == []


def test_a_loop_of_its_own_needs_a_model(write, workload):
    write("model.py", "def run_fn(context): ...\n")
    assert "has no function `build_model`" in str(only(workload))


@pytest.mark.parametrize(
    ("arguments", "is_fine"),
    [
        *[("", False), ("context, units", False), ("*, context", False)],
        *[("context", True), ("context, units=3", True), ("*given", True)],
    ],
)
def test_build_model_takes_one_argument(write, workload, arguments, is_fine):
    write("model.py", f"def build_model({arguments}): ...\n")
    if is_fine:
        assert found(workload) == []
    else:
        problem = str(only(workload))
        assert "model.py cannot be called with one argument" in problem
        assert "Define `def build_model(context)` there" in problem


SERVERS = "trainer.distribution.strategy=parameter_server"


def test_parameter_servers_take_no_module_for_tfx(write, workload):
    write("model.py", "def run_fn(fn_args): ...\n")
    problem = only(workload, SERVERS)
    assert problem.key == "trainer.distribution.strategy"
    assert "`model` has its own training loop, `run_fn(fn_args)`" in str(problem)
    assert "Use `multi_worker_mirrored`" in str(problem)


@pytest.mark.parametrize(
    ("loop", "is_fine"),
    [
        ("loop.steps()", False),
        ("context.loop.steps()", False),
        ("loop.train(step)", True),
        ("(loop.steps() if alone else loop.train(step))", True),
        ("split.steps(3)", True),  # of another object
        ("elsewhere(context)", True),
    ],
)
def test_parameter_servers_take_a_loop_that_schedules_its_steps(
    write, workload, loop, is_fine
):
    model = "def build_model(context): ...\n"
    write("model.py", f"{model}def run_fn(context):\n  for x in {loop}:\n    pass\n")
    assert found(workload, "trainer.distribution.strategy=mirrored") == []
    if is_fine:
        assert found(workload, SERVERS) == []
        return
    problem = only(workload, SERVERS)
    assert problem.key == "trainer.distribution.strategy"
    assert "model.py:3: `loop.steps()` needs workers that take each" in str(problem)
    assert "Call `loop.train(step)`, which" in str(problem)


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("callbacks.early_stopping={}", "callbacks"),
        ("callbacks.tensorboard=false", "callbacks"),
        ("checkpoint.every=5m", "checkpoint"),
        ("last_batch=drop", "last_batch"),
        ("scale_learning_rate=linear", "scale_learning_rate"),
        ("warm_up_steps=5", "warm_up_steps"),
        ("mixed_precision=bfloat16", "mixed_precision"),
        ("jit_compile=true", "jit_compile"),
        ("steps_per_execution=4", "steps_per_execution"),
        ("cache_limit=2GB", "cache_limit"),
        ("bucket_by=distance", "bucket_by"),
        ("warm_start=latest", "warm_start"),
    ],
)
def test_what_a_module_for_tfx_does_by_itself_is_no_setting(
    write, workload, setting, key
):
    assert found(workload, f"trainer.{setting}") == []
    write("model.py", "def run_fn(fn_args): ...\n")
    assert found(workload, "trainer.deterministic=true", "trainer.seed=3") == []
    assert found(workload, "trainer.callbacks.tensorboard=true") == []
    problem = only(workload, f"trainer.{setting}")
    assert problem.key == f"trainer.{key}"
    assert "has no effect on `model`" in str(problem)


def test_each_setting_of_the_trainer_reaches_a_module_for_tfx_or_is_rejected():
    reach = {
        *("module", "files", "batch_size", "epochs", "seed", "deterministic", "keras"),
        *("hyperparameters", "distribution", "debug"),
    }
    with_warm_start = {"fresh_every", "compare_fresh"}
    known = reach | with_warm_start | {*files._NOT_FOR_STOCK}
    assert {*Trainer.model_fields} == known


def test_settings_for_a_preprocessing_fn_that_takes_none_are_rejected(write, workload):
    setting = "transform.custom_config={separator: x}"
    problem = only(workload, setting)
    assert problem.key == "transform.custom_config"
    assert "has no effect: `preprocessing` has `preprocessing_fn(inputs)`" in str(
        problem
    )
    write("preprocessing.py", "def preprocessing_fn(inputs, custom_config): ...\n")
    assert found(workload, setting) == []
    write("elsewhere.py", "")
    write("preprocessing.py", "from elsewhere import preprocessing_fn\n")
    assert found(workload, setting) == []
