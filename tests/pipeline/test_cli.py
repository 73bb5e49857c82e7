from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from strategos.pipeline import cli, commands
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
    assert shown.wait() == 1


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
    assert "pusher.to: ftp:// is not known; use gs://, s3:// or a folder" in message


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
