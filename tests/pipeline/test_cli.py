from __future__ import annotations

import argparse
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from strategos.pipeline import cli, command_line, commands
from strategos.pipeline.history import roots

_PROBE = """
import sys
from strategos.pipeline import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
heavy = {"tensorflow", "apache_beam", "tfx", "pydantic", "rich"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_lists_the_commands_and_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for command in (
        "run",
        "validate",
        "config",
        "runs",
        "lineage",
        "predict",
        "tensorboard",
    ):
        assert f"\n    {command}" in done.stdout


def test_version_names_the_stack_and_imports_nothing_heavy(warm_tfx):
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    named = "import tfx.version as t, tensorflow as f, apache_beam as b, platform as p;"
    named += "print(t.__version__, f.__version__, b.__version__, p.python_version())"
    imported = warm_tfx.script(named).output()
    tfx, tensorflow, beam, python = imported.split()
    stack = f"TFX {tfx}, TensorFlow {tensorflow}, Beam {beam}, Python {python}"
    ours = metadata.version("strategos")
    assert done.stdout == f"strategos {ours} ({stack})\n"


@pytest.mark.parametrize(
    "option", ["ui --port", "serve --port", "serve --grpc-port", "tensorboard --port"]
)
@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_number_that_is_no_port_is_rejected(capsys, option, port):
    with pytest.raises(SystemExit) as ended:
        cli.main(f"{option}={port}".split())
    assert ended.value.code == 2
    assert f"{port!r} is not a port, 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["-3", "0", "many"])
def test_a_limit_that_is_no_count_is_rejected(capsys, limit):
    with pytest.raises(SystemExit) as ended:
        cli.main(["runs", f"--limit={limit}"])
    assert ended.value.code == 2
    assert f"{limit!r} is not a whole number, at least 1" in capsys.readouterr().err


def test_zero_is_an_age_and_no_interval(capsys, tmp_path):
    missing = str(tmp_path / "none.yaml")
    assert cli.main(["clean", missing, "--older-than", "0s"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    for words in (["clean", missing, "--older-than"], ["schedule", "start", "--every"]):
        with pytest.raises(SystemExit):
            cli.main([*words, "00s" if "clean" in words else "0s"])
        assert "is not a duration such as 30s, 5m" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("rollback", "FILE", "--set", "trainer.epochs=3", "5"),
        ("runs", "show", "--json", "FILE"),
        ("lineage", "17", "--json", "FILE"),
    ],
)
def test_optional_words_may_follow_options(capsys, tmp_path, words):
    missing = str(tmp_path / "none.yaml")
    assert cli.main([word.replace("FILE", missing) for word in words]) == 2
    assert missing in capsys.readouterr().err


def test_user_error_is_one_message_with_its_exit_code(capsys, tmp_path):
    missing = tmp_path / "none.yaml"
    assert cli.main(["validate", str(missing)]) == 2
    message = capsys.readouterr().err
    assert str(missing) in message
    assert "Traceback" not in message


def test_debug_shows_where_an_error_came_from(tmp_path):
    with pytest.raises(Exception, match=r"none\.yaml"):
        cli.main(["validate", str(tmp_path / "none.yaml"), "--debug"])


def test_reader_that_goes_away_ends_it_in_silence(workload):
    shown = subprocess.Popen(
        [sys.executable, "-u", "-m", "strategos.pipeline.cli", "config", workload],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    shown.stdout.close()
    assert shown.stderr.read() == b""
    assert shown.wait() == 0


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_has_read_enough_changes_no_exit_code(tmp_path, closed):
    command = [sys.executable, "-m", "strategos.pipeline.cli", "validate", tmp_path]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes)
    getattr(process, closed).close()
    assert process.wait() == 2


def test_a_locale_that_cannot_read_a_name_is_named(workload, tmp_path):
    folder = tmp_path / "fü"
    shutil.copytree(workload.parent, folder)
    posix = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "strategos.pipeline.cli", "run", workload.name],
        env=os.environ | posix,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Set LC_ALL=C.UTF-8" in done.stderr and "bug" not in done.stderr


def test_a_limit_on_the_size_of_files_is_named(monkeypatch, capsys):
    def too_large(_):
        raise OSError(errno.EFBIG, "File too large", "/r/x")

    monkeypatch.setattr(commands, "doctor", too_large)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    assert cli.main(["doctor"]) == 1
    assert "may not exceed 4,096 bytes here, by `ulimit -f`; " in (
        printed := capsys.readouterr().err
    )
    assert "'/r/x'" in printed and "bug" not in printed


def test_a_limit_on_the_size_of_files_is_named_for_the_database(workload):
    limited = f"ulimit -f 40; exec {sys.executable} -m strategos.pipeline.cli run"
    done = subprocess.run(
        ["bash", "-c", limited], cwd=workload.parent, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "metadata.sqlite: a file may not exceed 40,960 bytes here" in done.stderr
    assert "backup" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_locale_cannot_show_is_escaped(workload, tmp_path, encoding):
    folder = tmp_path / "Übung €"
    shutil.copytree(workload.parent, folder)
    done = subprocess.run(
        [sys.executable, "-m", "strategos.pipeline.cli", "config", workload.name],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        cwd=folder,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    shown = "Übung €".encode(encoding, errors="backslashreplace")
    assert shown + b"/data" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_failure(workload, closed):
    command = f"exec '{sys.executable}' -m strategos.pipeline.cli config {workload}"
    done = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", ["config {}", "validate {}", "--help"])
def test_output_that_cannot_be_written_is_one_line(workload, arguments):
    command = f"-m strategos.pipeline.cli {arguments.format(workload)}"
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' {command} >/dev/full"],
        capture_output=True,
        text=True,
    )
    said = "strategos: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_an_error_that_cannot_be_written_keeps_its_exit_code(tmp_path):
    command = f"exec '{sys.executable}' -m strategos.pipeline.cli validate {tmp_path}"
    done = subprocess.run(["sh", "-c", f"{command} 2>/dev/full"])
    assert done.returncode == 2


def test_any_other_broken_pipe_is_reported(monkeypatch, capfd):
    def broken(_):
        raise BrokenPipeError("of another process")

    monkeypatch.setattr(commands, "doctor", broken)
    assert cli.main(["doctor"]) == 1
    assert "of another process" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["validate", "models", "rollback", "predict"])
def test_a_target_of_unknown_kind_is_rejected_by_name(workload, capsys, command):
    rows = [str(workload)] if command == "predict" else []
    sets = ("--set", "pusher.to=ftp://host/serving")
    assert cli.main([command, str(workload), *rows, *sets]) == 2
    message = capsys.readouterr().err
    assert "pusher.to: ftp:// is not known" in message and "s3://" in message


def test_home_that_cannot_be_written_is_named_with_what_to_do(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    roots.remember(str(tmp_path / "runs"))
    message = capsys.readouterr().err
    assert f"strategos: {tmp_path}/home/strategos/" in message
    assert "cannot be written (Not a directory)" in message
    assert "XDG_STATE_HOME" in message and "--root" in message


def _commands(parser, words=()):
    """Yields the words and the parser of each command and subcommand."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for name, command in action.choices.items():
            yield from _commands(command, (*words, name))
    if not below:
        yield " ".join(words), parser


COMMANDS = dict(_commands(command_line.parser()))
NEEDED = {
    "schedule export": ["--to", "cron"],
    "lineage": ["MODEL"],
    "reproduce": ["MODEL"],
    "bisect": ["GOOD", "BAD"],
    "engine": ["setup"],
    "schedule create": ["--target", "vertex"],
    "schedule list": ["--target", "vertex"],
    "schedule delete": ["--target", "vertex"],
    "compile": ["--target", "vertex"],
    "image build": ["--target", "vertex"],
}


# These need no pipeline.
_WITHOUT = {"completion", "data", "docs", "engine", "init"}


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - _WITHOUT))
def test_without_a_yaml_each_command_takes_that_of_the_folder(command):
    asked = [*command.split(), *NEEDED.get(command, ())]
    found = command_line.parser().parse_args(asked)
    reads = command in {
        *(
            "doctor",
            "runs",
            "explain run",
            "explain blessing",
            "explain retrain",
            "lineage",
            "report",
            "reproduce",
            "bisect",
            "tensorboard",
            "ui",
        )
    }
    named = getattr(found, "pipeline", None)
    assert named is None if reads else named == "pipeline.yaml"  # theirs: test_roots
    assert "./pipeline.yaml" in COMMANDS[command].format_help()
    words = [*asked, "other.yaml"]
    found = vars(command_line.parser().parse_args(words))
    listed = found.get("show_or_pipeline", found.get("run_or_pipeline", ()))
    assert "other.yaml" in (found.get("pipeline"), *listed)


@pytest.mark.parametrize(
    ("words", "pipeline", "word"),
    [
        ("rollback", "pipeline.yaml", None),
        ("rollback 5", "pipeline.yaml", 5),
        ("rollback --set a=b 5", "pipeline.yaml", 5),
        ("rollback other.yml --set a=b 5", "other.yml", 5),
        ("rollback settings 5", "settings", 5),
        ("predict rows.csv --json", "pipeline.yaml", ["rows.csv"]),
        ("predict -", "pipeline.yaml", ["-"]),
        ("predict other.yaml", "other.yaml", []),
        ("predict a.csv --output o b.csv", "pipeline.yaml", ["a.csv", "b.csv"]),
        ("predict other.yaml a.csv b.csv", "other.yaml", ["a.csv", "b.csv"]),
    ],
)
def test_a_lone_word_is_the_pipeline_only_if_it_names_a_yaml(words, pipeline, word):
    found = command_line.parser().parse_args(words.split())
    assert found.pipeline == pipeline
    assert getattr(found, "rows", found.version) == word


def test_a_folder_without_a_yaml_is_named_with_the_remedy(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["validate"]) == 2
    assert "Name a PIPELINE_YAML, or change to its folder." in capsys.readouterr().err
    tmp_path.joinpath("near.yaml").touch()
    assert cli.main(["models"]) == 2
    assert "YAML files in .: near.yaml." in capsys.readouterr().err


def test_doctor_checks_the_metadata_of_the_pipeline_in_the_folder(
    workload, monkeypatch, capsys
):
    monkeypatch.chdir(workload.parent)
    cli.main(["doctor"])
    database = f"{workload.parent}/runs/metadata.sqlite: created by the first run"
    assert database in capsys.readouterr().out
    assert not workload.with_name("runs").exists()
    cli.main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)
    (found,) = [each["found"] for each in checks if each["name"] == "metadata"]
    assert found == database
