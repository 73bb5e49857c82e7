"""Starts TensorBoard on the training logs of the last runs."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.components.files.filesystems import is_remote
from strategos.components.wording import choices
from strategos.pipeline.history import runs
from strategos.pipeline.history.store import Store, reads_store
from strategos.pipeline.root import RUN_CONTEXT
from strategos.pipeline.root.state import copies

_RUNS = 10  # Number of newest runs that are shown.
_PROGRAM = "strategos.pipeline.view.tensorboard_process"


@reads_store
def log_folders(
    store: Store, pipeline: str | None = None, run_id: str | None = None
) -> dict[str, str]:
    """Finds the folders with logs, by the run that wrote them, newest first.

    Args:
      store: The root's ML Metadata.
      pipeline: Only runs of this pipeline; None for all.
      run_id: Only this run; if its training was cached, the run that trained.

    Raises:
      UserError: No such run exists, or none of the runs wrote logs.
    """
    if run_id:
        chosen = [runs.run(store, run_id)]
    else:
        chosen = runs.history(store, pipeline=pipeline, limit=_RUNS)
    writers: dict[str, str] = {}  # By folder: a cached training has another run's.
    for run in reversed(chosen):
        for folder in filter(_has_logs, _folders_of(store, run)):
            writers.setdefault(folder, run.run_id)
    folders = {run: folder for folder, run in reversed(writers.items())}
    if not folders:
        which = f"run {chosen[0].run_id}" if run_id and chosen else "the last runs"
        raise UserError(
            f"nothing was logged in {which}",
            key="trainer.callbacks.tensorboard",
            remedy="Training logs where it is true, which is the default: run "
            "`strategos run` again, with --no-cache if nothing has changed.",
        )
    return folders


def command(folders: Mapping[str, str], port: int | None) -> list[str]:
    """The command that starts TensorBoard on logs.

    Args:
      folders: Folders with logs, by the name to show.
      port: 0 for any free port; None for TensorBoard's default.

    Raises:
      UserError: TensorBoard is not installed.
    """
    # TensorBoard ends a name at a colon; run ids of TFX's own runners contain colons.
    named = ",".join(
        f"{run.replace(':', '.')}:{folder}" for run, folder in folders.items()
    )
    places = list(folders.values())
    root = next(filter(is_remote, places), places[0])
    return _program(root, ["--logdir_spec", named], port)


def _program(root: str, flags: Sequence[str], port: int | None) -> list[str]:
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "TensorBoard is not installed here. Install it: pip install tensorboard"
        )
    ports = [] if port is None else ["--port", str(port)]
    # TensorBoard has no authentication: only this machine may connect.
    flags = [*flags, "--host", "localhost", *ports]
    return [sys.executable, "-m", _PROGRAM, root, *flags]


def _folders_of(store: Store, run: runs.Run) -> Iterator[str]:
    """Yields the log folders of a run's Trainer, during the run too."""
    context = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run.run_id)
    executions = store.mlmd.get_executions_by_context(context.id)
    ids = [execution.id for execution in executions]
    outputs = store.outputs_of(ids)
    for execution, places in store.contexts_of(ids).items():
        logged = [a.uri for a in outputs.get(execution, []) if a.type == "ModelRun"]
        if not logged and places.get("node") == f"{run.pipeline}.Trainer":
            # Not published yet. TFX names an output's folder by its execution.
            trainer = f"{store.root}/{run.pipeline}/{node_ids.TRAINER}"
            logged = [f"{trainer}/model_run/{execution}"]
            if is_remote(trainer):  # uploaded when the training ends
                logged = [copies(str(store.root)).local(each) for each in logged]
        yield from logged


def _has_logs(folder: str) -> bool:
    return is_remote(folder) or any(Path(folder).rglob("events.out.tfevents.*"))


def show(folders: Mapping[str, str], port: int | None) -> None:
    """Replaces this process by TensorBoard; does not return.

    Args:
      folders: Folders with logs, by the name to show.
      port: 0 for any free port; None for TensorBoard's default.

    Raises:
      UserError: TensorBoard is not installed.
    """
    program = command(folders, port)
    for run, folder in folders.items():
        print(f"{run}  {folder}")
    sys.stdout.flush()
    os.execv(program[0], program)


def show_dump(folder: str, port: int | None) -> None:
    """Replaces this process by TensorBoard with its page Debugger V2.

    Args:
      folder: The folder of a task below `trainer.debug.dump`; or the dump's folder
        itself, if it has one task.
      port: 0 for any free port; None for TensorBoard's default.

    Raises:
      UserError: Nothing was recorded in the folder, or it has several tasks, or
        TensorBoard is not installed.
    """
    globs = Path(folder).glob("tfdbg_events*"), Path(folder).glob("*/tfdbg_events*")
    tasks = sorted({str(path.parent) for path in itertools.chain(*globs)})
    if len(tasks) > 1:
        raise UserError(
            f"{folder} has several tasks, and TensorBoard shows one",
            key="--dump",
            expected=choices(tasks),
        )
    if not tasks:
        raise UserError(
            f"nothing was recorded in {folder}",
            key="--dump",
            remedy="`strategos run --no-cache --set trainer.debug.dump=FOLDER` records "
            "a training.",
        )
    program = _program(tasks[0], ["--logdir", tasks[0]], port)
    print(tasks[0], flush=True)
    os.execv(program[0], program)
