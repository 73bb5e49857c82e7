"""The keys of caching: the changes that alter each, and those that do not."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from strategos.pipeline.config import loading
from strategos.pipeline.made_from import stack
from strategos.pipeline.plan import caching

PACKAGE = Path(caching.__file__).parents[2]


def test_candidate_is_what_the_model_is_made_from_and_nothing_else(compiled):
    key = caching.candidate_key(compiled())
    assert caching.candidate_key(compiled("evaluator.bounds=null")) == key
    assert caching.candidate_key(compiled("pusher.keep=9")) == key
    assert caching.candidate_key(compiled("data.split.eval=5")) != key


def test_checkpoints_are_found_again_on_other_devices(compiled):
    key = caching.checkpoint_key(compiled())
    mirrored = compiled("trainer.distribution.strategy=mirrored")
    assert caching.checkpoint_key(mirrored) == key
    assert caching.candidate_key(mirrored) != caching.candidate_key(compiled())
    for other in ("trainer.epochs=3", "trainer.last_batch=drop", "data.split.eval=5"):
        assert caching.checkpoint_key(compiled(other)) != key


def test_fingerprints_follow_the_files(workload):
    config = loading.load(workload, (), ["schema.file=schema.pbtxt"]).config
    before = caching.Fingerprints.of(config)
    (workload.parent / "model.py").write_text("def build_model(context):\n    pass\n")
    after = caching.Fingerprints.of(config)
    assert after.model != before.model
    assert (after.preprocessing, after.schema) == (before.preprocessing, before.schema)


def test_engine_of_a_run_is_part_of_no_key(workload):
    def key(*sets):
        config = loading.load(workload, (), sets).config
        return caching.ir_key(config, caching.Fingerprints.of(config))

    assert key("run.engine.workers=3") == key()
    assert key("run.root=elsewhere") != key()


def test_a_workload_that_is_moved_keeps_its_settings(workload, tmp_path):
    sets = ["pusher.to=serving", "trainer.warm_start=weights"]

    def key(path, *more):
        config = loading.load(path, (), [*sets, *more]).config
        return caching.settings_key(config, caching.Fingerprints.of(config))

    before = key(workload)
    assert key(workload, "run.root=elsewhere") == before
    skew = "gates={skew: {at_most: 0.1, serving: '%s/*.csv'}}"
    assert key(workload, skew % "logs") == key(workload, skew % "elsewhere") != before
    assert key(workload, "pusher.to=elsewhere") != before
    assert key(workload, "trainer.warm_start=others") != before
    moved = shutil.copytree(workload.parent, tmp_path / "deeper" / "moved")
    assert key(moved / workload.name) == before


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.long)])
def test_compiled_pipeline_depends_on_all_code_that_compiling_reads(
    compiled, workload, tmp_path, monkeypatch, every
):
    def key():
        config = loading.load(workload).config
        return caching.ir_key(config, caching.Fingerprints.of(config))

    for folder in ("components", "pipeline"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder)
    compiled()
    read = [
        Path(module.__file__).relative_to(PACKAGE)
        for name, module in sys.modules.items()
        if name.startswith("strategos.") and module.__file__
    ]
    assert Path("components/evaluator/tfma/eval_config.py") in read
    monkeypatch.setattr(caching, "_PACKAGE", tmp_path)
    monkeypatch.setattr(stack, "_STRATEGOS", tmp_path)
    monkeypatch.setattr(stack, "components", stack.components.__wrapped__)
    uncached = caching.stack_versions.__wrapped__
    monkeypatch.setattr(caching, "stack_versions", uncached)
    seen = [key()]
    assert key() == seen[0]
    for path in read[::every]:
        with (tmp_path / path).open("a") as source:
            source.write("# edited")
        seen.append(key())
    assert len(set(seen)) == len(seen)
