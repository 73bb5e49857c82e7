from __future__ import annotations

import socket

import pytest

from strategos.components.trainer.gang.ports import Ports, is_taken


def test_ports_are_kept_from_others_until_new_ones_are_taken():
    ports = Ports()
    first = ports.take(2)
    assert len(set(first)) == 2
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", first[0]))
    assert all(map(is_taken, first))
    second = ports.take(2)
    assert not any(map(is_taken, set(first) - set(second)))
    ports.give_back()
    assert not any(map(is_taken, second))
