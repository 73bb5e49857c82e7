"""`clean --records`: what stays is as before, by each command; what is gone is said."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.long

CLEAN = ("--records", "--keep", "1", "--older-than", "0s")


@pytest.fixture(scope="module")
def cleaned(small):
    """Four runs and models, of which two versions stay; records before and after."""
    small.yaml.write_text(small.yaml.read_text().replace("small}", "small, keep: 2}"))
    runs = []
    for seed in range(4):
        small.run("--set", f"trainer.seed={seed}")
        runs.append(small.last_run()["run_id"])
    before = shown(small, runs)
    listed = json.loads(clean(small, "--json").stdout)
    records = [x["path"] for x in listed if x["kind"] == "record of a run"]
    assert records == [runs[1]]  # run 0 made the data of all
    assert shown(small, runs) == before
    clean(small, "--delete")
    return small, runs, before


def clean(small, *words):
    return small.strategos("clean", str(small.yaml), *CLEAN, *words)


def shown(small, runs):
    """What the commands say of runs and versions."""
    yaml = str(small.yaml)
    models = small.strategos("models", yaml, "--json").stdout
    found = {"models": json.loads(models)}
    for run in runs:
        for words in (("runs", "show", run), ("lineage", run)):
            said = small.strategos(*words, yaml, "--json").stdout
            found[run, words[0]] = json.loads(said)
        # It compares with earlier runs, which may be gone.
        assert run in small.strategos("explain", "run", run, yaml).stdout
    return found


def test_what_stays_is_as_before(cleaned):
    small, runs, before = cleaned
    after = shown(small, [runs[0], *runs[2:]])
    assert after["models"] == before["models"]
    for key in set(after) - {"models"}:
        assert after[key] == before[key], key


def test_records_that_are_gone_are_said_to_be_removed(cleaned):
    small, runs, _ = cleaned
    for words in (("runs", "show"), ("lineage",), ("reproduce",)):
        done = small.strategos(*words, runs[1], str(small.yaml), expect=None)
        assert done.returncode in (1, 2)
        assert "`strategos clean --records` removed those of older runs" in done.stderr
    both = (runs[1], runs[3])
    done = small.strategos("runs", "compare", *both, str(small.yaml), expect=None)
    assert "removed those of older runs" in done.stderr


def test_runs_go_on_with_cache_baseline_and_rollback(cleaned, tmp_path):
    small, runs, _ = cleaned
    small.run("--set", "trainer.seed=3")
    assert {*small.states().values()} == {"cached"}
    again = ("reproduce", runs[2], str(small.yaml), "--to", str(tmp_path / "again"))
    found = json.loads(small.strategos(*again, "--json").stdout)
    assert found["equal"]
    small.strategos("rollback", str(small.yaml))
    small.run("--set", "trainer.seed=5")
    assert small.last_run()["outcome"] == "blessed"
    assert small.last_run()["summary"]["baseline"] is not None
    clean(small, "--delete")
    assert small.states()["Trainer"] == "complete"
