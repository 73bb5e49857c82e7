"""Mistakes as users make them: each message says where, what, and what to do instead.

Each ends with exit code 2, before TensorFlow is imported, and shows no traceback.
"""

from __future__ import annotations

import gzip
import re

import pytest

from strategos.pipeline import cli

HEADER = "late,tail,carrier\n"
DATA = "data/span-1/a.csv"

YAML = {  # the text that is replaced, its replacement, and what the message has
    "tab": ("data:\n  examples", "data:\n\texamples", ":4:1:", "a tab", "Use spaces"),
    "list": ("{to: serving}", "[to: serving]", "pusher: received [", "a mapping with"),
    "no space": ("label: late", "label:late", "space after each colon"),
    "open quote": ("name: f", 'name: "f', "quoted scalar that begins at line 1"),
    "open brace": ("serving}", "serving", "flow mapping that begins at line 16"),
    "variable": (
        "{to: serving}",
        "{to: '${HOME}/serving'}",
        'pusher.to: received "${HOME}/serving"',
        "without variables of the environment",
        "give it by `--set` in the shell",
    ),
    "one slash": (
        "to: serving",
        "to: s3:/bucket/serving",
        'pusher.to: received "s3:/bucket/serving"',
        "two slashes, such as s3://BUCKET/FOLDER",
    ),
    "number as text": (
        "label: late",
        "label: 2013",
        ":2:8: label: received 2013 (a whole number)",
        "Put it in quotes: '2013'. Allowed: a column, a list of columns, a mapping",
    ),
    "text as number": (
        "size: 512",
        "size: '512'",
        ':9:15: trainer.batch_size: received "512" (text)',
        "Write 512 without quotes. Allowed: a whole number, at least 1.",
    ),
    "shares": (
        "keys: [tail]",
        "keys: [tail], train: 0.8",
        "data.split.train: received 0.8 (a number)",
        "such as `train: 8, eval: 2`",
    ),
    "split by label": (
        "keys: [tail]",
        "keys: [late]",
        ":5:27: data.split.keys: `late` is the label",
        "Name a column that tells rows apart",
    ),
    "level": ("name: f", "batch_size: 3\nname: f", "mean `trainer.batch_size`?"),
    "camel": ("batch_size: 512", "batchSize: 512", "Did you mean `batch_size`?"),
    "class": (
        "  batch_size: 512",
        "  distribution: {strategy: MirroredStrategy}",
        'strategy: received "MirroredStrategy"',
        "Did you mean `mirrored`? Allowed: auto, one_device,",
    ),
    "path as module": (
        "{module: preprocessing}",
        "{module: ./preprocessing}",
        'transform.module: received "./preprocessing"',
        "the name of a module beside the YAML",
    ),
    "percent": ("at_least: 0.7", "at_least: 70%", 'received "70%"', "a number"),
    "bound above": ("at_least: 0.7", "at_least: 7", "auc is at most 1", "0 to 1"),
    "limits": (
        "{at_least: 0.7,",
        "{at_least: 0.7, at_most: 0.5,",
        "0.7 is more than at_most (0.5): nothing can pass",
        "Swap or correct the two limits.",
    ),
    "other task": ("[auc, log", "[mse, log", "not defined for the task binary"),
    "scheme": (
        "data/span-{SPAN}/*.csv",
        "https://example.com/a.csv",
        ":4:13: data.examples: https:// is not known; use gs://, s3:// or a folder",
    ),
    "backslashes": ("data/span-{SPAN}/*.csv", "C:\\data\\*.csv", "matches no file"),
    "placeholder": ("{SPAN}", "{MONTH}", "{MONTH} is not a placeholder. Known"),
    "folder": (
        "data/span-{SPAN}/*.csv",
        "data/span-1",
        "It is a folder; for the files in it write `DIR/data/span-1/*.csv`.",
    ),
    "not measured": (
        "auc: {",
        "accuracy: {",
        "not in `evaluator.metrics`",
        "Add it to",
    ),
    "not sliced": ("{carrier:", "{tail:", "not in `evaluator.slices`", "Add it to"),
}


MODULES = {  # the source of `model.py` or `preprocessing.py`, and the message
    "class": ("class build_model:\n    pass\n", "is a class, not a function"),
    "async": (
        "async def build_model(context):\n    return 1\n",
        "which nothing awaits",
    ),
    "generator": ("def build_model(context):\n    yield 1\n", "yields values instead"),
    "constant": ("build_model = 3\n", "is a constant, not a function"),
    "no return": (
        "def preprocessing_fn(inputs):\n    inputs['x'] = 1\n",
        ":6:21: transform.module: `preprocessing_fn` in ",
        "preprocessing.py returns nothing",
        "Define `def preprocessing_fn(inputs)` there, and end it with `return`.",
    ),
    "not installed": (
        "import os\nimport torchh.nn\ndef build_model(context): ...\n",
        "model.py:2: imports `torchh`, which is not installed",
        "Install it into ",
    ),
    "misspelled": (
        "from preprocesing import x\ndef build_model(context): ...\n",
        "model.py:1: imports `preprocesing`",
        "Did you mean `preprocessing`?",
    ),
    "relative": (
        "from . import helpers\ndef build_model(context): ...\n",
        "model.py:1: a relative import, and its folder is no package",
        "Write `from MODULE import …`.",
    ),
    "Python 2": (
        "def build_model(context):\n    print 'x'\n",
        "model.py:2: is not valid Python: Missing parentheses in call to 'print'",
        "Correct that line.",
    ),
    "another name": (
        "def preprocess_fn(inputs):\n    return inputs\n",
        "preprocessing.py has no function `preprocessing_fn`; functions there: ",
        "Rename `preprocess_fn`, or define",
    ),
}

CONTENTS = {  # of a data file, and the message
    "values first": (b"1,N1,UA\n0,N2,AA\n", "holds values, not names", ": 1, N1, UA"),
    "web page": (b"<!DOCTYPE html>\n<p>404</p>\n", "is a web page or XML, not CSV"),
    "XML": (b"<?xml version='1.0'?><Error/>", "is a web page or XML, not CSV"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "Run `git lfs pull`"),
    "JSON": (b'{"late": 1}\n', "is JSON, not CSV", "end in .jsonl"),
    "comment": (
        b"# of tool 3\n" + HEADER.encode(),
        "line 1 is a comment, `# of tool 3`",
    ),
    "workbook": (b"PK\x03\x04", "a ZIP archive or an Excel workbook", "export CSV"),
    "UTF-16": (HEADER.encode("utf-16"), "is UTF-16 text", "encoding: utf-16"),
    "gzip": (gzip.compress(HEADER.encode()), "Let its name end in .csv.gz"),
    "empty": (b"", "is empty. Expected CSV with a header"),
    "semicolons": (
        b"late;tail;carrier\n1;N1;UA\n",
        "not by ';'",
        "set `data.csv: {delimiter: ",
    ),
}

WORDS = {  # after `strategos`, and the message
    "command": ("rn", "invalid choice: 'rn'", "Did you mean `run`?"),
    "setting": ("run --epochs 3", "A setting is given by `--set trainer.epochs=VALUE`"),
    "option": ("lineage --modell 3", "`strategos COMMAND --help` lists the options"),
    "file": ("run DIR/pipline.yaml", "pipline.yaml: cannot be read", "YAML files in"),
    "Python": ("run DIR/model.py", "is Python, not YAML", "Name the pipeline's YAML"),
    "data": (f"predict DIR/{DATA} YAML", "is a data file, not YAML", "YAML first"),
    "order": ("runs YAML show 3", "For one: strategos runs show 3 [PIPELINE_YAML]."),
    "no value": ("validate YAML --set trainer.epochs", "is not KEY=VALUE", "Write for"),
    "key": ("validate YAML --set trainer.epoch=3", "Did you mean `epochs`?"),
    "overlay": ("validate YAML --overlay prod.yml", "prod.yml: cannot be read"),
    "node": ("run YAML --to trainr", "--to: received 'trainr'", "mean `Trainer`?"),
    "no TPU": (
        "validate YAML --set trainer.distribution.strategy=tpu",
        "received 'tpu'; no TPU is named",
        "or use `auto`",
    ),
    "a file as root": (
        "validate YAML --set run.root=model.py",
        "run.root: ",
        "model.py is not a folder",
        "name another folder with `--set run.root=DIR`",
    ),
    "a file as target": (
        "validate YAML --set pusher.to=model.py/serving",
        "pusher.to: ",
        "model.py is not a folder",
    ),
    "none": ("--", "are required: COMMAND. `strategos --help` lists the commands."),
    "two": ("run YAML YAML", "unrecognized arguments: ", "name one YAML."),
    "rows": ("predict YAML nowhere.csv", "nowhere.csv: no such file of rows"),
}


@pytest.fixture
def message(workload, capsys):
    """Runs a command that must fail by bad input; returns what it prints."""

    def message(*words):
        try:
            code = cli.main(list(map(str, words or ["validate", workload])))
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert code == 2 and printed.out == ""
        assert "Traceback" not in printed.err
        assert not re.search(r"\bbug\b", printed.err)
        return printed.err.replace(str(workload.parent), "DIR")

    return message


@pytest.mark.parametrize("mistake", YAML)
def test_in_the_yaml(write, workload, message, mistake):
    old, new, *parts = YAML[mistake]
    assert old in workload.read_text()
    write("pipeline.yaml", workload.read_text().replace(old, new, 1))
    printed = message()
    assert printed.startswith("strategos: DIR/pipeline.yaml:")
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize("mistake", MODULES)
def test_in_a_module(write, workload, message, mistake):
    source, *parts = MODULES[mistake]
    name = "preprocessing" if "preprocess" in source.split("(")[0] else "model"
    write(f"{'model' if mistake == 'misspelled' else name}.py", source)
    printed = message()
    assert printed.startswith("strategos: DIR/pipeline.yaml:")
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize("mistake", CONTENTS)
def test_in_the_data(workload, message, mistake):
    content, *parts = CONTENTS[mistake]
    (workload.parent / DATA).write_bytes(content)
    printed = message()
    assert "data.examples: " in printed and DATA in printed
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize("mistake", WORDS)
def test_at_the_command_line(workload, message, mistake):
    words, *parts = WORDS[mistake]
    words = words.replace("YAML", str(workload)).replace("DIR", str(workload.parent))
    printed = message(*words.split())
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.path.append('lib')\nimport torchh\n",
        "try:\n    import torchh\nexcept ImportError:\n    torchh = None\n",
        "import helpers\nimport package.part\nimport tensorflow as tf\n",
    ],
)
def test_an_import_that_may_work_is_no_mistake(write, workload, capsys, source):
    write("helpers.py", "")
    write("package/part.py", "")
    write("model.py", f"{source}def build_model(context):\n    return 1\n")
    assert cli.main(["validate", str(workload)]) == 0, capsys.readouterr().err
