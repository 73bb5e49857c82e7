"""`strategos run --runner kubeflow|vertex`: submits a pipeline, and follows its run.

Ctrl-C while a run is followed does not end the run, as the terminal may close during
hours of training. `--terminate` ends a run.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components import events, node_ids
from strategos.components.errors import BadInputError, ExitCode, Place, UserError
from strategos.components.files import temporary
from strategos.pipeline import commands
from strategos.pipeline.view import streams

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.runs import Run
    from strategos.pipeline.remote.service import Log, RemoteRun, Service

TARGETS = ("kubeflow", "vertex")
"""Runners that are services, which run a compiled pipeline."""
_FACTS = (
    *("blessed", "metrics", "pushed", "slot", "trainer", "summary", "types"),
    "warnings",
)
"""Attributes of a `Run` that no service knows."""
_LOCAL_ONLY = ("from_node", "to_node", "from_scratch")
_REMOTE_ONLY = ("follow", "terminate")


def is_asked_for(arguments: argparse.Namespace) -> bool:
    """Whether `strategos run` is to use a service.

    Raises:
      BadInputError: A local run is asked for with an option of services.
    """
    if arguments.runner in TARGETS:
        return True
    for name in _REMOTE_ONLY:
        if getattr(arguments, name):
            raise BadInputError(
                "only a submitted run has an id",
                key=f"--{name}",
                received=getattr(arguments, name),
                remedy=f"Add --runner {' or '.join(TARGETS)}.",
            )
    return False


def run(arguments: argparse.Namespace) -> int:
    """`strategos run`: here; or submits a run, follows or terminates an earlier one.

    Raises:
      UserError: The pipeline cannot run on the target, or the service fails.
    """
    if arguments.profile is not None:
        profile = f"trainer.callbacks.tensorboard.profile={arguments.profile}"
        arguments.set = [*arguments.set, profile]
    if not is_asked_for(arguments):
        return commands.run(arguments)
    target = arguments.runner
    overrides = ["run.cache=false"] if arguments.no_cache else []
    config = commands.load(arguments, *overrides).config
    _reject(arguments, config, target)
    service = connect(config, target)
    if arguments.terminate:
        service.terminate(arguments.terminate)
        print(f"run {arguments.terminate} is being terminated")
        return ExitCode.DONE
    if arguments.follow:
        return _follow(config, service, arguments.follow, arguments)
    service.check()
    commands.prepare_image_data(config, target)
    with temporary.folder() as folder:
        file = Path(folder, "pipeline")
        names = ("without_baseline", "take_over")
        options = {name: getattr(arguments, name) for name in names}
        commands.compile_to(config, target, file, **options)
        run_id = service.submit(file, config.name)
    print(f"run {run_id} submitted: {service.link(run_id)}", flush=True)
    if arguments.wait:
        return _follow(config, service, run_id, arguments)
    print(f"follow it: {_command(arguments, '--follow', run_id)}")
    return ExitCode.DONE


def _reject(arguments: argparse.Namespace, config: Config, target: str) -> None:
    problems = [*_option_problems(arguments), *endpoint_problems(config, target)]
    has_section = getattr(config, target) is not None
    if has_section and (arguments.follow or arguments.terminate):
        for problem in problems:
            raise problem
        return
    commands.reject_target(config, target, *problems)


def _option_problems(arguments: argparse.Namespace) -> Iterator[UserError]:
    for name in _LOCAL_ONLY:
        if getattr(arguments, name):
            flag = "--" + name.removesuffix("_node").replace("_", "-")
            yield BadInputError(
                "a submitted run has all nodes, and no state on this machine",
                key=flag,
                place=Place("command line"),
                remedy="Leave it out.",
            )


def endpoint_problems(config: Config, target: str) -> Iterator[UserError]:
    """Yields a problem if nothing names the service."""
    from strategos.pipeline.remote import kubeflow

    if target == "kubeflow" and not kubeflow.endpoint(config, os.environ):
        yield config.problem(
            "kubeflow.endpoint",
            "is missing: the URL of the API of Kubeflow Pipelines",
            remedy="Set it, or the environment variable "
            f"{kubeflow.ENDPOINT_VARIABLE}, such as http://localhost:8888 for "
            "`kubectl port-forward service/ml-pipeline 8888`.",
        )


def connect(config: Config, target: str) -> Service:
    """The service of a target, after `endpoint_problems`; its section must exist."""
    from strategos.pipeline.view import quiet

    quiet.hide_warnings()
    if target == "vertex":
        from strategos.pipeline.remote import vertex

        return vertex.VertexPipelines(config)
    from strategos.pipeline.remote import kubeflow

    return kubeflow.connect(config, os.environ)


def _follow(
    config: Config, service: Service, run_id: str, arguments: argparse.Namespace
) -> int:
    """Shows a run until its end, and reports it; returns the exit code."""
    from strategos.pipeline.remote import watch
    from strategos.pipeline.remote.service import MissingError
    from strategos.pipeline.view import report

    try:
        with temporary.folder() as folder:
            path = Path(folder, "events.jsonl")
            events.open_sink(str(path))
            try:
                with report.LiveView(path):
                    ended = watch.follow(service, run_id, runner=arguments.runner)
            finally:
                events.open_sink(None)
    except KeyboardInterrupt:
        _goes_on(arguments, service, run_id)
        return ExitCode.INTERRUPTED
    except MissingError:
        raise
    except UserError:
        _goes_on(arguments, service, run_id)
        raise
    return _report(config, service, ended, arguments.runner)


def _goes_on(arguments: argparse.Namespace, service: Service, run_id: str) -> None:
    print(
        f"run {run_id} goes on: {service.link(run_id)}\n"
        f"follow it: {_command(arguments, '--follow', run_id)}\n"
        f"end it:    {_command(arguments, '--terminate', run_id)}",
        file=sys.stderr,
    )


def _command(arguments: argparse.Namespace, option: str, run_id: str) -> str:
    words = ["strategos", "run", arguments.pipeline, "--runner", arguments.runner]
    for overlay in arguments.overlay:
        words += ["--overlay", overlay]
    for setting in arguments.set:
        words += ["--set", setting]
    return shlex.join([*words, option, run_id])


def _report(config: Config, service: Service, ended: RemoteRun, runner: str) -> int:
    from strategos.pipeline.remote.service import Log
    from strategos.pipeline.run import notification
    from strategos.pipeline.view import report

    node = ended.failed_node
    log = service.log(ended, node) if node else Log()
    outcome, code = _outcome(ended, log)
    records = {name: task.record for name, task in ended.tasks.items() if task.record}
    run = _as_run(service, ended, runner, outcome, log)
    done = _with_facts(config, run, records)
    report.report(done)
    if config.notify and ended.state != "canceled":
        notification.notify(config, done)
    return code


def _with_facts(config: Config, run: Run, records: Mapping[str, str]) -> Run:
    """Adds the records of the steps, if this machine can read them.

    They are in the object store, or in KFP's ML Metadata if its address is set.

    Args:
      config: The effective settings.
      run: The run, as the service describes it.
      records: URLs of the records that the service names, by node.
    """
    from strategos.pipeline.history import kubeflow, runs
    from strategos.pipeline.remote import step_records

    try:
        if records and config.vertex:
            return step_records.add_named(run, records, config.vertex.root)
        if run.runner != "kubeflow" or not config.kubeflow:
            return run
        address = config.kubeflow.metadata
        if not address:
            return step_records.add_to(run, config.kubeflow.root)
        recorded = runs.run(kubeflow.KubeflowStore(address), run.run_id)
    except UserError as error:
        streams.warn(f"strategos: {error}")
        return run
    rows = {node.name: node.rows for node in recorded.nodes}
    return dataclasses.replace(
        run,
        nodes=tuple(
            dataclasses.replace(node, rows=rows.get(node.name)) for node in run.nodes
        ),
        **{name: getattr(recorded, name) for name in _FACTS},
    )


def _outcome(ended: RemoteRun, log: Log) -> tuple[str, ExitCode]:
    """The outcome of a run as in `strategos runs`, and the exit code for it."""
    if ended.state == "canceled":
        return "interrupted", ExitCode.FAILED
    # Without its reports, the run has done all the same.
    if ended.state == "succeeded" or _only_reports_failed(ended):
        judged = node_ids.EVALUATION_GATE in ended.tasks
        return "blessed" if judged else "finished", ExitCode.DONE
    node = ended.failed_node
    # Without a log, a node that does nothing but judge has most likely judged. A log
    # without an exit code is of a step whose program did not end, or never began.
    only_judges = node in node_ids.GATES and node != node_ids.INFRA_VALIDATOR
    is_unknown = log.exit_code is None and not log.lines
    if log.exit_code == ExitCode.STOPPED or (is_unknown and only_judges):
        return node_ids.GATES.get(node, "stopped"), ExitCode.STOPPED
    return "failed", ExitCode.FAILED


def _only_reports_failed(ended: RemoteRun) -> bool:
    last = [task for node, task in ended.tasks.items() if node in node_ids.ALL][-1:]
    done = all(task.state in ("complete", "cached") for task in last)
    return ended.failed_node in node_ids.REPORTS and done


def _as_run(
    service: Service, ended: RemoteRun, runner: str, outcome: str, log: Log
) -> Run:
    """A run of a service in the form of a local one, for the table."""
    from strategos.pipeline.history.runs import NodeRun, Run

    node, stopped = ended.failed_node, outcome in node_ids.GATES.values()
    reason = ended.tasks[node].message if node else ended.message
    cause = ["terminated" if ended.state == "canceled" else reason, *log.lines]
    if log.command:
        cause.append(f"all of the log: {log.command}")
    states = {name: task.state for name, task in ended.tasks.items()}
    if stopped:
        states[node] = "stopped"
    nodes = tuple(
        NodeRun(name, states[name], task.seconds)
        for name, task in ended.tasks.items()
        if task.state != "pending"
    )
    return Run(
        ended.run_id,
        ended.pipeline,
        ended.started,
        ended.finished,
        outcome,
        nodes=nodes,
        failed_node=node or None,
        cause="\n".join(filter(None, cause)) or None,
        log=service.link(ended.run_id),
        runner=runner,
    )
