"""README and docs: each command can be typed, each piece of YAML is valid."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import textwrap
from pathlib import Path

import pytest
import yaml

from strategos.pipeline import command_line
from strategos.pipeline.config import loading

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "kubeflow" / "README.md", *ROOT.glob("docs/*.md")]
)
_MENTIONED = re.compile(r"`(strategos [^`]+)`")
_TYPED = re.compile(r"^ *(strategos .*)$", re.M)
_YAML = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.M | re.S)

_NUMBERS = {"VERSION": "1"}

# What a page's pieces of YAML are added to.
BASE = """
name: base
label: late
data: {examples: "data/span-{SPAN}/*.csv"}
transform: {module: preprocessing}
trainer: {module: model}
evaluator: {task: binary, metrics: [auc], bounds: {auc: {at_least: 0.5}}}
pusher: {to: serving}
kubeflow: {image: registry/image}
"""
_KUBERNETES = "workflowDefaults:"


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def commands(page):
    """The commands of a page, with how much of each stands there."""
    blocks = re.sub(r" *\\\n *", " ", page.read_text())
    mentioned = [
        (text.replace("\n", " "), False) for text in _MENTIONED.findall(blocks)
    ]
    return mentioned + [(text, True) for text in _TYPED.findall(blocks)]


def as_typed(text):
    """A command as a user would type it, once for each alternative."""
    words = shlex.split(text.replace("…", ""), comments=True)[1:]
    words = [_NUMBERS.get(word.strip("[]"), word.strip("[]")) for word in words]
    choices = max((word.count("|") for word in words), default=0) + 1
    for choice in range(choices):
        yield [word.split("|")[choice] if "|" in word else word for word in words]


def complaint(words):
    """What the parser has against a command; "" if it takes it."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            command_line.parser().parse_args(words)
        except SystemExit as ended:
            return said.getvalue() if ended.code else ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_command_is_one(page):
    wrong = {}
    for text, is_whole in commands(page):
        for words in as_typed(text):
            found = complaint(words)
            partly = "are required" in found or "expected one argument" in found
            if found and (is_whole or not partly):
                wrong[" ".join(words)] = found
    assert wrong == {}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _YAML.search(page.read_text())], ids=name_of
)
def test_each_piece_of_yaml_is_valid(page, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(BASE)
    wrong = {}
    for _, block in _YAML.findall(page.read_text()):
        if not yaml.safe_load(block) or _KUBERNETES in block:
            continue
        piece = tmp_path / "piece.yaml"
        piece.write_text(textwrap.dedent(block))
        try:
            loading.load(tmp_path / "pipeline.yaml", [piece], [])
        except loading.ConfigError as error:
            wrong[block] = str(error)
    assert wrong == {}


_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page):
    """The fragments of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_leads_somewhere(page):
    broken = []
    for path, fragment in _LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        if "://" in path or path.startswith("mailto:"):
            continue
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(f"{path}#{fragment}")
    assert broken == []


_MAKE = re.compile(
    r"(?:`|entry: |run: )make ([\w-]+)|^ *stage ([\w-]+)|^make ([\w-]+)(?= *(?:#|$))",
    re.M,
)
_HOOKS = (".pre-commit-config.yaml", ".github/workflows/ci.yml", ".ci/run")


@pytest.mark.parametrize("page", [*map(ROOT.joinpath, _HOOKS), *PAGES], ids=name_of)
def test_each_target_of_make_exists(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    used = {name for found in _MAKE.findall(page.read_text()) for name in found if name}
    assert used <= set(targets)
    assert used or page in PAGES
    if page.suffix in (".yaml", ".yml"):
        assert yaml.safe_load(page.read_text())


PROSE = runpy.run_path(str(ROOT / "scripts" / "prose.py"))


def test_messages_and_pages_are_plain():
    assert list(PROSE["faults"]()) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.py", "raise UserError('but no GPU is visible')", "half a sentence"),
        ("a.py", "raise UserError(f'which {path} lacks')", "half a sentence"),
        ("a.md", "It is long, " + "and longer " * 30, "63 words"),
        ("a.md", "- one\n- in order to run", "write 'to'"),
    ],
)
def test_faults_of_prose_are_found(name, text, fault, tmp_path, monkeypatch):
    (tmp_path / name).write_text(text)
    find = PROSE["_of_code" if name.endswith("py") else "_of_page"]
    monkeypatch.setitem(find.__globals__, "ROOT", tmp_path)
    (found,) = find(tmp_path / name)
    assert fault in found
