"""`strategos init`: from a table as people have them to a model that is blessed."""

from __future__ import annotations

import datetime
import json
import math
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from strategos.components.records import streams

ROWS = 1500
LABEL = "Kündigung?"
NOTES = ["good", "slow", "never again", "too dear", "fine"]


def _write_customers(path) -> dict[str, list]:
    """A table with what real files hold; returns its columns before they are spelled.

    The label depends on smoking, the income, the weekday and a word of the note.
    """
    random = np.random.default_rng(1)
    start = datetime.date(2023, 1, 1)
    days = [start + datetime.timedelta(int(d)) for d in random.integers(0, 500, ROWS)]
    incomes = np.exp(random.normal(7, 1, ROWS)).round(2)
    smokers = random.choice(["yes", "Y", "no", "No", ""], ROWS)
    notes = [" ".join(random.choice(NOTES, random.integers(2, 6))) for _ in days]
    signal = 2.0 * np.char.startswith(np.char.lower(smokers), "y")
    signal += np.array([2.0 * (day.weekday() >= 5) for day in days])
    signal += np.array([2.0 * ("slow" in note) for note in notes])
    signal += np.log(incomes) - 7 + random.normal(size=ROWS)
    leaves = signal > np.median(signal)
    columns = {
        "customer no.": [str(5000 + number) for number in range(ROWS)],
        "Größe (cm)": [
            f"{v:.1f}" if v > 160 else "" for v in random.normal(175, 10, ROWS)
        ],
        "income [€]": [
            f"{v:,.2f} €".translate(str.maketrans(",.", ".,")) for v in incomes
        ],
        "since": [f"{day:%d.%m.%Y}" for day in days],
        "smoker": smokers.tolist(),
        "town": random.choice(["Bonn", "Köln", 'Ulm "Süd"'], ROWS).tolist(),
        "note": notes,
        "empty": [""] * ROWS,
        "source": ["web"] * ROWS,
        LABEL: [random.choice(["yes", "Yes"]) if each else "no" for each in leaves],
    }
    quoted = [
        [each.replace('"', '""') for each in row]
        for row in zip(*columns.values(), strict=True)
    ]
    lines = [",".join(f'"{each}"' for each in row) for row in [list(columns), *quoted]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return columns | {"days": days, "incomes": incomes.tolist()}


def _initialized(make_workspace, folder, data, label, *options):
    """A workspace of the workload that `init` writes for a file, and its output."""
    elsewhere = make_workspace(folder / "elsewhere")
    words = ("init", data, "--label", label, *options)
    done = elsewhere.call(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return make_workspace(folder / data.split(".")[0]), done.stdout


def _rows(folder, node: str) -> dict[str, list]:
    """All rows of an output's examples, by column."""
    (examples,) = folder.glob(f"runs/*/{node}/*examples/*")
    batches = [
        batch
        for split in ("train", "validation", "eval")
        for file in sorted((examples / streams.folder(split)).iterdir())
        for batch in streams.batches(str(file))
    ]
    return pa.Table.from_batches(batches).to_pydict()


@pytest.mark.long
def test_a_table_of_flaws_becomes_a_blessed_model_by_two_commands(
    tmp_path, make_workspace
):
    table = _write_customers(tmp_path / "customers.csv")
    made = _initialized(make_workspace, tmp_path, "customers.csv", LABEL, "--baseline")
    workspace, printed = made
    beside = re.search(r"gradient-boosted trees \(scikit-learn\) ([\d.]+);", printed)
    assert 0.6 < float(beside[1]) <= 1
    settings = yaml.safe_load(workspace.yaml.read_text(encoding="utf-8"))
    least = settings["evaluator"]["bounds"]["auc"]["at_least"]
    assert 0.6 < least < 0.95  # the label can be told, though not without error

    workspace.run()  # blessed
    assert workspace.states()["Trainer"] == "cached"
    *_, report = sorted(workspace.folder.glob("runs/.strategos/runs/*/report.html"))
    shown = re.search(r"Gradient-boosted trees.*?auc (\d\.\d+)", report.read_text())
    assert float(shown[1]) == pytest.approx(float(beside[1]), abs=1e-3)

    raw, made = (_rows(workspace.folder, node) for node in ("ExampleGen", "Transform"))
    place = {number: index for index, number in enumerate(table["customer no."])}
    rows = [place[str(number)] for number in raw["customer no."]]
    assert sorted(rows) == list(range(ROWS))
    logarithms = np.log1p(table["incomes"])[rows]
    scaled = (logarithms - logarithms.mean()) / logarithms.std()
    assert np.corrcoef(scaled, made["income"])[0, 1] == pytest.approx(1, abs=1e-6)
    weekdays = set()
    for index, row in enumerate(rows):
        sine, cosine = made["since"][index][3:5]
        weekday = round(math.atan2(sine, cosine) * 7 / (2 * math.pi))
        weekdays.add((weekday - table["days"][row].weekday()) % 7)
        assert made["smoker"][index] == table["smoker"][row].startswith(("y", "Y"))
        assert made[LABEL][index] == (table[LABEL][row] != "no")
        assert made["groe_cm_missing"][index] == (not table["Größe (cm)"][row])
    assert len(weekdays) == 1  # each day of the week has an angle of its own

    (tmp_path / "rows.csv").write_text(
        "customer no.,Größe (cm),income [€],since,smoker,town,note,empty,source\n"
        '1,,"9.000,00 €",07.01.2023,Y,Bonn,slow slow,,web\n'
        '2,170,"50,00 €",03.01.2023,no,Bonn,fine good,,web\n',
        encoding="utf-8",
    )
    rows_file = str(tmp_path / "rows.csv")
    done = workspace.strategos("predict", str(workspace.yaml), rows_file, "--json")
    leaves, stays = (
        json.loads(line)["predictions"] for line in done.stdout.splitlines()
    )
    assert leaves > 0.8 > 0.2 > stays
    words = ("predict", str(workspace.yaml), rows_file, "--json", "--explain")
    first, _ = map(json.loads, workspace.strategos(*words).stdout.splitlines())
    facts = first["explanation"]["predictions"]
    parts = {each["feature"]: each["contribution"] for each in facts["contributions"]}
    # The background is the training: the base is about the share of those who leave.
    share = np.mean([value != "no" for value in table[LABEL]])
    assert facts["base"] == pytest.approx(share, abs=0.15)
    assert facts["base"] + sum(parts.values()) == pytest.approx(leaves, abs=1e-5)
    assert parts["smoker"] > 0


@pytest.mark.long
def test_columns_of_each_type_of_a_parquet_file_become_features(
    tmp_path, make_workspace
):
    random = np.random.default_rng(4)
    lengths = random.integers(0, 4, ROWS)
    several = [random.normal(size=length).tolist() for length in lengths]
    wanted = random.normal(size=ROWS)
    columns = {
        "flag": (wanted > 0).tolist(),
        "time": [datetime.datetime(2024, 1, 1, 6, 30)] * (ROWS - 1)
        + [datetime.datetime(2024, 7, 1, 18, 30)],
        "vector": random.normal(size=(ROWS, 3)).tolist(),
        "several": several,
        "tags": [["a", "b", "a"][:length] for length in lengths],
        "picture": [bytes([200, 201, number % 250]) for number in range(ROWS)],
        "skewed": (-np.exp(random.normal(0, 2, ROWS))).tolist(),
        "code": [f"c{number}" for number in random.integers(0, 1300, ROWS)],
        'a "name"\n': (100 * wanted).astype(int).tolist(),
        "dense": random.normal(size=ROWS).tolist(),
        "key": list(range(ROWS)),
        "target": (wanted + random.normal(0, 0.5, ROWS)).tolist(),
    }
    pq.write_table(pa.table(columns), tmp_path / "types.parquet")
    workspace, printed = _initialized(
        make_workspace, tmp_path, "types.parquet", "target"
    )
    assert "bytes that are not text" in printed
    workspace.run()  # blessed
    raw, made = (_rows(workspace.folder, node) for node in ("ExampleGen", "Transform"))
    rows = raw["key"]
    assert sorted(rows) == list(range(ROWS))
    means = np.array([np.mean(several[row] or [0.0]) for row in rows])
    assert np.corrcoef(means, made["several"])[0, 1] == pytest.approx(1, abs=1e-6)
    vectors = np.array(columns["vector"])[rows]
    z_scores = (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)
    assert np.array(made["vector"]) == pytest.approx(z_scores, abs=0.2)
    skewed = np.array(columns["skewed"])[rows]
    below = (skewed[:, np.newaxis] > skewed).mean(axis=1)
    assert np.array(made["skewed"]) == pytest.approx(
        np.floor(10 * below) / 10, abs=0.11
    )
    for index, row in enumerate(rows):
        counts = np.expm1(made["tags"][index])
        assert (
            sorted(counts[counts > 0].round(5))
            == [[], [1], [1, 1], [1, 2]][lengths[row]]
        )


@pytest.mark.parametrize(
    "chosen", ["settings", pytest.param("epoch", marks=pytest.mark.faults)]
)
def test_the_tests_of_a_new_workload_pass(tmp_path, make_workspace, chosen):
    random = np.random.default_rng(2)
    kinds = random.integers(0, 3, 300)
    sizes = kinds + random.normal(0, 0.3, 300)
    lines = [
        "size,kind",
        *(f"{s:.2f},{'abc'[k]}" for s, k in zip(sizes, kinds, strict=True)),
    ]
    (tmp_path / "flowers.csv").write_text("\n".join(lines) + "\n")
    options = ("kind", "--no-fit")
    workspace, _ = _initialized(make_workspace, tmp_path, "flowers.csv", *options)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", chosen],
        cwd=workspace.folder,
        env=workspace.cold_environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_a_model_of_noise_is_not_blessed(tmp_path, make_workspace):
    random = np.random.default_rng(3)
    lines = ["a,b,y"]
    lines += [
        f"{random.normal():.4f},{random.normal():.4f},{random.integers(0, 2)}"
        for _ in range(1000)
    ]
    (tmp_path / "noise.csv").write_text("\n".join(lines) + "\n")
    workspace, printed = _initialized(make_workspace, tmp_path, "noise.csv", "y")
    assert "cannot be told" in printed
    workspace.strategos("run", str(workspace.yaml), expect=3)
