"""A real ZooKeeper for the tests: the server from the jars inside the PySpark wheel."""

from __future__ import annotations

import gc
import importlib.util
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from headwater.errors import DependencyError
from headwater.stack.java import find_java
from kafka_clients import admin_of, running_clients
from support.processes import free_port

pytest_plugins = ["lanes", "times", "headwater_broker.pytest_plugin"]

TICK_MS = 300
"""The shortest session is two of them."""
START_TIMEOUT_S = 120
LONGEST_SESSION_MS = 20_000
"""For sessions that a test does not let expire: a busy machine must not do it either."""
_BEFORE = pytest.StashKey[tuple[Path, int]]()
"""The file of the test before, and how many clients ran when its tests began."""


def pytest_configure() -> None:
    """Forgets the home of whoever runs the tests: commands that name none take the folder that they are started in.

    And the width of a terminal that is not there: readline, which pytest loads, leaves it to workers. Hypothesis holds
    no example to a time: on a busy machine any of them may take longer than its 200 ms.
    """
    hypothesis.settings.register_profile("headwater", hypothesis.settings(), deadline=None)
    hypothesis.settings.load_profile("headwater")
    os.environ.pop("HEADWATER_HOME", None)
    os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def _leaves_the_priority() -> Iterator[None]:
    """A worker whose priority a test lowers runs all later tests behind everything else on the machine."""
    before = os.nice(0)
    yield
    assert os.nice(0) == before, "the test lowered the priority of the tests' own process"


@pytest.fixture(autouse=True)
def _ends_adminrunning_clients() -> Iterator[None]:
    """Those that tests hold while they wait for an answer."""
    yield
    admin_of.cache_clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails where the file of the test before left a client that nobody closed.

    It tries the ports of brokers that are gone for ever, and reaches whatever has one of these by then: Spark's server
    of accumulators printed an exception into what a command of another test said.
    """
    file, before = item.config.stash.get(_BEFORE, (item.path, 0))
    if file == item.path:
        item.config.stash[_BEFORE] = file, before
        return
    deadline_s = time.monotonic() + 20
    while (left := running_clients()) > before and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.1)
    item.config.stash[_BEFORE] = item.path, left
    assert left <= before, f"{file} left {left - before} clients that nobody closed"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In place of what `--dist loadscope` has: two workers, of which one takes what needs no Spark session of its own,
    the other Spark's tests, file by file, and whichever is done first goes on with what is left of these.

    Where no test of Spark runs, both take files.
    """
    from xdist.scheduler import LoadScopeScheduling

    class BySession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_by_file = nodeid.startswith("tests/spark/") or config.getoption("--lane") == "check"
            return super()._split_scope(nodeid) if is_by_file else "rest"

    return BySession(config, log)


class ZooKeeperServer:
    """One server process on a free port of the loopback; it keeps port and data over `kill` and `start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        (directory / "zoo.cfg").write_text(
            f"dataDir={directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={TICK_MS}\nmaxSessionTimeout={LONGEST_SESSION_MS}\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\nforceSync=no\n",
            encoding="ascii",
        )

    @property
    def hosts(self) -> str:
        """The address as a client wants it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        jars = Path(spec.origin).parent / "jars"
        java = str(find_java(os.environ).executable)
        with (self._directory / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(java, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"),
                    *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._directory / "zoo.cfg")),
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "zookeeper.log").read_text(
                errors="replace"
            )
            assert time.monotonic() < deadline, f"ZooKeeper did not start within {START_TIMEOUT_S} s"
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends the server as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False


def _server(directory: Path) -> Iterator[ZooKeeperServer]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs the jars in pyspark's wheel")
    try:
        find_java(os.environ)
    except DependencyError as error:
        pytest.skip(str(error))
    server = ZooKeeperServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that all tests share; a test keeps to its own chroot (`f"{hosts}/{name}"`)."""
    yield from _server(tmp_path_factory.mktemp("zookeeper"))


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that the test may kill and start again."""
    yield from _server(tmp_path)
