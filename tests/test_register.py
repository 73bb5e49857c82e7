"""The register of marks, stacks and slow files: tests/support/register.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import register

CHECKOUT = Path(__file__).parents[1]


def test_each_file_of_the_register_exists():
    assert [path for path in register.PATHS if not path.exists()] == []


@pytest.mark.parametrize("mark", register.MARKS)
def test_each_mark_has_a_target_and_a_row_in_contributing(mark):
    assert f"\ntest-{mark}: " in (CHECKOUT / "Makefile").read_text()
    row = f"\n| `{mark}` |"
    assert row in (CHECKOUT / "CONTRIBUTING.md").read_text()
    assert f"(make test-{mark})" in register.MARKS[mark]


def test_parts_of_the_tests_are_together_all_tests(request):
    items = request.session.items
    parts = [register.of_part(items, f"{number}/3") for number in (1, 2, 3)]
    assert Counter(x for part in parts for x in part) == Counter(items)
    files = [{x.path for x in part} for part in parts]
    assert not files[0] & files[1] and not files[1] & files[2]
