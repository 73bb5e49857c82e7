"""Writes the report of a run to a file: as a whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from pathlib import Path

from strategos.components.errors import BadInputError, UserError
from strategos.components.files import commit, full_disk
from strategos.components.push_targets import reports, targets
from strategos.pipeline.history import runs
from strategos.pipeline.history.store import Store
from strategos.pipeline.made_from import compared
from strategos.pipeline.made_from import record as kept_record
from strategos.pipeline.report import content, document, page, record, static
from strategos.pipeline.root.state import make_state, state_folder

FILE = "report.html"
KEPT = 50
"""Reports of a root that stay when runs write theirs; each has nearly a megabyte."""


def place(root: str | Path, run_id: str) -> Path:
    """The path of a run's report, in the local state of its root.

    Args:
      root: The pipeline root.
      run_id: The run's id.
    """
    return state_folder(root) / "runs" / run_id.replace("/", "-") / FILE


def html(
    read: record.Record,
    *,
    redact: bool = False,
    compare: compared.Comparison | None = None,
    without_scripts: bool = False,
) -> str:
    """The page of a run.

    Args:
      read: The run.
      redact: Whether to leave out values of the data, and messages that may quote them.
      compare: Another run and this one, to report the changes.
      without_scripts: Whether charts are drawn now, as SVG, by vl-convert.
    """
    about = content.document(read, compare)
    about = document.redacted(about) if redact else about
    about = static.drawn(about) if without_scripts else about
    at = time.strftime("%Y-%m-%d %H:%M:%S")
    left_out = " Values of the data are left out." if redact else ""
    return page.render(about, f"Written {at} by strategos report.{left_out}")


def write(
    store: Store,
    run_id: str | None = None,
    *,
    to: str | Path | None = None,
    redact: bool = False,
    compare: str | None = None,
    without_scripts: bool = False,
) -> Path:
    """Writes the report of a run, in place of an earlier one.

    Args:
      store: The root's ML Metadata.
      run_id: The run's id, or its beginning; None for the last run.
      to: The file; by default in the local state of the root.
      redact: As for `html`.
      compare: The id of another run, or its beginning, to report the changes since, by
        default in another file.
      without_scripts: As for `html`; by default in another file.

    Returns:
      The absolute path of the file.

    Raises:
      UserError: No such run exists, or the file cannot be written.
      BadInputError: The runs cannot be compared, or vl-convert is missing.
    """
    if without_scripts:
        static.require()
    read = record.read(store, run_id)
    target = place(store.root or ".", read.run.run_id)
    comparison = None
    if compare:
        other = runs.run(store, compare)
        kept = functools.partial(kept_record.read, str(store.root))
        comparison = compared.compare(other, read.run, kept)
        target = target.with_name(f"report-since-{other.run_id.replace('/', '-')}.html")
    if without_scripts:
        target = target.with_name(f"{target.stem}-static.html")
    target = Path(to) if to else target
    options = {"redact": redact, "without_scripts": without_scripts}
    try:
        if not to:
            make_state(target.parent)
        commit.write(target, html(read, compare=comparison, **options))
    except OSError as error:
        raise _unwritable(target, error) from error
    return Path(os.path.abspath(target))


def write_after(store: Store, run_id: str) -> None:
    """Writes the report of a run that has just ended; a failure is only reported.

    Removes the oldest reports beyond `KEPT`, which can be written again. Of a run that
    pushed a model, writes another report beside the version, without values of the
    data. Ctrl-C ends the writing alone: the run keeps its outcome and its exit code.

    Args:
      store: The root's ML Metadata.
      run_id: The run's id.
    """
    which, options = "its report", ""
    try:
        _forget_oldest(write(store, run_id))
        which, options = "the report beside its model", " --redact --output FILE"
        write_beside(record.read(store, run_id))
        return
    except KeyboardInterrupt:
        problem = "interrupted."
    except UserError as error:
        problem = str(error)
    except Exception as error:  # a bug of the report is none of the run
        problem = f"{type(error).__name__}: {error}"
    print(
        f"strategos: the run has ended, without {which}: {problem}\n"
        f"    `strategos report {run_id}{options}` writes it.",
        file=sys.stderr,
    )


def write_beside(read: record.Record) -> None:
    """Writes the report of a run beside the version that it pushed, if that has none.

    Without values of the data. A push from the cache may find none: the run that made
    it was killed since.

    Args:
      read: The run; nothing is written if it pushed no model.

    Raises:
      UserError: The file cannot be written.
    """
    if not read.run.pushed:
        return
    path, name = read.run.pushed
    target, version = targets.of(path.rpartition("/")[0]), int(name)
    if not target.serves(version) or reports.exists(target, version):
        return
    try:
        reports.write(target, version, html(read, redact=True))
    except OSError as error:
        if full_disk.is_reported(str(error)):
            raise UserError(full_disk.message(str(error), target.uri)) from error
        cause = error.strerror or error
        raise UserError(f"{target.uri}: it cannot be written there: {cause}") from error


def _forget_oldest(written: Path) -> None:
    with contextlib.suppress(OSError):  # another run may do the same
        files = written.parents[1].glob(f"*/{FILE}")
        for each in sorted(files, key=lambda file: file.stat().st_mtime)[:-KEPT]:
            commit.remove(each)


def _unwritable(target: Path, error: OSError) -> UserError:
    if full_disk.is_reported(str(error)):
        return UserError(full_disk.message(str(error), str(target.parent)))
    return BadInputError(
        f"{target}: the report cannot be written: {error.strerror or error}",
        remedy="Name a file in a folder that you may write to: --output FILE.",
    )
