"""Why a job failed, out of what a job server says."""

from __future__ import annotations

from strategos.components.shards.job import reason

OF_PYTHON = """\
Pipeline strategos-transform-1 failed in state FAILED: java.lang.RuntimeException: \
Error received from SDK harness for instruction 4: Traceback (most recent call last):
  File "/a/impl.py", line 12, in process
    return run(batch)
tensorflow.InvalidArgumentError: inner

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/sdk_worker.py", line 311, in _execute
    response = task()
ValueError: An error occurred: "too far
second line". [while running 'Analyze/Apply']

\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.handle(Fn.java:1)
Caused by: java.lang.IllegalStateException: closed
"""


def test_exception_of_python_code_is_shown_without_the_frames():
    assert reason(OF_PYTHON) == (
        'ValueError: An error occurred: "too far\nsecond line". [while running '
        "'Analyze/Apply']"
    )


def test_error_of_ours_is_shown_without_its_type():
    error = (
        "Traceback (most recent call last):\n  File\n"
        "strategos.components.errors.UserError: run.root: a worker on a cannot write "
        "to /b. Let it. [while running 'Work']\n"
    )
    assert reason(error) == "run.root: a worker on a cannot write to /b. Let it."


def test_other_failures_are_shown_by_their_first_line():
    message = (
        "Pipeline a failed in state FAILED: java.lang.Exception: no slots\n\tat a.b"
    )
    assert reason(message) == (
        "the job on `run.engine` failed: Pipeline a failed in state FAILED: "
        "java.lang.Exception: no slots"
    )
