"""Changes between two states: none of them is the first state, all are the second."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from strategos.pipeline.comparing import separable
from strategos.pipeline.comparing.separable import CODE, DATA, SETTINGS
from strategos.pipeline.made_from.record import DataFile, MadeFrom

_LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "d"]), max_size=12)
_FILES = st.dictionaries(st.sampled_from(["a.py", "b.py", "c.py"]), _LINES.map("".join))
_VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
)
_DATA = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from("ab")), st.sampled_from("123")
)


@st.composite
def states(draw):
    code = {name: text.encode() for name, text in draw(_FILES).items()}
    files = [
        DataFile(span, f"/w/data/span-{span}/{name}.csv", digest)
        for (span, name), digest in sorted(draw(_DATA).items())
    ]
    return state(code, files, trainer={"warm_start": None, "extra": draw(_VALUES)})


def state(code, files=(), folder="/w", **settings):
    settings = {"data": {"examples": "/w/data/span-{SPAN}/*.csv"}, **settings}
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in code.items()}
    yaml = f"{folder}/pipeline.yaml"
    made = MadeFrom(settings, yaml, digests, {}, tuple(files), "", {})
    return separable.State(made, code)


def all_changes(first, second):
    return [x for group in separable.changes(first, second) for x in group]


@given(states(), states())
def test_all_changes_make_the_second_state_and_none_the_first(first, second):
    changes = all_changes(first, second)
    assert len({change.name for change in changes}) == len(changes)
    for chosen, expected in (([], first), (changes, second)):
        made = separable.mixed(first, chosen)
        assert made.code == expected.code
        assert made.made_from.code == expected.made_from.code
        assert made.made_from.settings == expected.made_from.settings
        wanted = {(x.span, x.digest) for x in expected.made_from.data}
        assert {(x.span, x.digest) for x in made.made_from.data} == wanted or (
            _has_moved(first, second)
        )


def _has_moved(first, second):
    """A file that was only moved is no change: its first path stays."""
    pairs = [{x.path: x.digest for x in s.made_from.data} for s in (first, second)]
    gone = {pairs[0][x] for x in pairs[0].keys() - pairs[1].keys()}
    new = {pairs[1][x] for x in pairs[1].keys() - pairs[0].keys()}
    return bool(gone & set(pairs[1].values()) or new & set(pairs[0].values()))


@given(states(), states(), st.data())
def test_blocks_of_a_file_are_changed_apart_from_the_others(first, second, data):
    changes = all_changes(first, second)
    chosen = [each for each in changes if data.draw(st.booleans())]
    made = separable.mixed(first, chosen)
    rest = all_changes(made, second)
    assert separable.mixed(made, rest).code == second.code
    untouched = {x.name.partition(" ")[0] for x in chosen if x.kind == CODE}
    for name in first.code.keys() - untouched:
        assert made.code[name] == first.code[name]


def test_changes_have_kind_name_and_detail():
    lines = [f"x{n}\n" for n in range(20)]
    after = [*lines[:4], "new\n", *lines[5:12], *lines[14:]]
    first = state(
        {"model.py": "".join(lines).encode(), "old.bin": b"\xff"},
        [
            DataFile(1, "/w/data/span-1/a.csv", "1"),
            DataFile(2, "/w/data/span-2/a.csv", "2"),
        ],
        trainer={"epochs": 1, "seed": 1},
        evaluator={"bounds": {"auc": {"at_least": 0.5}}},
    )
    second = state(
        {"model.py": "".join(after).encode(), "new.py": b"pass\n"},
        [
            DataFile(2, "/w/data/span-2/a.csv", "2"),
            DataFile(3, "/w/data/span-3/a.csv", "3"),
            DataFile(3, "/w/data/span-3/b.csv", "4"),
        ],
        trainer={"epochs": 2, "seed": 1},
        evaluator={"bounds": {"auc": {"at_least": 0.6}}},  # changes no metric
    )
    found = [(x.kind, x.name, x.detail) for x in all_changes(first, second)]
    assert found == [
        (DATA, "data/span-1/a.csv", "1 file removed"),
        (DATA, "data/span-3", "2 files added"),
        (CODE, "model.py line 5", "changed"),
        (CODE, "model.py lines 13-14", "changed"),
        (CODE, "new.py", "added"),
        (CODE, "old.bin", "removed"),
        (SETTINGS, "trainer.epochs", "1 → 2"),
    ]
    block = all_changes(first, second)[2]
    assert "-x4" in block.diff
    assert "+new" in block.diff and "-x12" not in block.diff


def test_a_workload_that_was_moved_has_not_changed():
    first = state({}, folder="/w", schema={"file": "/w/schema.pbtxt"})
    second = state({}, folder="/v", schema={"file": "/v/schema.pbtxt"})
    assert all_changes(first, second) == []
