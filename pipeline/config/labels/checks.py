"""Contradictions between the label, or none, and other settings."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo

from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.metrics import top
from strategos.components.targets.label import Label
from strategos.components.wording import choices, did_you_mean, listed, quoted
from strategos.pipeline.config.data import Data
from strategos.pipeline.config.evaluator import Evaluator
from strategos.pipeline.config.problems import raise_all, reject, reject_at
from strategos.pipeline.config.trainer import Trainer

_RECONSTRUCTION = "reconstruction"
_SPELL_TASKS = "Write a task for each: `task: {HEAD: regression, …}`."


def checked(value: Any, info: ValidationInfo) -> Any:
    """Rejects a setting that does not go with the label.

    Args:
      value: The value of `weight`, or the section `data`, `trainer` or `evaluator`.
      info: Has the settings before it.

    Returns:
      The value.
    """
    label = Label.of(info.data.get("label") or "")
    if info.field_name == "weight":
        _check_weight(value, label)
    elif isinstance(value, Data):
        _check_data(value, label)
    elif isinstance(value, Trainer):
        _check_trainer(value, label)
    elif isinstance(value, Evaluator):
        _check_tasks(value, label)
        _check_query(value, label, info.data.get("data"))
        _check_evaluator(value, label, info.data.get("trainer"))
    return value


def _check_weight(weight: str | None, label: Label) -> None:
    if weight and weight in label.columns and label.reconstructs:
        cause = "the model does not get the weight, and `label` names it to reconstruct"
        raise reject(cause, remedy="Name another column, or remove it from `label`.")
    if weight and weight in label.columns:
        raise reject("the label would weigh itself", remedy="Name another column.")


def _check_data(data: Data, label: Label) -> None:
    if label.reconstructs and data.unlabelled == "drop":
        cause = "leaves out rows without a label, and `label` names none"
        remedy = "Remove it; `missing` fills cells without a value."
        raise_all([reject_at(("unlabelled",), cause, remedy=remedy)])
    cause = "trains on invented labels; rows without one: `unlabelled: drop`"
    for name in label.withheld:
        if name in data.missing:
            raise_all([reject_at(("missing", name), cause)])


def _check_trainer(trainer: Trainer, label: Label) -> None:
    remedy = "Remove it, or weigh the rows by a feature: `weight`."
    if trainer.class_weight and label.is_several:
        cause = "weighs a row by its class, and a row may have several classes here"
        raise_all([reject_at(("class_weight",), cause, remedy=remedy)])
    if trainer.class_weight and label.outputs:
        cause = "weighs a row by its class, and here a row has a class for each head"
        raise_all([reject_at(("class_weight",), cause, remedy=remedy)])
    if trainer.class_weight and label.reconstructs:
        cause = "weighs a row by its class, and `label` names none"
        raise_all([reject_at(("class_weight",), cause, remedy=remedy)])
    if trainer.warm_start and label.reconstructs:
        cause = "is not supported for `label: {reconstruct: …}`: the features that the "
        cause += "outputs stand for may move"
        remedy = "Remove it: the model starts from initial weights."
        raise_all([reject_at(("warm_start",), cause, remedy=remedy)])


def _check_tasks(evaluator: Evaluator, label: Label) -> None:
    """Rejects tasks that are not those of the label's heads."""
    task = evaluator.task
    if isinstance(task, str):
        if label.outputs:
            heads = listed(quoted(label.outputs))
            cause = f"one task, and `label` has the heads {heads}"
            raise_all([reject_at(("task",), cause, remedy=_SPELL_TASKS)])
        if label.reconstructs and task != _RECONSTRUCTION:
            cause = f"{task} compares with a label, and `label` names features to "
            cause += "reconstruct"
            raise_all([reject_at(("task",), cause, expected=_RECONSTRUCTION)])
        if task == _RECONSTRUCTION and not label.reconstructs:
            cause = "reconstruction compares with features, and `label` is one"
            remedy = "Write `label: {reconstruct: all}`, or another task."
            raise_all([reject_at(("task",), cause, remedy=remedy)])
        return
    if not label.outputs:
        cause = "tasks of several heads, but `label` names none"
        remedy = "Write one task, or `label: {HEAD: COLUMN, …}`."
        raise_all([reject_at(("task",), cause, remedy=remedy)])
    unknown = [name for name in task if name not in label.outputs]
    if unknown:
        near = did_you_mean(unknown[0], label.outputs)
        cause, known = "no head of `label` has this name", choices(label.outputs)
        raise_all([reject_at(("task", unknown[0]), cause, expected=known, remedy=near)])
    missing = [name for name in label.outputs if name not in task]
    if missing:
        cause = f"no task for the head{'s' * (len(missing) > 1)} {choices(missing)}"
        raise_all([reject_at(("task",), cause, remedy=_SPELL_TASKS)])


def _check_query(evaluator: Evaluator, label: Label, data: Data | None) -> None:
    """Rejects queries that are labels, and a split that divides their rows."""
    query = evaluator.query
    if query in label.columns:
        cause = f"`{query}` is the label, and would be its own query"
        raise_all([reject_at(("query",), cause, remedy="Name another column.")])
    if query and data and data.split.by == "ratio":
        cause = (
            f"ranks all rows of a value of `{query}` together, and `data.split` "
            "divides them row by row"
        )
        remedy = f"Write `data: {{split: {{by: hash, keys: [{query}]}}}}`, or divide "
        remedy += "by span or by time."
        raise_all([reject_at(("query",), cause, remedy=remedy)])


def _check_evaluator(
    evaluator: Evaluator, label: Label, trainer: Trainer | None
) -> None:
    for head, own in label.by_output.items():
        if own.is_several:
            _check_classes(evaluator, own, head)
    if evaluator.task == "multi_label" and trainer and trainer.class_weight:
        raise reject(
            "`trainer.class_weight` weighs a row by its class, and with `task: "
            "multi_label` a row may have several",
            remedy="Remove it, or weigh the rows by a feature: `weight`.",
            because="trainer.class_weight",
        )


def _check_classes(evaluator: Evaluator, label: Label, head: str) -> None:
    """Rejects tasks and metrics that do not compare several columns of classes."""
    tasks, place = evaluator.task, ("task", head) if head else ("task",)
    task = tasks if isinstance(tasks, str) else tasks[head]
    if task != "multi_label":
        cause = f"{task} compares one label a row, and `label` names "
        cause += f"{len(label.columns)} columns" + f" for `{head}`" * bool(head)
        raise_all([reject_at(place, cause, expected="multi_label")])
    for index, name in enumerate(evaluator.metrics):
        of_head, metric = naming.split(name) if head else ("", name)
        if of_head == head and top(metric) > len(label.columns):
            cause = f"`{name}`: `label` names {len(label.columns)} classes"
            raise_all([reject_at(("metrics", index), cause)])
