"""The floors of the house: a module imports from its own floor and from lower ones.

`docs/architecture.md` says what lies on each floor.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TRAINER = "components.trainer"
TRAINER_FLOORS = [
    [
        f"{TRAINER}.{name}"
        for name in ("spec", "phases", "operation", "finished", "remote_checkpoints")
    ],
    [f"{TRAINER}.compat"],
    [f"{TRAINER}.distribution"],
    [f"{TRAINER}.gang"],
    [f"{TRAINER}.data"],
    [f"{TRAINER}.model"],
    [f"{TRAINER}.loop"],
    [f"{TRAINER}.hosts"],
    [f"{TRAINER}.run"],
    [f"{TRAINER}.launchers"],
    [f"{TRAINER}.executor", f"{TRAINER}.component"],
]
COMMANDS = (
    *("clean_command", "comparing", "debugging", "dev", "image_command", "init"),
    *("models_command", "predicting", "recurring_command", "remote_command"),
    *("retrain_command", "runs_command", "schedule_command", "ui"),
)
COMPONENTS = (
    *("baseline_model", "bulk_inferrer", "evaluator", "example_gen"),
    *("example_validator", "gate"),
    *("import_schema_gen", "infra_validator", "pusher", "schema_gen"),
    *("span_validator", "statistics_gen", "trainer", "transform", "user_node"),
)
COMPONENT_FLOORS = [
    [f"components.{name}" for name in floor]
    for floor in (
        (
            *("changes", "errors", "events", "exported", "fork_server"),
            *("fork_listener", "limits", "lone_messages", "node_ids", "processes"),
            *("runtime_parameters", "slow_imports", "targets", "wording"),
        ),
        ("files", "services"),
        ("schema_file", "worker_process"),
        ("records", "user_code"),
        ("plugins", "shards"),
        (
            *("data_files", "evaluation", "predict", "push_targets", "statistics"),
            "transformed",
        ),
        COMPONENTS,
        ("container",),
    )
]
PIPELINE_FLOORS = [
    ["pipeline.config"],
    ["pipeline.root"],
    ["pipeline.history"],
    ["pipeline.made_from"],
    ["pipeline.plan"],
    ["pipeline.view"],
    ["pipeline.report"],
    ["pipeline.checks"],
    ["pipeline.runners"],
    ["pipeline.run"],
    ["pipeline.remote"],
    ["pipeline.api"],
    ["pipeline.run_process"],
    [f"pipeline.{name}" for name in ("commands", *COMMANDS)],
    ["pipeline.cli", "pipeline.command_line"],
]
# Whose processes import TFX or Beam; the rest of the trainer does without them.
FACES = ("component", "executor")


def modules() -> dict[str, Path]:
    found = {}
    for top in ("components", "pipeline"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


@functools.cache
def imports(path: Path, at_top: bool = False) -> tuple[str, ...]:
    """What a file imports; with `at_top`, only what importing it imports."""
    tree = ast.parse(path.read_text())
    return tuple(imported_names(tree.body if at_top else ast.walk(tree)))


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("strategos.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = (node.module or "").removeprefix("strategos.")
            for alias in node.names:
                name = f"{package}.{alias.name}"
                yield name if name in MODULES else package


@functools.cache
def run_time_imports(path: Path) -> tuple[str, ...]:
    """What a file imports other than for annotations."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                node.body = [ast.Pass()]
    return tuple(imported_names(ast.walk(tree)))


def is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def floor_of(module: str, floors: list[list[str]]) -> int | None:
    found = [
        level
        for level, rooms in enumerate(floors)
        if any(is_in(module, room) for room in rooms)
    ]
    return found[0] if found else None


FLOORS = {
    "components": COMPONENT_FLOORS,
    "trainer": TRAINER_FLOORS,
    "pipeline": PIPELINE_FLOORS,
}


@pytest.mark.parametrize("floors", FLOORS.values(), ids=FLOORS)
def test_no_module_imports_from_a_higher_floor(floors):
    top = floors[0][0].rpartition(".")[0]
    upwards = []
    for module, path in MODULES.items():
        level = floor_of(module, floors)
        if not is_in(module, top) or module == top:
            continue
        assert level is not None, f"{module} is on no floor"
        for imported in imports(path):
            other = floor_of(imported, floors)
            if other is not None and other > level:
                upwards.append(f"{module} imports {imported}")
    assert not upwards


def test_no_component_imports_the_inside_of_another():
    assert not [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        for imported in imports(path)
        for mine, other in [(component_of(module), component_of(imported))]
        if mine and other and mine != other
    ]


def component_of(module: str) -> str | None:
    top, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    return room if top == "components" and room in COMPONENTS else None


@pytest.mark.parametrize("depth", [None, 2], ids=["modules", "rooms"])
def test_there_is_no_import_circle(depth):
    """Imports in functions count: these hide a circle until they are moved."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        mine = ".".join(module.split(".")[:depth])
        for imported in run_time_imports(path):
            other = ".".join(imported.split(".")[:depth])
            if imported in MODULES and other != mine:
                graph.setdefault(mine, set()).add(other)
    graphlib.TopologicalSorter(graph).prepare()  # a CycleError names the circle


def test_components_do_not_import_the_pipeline():
    assert not [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        for imported in imports(path)
        if is_in(module, "components") and is_in(imported, "pipeline")
    ]


def test_trainer_imports_without_tfx_and_beam():
    assert not [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        for imported in imports(path, at_top=True)
        if is_in(module, TRAINER)
        and module.rpartition(".")[2] not in FACES
        and imported.partition(".")[0] in ("tfx", "apache_beam", "tfx_bsl")
    ]


# They move what is complete, or take a version away.
MOVERS = (
    *("components.files.storage", "components.trainer.finished"),
    *("components.push_targets.folder", "components.user_code.archive"),
    "components.shards.flink.jars",
)


def renames(path: Path) -> Iterator[int]:
    """The lines in which a file renames one, by `os` or by `pathlib`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case (
                ast.Call(func=ast.Attribute(attr="rename"))
                | ast.Call(func=ast.Attribute(attr="replace", value=ast.Name(id="os")))
            ):
                yield node.lineno
            # A text's has two arguments, that of a dataclass names.
            case ast.Call(func=ast.Attribute(attr="replace"), args=[_], keywords=[]):
                yield node.lineno


def test_files_are_written_aside_and_renamed_in_one_module():
    found = {module for module, path in MODULES.items() if [*renames(path)]}
    assert found == {"components.files.commit", *MOVERS}


PRIVATE_PACKAGES = ("tensorflow.python", "tf_keras.src", "keras.src")
PRIVATE_IN_KERAS = ("_supports_tf_logs",)  # which a subclass would set on itself
OWN = ("self", "cls", "super", "os")  # os._exit is documented


def is_private(name: str) -> bool:
    return re.match("_[a-z]|__internal__$", name) is not None


def private_names(path: Path) -> Iterator[str]:
    """The private names of other packages' objects that a file uses, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=name, value=owner) if is_private(name):
                owner = owner.func if isinstance(owner, ast.Call) else owner
                is_own = isinstance(owner, ast.Name) and owner.id in OWN
                if not is_own or name in PRIVATE_IN_KERAS:
                    yield f"{path.name}:{node.lineno}: {name}"
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if is_private(name):
                yield f"{path.name}:{node.lineno}: {name}"


@pytest.mark.parametrize(
    "line",
    [
        "model._flatten_layers()",
        "getattr(optimizer, '_learning_rate', None)",
        "tf.__internal__.autograph",
        "self._supports_tf_logs = True",
    ],
)
def test_private_names_are_recognized(line, tmp_path):
    (tmp_path / "module.py").write_text(f"self._own = super()._own()\n{line}")
    (found,) = private_names(tmp_path / "module.py")
    assert found.startswith("module.py:2: _")


def test_private_names_of_tensorflow_and_keras_stay_in_compat():
    others = {
        module: path
        for module, path in MODULES.items()
        if is_in(module, TRAINER) and not is_in(module, f"{TRAINER}.compat")
    }
    assert not [name for path in others.values() for name in private_names(path)]
    assert not [
        f"{module} imports {imported}"
        for module, path in others.items()
        for imported in imports(path)
        if imported.startswith(PRIVATE_PACKAGES)
    ]


TFX_INTERNALS = (
    "tfx.dsl.compiler",
    "tfx.orchestration.beam",
    "tfx.orchestration.experimental",
    "tfx.orchestration.local",
    "tfx.orchestration.metadata",
    "tfx.orchestration.portable",
    "tfx.orchestration.python_execution_binary",
)
TFX_ADAPTERS = (
    "pipeline.plan.tfx_adapter",
    "pipeline.runners.beam_nodes",
    "components.user_node.docker_run",
)


def test_internals_of_tfx_are_used_through_the_adapter():
    assert not [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        for imported in run_time_imports(path)
        if module not in TFX_ADAPTERS
        and any(is_in(imported, internal) for internal in TFX_INTERNALS)
    ]


def test_no_folder_has_more_than_a_dozen_modules():
    modules_of = Counter(
        path.parent.relative_to(ROOT)
        for path in MODULES.values()
        if path.name != "__init__.py"
    )
    assert {folder: n for folder, n in modules_of.items() if n > 12} == {}


def test_each_public_name_is_in_the_module_that_the_package_imports_it_from():
    package = ast.parse((ROOT / "src" / "strategos" / "__init__.py").read_text())
    missing = []
    for node in ast.walk(package):
        if not isinstance(node, ast.ImportFrom) or node.module == "__future__":
            continue
        home = MODULES.get((node.module or "").removeprefix("strategos."))
        text = home.read_text() if home else ""
        for alias in node.names:
            defined = rf"^(class|def) {alias.name}\b|^{alias.name}\b.* = "
            if node.module.startswith("strategos") and not re.search(
                defined, text, re.M
            ):
                missing.append(f"{node.module}.{alias.name}")
    assert missing == []
