"""The broker that tests run in their own process."""

from __future__ import annotations

import contextlib
import gc
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwater_broker.server import UsageError
from headwater_broker.testing import RunningBroker, WireClient
from headwater_broker.testing import broker as run_broker
from headwater_broker.wire.apis import HEARTBEAT, METADATA


def test_broker_listens_while_the_block_lasts_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with run_broker(tmp_path) as running:
        with socket.create_connection((running.host, running.port)):
            pass
        assert running.bootstrap == f"127.0.0.1:{running.port}"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((running.host, running.port))
    assert set(threading.enumerate()) == before
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_broker_stops_in_the_middle_of_requests_without_a_warning() -> None:
    """A handler that never began is a RuntimeWarning, which is an error here."""
    stopped = threading.Event()

    def ask(bootstrap: str) -> None:
        with contextlib.suppress(OSError), WireClient(bootstrap) as client:
            while not stopped.is_set():
                client.send(HEARTBEAT, 2, group_id="g", generation_id=1, member_id="m")

    for _ in range(3):
        stopped.clear()
        with run_broker() as running:
            clients = [threading.Thread(target=ask, args=(running.bootstrap,)) for _ in range(4)]
            for client in clients:
                client.start()
            time.sleep(0.05)
        stopped.set()
        for client in clients:
            client.join()
        gc.collect()


def test_broker_on_the_same_directory_again_keeps_its_cluster(tmp_path: Path) -> None:
    with run_broker(tmp_path):
        first = (tmp_path / "meta.properties").read_text(encoding="ascii")
    with run_broker(tmp_path):
        again = (tmp_path / "meta.properties").read_text(encoding="ascii")
    assert "cluster.id=" in first
    assert [line for line in first.splitlines() if line[0] != "#"] == [
        line for line in again.splitlines() if line[0] != "#"
    ]


def test_broker_two_at_a_time_are_apart() -> None:
    with run_broker() as one, run_broker() as other:
        assert one.port != other.port
        assert one.data_dir != other.data_dir


def test_broker_unknown_property_is_refused() -> None:
    with pytest.raises(UsageError, match=r"num\.partitions"), run_broker(properties={"num.partition": "3"}):
        pass


def test_broker_data_directory_that_is_a_file_is_refused_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    file = tmp_path / "file"
    file.write_text("", encoding="ascii")
    with pytest.raises(OSError, match="file"), run_broker(file):
        pass
    assert set(threading.enumerate()) == before


def test_broker_fixture_is_empty_and_answers(broker: RunningBroker) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        assert client.ask(METADATA, 1, topics=None).topics == ()


@pytest.mark.broker(properties={"num.partitions": "3"}, broker_id=7)
def test_broker_fixture_takes_options_from_its_marker(broker: RunningBroker) -> None:
    with WireClient(broker.bootstrap) as client:
        for _ in range(2):  # who makes a topic by asking is told to ask again
            answer = client.ask(METADATA, 4, topics=[{"name": "made"}], allow_auto_topic_creation=True)
        assert [node.node_id for node in answer.brokers] == [7]
        assert len(answer.topics[0].partitions) == 3


def test_broker_is_ready_in_a_tenth_of_a_second() -> None:
    def start_s() -> float:
        worked = time.process_time()
        with run_broker() as running, WireClient(running.bootstrap) as client:
            client.ask(METADATA, 1, topics=None)
            return time.process_time() - worked

    # It is 10 ms of work; how long a busy machine takes for that says nothing about it.
    assert min(start_s() for _ in range(5)) < 0.1


def test_broker_comes_back_on_its_port(tmp_path: Path) -> None:
    with run_broker(tmp_path) as first:
        pass
    with run_broker(tmp_path, port=first.port) as again:
        assert again == first


EXAMPLE = """
import pytest
from headwater_broker.testing import broker

def test_fixture(broker):
    assert broker.bootstrap.startswith("127.0.0.1:")

@pytest.mark.broker(broker_id=3)
def test_marked(broker): ...

def test_context():
    with broker() as running:
        assert running.port
"""


def test_broker_fixture_and_function_of_one_name_are_both_there_for_anybody(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLE, encoding="ascii")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--strict-markers",
        "-p",
        "headwater_broker.pytest_plugin",
    ]
    command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
