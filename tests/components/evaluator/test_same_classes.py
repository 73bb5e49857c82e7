"""The model in production is compared by class, however it numbers the classes.

TFMA reads the label of each model through that model's own preprocessing.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from hypothesis import given
from hypothesis import strategies as st
from tfx.types import standard_artifacts

from strategos.components.errors import UserError
from strategos.components.evaluation import metrics
from strategos.components.evaluation.classes.entries import all_names
from strategos.components.evaluation.inputs import same_classes
from strategos.components.evaluation.inputs.models import Model
from strategos.components.evaluation.inputs.numbering import Numbering
from strategos.components.evaluation.inputs.rows import Question
from strategos.components.exported import DESCRIPTION

GRADES = ["low", "mid", "top"]
MATRIX = np.array([[1.0, 0.0, 0.3], [0.0, 0.5, -0.2]])


@pytest.fixture
def production(linear, tmp_path):
    """Saves a model of the grades in some order, with a column of MATRIX for each."""

    def save(grades, known=True, scale=1.0):
        columns = [GRADES.index(each) for each in grades]
        model = linear(scale * MATRIX[:, columns], tf.nn.softmax, grades=grades)
        folder = model.save(tmp_path / "-".join(grades))
        facts = {"classes": grades} if known else {}
        Path(folder, "Format-Serving", DESCRIPTION).parent.mkdir(exist_ok=True)
        Path(folder, "Format-Serving", DESCRIPTION).write_text(json.dumps(facts))
        return folder

    return save


@pytest.fixture
def compare(workload, tmp_path, evaluate, artifact):
    """Evaluates a model beside the model in production."""

    def compare(model, baseline, task="multi_class", label="grade_name", **section):
        baseline = artifact(standard_artifacts.Model, baseline)
        read = {"label": label, "slices": ["month"], **section}
        models = {"model": model, "baseline": baseline}
        return evaluate(workload, tmp_path / "out", task, **models, **read)[:2]

    return compare


def test_a_model_that_numbers_the_classes_otherwise_is_compared_by_name(
    production, compare
):
    verdict, _ = compare(production(GRADES), production(["top", "low", "mid"]))
    assert verdict["baseline"] == pytest.approx(verdict["overall"], rel=1e-6)
    assert len(verdict["slices"]) == 3


@pytest.mark.long
def test_models_that_number_the_classes_otherwise_equal_tfma(
    workload, tmp_path, production, compare, stock, by_slice
):
    """The metrics that do not name a class."""
    named = ["accuracy", "log_loss", "accuracy@top2"]
    models = {"candidate": production(GRADES)}
    models["baseline"] = production(["mid", "top", "low"], scale=-0.3)
    _, evaluation = compare(models["candidate"], models["baseline"], metrics=named)
    section = {"task": "multi_class", "metrics": named, "slices": ["month"]}
    changed = {**workload, **{("multi_class", role): x for role, x in models.items()}}
    theirs = f"{tmp_path}/stock"
    stock(changed, theirs, "multi_class", section, "grade_name", baseline=True)
    for role in models:
        ours = by_slice(tfma.load_eval_result(evaluation.uri, model_name=role))
        wanted = by_slice(tfma.load_eval_result(theirs, model_name=role))
        assert ours.keys() == wanted.keys()
        for key, numbers in wanted.items():
            assert ours[key] == pytest.approx(numbers, rel=1e-4, abs=1e-7)


def test_numbers_of_unnamed_classes_that_differ_are_not_compared(production, compare):
    models = [production(each, known=False) for each in (GRADES, GRADES[::-1])]
    verdict, _ = compare(*models, bounds={"accuracy": {"may_drop": 0.5}})
    assert not verdict["blessed"] and not verdict["baseline"]
    assert "numbers the classes of `grade_name` otherwise" in verdict["warnings"][0]


def one_hot(numbers):
    return tf.one_hot(numbers, 4)


@pytest.mark.parametrize(
    ("task", "grade"),
    [("multi_class", tf.identity), ("multi_class", one_hot), ("multi_label", one_hot)],
)
def test_a_class_that_is_gone_moves_the_numbers_of_unnamed_classes(
    linear, tmp_path, compare, task, grade
):
    """The first class of the model in production has no row any more."""
    wide, folders = np.hstack([np.zeros((2, 1)), MATRIX]), []
    activation = tf.nn.softmax if task == "multi_class" else tf.sigmoid
    for grades in (GRADES, ["gone", *GRADES]):
        model = linear(wide, activation, grade=grade, grades=grades)
        folders.append(model.save(tmp_path / grades[0]))
    verdict, _ = compare(*folders, task, bounds={"log_loss": {"may_rise": 9.0}})
    assert not verdict["blessed"] and not verdict["baseline"]
    (warning,) = [x for x in verdict["warnings"] if "no comparison" in x]
    assert "such as 1 for 0, so their answers cannot be compared" in warning
    same, _ = compare(folders[0], folders[0], task)
    assert same["baseline"] == pytest.approx(same["overall"])


BITS = np.random.default_rng(3).integers(1, 1 << 63, 60, np.uint64)
CLASSES = st.lists(st.integers(0, 4), min_size=60, max_size=60).map(np.array)


@given(CLASSES, st.permutations(range(6)), st.integers(1, 59), st.booleans())
def test_shards_together_tell_which_classes_have_other_numbers(
    classes, numbers, cut, one_hot
):
    other = np.array(numbers)[classes]
    found = [own.astype(np.float64) for own in (other, classes)]
    if one_hot:
        found = [np.eye(6)[own.astype(int)] for own in found]
    parts = [
        Numbering.of(BITS[part], *(own[part] for own in found))
        for part in (slice(cut), slice(cut, None))
    ]
    present = np.unique(classes)
    moved = [(numbers[x], x) for x in present if numbers[x] != x]
    whole = parts[0].merge(parts[1])
    assert whole == Numbering.of(BITS, *found)
    if len(present) < 2 or not moved:
        assert whole.moved is None
    else:
        assert whole.moved in moved


@pytest.mark.parametrize("edges", [[10.5, 20.5], [30.5, 40.5], [0.5, 1.5]])
def test_bins_with_other_edges_are_no_other_numbers(edges):
    values = np.arange(60.0) % 45
    other, own = (np.searchsorted(x, values) for x in ([15.5, 25.5], edges))
    assert Numbering.of(BITS, 1.0 * other, 1.0 * own).moved is None
    # The rows of a shard alone might all have moved.
    some = values > 25.5
    part = Numbering.of(BITS[some], 1.0 * other[some], 1.0 * own[some])
    assert part.moved is None


def test_a_label_that_some_rows_have_otherwise_is_judged_by_the_candidates(
    linear, tmp_path, compare
):
    """A definition that depends on the data is no exchange of numbers."""
    folders = []
    for low in (0, 1):
        grade = functools.partial(tf.maximum, tf.constant(low, tf.int64))
        model = linear(MATRIX, tf.nn.softmax, grade=grade)
        folders.append(model.save(tmp_path / str(low)))
    verdict, _ = compare(*folders)
    assert verdict["baseline"] == pytest.approx(verdict["overall"], rel=1e-6)


def test_two_classes_that_have_changed_places_are_compared_by_name(
    linear, workload, tmp_path, evaluate, artifact
):
    """Probabilities of the other class are 1 - those of this one."""
    folders = []
    for name, sign, classes in (("new", 1.0, ["n", "y"]), ("old", -1.0, ["y", "n"])):
        model = linear([[sign], [sign]], tf.sigmoid).save(tmp_path / name)
        Path(model, "Format-Serving", DESCRIPTION).parent.mkdir(exist_ok=True)
        facts = json.dumps({"classes": classes})
        Path(model, "Format-Serving", DESCRIPTION).write_text(facts)
        folders.append(model)
    baseline = artifact(standard_artifacts.Model, folders[1])
    models = {"model": folders[0], "baseline": baseline}
    verdict, _, _ = evaluate(workload, tmp_path / "out", **models)
    assert verdict["baseline"] == pytest.approx(verdict["overall"], rel=1e-5)
    assert "class 1 of `late` is `y`, and `n` for" in verdict["warnings"][0]


class _Named(Model):
    """A model that knows the names of its classes, and answers nothing."""

    def __init__(self, classes, error=UserError):
        self.classes, self.error = classes, error


@given(st.data())
def test_each_class_keeps_its_probability(data):
    """Classes are added and lost; the last columns are of values without a name."""
    names = st.permutations("abcde").flatmap(
        lambda all_five: st.integers(1, 5).map(lambda n: [*all_five[:n]])
    )
    own, wanted = data.draw(names), data.draw(names)
    unnamed = [data.draw(st.integers(0, 2)) for _ in range(2)]
    width = len(own) + unnamed[0]
    answer = np.random.default_rng(1).random((3, width))
    question = Question("multi_class", (), "y", (), {}, None, "")
    needed = len(wanted) + unnamed[1]
    models = _Named(own), _Named(wanted)
    found = same_classes.in_order(*models, answer, question, (), needed)
    assert found.shape[1] >= needed
    np.testing.assert_allclose(found.sum(1), answer.sum(1))  # no answer is lost
    for place, name in enumerate(wanted):
        expected = answer[:, own.index(name)] if name in own else 0
        np.testing.assert_array_equal(found[:, place], expected)
    for number in range(unnamed[1]):
        expected = answer[:, len(own) + number] if number < unnamed[0] else 0
        np.testing.assert_array_equal(found[:, len(wanted) + number], expected)


def test_two_classes_of_other_names_are_not_compared():
    question = Question("binary", (), "y", (), {}, None, "")
    models = _Named(["no", "yes"]), _Named(["bad", "good"])
    with pytest.raises(UserError, match="knows the classes no, yes, and the label"):
        same_classes.in_order(*models, np.ones((2, 1)), question, (), 1)


def test_every_metric_of_several_classes_ignores_their_order(production, compare):
    named = [x for x in metrics.names("multi_class") if not metrics.METRICS[x].by_query]
    verdict, _ = compare(production(GRADES), production(GRADES[::-1]), metrics=named)
    assert verdict["baseline"] == pytest.approx(verdict["overall"], rel=1e-6)


def test_unnamed_classes_have_names_of_their_own():
    """A class of the vocabulary may be called like the number of a bucket."""
    assert all_names(["late", "3", "2"], 5) == ["late", "3", "2", "#3", "4"]
    assert all_names([], 2) == ["0", "1"]
