"""Odd input at the command: each is one error that names file or key, with exit code 2.

A file with a byte order mark, with `\\r` for line ends and other odd data that can be
read: tests/components/example_gen.
"""

from __future__ import annotations

import pytest

from strategos.pipeline import cli

HUGE = "9" * 400


@pytest.fixture
def refused(workload, capfd):
    """Runs a command on the workload; returns its one error."""

    def refused(command="validate", *arguments):
        words = [command, str(workload), *map(str, arguments)]
        assert cli.main(words) == 2
        printed = capfd.readouterr()
        assert printed.out == ""
        (error,) = printed.err.split("strategos: ")[1:]
        return error.replace(str(workload.parent), "DIR")

    return refused


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainer.batch_size=9223372036854775808", "at most 9223372036854775807."),
        ("trainer.epochs=99999999999999999999", "at most 9223372036854775807."),
        ("data.split.train=99999999999999999999", "at most 9223372036854775807."),
        ("trainer.distribution.start_timeout=999999999h", "at most 876000h."),
        ("trainer.distribution.stall_timeout=" + HUGE + "d", "at most 36500d."),
        (
            "trainer.checkpoint.every=99999999999999999999 steps",
            "at most 9223372036854775807 steps.",
        ),
        (f"trainer.cache_limit={HUGE}GB", "bytes, such as 1GB, 64MiB or 4096."),
        (f"trainer.distribution.bandwidth={HUGE}Gbit", "bits a second, such as 10Gbit"),
        ("name=Flüge", "lower-case letters, digits and `-`, first a letter"),
    ],
)
def test_a_value_out_of_range_names_its_key_and_what_is_allowed(
    refused, setting, message
):
    key, _, value = setting.partition("=")
    error = refused("validate", "--set", setting)
    assert f"{key}: received" in error and value[:50] in error
    assert f"Allowed: {message}" in error
    assert len(error) < 400


def test_a_flag_too_long_to_show_is_cut(refused):
    error = refused("validate", "--set", f"trainer.batch_size={HUGE}")
    assert error.startswith("--set trainer.batch_size=999") and len(error) < 200
    assert "…: a number with too many digits" in error


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "data/span-1/a.csv",
            "late,tail,carrier,late\n1,N1,UA,1\n",
            "pipeline.yaml:4:13: data.examples: DIR/data/span-1/a.csv: column `late` "
            "occurs 2 times.",
        ),
        (
            "data/span-1/a.csv",
            ",late,tail,carrier\n0,1,N1,UA\n",
            "pipeline.yaml:4:13: data.examples: DIR/data/span-1/a.csv: column 1 has no",
        ),
        (
            "data/span-1/a.csv",
            "late,tail,carrier\n",
            "data/span-1/a.csv has a header but no row\n    Remove the file",
        ),
        (
            "data/span-99999999999999999999/a.csv",
            "late,tail,carrier\n",
            "data.examples: DIR/data/span-99999999999999999999/a.csv: "
            "99999999999999999999 has too many digits\n    Rename the file",
        ),
        ("s.pbtxt", "", "schema.file: DIR/s.pbtxt declares no feature\n"),
        ("model.py", "x = 1\n# \xfc\n# \xfc\n", "model.py is not utf-8 text (byte "),
    ],
)
def test_a_file_that_cannot_be_used_is_named(workload, refused, file, content, message):
    path = workload.parent / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode("latin-1"))
    schema = path if path.suffix == ".pbtxt" else "null"
    assert message in refused("validate", "--set", f"schema.file={schema}")


def test_a_date_that_does_not_exist_names_file_key_and_line(workload, refused):
    (workload.parent / "data/20130231.csv").write_text("late\n1\n")
    pattern = f"{workload.parent}/data/{{DATE}}.csv"
    printed = refused("validate", "--set", f"data.examples={pattern}")
    assert printed.startswith("--set data.examples=")  # and the value, cut where long
    message = "data.examples: DIR/data/20130231.csv: 20130231 is not a day"
    assert f": {message}" in printed


def test_a_section_that_the_command_needs_is_named_as_a_key(refused, tmp_path):
    error = refused("predict", tmp_path / "rows.csv", "--set", "pusher=null")
    assert error == (
        "DIR/pipeline.yaml: pusher: this section is missing, so no model is pushed\n"
        "    Add `pusher: {to: DIR}` and run the pipeline.\n"
    )


def test_the_name_of_a_folder_is_the_default_without_accents(workload, capfd):
    folder = workload.parent / "Übung_2013 für Flüge"
    folder.mkdir()
    text = workload.read_text().replace("name: flights\n", "")
    (folder / "pipeline.yaml").write_text(text)
    assert cli.main(["config", str(folder / "pipeline.yaml")]) == 0
    assert capfd.readouterr().out.startswith("name: ubung-2013-fur-fluge ")


@pytest.mark.parametrize("root", ["runs[1]", "ru*ns", "what?/runs"])
def test_a_root_whose_files_no_pattern_would_find_is_refused(refused, root):
    error = refused("run", "--set", f"run.root={root}")
    assert "run.root: received DIR/" in error and root in error
    assert "Allowed: a folder without `*`, `?` and `[` in its path." in error
