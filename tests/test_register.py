"""The register of marks, stacks and slow files: tests/support/register.py."""

from __future__ import annotations

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
