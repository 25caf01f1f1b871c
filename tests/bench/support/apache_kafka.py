"""Apache Kafka itself, from Maven: its jars, and its broker without ZooKeeper, as a peer."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.stack.java import find_java
from support.processes import free_port

VERSION = "3.9.1"
_FETCH_TIMEOUT_S = 240
_START_TIMEOUT_S = 60

_SERVER_JAVA = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
_SERVER_JAVA += ("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true")
"""What Kafka's own start script gives to Java, but for the heap."""


class NoKafkaError(Exception):
    """Apache Kafka's jars are not to be had."""


def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars, fetched once.

    Raises:
        NoKafkaError: They are not there, and cannot be fetched.
    """
    return _cached("kafka", "HEADWATER_KAFKA_JARS")


def streams_jars() -> Path:
    """The folder of Kafka Streams' jars and of all that they need, fetched once; raises as `kafka_jars` does."""
    return _cached("kafka-streams", "HEADWATER_KAFKA_STREAMS_JARS")


def _cached(name: str, variable: str) -> Path:
    default = Path("~/.cache/headwater-tests").expanduser() / f"{name}-{VERSION}"
    cache = Path(os.environ.get(variable, default))
    if not cache.is_dir():
        _fetch(cache, Path(__file__).with_name(f"{name}-jars.xml"))
    return cache


def _fetch(cache: Path, pom: Path) -> None:
    """Has Maven copy the jars into the cache."""
    if shutil.which("mvn") is None:
        raise NoKafkaError("there is no mvn command to fetch Apache Kafka's jars with")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as scratch:
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={scratch}/jars"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            message = f"Maven took more than {_FETCH_TIMEOUT_S} s to fetch Apache Kafka's jars"
            raise NoKafkaError(message) from None
        if done.returncode:
            raise NoKafkaError(f"Maven could not fetch Apache Kafka's jars: {done.stdout[-500:]}")
        try:
            Path(f"{scratch}/jars").rename(cache)
        except OSError as error:
            if not cache.is_dir():
                raise NoKafkaError(f"{cache}: {error}") from error


@contextlib.contextmanager
def running_kafka(directory: Path, settings: Mapping[str, str], *, heap: str) -> Iterator[tuple[int, str]]:
    """One node that is broker and controller (KRaft), with its defaults otherwise: process id and address.

    Args:
        directory: An empty folder for its data, properties and output.
        settings: More of its properties.
        heap: Its heap, as Java writes it.

    Raises:
        NoKafkaError: The jars are not to be had, or it does not start.
    """
    jars = kafka_jars()
    bootstrap, controller = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    given = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{controller}",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{directory}/data",
        "offsets.topic.replication.factor": "1",
        **settings,
    }
    properties = directory / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    java = str(find_java(os.environ).executable)
    common = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*")
    output = directory / "output"
    with output.open("wb") as log:
        tool = [java, *common, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-c"]
        if subprocess.run([*tool, str(properties)], stdout=log, stderr=log).returncode:
            raise NoKafkaError(f"Apache Kafka's storage tool failed: {_end_of(output)}")
        command = [java, f"-Xms{heap}", f"-Xmx{heap}", *_SERVER_JAVA, *common, "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await(process, bootstrap, output)
        yield process.pid, bootstrap
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], bootstrap: str, output: Path) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise NoKafkaError(f"Apache Kafka does not start: {_end_of(output)}")
        with contextlib.suppress(KafkaException):
            if admin.list_topics(timeout=1).brokers:
                return
        time.sleep(0.2)


def _end_of(output: Path) -> str:
    return output.read_text(errors="replace")[-1000:]
