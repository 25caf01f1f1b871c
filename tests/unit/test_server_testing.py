"""The broker that tests run in their own process."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from headwater_broker.server import UsageError
from headwater_broker.testing import broker


def test_broker_listens_while_the_block_lasts_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with broker(tmp_path) as running:
        with socket.create_connection((running.host, running.port)):
            pass
        assert running.bootstrap == f"127.0.0.1:{running.port}"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((running.host, running.port))
    assert set(threading.enumerate()) == before
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_broker_on_the_same_directory_again_keeps_its_cluster(tmp_path: Path) -> None:
    with broker(tmp_path):
        first = (tmp_path / "meta.properties").read_text(encoding="ascii")
    with broker(tmp_path):
        again = (tmp_path / "meta.properties").read_text(encoding="ascii")
    assert "cluster.id=" in first
    assert [line for line in first.splitlines() if line[0] != "#"] == [
        line for line in again.splitlines() if line[0] != "#"
    ]


def test_broker_two_at_a_time_are_apart() -> None:
    with broker() as one, broker() as other:
        assert one.port != other.port
        assert one.data_dir != other.data_dir


def test_broker_unknown_property_is_refused() -> None:
    with pytest.raises(UsageError, match=r"num\.partitions"), broker(properties={"num.partition": "3"}):
        pass


def test_broker_data_directory_that_is_a_file_is_refused_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    file = tmp_path / "file"
    file.write_text("", encoding="ascii")
    with pytest.raises(OSError, match="file"), broker(file):
        pass
    assert set(threading.enumerate()) == before
