"""Apache Kafka itself, from Maven: its tools and its broker, to compare log directories with."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka.admin import AdminClient

from broker_process import BrokerProcess
from java_classes import NoCompilerError, compiled
from support import apache_kafka
from support.processes import free_port

_START_TIMEOUT_S = 120
_COMPLAINTS = (
    "Found timestamp mismatch",
    "Mismatches in",
    "Non-consecutive",
    "not indexed",
    "isvalid: false",
)
_JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars, fetched once; the test is skipped where they cannot be had."""
    if shutil.which("java") is None:
        pytest.skip("needs a java command")
    try:
        return apache_kafka.kafka_jars()
    except apache_kafka.NoKafkaError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def dump_log(kafka_jars: Path) -> Callable[..., str]:
    """Runs `kafka-dump-log` over files, and returns what it printed; it must find nothing wrong."""

    def run(*files: Path, deep: bool = False, decoder: str | None = None) -> str:
        command = [*_JAVA, "-cp", f"{kafka_jars}/*", "kafka.tools.DumpLogSegments"]
        command += ["--files", ",".join(map(str, files)), *(["--deep-iteration", "--print-data-log"] * deep)]
        command += [f"--{decoder}"] if decoder is not None else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        for complaint in _COMPLAINTS:
            assert complaint not in done.stdout, done.stdout
        return done.stdout

    return run


@pytest.fixture(scope="session")
def java_classes() -> Callable[[str, Path], str]:
    """Gives `java_classes(name, jars)`: the class path of a program of java/ with those jars."""

    def made(name: str, jars: Path) -> str:
        try:
            classes = compiled([Path(__file__).parent / "java" / f"{name}.java"], f"{jars}/*")
        except NoCompilerError as error:
            pytest.skip(str(error))
        return f"{classes}:{jars}/*"

    return made


@pytest.fixture(scope="session")
def broker_process_class() -> type[BrokerProcess]:
    """Our broker, as a process."""
    return BrokerProcess


class KafkaBroker:
    """Apache Kafka's broker on ZooKeeper, with data directory and port of its own."""

    def __init__(self, jars: Path, directory: Path, zookeeper: str, data: Path) -> None:
        self.zookeeper = zookeeper
        self._jars = jars
        self._log = directory / "kafka.log"
        self._properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self._settings = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": "20000",  # the longest that the tests' server grants
            "log.dirs": str(data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.segment.delete.delay.ms": "0",
        }

    def start(self, more: Mapping[str, str] = MappingProxyType({}), **settings: str) -> KafkaBroker:
        """Starts it and waits until it accepts connections; `more` is for names with underscores."""
        given = (
            self._settings | {name.replace("_", "."): value for name, value in settings.items()} | dict(more)
        )
        said_before = len(self.log())
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        command = [*_JAVA, "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", f"{self._jars}/*"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self._properties)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while "[KafkaServer id=1] started" not in self.log()[said_before:]:
            assert self._process.poll() is None, self.log()[-4000:]
            assert time.monotonic() < deadline, self.log()[-4000:]
            time.sleep(0.1)
        # A client that is told of no controller asks for it again a minute later at the earliest.
        address = given["listeners"].split(",")[0].partition("://")[2]
        while AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).controller_id < 0:
            assert time.monotonic() < deadline, self.log()[-4000:]
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """SIGTERM: a clean stop."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(with_signal)
            self._process.wait(timeout=60)
            self._process = None

    def log(self) -> str:
        """What it logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


@pytest.fixture(scope="session")
def kafka_broker_class() -> type[KafkaBroker]:
    """For tests that share one."""
    return KafkaBroker


@pytest.fixture
def kafka_broker(kafka_jars: Path, tmp_path: Path) -> Iterator[Callable[[str, Path], KafkaBroker]]:
    """Makes Apache Kafka brokers, given ZooKeeper's address and a data directory; they end with the test."""
    made: list[KafkaBroker] = []

    def make(zookeeper: str, data: Path) -> KafkaBroker:
        made.append(KafkaBroker(kafka_jars, tmp_path, zookeeper, data))
        return made[-1]

    yield make
    for each in made:
        each.kill()
