"""README and docs: what they have to type is executed, by a user who is not root.

In the order of the pages, in one folder with a pipeline and the examples. What needs
more than that is in `ELSEWHERE`, with the file that executes it.
"""

from __future__ import annotations

import dataclasses
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = runpy.run_path(str(ROOT / "tests" / "test_docs.py"))
CLUSTER_PAGE = ROOT / "kubeflow" / "README.md"

_KUBEFLOW = "tests/e2e/cluster/test_kubeflow.py"
_CALLED = "def test_all_commands_of_the_operators_page_were_called"
_LAB = "tests/e2e/cluster/conftest.py"
_HOSTS = "tests/components/trainer/hosts/test_joining.py"
_CLOCK = "tests/e2e/small/test_schedulers.py"
_METADATA = "tests/pipeline/history/test_kubeflow.py"
_INSTALL = "tests/e2e/test_tutorial.py"
_CI = ".github/workflows/ci.yml"
_FLIGHTS, _OVERLAY = "examples/flights/pipeline.yaml", "--overlay cluster.yaml"
_WHEEL = "path/to/strategos-0.1.0-py3-none-any.whl"
_PREDICT = "tests/components/predict/test_model_process.py"
_BATCH = "tests/components/predict/test_batch_command.py"
_EXPLAIN = "tests/components/predict/test_explaining.py"
_SERVE = "tests/components/predict/serving/test_versions.py"
_SERVED = "tests/components/predict/serving/test_interfaces.py"
_CURL = "curl http://localhost:8501/v1/models/flights:predict -d"
_PREDICT_SIGNATURE = '"signature_name": "predict"'
_SOCKET = "runs/.strategos/predict.sock"
_GRPC = "--root grpc://localhost:8080"

# Why commands are not executed here; the file that does it, and what stands there.
ELSEWHERE = {
    ("a stage", _CI, "make test"): ["make test"],
    ("sets up", "Makefile", f"strategos run {_FLIGHTS}"): ["make run"],
    ("half an hour", "Makefile", "tests/lab/kubernetes up"): ["make cluster"],
    ("a cluster", "Makefile", "tests/lab/kubernetes down"): ["make cluster-down"],
    ("a GPU", "tests/components/trainer/test_one_gpu.py", '"bundle", bundle'): [
        "python tests/lab/gpu/one_gpu.py bundle /tmp/bundle",
        "python /tmp/bundle/one_gpu.py check",
    ],
    ("a cluster", _LAB, 'self.cluster.command("run", *command)'): [
        ".venv/bin/python tests/lab/kubernetes run COMMAND…",
        ".venv/bin/python tests/lab/kubernetes run .venv/bin/strategos run "
        f"{_FLIGHTS} --overlay kubeflow/overlays/local.yaml --runner kubeflow --wait",
    ],
    ("a cluster", "tests/e2e/cluster/test_images.py", '"load"'): [
        "buildah push registry.example.com/flights:1 docker-archive:flights.tar",
        ".venv/bin/python tests/lab/kubernetes load flights.tar",
    ],
    ("a cluster", _KUBEFLOW, "kubectl apply"): [
        "kubectl apply --namespace NAMESPACE -f kubeflow/manifests"
    ],
    ("a cluster, or Vertex AI", _KUBEFLOW, _CALLED): [
        f"strategos run {_FLIGHTS} {_OVERLAY} --runner kubeflow --wait",
        "strategos run pipeline.yaml --runner kubeflow|vertex",
        "strategos schedule create pipeline.yaml --target kubeflow",
        *(
            f"strategos schedule {what} pipeline.yaml {_OVERLAY} "
            "--target kubeflow|vertex"
            for what in ("create", "list", "delete")
        ),
    ],
    ("a cluster", _METADATA, "def test_commands_take_the_address_as_the_root"): [
        f"strategos runs {_GRPC}",
        f"strategos runs show RUN {_GRPC}",
        f"strategos lineage 1795369694 {_GRPC}",
    ],
    ("minutes", "tests/pipeline/test_image.py", "def test_image_without_a_workload"): [
        f"strategos image build {_FLIGHTS} {_OVERLAY} --target kubeflow [--push]",
        f"strategos image build {_FLIGHTS} {_OVERLAY} --target kubeflow",
        f"strategos image build pipeline.yaml {_OVERLAY} --target kubeflow --set "
        "kubeflow.context=empty --set kubeflow.modules=s3://my-bucket/modules",
    ],
    ("an overlay", "tests/pipeline/plan/test_cluster.py", '["kubeflow", "vertex"]'): [
        "strategos compile pipeline.yaml --target kubeflow",
        "strategos compile pipeline.yaml --target kubeflow|vertex",
    ],
    ("an overlay", "tests/pipeline/test_schedule.py", "def test_a_cronjob_is_one"): [
        "strategos schedule export pipeline.yaml --to cronjob --every 5m"
    ],
    ("no end", _CLOCK, 'clock = ("schedule", "start"'): [
        "strategos schedule start pipeline.yaml --every 5m"
    ],
    ("two hosts", _HOSTS, "def test_a_port_in_use_is_named"): [
        'TF_CONFIG=\'{"cluster": {"chief": ["10.0.0.1:2222"], "worker": '
        '["10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\' '
        "strategos worker pipeline.yaml"
    ],
    ("the package index", _INSTALL, '"--override"'): [
        *(f"uv add {_WHEEL}", "uv run strategos doctor", "uv venv"),
        f"uv pip install --override overrides.txt {_WHEEL}",
    ],
    ("the package index", _INSTALL, "def test_pip_installs_the_wheel"): [
        "python -m venv .venv",
        f".venv/bin/pip install {_WHEEL}",
        ".venv/bin/strategos doctor",
    ],
    ("the walk", "tests/e2e/test_walk.py", 'BLOCKS(ROOT / "docs" / "walk.md", "sh")'): [
        *("source .venv/bin/activate", "strategos doctor", "python make_table.py"),
        "head -n 4 ../customers.csv > rows.csv",
        *("strategos predict rows.csv", "strategos serve &", "kill %1"),
        "curl --silent --retry 60 --retry-connrefused "
        "http://localhost:8501/v1/models/serving:predict -d "
        """'{"signature_name": "predict", "instances": [{"age": [40], "plan": """
        """["basic"], "monthly_fee": [20.5], "calls": [8]}]}'""",
    ],
    ("a file of MNIST", "tests/examples/test_digits.py", "def test_mnist_keeps"): [
        "MNIST=path/to/mnist.npz strategos run examples/digits/pipeline.yaml "
        "--overlay examples/digits/mnist.yaml"
    ],
    ("two minutes", "tests/e2e/test_photos.py", 'copy_example("photos"'): [
        "strategos run examples/photos/pipeline.yaml"
    ],
    ("trained there", "tests/e2e/test_digits.py", "def test_mlp_with_one_hot_labels"): [
        "strategos run examples/digits/pipeline.yaml --set "
        "trainer.hyperparameters.network=mlp",
        "strategos run examples/digits/pipeline.yaml --overlay "
        "examples/digits/onehot.yaml",
    ],
    ("half a minute", "tests/e2e/test_docstrings.py", 'copy_example("docstrings"'): [
        "strategos run examples/docstrings/pipeline.yaml",
        "strategos run examples/docstrings/pipeline.yaml --set trainer.bucket_by=null",
    ],
    (
        "a model that waits",
        "tests/pipeline/run/versions/test_approval.py",
        "def test_who_approved_a_version_and_why_is_on_record",
    ): [
        f"strategos models {what} VERSION pipeline.yaml --reason TEXT"
        for what in ("approve", "veto")
    ],
    ("runs until Ctrl-C", "tests/e2e/small/test_dev.py", 'small.command("dev"'): [
        *("strategos dev pipeline.yaml", f"strategos dev {_FLIGHTS}"),
    ],
    (
        "a module with a breakpoint",
        "tests/pipeline/debugging/test_debug.py",
        '"debug", "--set"',
    ): [
        "strategos debug pipeline.yaml --rows 4 --step 120",
    ],
    (
        "several workers",
        "tests/pipeline/debugging/test_check_cluster_command.py",
        '"check-cluster"',
    ): ["strategos check-cluster pipeline.yaml --megabytes 400"],
    (
        "TFX's own tool, and a run",
        "tests/e2e/test_tfx_templates.py",
        'findall(r"^tfx (template copy',
    ): [
        "tfx template copy --model=taxi --pipeline_name=taxi --destination_path=taxi",
        "cd taxi && strategos run",
    ],
    ("a run of it", "tests/e2e/small/test_reproduce.py", '"reproduce", run'): [
        "strategos reproduce 1795369694 --to again/"
    ],
    ("two runs", "tests/e2e/small/test_bisect.py", '"bisect", *words'): [
        "strategos bisect GOOD BAD --metric log_loss"
    ],
    ("two runs", "tests/e2e/small/test_reproduce.py", '("explain", "run", str('): [
        "strategos explain run [RUN] [--json]"
    ],
    ("a run", "tests/e2e/small/test_reproduce.py", '("explain", "blessing", first'): [
        "strategos explain blessing [RUN] [--json]"
    ],
    ("decisions", "tests/e2e/small/test_retrain.py", '"explain", "retrain"'): [
        "strategos explain retrain [--limit 10] [--json]"
    ],
    ("two runs", "tests/e2e/small/test_reproduce.py", '"runs", "compare", *ids'): [
        *("strategos runs compare", "strategos runs compare A B [--json]"),
    ],
    ("no process stays in tests", _PREDICT, '"/v1/models/flights:predict"'): [
        f"curl --unix-socket {_SOCKET} http://localhost/v1/models/flights",
        f"curl --unix-socket {_SOCKET} http://localhost/v1/models/flights:predict "
        '-d \'{"instances": [{"b64": "…"}]}\'',
    ],
    ("files of one's own", _BATCH, 'predict("in", "--output", "out"'): [
        "strategos predict pipeline.yaml new/ --output scored",
        "strategos predict pipeline.yaml new/ --output scored --columns id,day",
    ],
    ("an object store", _BATCH, '"--spans", "2..3", "--output"'): [
        "strategos predict pipeline.yaml --spans 3..5 --output s3://my-bucket/scored "
        "--format csv",
    ],
    ("a table of one's own", "tests/e2e/test_init.py", 'words = ("init", data'): [
        "strategos data customers.csv",
        "strategos init customers.csv --label churned",
        "cd customers && strategos run",
    ],
    ("a run of it", "tests/e2e/test_report_pages.py", '"report", str(flights'): [
        "strategos report pipeline.yaml",
        "strategos report RUN pipeline.yaml --open",
        "strategos report pipeline.yaml --compare RUN",
        "strategos report pipeline.yaml --redact --output run.html",
    ],
    ("without scripts", "tests/pipeline/report/test_static.py", '"--static", "--out'): [
        "strategos report pipeline.yaml --static --output mail.html",
    ],
    ("runs until Ctrl-C", "tests/e2e/test_report_pages.py", '"ui", *words, "--port"'): [
        "strategos ui pipeline.yaml",
        "strategos ui --root runs/ --port 0 --open",
        "STRATEGOS_UI_TOKEN=uOOPnPiBvaqQF5uHbSFk strategos ui pipeline.yaml "
        "--host 0.0.0.0",
    ],
    ("rows of one's own", _EXPLAIN, 'words = ("rows.csv", "--explain", "--back'): [
        "strategos predict pipeline.yaml rows.csv --explain",
        "strategos predict pipeline.yaml rows.csv --explain --background rows.csv",
    ],
    (
        "rows of one's own",
        "tests/components/predict/test_rows.py",
        "def test_bad_rows_are",
    ): [
        "strategos predict pipeline.yaml rows.csv",
        "strategos predict pipeline.yaml rows.csv --json --bad-rows mark",
    ],
    ("runs until Ctrl-C", _SERVE, "def test_the_command_follows_the_push_folder"): [
        "strategos serve pipeline.yaml",
        "strategos serve --model serving/flights --port 0 --grpc-port 0",
    ],
    ("a server", _SERVED, "def test_both_interfaces_answer_as_the_model_itself"): [
        f'{_CURL} \'{{{_PREDICT_SIGNATURE}, "instances": [{{"carrier": ["AA"], '
        '"hour": [9]}, {"carrier": ["B6"], "hour": [17]}]}\'',
        f'{_CURL} \'{{{_PREDICT_SIGNATURE}, "inputs": {{"carrier": [["AA"], '
        '["B6"]], "hour": [[9], [17]]}}\'',
    ],
    ("a year of data", "benchmarks/flights_reference.py", "def main"): [
        ".venv/bin/python benchmarks/flights_reference.py"
    ],
}
_SKIPPED = {command for commands in ELSEWHERE.values() for command in commands}

# Exit codes other than 0, where the page has them.
CODES = {"strategos canary promote pipeline.yaml": 3}


def _commands(page):
    """What a page has to type: its blocks, then the whole commands of its prose."""
    lines = [*DOCS["lines"](page)]
    prose = dict.fromkeys(DOCS["mentioned"](page))
    whole = [text for text in prose if "pipeline.yaml" in text]
    return lines + [text for text in whole if not any(text in x for x in lines)]


PAGES = [page for page in DOCS["PAGES"] if {*_commands(page)} - _SKIPPED]


class _Reader:
    """Types the commands of the pages into a shell, in the folder of `small`."""

    def __init__(self, small, write_span):
        self.small, self._write_span = small, write_span
        self._before = {
            "strategos retrain pipeline.yaml --if-due": self._add_span,
            "strategos canary promote pipeline.yaml": self._make_bad_canary,
        }
        self._code = 0

    def type(self, command):
        """Executes a command once for each alternative; asserts the exit codes."""
        self._before.get(command, lambda: None)()
        for text in DOCS["as_typed"](command):
            done = self._shell(self._with_facts(text))
            said = f"{text}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == CODES.get(command, 0), said
            assert "Traceback" not in said
            self._code = done.returncode

    def _shell(self, text):
        environment = self.small.environment()
        path = f"{self.small.folder}:{environment['PATH']}"
        return subprocess.run(
            # `$?` is the exit code of the command before.
            [*self.small.warm.user, "bash", "-c", f"(exit {self._code}); {text}"],
            cwd=self.small.folder,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=500,
        )

    def _with_facts(self, text):
        """Replaces what stands for a run or a version."""
        words = text.split()
        if "RUN" in words:
            text = text.replace("RUN", self.small.last_run()["run_id"])
        for name in {"VERSION", "1795369694"} & {*words}:
            text = text.replace(name, self.small.serving()[0])
        return text

    def _add_span(self):
        spans = len([*self.small.folder.glob("data/span-*")])
        self._write_span(self.small.folder, spans + 1)
        self._settings(evaluator={"bounds": {"auc": {"at_least": 0.01}}})

    def _make_bad_canary(self):
        self._settings(pusher={"canary": "trial"}, trainer={"seed": 2})
        self._add_span()
        self.small.run()
        self._write_span(self.small.folder, 100)
        self._settings(evaluator={"bounds": {"auc": {"at_least": 1.0}}})

    def _settings(self, **sections):
        _change(self.small.yaml, **sections)


def _change(file, **sections):
    """Changes keys in sections of a YAML file."""
    settings = yaml.safe_load(file.read_text())
    for name, keys in sections.items():
        settings[name] |= keys
    file.write_text(yaml.safe_dump(settings))


@pytest.fixture(scope="module")
def reader(
    copy_workload, make_workspace, write_span, flights_data, warm_user, tmp_path_factory
):
    base = tmp_path_factory.mktemp("pages")
    copy_workload("small", base)
    small = dataclasses.replace(make_workspace(base / "small"), warm=warm_user)
    for span in range(1, 7):
        write_span(small.folder, span)
    ignore = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
    for name in ("examples", "schemas"):
        shutil.copytree(ROOT / name, small.folder / name, ignore=ignore)
    flights = small.folder / "examples" / "flights"
    shutil.copytree(flights_data, flights / "data")
    shutil.copy(flights / "data" / "span-01" / "flights.csv", small.folder / "rows.csv")
    _learn_little(flights, {"auc": {"at_least": 0.4}})
    _learn_little(flights.with_name("digits"), {"accuracy": {"at_least": 0.05}})
    gate = flights / "fairness.yaml"
    gate.write_text(gate.read_text().replace("0.05}", "1.0, min_examples: 50}"))
    overlay = next(DOCS["blocks"](CLUSTER_PAGE, "yaml"))
    (small.folder / "cluster.yaml").write_text(overlay)
    tool = small.folder / "strategos"
    tool.write_text(f'#!/bin/sh\nexec {shlex.join(warm_user.cli())} "$@"\n')
    tool.chmod(0o755)
    return _Reader(small, write_span)


def _learn_little(example, bounds):
    trainer = {"epochs": 1, "batch_size": 64}
    _change(example / "pipeline.yaml", evaluator={"bounds": bounds}, trainer=trainer)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=DOCS["name_of"])
def test_what_a_page_has_to_type_works(reader, page):
    for command in _commands(page):
        if command not in _SKIPPED:
            reader.type(command)


def test_what_is_executed_elsewhere_stands_in_a_page_and_there():
    assert {*_SKIPPED} <= {text for page in DOCS["PAGES"] for text in _commands(page)}
    assert {*CODES} <= {text for page in PAGES for text in _commands(page)}
    for _, file, part in ELSEWHERE:
        assert part in (ROOT / file).read_text(), file
