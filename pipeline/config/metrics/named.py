"""Names of metrics: whether a metric of a task has one, and which may be meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic_core import InitErrorDetails

from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.library.names import parsed
from strategos.components.evaluation.metrics import METRICS, bare, names
from strategos.components.wording import did_you_mean, nearest
from strategos.pipeline.config.metrics import entries
from strategos.pipeline.config.plugins import problems
from strategos.pipeline.config.problems import reject_at


def errors(
    loc: tuple[str | int, ...], name: str, task: str | Mapping[str, str] | None
) -> Iterator[InitErrorDetails]:
    """Yields an error if no metric of the task, or of a head's task, has this name.

    Args:
      loc: Path of the key below the model of the calling validator.
      name: The name, perhaps `HEAD.METRIC`.
      task: One of `metrics.TASKS`, or one for each head; None if it is wrong.
    """
    if not task:
        return
    if isinstance(task, str):
        if parsed(name) and task == "reconstruction":
            cause = f"`{name}` is computed of one label a row, and there is none"
            yield reject_at(loc, cause, expected=", ".join(names(task)))
        elif parsed(name):
            ours = _known_by_class(name, task)
            yield from entries.class_problems(loc, name, ours)
        elif not (usable(name) and task in METRICS[name].tasks):
            yield _unknown_metric(loc, name, task)
        return
    head, metric = naming.split(name)
    if head in task:
        yield from errors(loc, metric, task[head])
        return
    cause = f"`{name}` begins with no head that `evaluator.task` names"
    remedy = did_you_mean(head, task, "Write `HEAD.METRIC`.")
    yield reject_at(loc, cause, expected=f"one of {', '.join(task)}", remedy=remedy)


def _unknown_metric(
    loc: tuple[str | int, ...], name: str, task: str
) -> InitErrorDetails:
    message, remedy, known = f"`{name}` is not a metric", "", names(task)
    known += [each for each in METRICS if each not in METRICS.own]
    if name in METRICS and not usable(name):
        (problem,) = problems(METRICS, name)
        return reject_at(loc, **problem)
    base, at, _ = name.partition("@")
    if at and base in METRICS and name not in METRICS:
        allowed = (
            "a threshold between 0 and 1 behind `@`, such as `recall@0.3`, "
            "of a metric with a threshold, or `accuracy@top3` and other numbers of "
            "classes, of accuracy, precision and recall"
        )
        if usable(base) and METRICS[base].by_query:
            allowed = f"a number of places behind `@`, such as `{base}@10`"
        cause = f"`{name}` is no metric, and `{base}` is"
        return reject_at(loc, cause, expected=allowed)
    if name in METRICS:
        tasks = " or ".join(sorted(METRICS[name].tasks))
        message = f"`{name}` is not defined for the task {task}"
        remedy = f"It is for {tasks}; the task is set by `evaluator.task`."
    elif bare(name) in METRICS:
        remedy = "For several heads, write a task for each: `task: {HEAD: TASK, …}`."
    elif near := _known_by_class(name, task) or nearest(name, known):
        remedy = f"Did you mean `{near}`?"
    return reject_at(loc, message, expected=", ".join(known), remedy=remedy)


def usable(metric: str) -> bool:
    """Whether a metric exists and can be imported.

    Args:
      metric: Its name.
    """
    return not any(problems(METRICS, metric))


def _known_by_class(name: str, task: str) -> str | None:
    """The metric by its class in Keras or TFMA, e.g. `mean_squared_error`; or None."""
    wanted = name.replace("_", "").lower()
    classes = {metric: METRICS[metric].tfma for metric in names(task)}
    by_class = {
        (each if isinstance(each, str) else each[task]).lower(): metric
        for metric, each in classes.items()
    }
    return by_class.get(wanted)
