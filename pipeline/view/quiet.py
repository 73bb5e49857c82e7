"""Hides warnings that users cannot act on; no other module hides warnings.

These are Google's notices on Python versions and on packages that TFX pins, and
TensorFlow's logs on oneDNN, CPU features and CUDA plug-ins. Warnings of user code stay.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

# Modules with FutureWarnings about versions that the lock file pins.
_MODULES = (
    "google.api_core._python_version_support",
    "google.auth.transport.grpc",
    "google.cloud.aiplatform.models",
)
_VARIABLES = {
    "TF_CPP_MIN_LOG_LEVEL": "3",  # On TF 2.16 plug-in registration is an "error".
    "GRPC_VERBOSITY": "ERROR",
}


def environment() -> dict[str, str]:
    """Environment variables for a child process; the user's own values win.

    Also sets `TF_USE_LEGACY_KERAS`, so that `tf.keras` is tf-keras in every process.

    Redirect the child's stderr to a log too: TF 2.21 writes two lines while its
    libraries load, before it reads any variable.
    """
    ours = [f"ignore::FutureWarning:{module}" for module in _MODULES]
    theirs = filter(None, [os.environ.get("PYTHONWARNINGS")])
    variables = {"PYTHONWARNINGS": ",".join([*ours, *theirs])}
    variables["TF_USE_LEGACY_KERAS"] = "1"
    for name, value in _VARIABLES.items():
        variables[name] = os.environ.get(name, value)
    return variables


def hide_warnings() -> None:
    """Hides the warnings of Google's packages in this process; imports nothing."""
    for module in _MODULES:
        pattern = module.replace(".", r"\.") + r"\Z"
        warnings.filterwarnings("ignore", category=FutureWarning, module=pattern)


def hush() -> None:
    """Hides the warnings in this process, and imports TensorFlow without its logs.

    Call it before anything else imports TensorFlow. It takes as long as that import.
    """
    os.environ.update(environment())
    hide_warnings()
    from absl import logging as absl_logging

    absl_logging.set_verbosity(absl_logging.ERROR)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with _native_stderr_dropped():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def _native_stderr_dropped() -> Iterator[None]:
    """Discards output to file descriptor 2, mainly of C++ libraries."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
