"""The memory that a process may use: the machine's, or its control groups'."""

from __future__ import annotations

import pytest

from strategos.components.limits import control_groups

V1 = "4:memory:/a\n3:cpu,cpuacct:/a/b\n1:name=systemd:/a\n"
UNLIMITED = "9223372036854771712\n"  # as version 1 writes it


@pytest.mark.parametrize(
    ("groups", "files", "kilobytes"),
    [
        ("", {}, 8_000_000),
        ("0::/\n", {"memory.max": "max\n"}, 8_000_000),
        ("0::/\n", {"memory.max": "1024000\n"}, 1_000),  # a container
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "2048000"}, 2_000),
        (V1, {"memory/a/memory.limit_in_bytes": UNLIMITED}, 8_000_000),
        (V1, {"memory/memory.limit_in_bytes": "3072000"}, 3_000),
    ],
)
def test_memory_follows_the_limits_of_the_control_groups(
    tmp_path, groups, files, kilobytes
):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    (tmp_path / "proc/meminfo").write_text("MemTotal:  8000000 kB\nMemFree: 1 kB\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert control_groups.memory(tmp_path) == kilobytes * 1024
