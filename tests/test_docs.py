"""README and docs: each command can be typed, each piece of YAML is valid."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml

from strategos.pipeline import command_line
from strategos.pipeline.config import loading

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(
            *ROOT.glob("*.md"),
            *ROOT.glob("docs/**/*.md"),
            ROOT / "kubeflow" / "README.md",
        ),
        *ROOT.glob("examples/*/README.md"),
    ]
)
_MENTIONED = re.compile(r"`(strategos [^`]+)`")
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
_STRATEGOS = re.compile(r"(?:^|[ /])(strategos .*)")

_NUMBERS = {"VERSION": "1"}

# What a page's pieces of YAML are added to.
BASE = """
name: base
label: late
data: {examples: "data/span-{SPAN}/*.csv"}
transform: {module: preprocessing}
trainer: {module: model}
evaluator: {task: binary, metrics: [auc]}
pusher: {to: serving}
kubeflow: {image: registry/image}
"""
_KUBERNETES = "workflowDefaults:"


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, *languages):
    """The blocks of a page in these languages, each without its indentation."""
    for _, language, text in _BLOCK.findall(page.read_text()):
        if language in languages:
            yield textwrap.dedent(text)


def lines(page):
    """What a page has to type: of `sh` each line, of `console` what is after `$`."""
    for block in blocks(page, "sh", "console"):
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            typed = line.removeprefix("$ ")
            if typed and (typed != line or not block.startswith("$ ")):
                yield " ".join(re.sub(r" +# .*", "", typed).split())


def mentioned(page):
    """The commands in the prose of a page, of which some are but a name."""
    return [" ".join(text.split()) for text in _MENTIONED.findall(page.read_text())]


def as_typed(text):
    """A command as a user would type it, once for each alternative."""
    words = [word.strip("[]") or word for word in text.replace("…", "").split()]
    choices = max((word.count("|") for word in words), default=0) + 1
    for choice in range(choices):
        yield " ".join(
            word.split("|")[choice] if "|" in word else word for word in words
        )


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
    typed = [found[1] for found in map(_STRATEGOS.search, lines(page)) if found]
    for text in [*typed, *mentioned(page)]:
        for choice in as_typed(text):
            words = [_NUMBERS.get(word, word) for word in shlex.split(choice)[1:]]
            found = complaint(words)
            partly = "are required" in found or "expected one argument" in found
            if found and (text in typed or not partly):
                wrong[choice] = found
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_block_names_its_language(page):
    languages = {language for _, language, _ in _BLOCK.findall(page.read_text())}
    assert languages <= {"sh", "console", "text", "yaml", "python", "toml"}
    for block in blocks(page, "text"):
        assert not re.search(r"^(?:strategos|make) ", block, re.M)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(blocks(page, "yaml"))], ids=name_of
)
def test_each_piece_of_yaml_is_valid(page, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(BASE)
    shutil.copy(ROOT / "examples/tables/tables.py", tmp_path)  # a module of plug-ins
    wrong = {}
    for block in blocks(page, "yaml"):
        if not yaml.safe_load(block) or _KUBERNETES in block:
            continue
        piece = tmp_path / "piece.yaml"
        piece.write_text(block)
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


def test_the_list_of_pages_has_each_page():
    """`make site`, which also says so, is no part of `make test`."""
    docs = ROOT / "docs"
    listed = set(re.findall(r"\]\(([\w/]+\.md)\)", (docs / "README.md").read_text()))
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert pages - {"README.md"} <= listed


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


@pytest.mark.parametrize(("naming", "faults"), [(2_000, 0), (1_000, 1)])
def test_docstrings_circle_few_things(naming, faults, tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text(f'"""What it reads{" word" * naming}"""')
    find = PROSE["_of_docstrings"]
    monkeypatch.setitem(find.__globals__, "ROOT", tmp_path)
    found = list(find([path]))
    assert len(found) == faults
    assert all("the worst files: a.py (1)" in each for each in found)
