from __future__ import annotations

import pytest

from strategos.components import wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (102, "1 min 42 s"),
        (7500, "2 h 05 min"),
        (47.9 * 3600, "47 h 54 min"),
        (48 * 3600, "2 days"),
        (76 * 3600, "3 days 4 h"),
    ],
)
def test_durations(seconds, text):
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (999_700, "1 MB"),
        (12_345_678, "12.3 MB"),
        (1.5e12, "1,500.0 GB"),
    ],
)
def test_sizes(number, text):
    assert wording.data_size(number) == text


def test_counts():
    assert wording.counted(1, "file") == "1 file"
    assert wording.counted(1234, "file") == "1,234 files"
    assert wording.counted(2, "anomaly", "anomalies") == "2 anomalies"


def test_lists():
    assert [wording.listed("abc"[:n]) for n in range(4)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_names_of_a_wide_table_do_not_flood_a_message():
    columns = [f"c{number}" for number in range(2000)]
    assert wording.choices(columns[:3]) == "c0, c1, c2"
    assert wording.choices(columns).endswith("c11 and 1,988 more")
    assert wording.choices([]) == "none"


def test_the_nearest_name_is_asked_for():
    columns = ["price", "carat"]
    assert wording.did_you_mean("prize", columns) == "Did you mean `price`?"
    assert wording.did_you_mean("x", columns, "Remove it.") == "Remove it."
