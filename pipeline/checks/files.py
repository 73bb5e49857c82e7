"""Checks of the files, modules and folders that a config names.

They run before each run and in `strategos validate`. User modules are parsed, never
imported; nor are TensorFlow, TFX and pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from strategos.components import node_ids
from strategos.components.data_files import sources, spans
from strategos.components.data_files.listing import Listing
from strategos.components.data_files.queries import databases
from strategos.components.errors import UserError
from strategos.components.files import object_stores
from strategos.components.files.filesystems import is_remote, unknown
from strategos.components.user_code import modules
from strategos.components.user_code.fingerprint import declared
from strategos.components.wording import choices, nearest
from strategos.pipeline.checks import folders, module_source, predicted
from strategos.pipeline.checks.columns import column_problems
from strategos.pipeline.config.nodes.sections import Node
from strategos.pipeline.config.problems import shown
from strategos.pipeline.config.sections import Config, Transform
from strategos.pipeline.config.trainer import Trainer

_NOT_FOR_STOCK = (
    "checkpoint",
    "callbacks",
    "optimizer",
    "phases",
    "class_weight",
    "last_batch",
    "scale_learning_rate",
    "base_batch_size",
    "warm_up_steps",
    "accumulate_steps",
    "evaluate_every",
    "mixed_precision",
    "jit_compile",
    "steps_per_execution",
    "cache_limit",
    "bucket_by",
    "warm_start",
)
"""Keys of `trainer` without effect on a module that is written for TFX's Trainer."""


def check(
    config: Config, data: Listing, *, seen: Callable[[str], bool] | None = None
) -> list[UserError]:
    """Returns problems with the files, modules and folders that `config` names.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      seen: For a pipeline that runs on a cluster: whether its steps see a path at the
        same place, on a volume, so that it may be missing on this machine. Data in an
        object store are not listed then: the steps have their own credentials.
    """
    elsewhere, weights = seen or (lambda path: False), config.trainer.named_weights
    files: list[str] = []
    problems: list[UserError] = []
    examples = config.data.examples
    only_at_steps = seen is not None and is_remote(examples)
    if not (only_at_steps or (elsewhere(examples) and data.is_empty)):
        files, problems = data_files(config, data)
    schema, schema_problems = _schema_features(config)
    return [
        *problems,
        *schema_problems,
        *column_problems(config, files, schema),
        *_module_problems(config, here=seen is None),
        *_custom_config_problems(config),
        *_declared_problems(config),
        *predicted.check(config, seen),
        *(() if weights and elsewhere(weights) else _weights_problems(config)),
        *(() if seen else folders.check(config)),
    ]


def check_data(config: Config, data: Listing) -> list[UserError]:
    """Returns problems with the data files and their columns, once data exist.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
    """
    files, problems = data_files(config, data)
    schema, _ = _schema_features(config)
    return [*problems, *column_problems(config, files, schema)]


def _module_problems(config: Config, *, here: bool) -> Iterator[UserError]:
    """Yields problems of modules, and of their imports if imported here."""
    wanted = [
        ("transform.module", config.transform.module, "preprocessing_fn(inputs)"),
        ("trainer.module", config.trainer.module, "build_model(context)"),
    ]
    if config.data.prepare:
        module, _, function = config.data.prepare.partition(":")
        wanted.append(("data.prepare", module, f"{function or 'prepare'}(folder)"))
    local = config.trainer.distribution.launcher == "local"
    for key, module, signature in wanted:
        source = module_source.read(config, key, module)
        if isinstance(source, UserError):
            yield source
            continue
        if source and here and (local or key != "trainer.module"):
            for cause, remedy in module_source.import_problems(
                source.path, source.body
            ):
                yield config.problem(key, cause, remedy=remedy)
        if source and key == "trainer.module" and "run_fn" in source.names:
            if modules.takes_fn_args(str(config.folder), module):
                yield from _stock_problems(config)
            else:
                yield from _loop_problems(config, source)
                yield from _function_problems(config, key, source, signature)
        elif source:
            yield from _function_problems(config, key, source, signature)


def _custom_config_problems(config: Config) -> Iterator[UserError]:
    """Yields a problem for settings of a `preprocessing_fn` that takes none."""
    module, key = config.transform.module, "transform.custom_config"
    parameters = modules.parameters(str(config.folder), module, "preprocessing_fn")
    if (
        config.transform.custom_config
        and parameters
        and "custom_config" not in parameters
    ):
        yield config.problem(
            key,
            f"has no effect: `{module}` has "
            f"`preprocessing_fn({', '.join(parameters)})`",
            remedy="Define `def preprocessing_fn(inputs, custom_config)` there, or "
            "remove the setting.",
        )


def _declared_problems(config: Config) -> Iterator[UserError]:
    """Yields a problem for each declared file that does not exist."""
    sections: dict[str, Node | Transform | Trainer] = {
        "transform": config.transform,
        "trainer": config.trainer,
        **{f"nodes.{name}": node for name, node in config.nodes.items()},
    }
    for name, section in sections.items():
        for pattern in section.files:
            if not declared(config.folder, pattern):
                yield config.problem(
                    f"{name}.files",
                    f"no such file below {shown(config.folder)}",
                    received=pattern,
                    expected="a file, a folder with files, or a glob that matches one",
                    remedy="Correct the path, or remove it.",
                )


def _loop_problems(
    config: Config, source: module_source.ModuleSource
) -> Iterator[UserError]:
    """Yields a problem for a loop over steps under parameter servers."""
    is_together = config.trainer.distribution.strategy != "parameter_server"
    line = None if is_together else module_source.loops_over_steps(source.body)
    if line:
        yield config.problem(
            "trainer.distribution.strategy",
            f"{shown(source.path)}:{line}: `loop.steps()` needs workers that take each "
            "step together; under `parameter_server` workers do not",
            remedy="Call `loop.train(step)`, which trains under every strategy, or use "
            "`multi_worker_mirrored`.",
        )


def _stock_problems(config: Config) -> Iterator[UserError]:
    """Yields a problem for settings that a module for TFX's Trainer cannot follow."""
    if config.trainer.distribution.strategy == "parameter_server":
        yield config.problem(
            "trainer.distribution.strategy",
            f"`{config.trainer.module}` has its own training loop, `run_fn(fn_args)`, "
            "and needs workers that take each step together; under `parameter_server` "
            "workers do not",
            remedy="Use `multi_worker_mirrored`, or replace `run_fn` by "
            "`build_model(context)`.",
        )
    trainer = config.trainer
    for name in _NOT_FOR_STOCK:
        default = (
            type(trainer).model_fields[name].get_default(call_default_factory=True)
        )
        if getattr(trainer, name) != default:
            key = f"trainer.{name}"
            yield config.problem(
                key,
                f"has no effect on `{trainer.module}`, whose `run_fn(fn_args)` builds "
                "and trains the model by itself",
                remedy="Remove the setting, and implement it in `run_fn`.",
            )


def _function_problems(
    config: Config, key: str, source: module_source.ModuleSource, signature: str
) -> Iterator[UserError]:
    name = signature.partition("(")[0]
    folder, module = str(source.path.parent), source.path.stem
    if not modules.takes_one_argument(folder, module, name):
        yield config.problem(
            key,
            f"`{name}` in {shown(source.path)} cannot be called with one argument",
            remedy=f"Define `def {signature}` there.",
        )
    if name in source.names or "*" in source.names:
        cause = module_source.misfit(source.body, name)
        if cause and key != "data.prepare":
            yield config.problem(
                key,
                f"`{name}` in {shown(source.path)} {cause}",
                remedy=f"Define `def {signature}` there, and end it with `return`.",
            )
        return
    near = nearest(name, source.functions)
    remedy = f"Rename `{near}`, or define" if near else "Define"
    yield config.problem(
        key,
        f"{shown(source.path)} has no function `{name}`; functions there: "
        f"{choices(source.functions)}",
        remedy=f"{remedy} `def {signature}` there.",
    )


def data_files(config: Config, data: Listing) -> tuple[list[str], list[UserError]]:
    """Lists the data files to read.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.

    Returns:
      The files (empty if one has a problem), and the problems with them.
    """
    key, query = "data.examples", config.data.query
    try:
        if query:
            databases.check(query.database)
    except UserError as error:
        return [], [config.located(error)]
    cause = unknown(config.data.examples)
    if cause:
        return [], [config.problem(key, cause)]
    try:
        if data.found:
            key = "data.spans"
        chosen = data.chosen
    except UserError as error:
        missing = isinstance(error, spans.NoFilesError) and config.data.maker
        if missing or query:  # `prepare_data` checks them then
            return [], []
        signs = [each for each in "{}[]*?" if each in str(config.folder)]
        if signs:
            remedy = f"Rename the folder {config.folder}: {' '.join(signs)} in it mean"
            error = error.but(remedy=f"{remedy} something in patterns of files.")
        return [], [config.located(error, key)]
    except OSError as error:
        message = f"{shown(error.filename or '.')} cannot be read: {error.strerror}"
        return [], [config.problem(key, message, remedy="Make it readable.")]
    files = [path for span in chosen for path in span.files]
    for path in files:
        if not sources.name_of(path):
            message = f"{shown(path)} has none of the supported formats"
            remedy = "Narrow the pattern, or convert the file."
            expected = ", ".join(sources.suffixes())
            key = "data.examples"
            return [], [config.problem(key, message, expected=expected, remedy=remedy)]
    problems = list(_format_problems(config, files))
    return ([] if problems else files), problems


def _format_problems(config: Config, files: list[str]) -> Iterator[UserError]:
    """Yields a problem for each file that cannot be read in its suffix's format."""

    def problem(path: str) -> UserError | None:
        try:
            sources.check(path, config.data.reading)
        except UserError as error:
            return config.located(error, "data.examples")
        return None

    yield from filter(None, object_stores.each(problem, files))


def _schema_features(config: Config) -> tuple[list[str], list[UserError]]:
    """The features of the curated schema, and the problems with its file."""
    if not config.schema_.file:
        return [], []
    from strategos.components.schema_file import read_schema

    try:
        schema = read_schema(config.schema_.file)
    except UserError as error:
        return [], [config.located(error, "schema.file")]
    if not schema.feature:
        message = f"{shown(config.schema_.file)} declares no feature"
        return [], [config.problem("schema.file", message)]
    return [feature.name for feature in schema.feature], []


def _weights_problems(config: Config) -> Iterator[UserError]:
    """Yields a problem if the model to start from is missing."""
    key, folder = "trainer.warm_start", config.trainer.named_weights
    cause = folder and unknown(folder)
    if cause:
        yield config.problem(key, cause)
    elif folder and not is_remote(folder) and not Path(folder).is_dir():
        yield config.problem(
            key,
            f"the folder {shown(folder)} does not exist",
            remedy="Name the folder of a Model artifact, such as "
            f"{config.name}/{node_ids.TRAINER}/model/4 under the root, or `latest`.",
        )
