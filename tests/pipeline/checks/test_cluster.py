from __future__ import annotations

import json

import pytest

from strategos.components.errors import BadInputError
from strategos.pipeline.checks import cluster
from strategos.pipeline.config import loading

KUBEFLOW = "kubeflow={image: i, volumes: [{claim: c, path: /mnt/v}]}"
VERTEX = "vertex={image: i, project: p, root: gs://b}"
PUSHED = "pusher.to=/mnt/v/serving"


def check(workload, *sets, target="kubeflow"):
    sections = {"kubeflow": KUBEFLOW, "vertex": VERTEX}
    config = loading.load(workload, (), [sections[target], PUSHED, *sets]).config
    found = cluster.check(config, config.data.listing(), target)
    return {problem.key: str(problem) for problem in found}


def test_pipeline_that_its_target_can_run_has_no_problem(workload):
    assert check(workload) == {}
    assert check(workload, "pusher.to=s3://bucket/serving") == {}
    assert check(workload, "gates={missing: 0.1}", "trainer.warm_start=latest") == {}
    assert check(workload, "pusher.to=gs://bucket/x", target="vertex") == {}
    assert check(workload, "pusher.to=/gcs/bucket/x", target="vertex") == {}


def test_image_needs_no_modules_that_steps_download(workload, write):
    write("for-image/schema.pbtxt", workload.with_name("schema.pbtxt").read_text())
    context, modules = "kubeflow.context=for-image", "kubeflow.modules=s3://b/modules"
    mounted = "data.examples=/mnt/v/span-{SPAN}/*.csv"
    found = check(workload, context, mounted)
    assert found.keys() == {"kubeflow.context"}
    assert "or set `kubeflow.modules`" in found["kubeflow.context"]
    found = check(workload, context, modules, "schema.file=schema.pbtxt")
    assert found.keys() == {"data.examples", "schema.file"}
    assert "no step can see it" in found["schema.file"]
    inside = "schema.file=for-image/schema.pbtxt"
    assert check(workload, context, modules, mounted, inside) == {}
    (workload.parent / "own.py").write_text("PLUGINS = {}")
    found = check(workload, context, modules, mounted, inside, "plugins=[own]")
    assert "`kubeflow.modules` does not upload modules" in found["plugins"]


def test_packages_of_the_image_need_not_be_on_this_machine(workload, write):
    write("model.py", "import torchh\ndef build_model(context): ...\n")
    assert check(workload) == {}


def test_files_on_a_volume_need_not_be_on_this_machine(workload):
    sets = ["data.examples=/mnt/v/span-{SPAN}/*.csv", "trainer.warm_start=/mnt/v/model"]
    assert check(workload, *sets) == {}


def test_a_dump_needs_a_folder_that_outlives_the_step(workload):
    key = "trainer.debug.dump"
    assert check(workload, f"{key}=/mnt/v/dumps") == {}
    for target in ("kubeflow", "vertex"):
        found = check(workload, f"{key}=/tmp/d", "pusher.to=gs://b/x", target=target)
        assert "deleted with the container" in found[key]


def test_database_of_new_spans_is_where_steps_see_it(workload):
    def found(database, examples):
        sql = "SELECT * FROM t WHERE n = {SPAN}"
        query = json.dumps({"database": database, "sql": sql})
        return check(workload, f"data.examples={examples}", f"data.query={query}")

    in_image, mounted = "data/{SPAN}.parquet", "/mnt/v/{SPAN}.parquet"
    assert found("sqlite:///a.db", in_image) == {}  # asked before the image is built
    assert found("sqlite:////mnt/v/a.db", mounted) == {}
    assert found("postgresql://a@b/c", mounted) == {}
    (problem,) = found("sqlite:///a.db", mounted).items()
    assert problem[0] == "data.query.database" and "cannot see the file" in problem[1]


def test_missing_section_is_named_with_what_to_add(workload):
    config = loading.load(workload, (), []).config
    (problem,) = cluster.check(config, config.data.listing(), "vertex")
    assert problem.key == "vertex"
    assert problem.exit_code == 2
    assert "Add `vertex: {image: …, project: …, root: gs://…}`" in str(problem)


def test_all_problems_are_found_at_once(workload, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "schema.pbtxt").write_text(
        workload.with_name("schema.pbtxt").read_text()
    )
    found = check(
        workload,
        "name=flights-",
        f"schema.file={outside}/schema.pbtxt",
        "pusher.to=serving",
        f"gates={{skew: {{serving: {outside}/requests.csv, at_most: 0.3}}}}",
        "trainer.distribution.strategy=multi_worker_mirrored",
    )
    assert found.keys() == {
        *("name", "schema.file", "pusher.to", "gates.skew.serving"),
        "trainer.distribution.strategy",
    }
    assert all(problem.startswith("--set ") for problem in found.values())
    assert "/workload/serving inside a container" in found["pusher.to"]
    assert "in the one container of the step" in found["trainer.distribution.strategy"]


@pytest.mark.parametrize(
    "sets, key, why",
    [
        (["kubeflow.context=data"], "kubeflow.context", "is not in it"),
        (["pusher.to=minio://b/x"], "pusher.to", "s3://… or gs://…"),
        (
            ["trainer.distribution.strategy=tpu"],
            "trainer.distribution.strategy",
            "no TPU",
        ),
        (
            [
                "trainer.distribution.strategy=one_device",
                "kubeflow.steps.Trainer.accelerator={type: nvidia.com/gpu, count: 2}",
            ],
            "kubeflow.steps.Trainer.accelerator",
            "received 2 nvidia.com/gpu; `trainer",
        ),
        (
            [
                "trainer.distribution.strategy=mirrored",
                "kubeflow.steps.default.accelerator={type: google.com/tpu}",
            ],
            "kubeflow.steps.default.accelerator",
            "mirrored` uses no TPU",
        ),
        (
            [
                "trainer.distribution={strategy: mirrored, devices: 4}",
                "kubeflow.steps.Trainer.accelerator={type: nvidia.com/gpu, count: 2}",
            ],
            "trainer.distribution.devices",
            "received 4; the step",
        ),
    ],
)
def test_what_the_cluster_cannot_do_is_rejected(workload, sets, key, why):
    found = check(workload, *sets)
    assert why in found[key], found


@pytest.fixture(params=["kubernetes", "tfjob"])
def launcher(request):
    return request.param


@pytest.mark.parametrize("store", ["s3", "gs"])
def test_training_job_in_an_object_store_needs_no_volume(workload, store, launcher):
    job = f"trainer.distribution.{launcher}"
    gang = f"{{strategy: multi_worker_mirrored, launcher: {launcher}}}"
    sets = [
        f"trainer.distribution={gang}",
        f"{job}={{image: i, volumes: [{{claim: c, path: /mnt}}]}}",
        f"{job}.folder={store}://b/jobs",
    ]
    assert check(workload, *sets) == {}


def test_training_job_shares_a_volume_with_its_step(workload, launcher):
    of, job = "trainer.distribution", f"trainer.distribution.{launcher}"
    sets = [
        f"{of}={{strategy: multi_worker_mirrored, launcher: {launcher}}}",
        f"{job}={{image: i, volumes: [{{claim: c, path: /mnt/v}}]}}",
    ]
    assert "is missing" in check(workload, *sets).pop(f"{job}.folder")
    sets.append(f"{job}.folder=/mnt/v/jobs")
    assert check(workload, *sets) == {}
    sets.append(f"{job}.volumes=[{{claim: other, path: /mnt/v}}]")
    assert "received other at /mnt/v" in check(workload, *sets).pop(f"{job}.volumes")
    (problem,) = check(workload, *sets, target="vertex").keys() - {"pusher.to"}
    assert problem == f"{of}.launcher"


def test_custom_jobs_belong_to_vertex_with_its_section(workload):
    gang = "{strategy: multi_worker_mirrored, launcher: vertex}"
    sets = [f"trainer.distribution={gang}", "pusher.to=gs://b/x"]
    assert check(workload, *sets, target="vertex") == {}
    found = check(workload, *sets, "vertex={project: p, image: i, root: gs://b/r}")
    assert "cannot see the files" in found["trainer.distribution.launcher"]
    with pytest.raises(BadInputError, match="without this section no project"):
        loading.load(workload, sets=sets)


def test_vertex_pushes_to_buckets_only(workload):
    assert (
        "gs://…" in check(workload, "pusher.to=s3://b/x", target="vertex")["pusher.to"]
    )
    assert "gs://BUCKET" in check(workload, target="vertex")["pusher.to"]


@pytest.mark.parametrize(
    "setting, key, expected",
    [
        ("steps.Trainer.cpu=two", "steps.Trainer.cpu", "500m"),
        ("steps.Trainer.memory=12", "steps.Trainer.memory", "8Gi"),
        ("steps.Trainer.timeout=1 h", "steps.Trainer.timeout", "12h"),
        ("steps.Trianer.cpu=1", "steps", "no step has the name Trianer"),
        ("steps.Trainer.gpu=1", "steps.Trainer.gpu", "unknown key"),
        (
            "steps.Trainer.node_selector={a b: c}",
            "steps.Trainer.node_selector.a b",
            "the key of a label",
        ),
        (
            "steps.Trainer.node_selector={spot: true}",
            "steps.Trainer.node_selector.spot",
            '`"true"` in quotes',
        ),
        (
            "steps.Trainer.tolerations=[{key: a, value: b}]",
            "steps.Trainer.tolerations.0",
            "operator: Equal",
        ),
        ("volumes=[{claim: A_b, path: /x}]", "volumes.0.claim", "name of Kubernetes"),
        ("volumes=[{claim: a, path: x}]", "volumes.0.path", "absolute path"),
        ("volumes=[{claim: a, path: /minio/x}]", "volumes.0.path", "in use"),
        (
            "volumes=[{claim: a, path: /x}, {claim: b, path: /x}]",
            "",
            "have the path /x",
        ),
        ("secrets=[{name: a}]", "secrets.0", "Set `env` or `path`"),
        ("secrets=[{name: a, env: {1A: k}}]", "secrets.0.env.1A", "variable"),
        ("modules=/mnt/v", "modules", "s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"),
        ("modules=minio://b/m", "modules", "s3://BUCKET/FOLDER"),
        ("root=/tmp", "root", "minio://BUCKET/FOLDER"),
        ("image=", "image", "the required key is missing"),
    ],
)
def test_sections_that_no_cluster_takes_are_rejected(workload, setting, key, expected):
    with pytest.raises(loading.ConfigError) as raised:
        check(workload, f"kubeflow.{setting}")
    (problem,) = raised.value.problems
    assert problem.key == f"kubeflow.{key}".rstrip(".")
    assert expected in str(problem)
