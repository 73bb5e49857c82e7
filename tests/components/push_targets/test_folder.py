"""Versions in a folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.push_targets import reports, targets


def push(model, serving, keep, clock=time.time):
    target = targets.of(str(serving), clock)
    return Path(target.path(target.push(model, keep)))


def versions(serving):
    return targets.of(str(serving)).versions()


def at(seconds):
    return lambda: float(seconds)


def test_version_is_the_time_and_holds_the_model(model, serving):
    folder = push(str(model), serving, keep=3, clock=at(1700000000.9))
    assert folder == serving / "1700000000"
    assert (folder / "saved_model.pb").read_bytes() == b"new"
    assert (folder / "variables" / "variables.index").read_bytes() == b"new"


def test_version_rises_even_if_the_clock_does_not(model, serving):
    for _ in range(2):
        push(str(model), serving, keep=5, clock=at(100))
    push(str(model), serving, keep=5, clock=at(50))
    assert versions(serving) == [100, 101, 102]


def test_newest_versions_are_kept_and_other_files_left_alone(
    model, serving, saved_model
):
    saved_model(serving / "readme", b"not a version")
    for second in range(10, 15):
        push(str(model), serving, keep=2, clock=at(second))
    assert versions(serving) == [13, 14]
    assert sorted(os.listdir(serving)) == ["13", "14", "readme"]


def test_remains_of_a_crash_are_removed_and_never_counted(model, serving, saved_model):
    saved_model(serving / ".tmp-99", b"half")
    push(str(model), serving, keep=3, clock=at(7))
    assert os.listdir(serving) == ["7"]


def test_a_link_among_the_versions_is_removed_and_what_it_names_stays(
    model, serving, saved_model
):
    precious = saved_model(serving.parent / "precious", b"keep")
    serving.mkdir()
    for name in ("5", ".tmp-6", "7"):  # dangling: 7
        (serving / name).symlink_to(precious if name != "7" else "nowhere")
    assert versions(serving) == [5]
    for second in (10, 11, 12):
        push(str(model), serving, keep=2, clock=at(second))
    assert sorted(os.listdir(serving)) == ["11", "12", "7"]
    assert (precious / "saved_model.pb").read_bytes() == b"keep"


def test_a_push_ends_well_where_an_old_version_cannot_be_removed(
    as_another_user, capsys, saved_model
):
    serving = as_another_user / "serving"
    model = saved_model(as_another_user / "model", b"new")
    push(str(model), serving, keep=1, clock=at(1))
    (serving / "1" / "variables").chmod(0o555)
    assert push(str(model), serving, keep=1, clock=at(2)) == serving / "2"
    assert versions(serving) == [2]
    # Python 3.13 names the folder of the file.
    found = re.sub(r"variables\.index", "variables", capsys.readouterr().err)
    assert found == (
        f"strategos: {serving}/1 cannot be removed because of variables in it: "
        "Permission denied. Remove it by hand.\n"
    )
    assert push(str(model), serving, keep=1, clock=at(3)) == serving / "3"
    (serving / ".tmp-1" / "variables").chmod(0o755)


@pytest.mark.parametrize(
    ("name", "following"),
    [
        *((str(2**63), 8), ("9" * 30, 8), ("٣", 8), ("-9", 8), ("abc", 8)),
        *(("0009", 10), ("30", 31), (str(2**63 - 2), 2**63 - 1)),
    ],
)
def test_a_new_version_is_one_that_tensorflow_serving_loads(
    model, serving, name, following, saved_model
):
    saved_model(serving / name, b"old")
    listed = [int(name)] if name in ("30", str(2**63 - 2)) else []
    assert versions(serving) == listed
    assert push(str(model), serving, keep=5, clock=at(8)).name == str(following)


def test_nothing_is_pushed_where_no_number_is_left(model, serving, saved_model):
    saved_model(serving / str(2**63 - 1), b"old")
    with pytest.raises(UserError, match=f"{2**63 - 1} has the largest number"):
        push(str(model), serving, keep=5)
    assert os.listdir(serving) == [str(2**63 - 1)]


def test_copies_by_rollbacks_displace_no_other_model(model, serving):
    target = targets.of(str(serving), at(1))
    for number in "ABC":
        about = {"model": ord(number), "fingerprint": "f"}
        target.push(str(model), 3, about)
    for origin in (2, 1, 3, 1, 3, 1):
        target.push(target.path(origin), 3)
    models = [chr(target.manifest(each)["model"]) for each in target.versions()]
    assert "".join(models) == "ABCBACA"
    target.push(str(model), 3, {"model": ord("D"), "fingerprint": "f"})
    models = [chr(target.manifest(each)["model"]) for each in target.versions()]
    assert "".join(models) == "ACCAD"


def write_with_limit(model, serving, on_limit):
    """Pushes in a process that cannot write a file larger than 4096 bytes."""
    code = f"""
import resource, signal
from strategos.components.push_targets import reports, targets
signal.signal(signal.SIGXFSZ, signal.{on_limit})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
targets.of({str(serving)!r}).push({str(model)!r}, 3)
"""
    child = [sys.executable, "-c", code]
    return subprocess.run(child, capture_output=True, text=True)


def test_killed_in_the_middle_leaves_no_half_version(model, serving):
    (model / "variables" / "variables.data").write_bytes(b"x" * 100_000)
    child = write_with_limit(model, serving, "SIG_DFL")
    assert child.returncode == -signal.SIGXFSZ
    (aside,) = os.listdir(serving)
    assert aside.startswith(".tmp-") and versions(serving) == []
    folder = push(str(model), serving, keep=3)
    assert os.listdir(serving) == [folder.name]


def test_failed_write_leaves_nothing_and_the_old_versions(model, serving):
    push(str(model), serving, keep=3, clock=at(5))
    (model / "variables" / "variables.data").write_bytes(b"x" * 100_000)
    child = write_with_limit(model, serving, "SIG_IGN")
    assert "the model cannot be written there" in child.stderr
    assert os.listdir(serving) == ["5"]


@pytest.fixture
def small_disk(serving):
    serving.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(serving)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    yield serving
    subprocess.run(["umount", str(serving)], check=True)


def test_full_disk_is_named_once_and_the_old_version_stays(model, small_disk):
    push(str(model), small_disk, keep=3, clock=at(5))
    for name in ("a", "b"):
        (model / "variables" / name).write_bytes(b"x" * 100_000)
    told = f"no room for another version on the disk mounted at {small_disk} ("
    with pytest.raises(UserError) as failure:
        push(str(model), small_disk, keep=3)
    assert str(failure.value).count(told) == 1
    assert "Errno" not in str(failure.value)
    assert os.listdir(small_disk) == ["5"]
    assert (small_disk / "5" / "saved_model.pb").read_bytes() == b"new"
    (model / "variables" / "a").unlink()
    (model / "variables" / "b").write_bytes(b"x" * 20_000)
    push(str(model), small_disk, keep=3)
    assert len(versions(small_disk)) == 2


def test_destination_that_cannot_be_written_names_the_setting(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"pusher\.to: .*/file/serving: .*cannot be"):
        push(str(model), tmp_path / "file" / "serving", keep=3)


def test_a_report_stays_as_long_as_its_version(model, serving):
    target = targets.of(str(serving))
    for second in (10, 11, 12):
        push(str(model), serving, keep=2, clock=at(second))
        reports.write(target, second, f"page of {second}")
    assert (versions(serving), target.newest()) == ([11, 12], 12)
    assert reports.listed(target.uri) == {
        number: f"{serving}/reports/{number}.html" for number in (11, 12)
    }
    assert (serving / "reports" / "12.html").read_text() == "page of 12"
    target.remove(12)
    assert not reports.exists(target, 12) and reports.exists(target, 11)
