"""`strategos runs`: past runs, one of them in full, and two of them compared."""

from __future__ import annotations

import argparse
import json

from strategos.components.errors import BadInputError, ExitCode, required
from strategos.pipeline.history import decisions, roots
from strategos.pipeline.history import runs as past_runs
from strategos.pipeline.history.store import NoRunsError
from strategos.pipeline.view import report


def runs(arguments: argparse.Namespace) -> int:
    """`strategos runs`, `runs show [RUN]` and `runs compare [A [B]]`.

    Raises:
      BadInputError: The arguments are not of this form.
    """
    verb, ids, pipeline = _words(list(arguments.show_or_pipeline))
    decided = None
    try:
        history = roots.open_history(pipeline, arguments.root)
    except NoRunsError:
        from strategos.pipeline.comparing import on_kubeflow

        cluster = on_kubeflow.opened(pipeline, arguments.root, arguments.limit)
        if not cluster:
            raise
        listed = [*cluster.listed]
        if verb == "compare":
            from strategos.pipeline.comparing import command

            command.compare_on_kubeflow(cluster, ids, as_json=arguments.json)
            return ExitCode.DONE
        chosen = past_runs.chosen(listed, next(iter(ids), None)) if verb else None
    else:
        if verb == "compare":
            from strategos.pipeline.comparing import command

            command.compare(history, ids, as_json=arguments.json)
            return ExitCode.DONE
        of_store = history.store.root
        if verb:
            chosen = past_runs.run(history.store, next(iter(ids), None))
        else:
            listed = past_runs.history(history.store, history.pipeline, arguments.limit)
            decided = decisions.last(of_store, history.pipeline) if of_store else None
    if arguments.json:
        shown = (
            past_runs.to_json(required(chosen), slices=arguments.slices)
            if verb
            else [*map(past_runs.to_json, listed)]
        )
        print(json.dumps(shown, indent=2))
    elif verb:
        report.report(required(chosen))
    else:
        report.history_table(listed, decided)
    return ExitCode.DONE


def _words(words: list[str]) -> tuple[str, list[str], str | None]:
    """The verb, the ids of runs and the YAML among the words after `runs`."""
    verb = words[0] if words and words[0] in ("show", "compare") else ""
    ids, pipeline = roots.pipeline_among(words[bool(verb) :])
    if len(ids) > {"": 0, "show": 1, "compare": 2}[verb]:
        run = next((x for x in ids if x not in ("show", "compare")), "RUN")
        raise BadInputError(
            f"strategos runs: received {' '.join(words)!r}. For all runs: strategos "
            f"runs [PIPELINE_YAML]. For one: strategos runs show {run} "
            "[PIPELINE_YAML]. For two: strategos runs compare A B [PIPELINE_YAML]."
        )
    return verb, ids, pipeline
