from __future__ import annotations

import gzip

import numpy as np
import pytest

from strategos.components.records.write import Gzip

pytestmark = pytest.mark.long

STREAMS = 50_000


def test_equal_frames_are_equal_bytes_wherever_the_stream_is_in_memory():
    frames = b"2" + bytes(7) + b"abcd" + 20 * bytes(range(50))
    seen, spacers = set(), []
    for _ in range(STREAMS):
        stream = Gzip()
        seen.add(stream.compress(frames) + stream.flush())
        del stream
        spacers.append(np.empty(1 << 16, np.uint8))  # the next one is elsewhere
    assert len(seen) == 1
    assert gzip.decompress(seen.pop()) == frames
