from __future__ import annotations

import subprocess
import sys

import pytest

from strategos.pipeline.view import quiet


def test_what_the_user_has_set_holds(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.setenv("PYTHONWARNINGS", "error::FutureWarning")
    variables = quiet.environment()
    assert variables["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert variables["PYTHONWARNINGS"].endswith(",error::FutureWarning")


def test_every_process_builds_models_with_tf_keras(monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    assert quiet.environment()["TF_USE_LEGACY_KERAS"] == "1"


@pytest.mark.long
def test_remarks_are_kept_from_the_terminal_and_the_users_warnings_are_not(
    monkeypatch,
):
    for name in ("PYTHONWARNINGS", *quiet.environment()):
        monkeypatch.delenv(name, raising=False)
    code = (
        "import warnings; from strategos.pipeline.view import quiet; quiet.hush()\n"
        "import tensorflow, google.cloud.aiplatform\n"
        "assert 'tf_keras' in tensorflow.keras.Model.__module__\n"
        "warnings.warn('of the user', FutureWarning)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == ["<string>:4: FutureWarning: of the user"]
