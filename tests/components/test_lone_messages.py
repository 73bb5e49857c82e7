from __future__ import annotations

import subprocess
import sys

_HIDDEN = """
import importlib.util
import sys
from strategos.pipeline.runners import light
light.hide_heavy_imports()
from strategos.components import lone_messages

def hidden(package):
    try:
        importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return package not in sys.modules
    return False

packages = "tensorflow", "tensorflow_model_analysis"
assert all(map(hidden, packages))
with lone_messages.of("tensorflow"):
    from tensorflow.core.protobuf import saved_model_pb2
try:
    with lone_messages.of("tensorflow"):
        import tensorflow.nothing
except ModuleNotFoundError:
    pass
from strategos.components.evaluator.tfma.messages import config_pb2
assert all(map(hidden, packages))
print(saved_model_pb2.SavedModel.DESCRIPTOR.full_name)
print(config_pb2.EvalRun(version="1"))
for name in sys.modules:
    package, _, module = name.partition(".")
    if package in packages and not module.startswith(("core", "proto")):
        print(name)
"""

_VISIBLE = """
import sys
import json
from strategos.components import lone_messages
with lone_messages.of("json"):
    assert json.loads("1") == 1
assert sys.modules["json"] is json

from strategos.components.evaluator.tfma.messages import config_pb2
assert "tensorflow_model_analysis" not in sys.modules

import tensorflow_model_analysis as tfma
assert tfma.EvalConfig is config_pb2.EvalConfig
assert tfma.proto.config_pb2 is config_pb2
"""


def output(code):
    run = [sys.executable, "-c", code]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_messages_of_hidden_packages_are_imported_and_the_packages_stay_hidden():
    texts = output(_HIDDEN).split()
    assert texts == ["tensorflow.SavedModel", "version:", '"1"']


def test_a_package_that_can_be_imported_can_be_imported_still():
    output(_VISIBLE)
