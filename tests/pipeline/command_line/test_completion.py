"""Shells complete `strategos` by the scripts that it prints."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from strategos.pipeline import cli, command_line
from strategos.pipeline.config import introspect
from strategos.pipeline.config.sections import Config

_BASH = """
source "$1"; shift
COMP_WORDS=(strategos "$@"); COMP_CWORD=$#
_strategos
printf '%s\\n' "${COMPREPLY[@]}"
"""
RUN = "20261128-114001.635216"
CASES = [
    (["ru"], {"run", "runs"}),
    (["schedule", "e"], {"export"}),
    (["run", "--wi"], {"--without-baseline"}),
    (["run", "--runner", ""], {"local", "beam", "kubeflow", "vertex"}),
    (["runs", "co"], {"compare"}),
    (["bisect", "2026"], {RUN}),
    (["explain", "run", "2026"], {RUN}),
    (["validate", "pipe"], {"pipeline.yaml"}),
    (["run", "--set", "trainer.epo"], {"trainer.epochs"}),
    (["run", "pipeline.yaml", "--no-c"], {"--no-cache"}),
    (["docs", "trainer.check"], {"trainer.checkpoint"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
]


@pytest.fixture
def workload(tmp_path, monkeypatch):
    (tmp_path / f"runs/.strategos/runs/{RUN}").mkdir(parents=True)
    for name in ("pipeline.yaml", "model.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Writes the script of a shell, if that is installed: `script(shell)`."""

    def script(shell):
        if not shutil.which(shell):
            pytest.skip(f"needs {shell} (apt-get install {shell})")
        command = ["completion", shell]
        path = tmp_path_factory.mktemp("scripts") / shell
        with pytest.MonkeyPatch.context() as patch, path.open("w") as file:
            patch.setattr("sys.stdout", file)
            assert cli.main(command) == 0
        return path

    return script


@pytest.mark.parametrize(
    ("words", "expected"), CASES, ids=[" ".join(words) for words, _ in CASES]
)
def test_bash_completes(script, workload, words, expected):
    asked = ["bash", "--norc", "-c", _BASH, "bash", str(script("bash")), *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    if words[0] == "docs":
        assert expected <= found and all(x.startswith(words[-1]) for x in found)
    else:
        assert found == expected
    assert done.stderr == ""


def test_bash_offers_each_command_option_and_key(script, workload):
    path = script("bash")

    def complete(*words):
        asked = ["bash", "--norc", "-c", _BASH, "bash", str(path), *words]
        return subprocess.run(asked, capture_output=True, text=True).stdout.split()

    keys = {".".join(key.path) for key in introspect.keys(Config)}
    assert set(complete("run", "--set", "")) == {x for x in keys if "NAME" not in x}
    (commands,) = (
        each.choices
        for each in command_line.parser()._actions
        if isinstance(each, argparse._SubParsersAction)
    )
    assert complete("") == list(commands)
    for name in ("predict", "bisect", "clean"):
        options = commands[name]._option_string_actions
        assert set(complete(name, "--")) == {x for x in options if x[:2] == "--"}


def test_fish_completes(script, workload):
    path = script("fish")
    for words, expected in CASES:
        code = f"source {path}; complete -C 'strategos {' '.join(words)}'"
        asked = ["fish", "--no-config", "-c", code]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        found = {line.partition("\t")[0] for line in done.stdout.splitlines()}
        assert expected <= found, words
        assert done.stderr == ""


@pytest.mark.long
def test_zsh_completes_what_is_typed(script, workload):
    path = script("zsh")
    for typed, expected in (
        ("strategos sched\t", b"strategos schedule"),
        ("strategos run --no-c\t", b"--no-cache"),
        ("strategos run --set trainer.epo\t", b"trainer.epochs"),
    ):
        assert expected in _typed(["zsh", "-f", "-i"], f"source {path}\n", typed)


def _typed(shell, setup, keys):
    """What a terminal shows after keys are typed to a shell."""
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "dumb"
        os.execvp(shell[0], shell)
    os.write(terminal, setup.encode())
    _shown(terminal)
    os.write(terminal, keys.encode())
    shown = _shown(terminal)
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown


def _shown(terminal):
    """What comes until nothing came for a second, in 20 at most."""
    shown, end = b"", time.monotonic() + 20
    while time.monotonic() < end and select.select([terminal], [], [], 1)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    return shown
