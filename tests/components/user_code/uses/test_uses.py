"""What user code uses is recorded, however it names files, modules and variables."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.user_code import uses
from strategos.pipeline.root import uses as records


def test_a_copy_of_the_environment_reads_no_variable(workload, monkeypatch):
    monkeypatch.setenv("STRATEGOS_WORKLOAD", "{}")
    workload.run(
        """
        dict(os.environ), os.environ.copy(), {**os.environ}, list(os.environ.items())
        import tempfile
        tempfile.gettempdir()
        os.environ.get("STRATEGOS_WORKLOAD"), os.environ.get("TF_CONFIG")
        """
    )
    assert not {x for x in workload.names() if x.startswith("variable")}


def test_what_is_installed_temporary_or_data_is_left_out(workload):
    for name in ("runs/x.txt", "data/a.csv", "data/a.txt"):
        workload.write(name, "1")
    workload.run(
        """
        import tempfile, this
        for name in ("runs/x.txt", "data/a.csv", "data/a.txt"):
            open(HERE / name).read()
        open(numpy.__file__), open(os.__file__), open("/proc/self/stat")
        tempfile.TemporaryFile().close()
        tempfile.NamedTemporaryFile().close()
        (HERE / "log.txt").write_text("written only")
        """
    )
    assert workload.names() == {"file data/a.txt"}


def test_files_beside_the_target_of_a_linked_module_are_followed(workload):
    shared = workload.parent / "shared"
    shared.mkdir()
    (shared / "linked.py").write_text(
        "import pathlib\n"
        "V = (pathlib.Path(__file__).resolve().parent / 'v.txt').read_text()\n"
    )
    (shared / "v.txt").write_text("1")
    (workload.folder / "linked.py").symlink_to(shared / "linked.py")
    workload.run("import linked")
    (shared / "v.txt").write_text("2")
    assert workload.known().changed == ("file ../shared/v.txt",)


@pytest.mark.parametrize(
    "listing",
    [
        'list((HERE / "parts").glob("*.txt"))',
        'os.listdir(HERE / "parts")',
        'list(os.walk(HERE / "parts"))',
        'tf.io.gfile.listdir(str(HERE / "parts"))',
        'list(tf.io.gfile.walk(f"{HERE}/parts"))',
    ],
)
def test_a_file_that_appears_and_a_name_that_joins_a_listed_folder_count(
    workload, listing
):
    a = workload.write("parts/a.txt", "1")
    workload.run(
        f"""
        {listing}
        try:
            open(HERE / "optional.txt")
        except FileNotFoundError:
            pass
        """
    )
    optional = workload.write("optional.txt", "1")
    assert workload.known().changed == ("file optional.txt",)
    optional.unlink()
    assert workload.known().holds
    a.write_text("2")
    assert workload.known().holds
    workload.write("parts/b.txt", "2")
    assert workload.known().changed == ("folder parts",)


def test_a_file_edited_while_it_is_in_use_is_read_again(workload):
    used = workload.write("v.txt", "1")
    source = "open(HERE / 'v.txt').read()"
    workload.run(source, then=lambda: used.write_text("2"))
    assert workload.known().changed == ("file v.txt",)
    workload.run(source)
    assert workload.known().holds


def test_a_file_that_the_code_itself_writes_is_no_edit(workload):
    workload.run(
        """
        (HERE / "v.txt").write_text("1")
        (HERE / "v.txt").read_text()
        with open(HERE / "v.txt", "a") as file:
            file.write("2")
        """
    )
    assert workload.names() == {"file v.txt"} and workload.known().holds


def test_each_state_of_the_files_has_its_fingerprint(workload):
    used, seen = workload.write("v.txt", "0"), {}
    for value in (0, 1, 2, 1, 0, 2, 3, 0):
        used.write_text(str(value))
        now = workload.known()
        assert now.holds == (value in seen)
        assert seen.setdefault(value, now.fingerprint) == now.fingerprint
        if not now.holds:
            workload.run("open(HERE / 'v.txt').read()")
    assert len(set(seen.values())) == 4


def test_a_killed_node_is_recorded_by_the_next_run(workload):
    used = workload.write("v.txt", "1")
    workload.begin()
    events.emit("node_started")
    with uses.recording():
        used.read_text()
    records.record_killed(workload.store, workload.sink)
    assert workload.known().holds
    used.write_text("2")
    assert workload.known().changed == ("file v.txt",)


def test_only_what_was_killed_in_the_middle_is_recorded_later(workload):
    workload.begin()
    events.emit("node_started")
    events.emit("node_finished")
    records.record_killed(workload.store, workload.sink)
    assert not workload.known().holds


def test_nothing_stays_replaced_and_threads_may_record_at_once(workload):
    before = _replaced()
    used = [workload.write(f"{n}.txt", "1") for n in range(40)]
    workload.begin()

    def read(path):
        for _ in range(20):
            with uses.recording():
                tf.io.read_file(str(path))
                path.read_text()

    threads = [threading.Thread(target=read, args=(path,)) for path in used]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _replaced() == before
    found = events.recorded(workload.sink, uses.EVENT)
    assert sorted(
        x["file"] for x in found if x.get("file") in map(str, used)
    ) == sorted(map(str, used))
    used[0].with_name("later.txt").write_text("1")
    used[0].with_name("later.txt").read_text()
    assert events.recorded(workload.sink, uses.EVENT) == found


def _replaced():
    return (
        *(type(os.environ), tf.io.read_file, tf.io.gfile.glob, tf.io.gfile.GFile),
        *(tf.io.gfile.GFile.__base__.__init__, tf.data.TextLineDataset.__init__),
        *(tf.lookup.TextFileInitializer.__init__, pa.memory_map, pa.OSFile),
    )
