"""A broker process that clients talk to, with the coordinator in memory and with ZooKeeper."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.coordination import ZooKeeperCoordinator
from headwater_broker.testing import RunningBroker, broker
from support.processes import free_port

READY_TIMEOUT_S = 60


class BrokerProcess:
    """`python -m headwater_broker` on a port of its own, which it keeps over restarts."""

    def __init__(self, directory: Path, shared_state: list[str], broker_id: int = 1) -> None:
        self.data = directory / f"broker-{broker_id}" / "log"
        self.stderr = directory / f"broker-{broker_id}.stderr"
        self.bootstrap = ""
        self.ready_cpu_s = 0.0
        self._broker_id = broker_id
        self._shared_state = shared_state
        self._port = free_port()
        self._process: subprocess.Popen[str] | None = None

    def start(self, *settings: str) -> BrokerProcess:
        """Starts it and waits until it is ready."""
        command = [sys.executable, "-m", "headwater_broker", "--id", str(self._broker_id)]
        command += ["--listen", f"127.0.0.1:{self._port}", "--data", str(self.data), *self._shared_state]
        for setting in (
            "group.initial.rebalance.delay.ms=200",
            "group.min.session.timeout.ms=1000",
            *settings,
        ):
            command += ["--set", setting]
        with self.stderr.open("ab") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), self.log()
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        self.ready_cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.bootstrap = line.split()[1]
        return self

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(timeout=READY_TIMEOUT_S)
        self._forget()
        return status

    def _forget(self) -> None:
        assert self._process is not None
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def log(self) -> str:
        """What it logged."""
        return self.stderr.read_text(errors="replace")

    def resident_kb(self) -> int:
        """Resident memory."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"))
        assert found is not None
        return int(found[1])


@pytest.fixture(params=["memory", "zookeeper"])
def broker_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that is ready, once for each kind of shared state."""
    if request.param == "memory":
        shared_state = ["--coordinator", "memory"]
    else:
        server = request.getfixturevalue("zookeeper")
        shared_state = ["--zookeeper", f"{server.hosts}/{tmp_path.name}-{os.getpid()}"]
    process = BrokerProcess(tmp_path, shared_state).start()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="session")
def broker_process_class() -> type[BrokerProcess]:
    """For tests that start several brokers, or one with settings of their own."""
    return BrokerProcess


@pytest.fixture(scope="module", params=["memory", "zookeeper"])
def any_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A broker in this process, once for each kind of shared state; a test keeps to names of its own."""
    coordinator = None
    if request.param == "zookeeper":
        hosts = request.getfixturevalue("zookeeper").hosts
        coordinator = ZooKeeperCoordinator(f"{hosts}/{tmp_path_factory.mktemp('chroot').name}-{os.getpid()}")
    with broker(coordinator=coordinator) as running:
        yield running


@pytest.fixture(scope="session")
def class_path() -> str:
    """kafka-clients as `headwater setup` fetched it, and what it needs of pyspark's jars."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("needs a JDK: java and javac")
    clients = sorted(Path(sys.prefix).glob("share/headwater/jars/kafka-clients-*.jar"))
    spark = importlib.util.find_spec("pyspark")
    if not clients or spark is None or spark.origin is None:
        pytest.skip("needs kafka-clients (headwater setup) and pyspark's jars")
    jars = Path(spark.origin).parent / "jars"
    return ":".join([str(clients[-1]), *map(str, jars.glob("slf4j-api-*.jar"))])


@pytest.fixture
def admin(any_broker: RunningBroker) -> AdminClient:
    """An operator's client of that broker."""
    return AdminClient({"bootstrap.servers": any_broker.bootstrap})


@pytest.fixture
def new_topic(admin: AdminClient) -> Callable[[int], str]:
    """Makes a topic of so many partitions that only the test knows."""

    def made(partitions: int) -> str:
        name = f"topic-{uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=READY_TIMEOUT_S)[name].result(
            READY_TIMEOUT_S
        )
        return name

    return made
