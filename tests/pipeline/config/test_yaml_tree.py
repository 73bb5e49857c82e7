"""Overlays and `--set`: which value wins, its origin, how it is shown."""

from __future__ import annotations

import json

import pytest

from strategos.pipeline.config.loading import (
    ConfigError,
    effective,
    effective_json,
    load,
)
from strategos.pipeline.config.yaml_tree import is_plain_text

PASSWORD = {"STRATEGOS_METADATA_PASSWORD": "s3cret"}


def test_sets_win_over_overlays_and_later_overlays_over_earlier(write, workload):
    first = write("first.yaml", "trainer: {epochs: 1, batch_size: 8, seed: 3}\n")
    second = write("second.yaml", "trainer:\n  epochs: 2\n  batch_size: 16\n")
    loaded = load(workload, [first, second], ["trainer.batch_size=32"])
    trainer = loaded.config.trainer
    assert (trainer.seed, trainer.epochs, trainer.batch_size) == (3, 2, 32)
    origins = loaded.origins
    assert origins["trainer.seed"] == "first.yaml:1"
    assert origins["trainer.epochs"] == "second.yaml:2"
    assert origins["trainer.batch_size"] == "--set"
    assert origins["trainer.module"] == "pipeline.yaml:8"
    assert origins["trainer.distribution.strategy"] == "default"


def test_a_name_with_a_dot_is_set_in_quotes(workload):
    metrics = "evaluator.metrics=[auc, recall@0.3]"
    bound = 'evaluator.bounds."recall@0.3".at_least=0.25'
    loaded = load(workload, [], [metrics, bound])
    assert loaded.config.evaluator.bounds["recall@0.3"].at_least == 0.25


def test_mappings_merge_and_lists_replace(write, workload):
    overlay = write(
        "o.yaml",
        "trainer: {hyperparameters: {units: [8], dropout: null}}\n"
        "evaluator: {slices: [carrier, month]}\n",
    )
    config = load(workload, [overlay]).config
    assert config.trainer.hyperparameters == {
        "units": [8],
        "learning_rate": 0.001,
        "dropout": None,
    }
    assert config.evaluator.slices == ("carrier", "month")
    assert config.evaluator.metrics == ("auc", "log_loss")


def test_unknown_key_without_a_value_is_rejected(workload):
    with pytest.raises(ConfigError, match="gates.missing:2: unknown key"):
        load(workload, sets=["gates={missing:2}"])  # no space: a key, and null


def test_null_takes_a_key_or_a_section_back_to_its_default(write, workload):
    overlay = write("o.yaml", "pusher: null\ntrainer: {batch_size: null}\n")
    loaded = load(workload, [overlay], ["evaluator.bounds.auc=null"])
    assert loaded.config.pusher is None
    assert loaded.config.trainer.batch_size == 256
    assert loaded.config.evaluator.bounds == {}
    assert loaded.origins["pusher"] == "o.yaml:1"
    assert loaded.origins["trainer.batch_size"] == "o.yaml:2"


def test_a_section_that_a_layer_removed_can_be_given_again(write, workload):
    overlay = write("o.yaml", "pusher: null\n")
    config = load(workload, [overlay], ["pusher.to=elsewhere"]).config
    assert config.pusher.to == str(workload.parent / "elsewhere")


def test_paths_of_an_overlay_count_from_its_own_folder(write, workload):
    overlay = write("env/prod.yaml", "run: {root: ../all-runs}\npusher: {to: here}\n")
    config = load(workload, [overlay], ["schema.file=s.pbtxt"]).config
    assert config.run.root == str(workload.parent / "all-runs")
    assert config.pusher.to == str(workload.parent / "env" / "here")
    assert config.schema_.file == str(workload.parent / "s.pbtxt")


def test_scalars_are_those_of_yaml_1_2(workload):
    sets = ["trainer.hyperparameters={a: 1e-3, b: yes, c: 12:30, d: 0x10, e: 1_000}"]
    values = load(workload, sets=sets).config.trainer.hyperparameters
    wanted = {"a": 0.001, "b": "yes", "c": "12:30", "d": 16, "e": "1_000"}
    assert {key: values[key] for key in wanted} == wanted


def test_aliases_are_read(write, workload):
    text = workload.read_text().replace("[tail]", "&columns [carrier]")
    path = write("p.yaml", text.replace("slices: [carrier]", "slices: *columns"))
    config = load(path).config
    assert config.data.split.keys == config.evaluator.slices == ("carrier",)


def test_every_effective_value_has_an_origin(workload):
    loaded = load(workload)
    shown = json.loads(effective_json(loaded))
    assert shown["origins"] == loaded.origins
    assert set(loaded.origins.values()) == {
        "default",
        *(
            f"pipeline.yaml:{line}"
            for line in (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 15, 16)
        ),
    }


def test_effective_settings_show_origins_aligned(workload):
    lines = effective(load(workload, sets=["trainer.epochs=2"])).splitlines()
    epochs = next(line for line in lines if "epochs" in line)
    assert epochs.split("#") == [epochs.split("#")[0], " --set"]
    assert len({line.index(" # ") for line in lines if " # " in line}) == 1


@pytest.mark.parametrize("width", [60, 80, 100])
def test_effective_settings_fit_a_terminal_but_for_single_long_values(workload, width):
    loaded = load(workload)
    lines = effective(loaded, width).splitlines()
    assert not [line for line in lines if len(line) > width and "  # " in line]
    assert sum("# " in line for line in lines) == effective(loaded).count("  # ")


def test_effective_settings_read_back_as_the_same_settings(write, workload):
    odd = (
        "trainer.hyperparameters={a: '1e-3', b: 'yes: no', c: ['x, y', '{z}', ''],"
        " d: 'null', e: {f: 2, 'g h': '# x'}, i: ' pad ', j: 'a:', k: {}, l: ä}"
    )
    config = load(workload, sets=[odd, "evaluator.slices=[carrier, 'x#y', 'a, b']"])
    again = load(write("again.yaml", effective(config)))
    assert again.config.model_dump() == config.config.model_dump()


@pytest.mark.parametrize("text", ["", "a b", "x/{SPAN}/*.csv", "1..6", "a-b", "none"])
def test_plain_text_is_what_needs_no_quotes(text):
    assert is_plain_text(text) == bool(text)


def test_the_password_comes_from_the_environment_and_is_masked(workload):
    sets = ["run.metadata=mysql://me@host:3306/db"]
    loaded = load(workload, sets=sets, environ=PASSWORD)
    assert loaded.config.metadata_password == "s3cret"
    assert loaded.origins["run.metadata_password"] == "environment"
    assert "password **** from STRATEGOS_METADATA_PASSWORD" in effective(loaded)
    shown = [effective(loaded), effective_json(loaded), repr(loaded.config)]
    shown += [loaded.config.model_dump_json(), str(loaded.origins)]
    assert not any("s3cret" in text for text in shown)


def test_without_a_password_in_the_environment_there_is_none(workload):
    loaded = load(workload, environ={})
    assert loaded.config.metadata_password is None
    assert "run.metadata_password" not in loaded.origins


def test_a_config_knows_where_a_key_is_given(workload):
    config = load(workload, sets=["trainer.epochs=2"]).config
    assert str(config.where("data.examples")) == f"{workload}:4:13"
    assert str(config.where("trainer.epochs")) == "--set trainer.epochs=2"
    assert str(config.where("data.spans")) == f"{workload}:4:3"
    assert str(config.where("run.root")) == str(workload)


def test_aliases_that_multiply_are_refused_at_once(workload):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    workload.write_text(workload.read_text() + "\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"more than 100,000 values"):
        load(workload)


@pytest.mark.parametrize("value", ["!!set {a}", "!!python/tuple [1]", "!x {a: 1}"])
def test_a_tag_is_refused_on_a_list_and_a_mapping_as_on_text(workload, value):
    with pytest.raises(ConfigError, match=r"the tag .* is not supported"):
        load(workload, sets=[f"trainer.hyperparameters.units={value}"])
