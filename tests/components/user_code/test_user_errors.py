from __future__ import annotations

import importlib.util
import sys

import pytest

from strategos.components.user_code.user_errors import (
    explain,
    location,
    operation_error,
)

COMPILED_BY_AUTOGRAPH = """in user code:

    File "/lib/tf_keras/src/engine/training.py", line 1398, in train_function  *
        return step_function(self, iterator)
    File "/tmp/__autograph_generated_file1.py", line 12, in tf__call
        retval_ = ag__.converted_call(ag__.ld(tf).matmul, None, fscope)

    ValueError: Exception encountered when calling layer 'm' (type M).
    
    in user code:
    
        File "{file}", line 11, in call  *
            return tf.matmul(x, tf.ones((7,7)))
    
        ValueError: Dimensions must be equal, but are 3 and 7.
    
    
    Call arguments received by layer 'm' (type M):
      • x=tf.Tensor(shape=(None, 3), dtype=float32)
"""


@pytest.fixture
def failing(tmp_path):
    """A function that imports code from a folder, calls it, and returns its error."""

    def run(source):
        path = tmp_path / "own.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("own", path)
        module = importlib.util.module_from_spec(spec)
        with pytest.raises(Exception) as raised:
            spec.loader.exec_module(module)
        return raised.value, str(tmp_path)

    return run


def test_the_innermost_own_line_is_named(failing):
    error, folder = failing("import json\ndef f():\n    json.loads('{')\nf()\n")
    assert explain(error, folder).startswith(
        f"{folder}/own.py:3: JSONDecodeError: Expecting property name"
    )


def test_without_an_own_line_the_text_starts_with_the_type(failing):
    error, _ = failing("1 / 0")
    assert explain(error, "/elsewhere") == "ZeroDivisionError: division by zero"
    assert location(error, "/elsewhere") is None


def test_a_librarys_line_within_the_folder_is_not_the_users(tmp_path, monkeypatch):
    library = tmp_path / ".venv" / "site-packages"
    library.mkdir(parents=True)
    (library / "somelib.py").write_text("def f():\n    raise ValueError('x')\n")
    monkeypatch.syspath_prepend(str(library))
    import somelib

    with pytest.raises(ValueError) as raised:
        somelib.f()
    del sys.modules["somelib"]
    assert location(raised.value, str(tmp_path)) is None


def test_remarks_of_autograph_and_keras_are_left_out(tmp_path):
    file = tmp_path / "model.py"
    error = ValueError(COMPILED_BY_AUTOGRAPH.format(file=file))
    assert explain(error, str(tmp_path)) == (
        f"{file}:11: ValueError: Dimensions must be equal, but are 3 and 7."
    )


def test_the_reason_of_an_error_in_a_graph_comes_first():
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(2)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        model.fit(tf.ones([1, 1]), tf.constant([[-1]]), verbose=0)
    assert explain(raised.value, "/elsewhere").startswith(
        "InvalidArgumentError: Received a label value of -1 which is outside the valid"
    )


def test_an_operation_s_error_does_not_name_a_function_of_tensorflow():
    message = (
        "{{function_node __inference_<lambda>_113}} not a ratio : Tensor had Inf values"
        "\n\t [[{{node CheckNumerics}}]] [Op:__inference_<lambda>_113]"
    )
    assert operation_error(message) == "not a ratio : Tensor had Inf values"


def test_of_the_errors_of_several_replicas_the_first_is_named():
    message = (
        "Graph execution error:\n\nDetected at node replica_1/Assert defined at (most "
        "recent call last):\n<stack traces unavailable>\n2 root error(s) found.\n"
        "  (0) INVALID_ARGUMENT:  assertion failed: [x is too large] [2.5]\n"
        "\t [[{{node replica_1/Assert}}]]\n\t [[NoOp/_45]]\n"
        "  (1) INVALID_ARGUMENT:  assertion failed: [x is too large] [2.5]\n"
        "\t [[{{node replica_1/Assert}}]]\n0 successful operations.\n"
    )
    assert operation_error(message) == "assertion failed: [x is too large] [2.5]"
