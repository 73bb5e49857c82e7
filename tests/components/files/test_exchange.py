"""Files that workers of an engine share with the driver through an object store."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strategos.components.files import exchange, listing, storage
from strategos.components.transform.analyzers import accumulators, spilled

READ = """
import json, pathlib, sys
from strategos.components.files import exchange

folders = [pathlib.Path(exchange.local(sys.argv[1])) for _ in range(2)]
read = {str(p.relative_to(folders[1])): p.read_text() for p in folders[0].rglob("*.*")}
print(json.dumps([str(folders[0]), read]))
"""


def test_workers_elsewhere_read_copies_of_local_folders(
    bucket, bucket_client, warm_tensorflow, tmp_path
):
    content = {"a.txt": "ä", "variables/b.txt": "b"}
    for name, text in content.items():
        storage.write(f"{tmp_path}/graph/{name}", text)
    url = f"{bucket}/store/p/.engine"
    with exchange.sent(url, f"{tmp_path}/graph") as place:
        assert place.startswith(f"{url}/")
        folder, read = warm_tensorflow.script(READ, place).answer()
    assert read == content and not folder.startswith(str(tmp_path))
    left = bucket_client.list_objects_v2(Bucket="bucket")["Contents"]
    assert [each["Key"] for each in left if each["Key"][-1] != "/"] == []


def test_workers_that_see_a_folder_read_it_in_its_place(tmp_path):
    with exchange.sent(None, str(tmp_path)) as place:
        assert exchange.local(place) == str(tmp_path)


@pytest.mark.long
def test_large_counts_of_workers_are_added_up_here(bucket, tmp_path):
    url = f"{bucket}/store/p/.engine/counts"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "_LEAST", 0)
        kind = accumulators.Counted(spilled.Bounds(url, 0))
        state = kind.new()
        for rows in (range(500), range(400, 900)):
            tokens = np.array([b"%d" % n for n in rows], object)
            later = kind.new()
            later.add(pa.array(tokens, pa.large_binary()))
            state = kind.merge(state, kind.compact(later))
        found = state.total(str(tmp_path))
    assert isinstance(found, spilled.Ranked) and len(listing.listed(url)) == 2
    expected = [(1 + (400 <= n < 500), b"%d" % n) for n in range(900)]
    assert list(found) == sorted(expected, reverse=True)
