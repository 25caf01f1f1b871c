"""Apache Kafka itself, from Maven: its jars, and its broker without ZooKeeper, as a peer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.stack.java import find_java
from support.maven import NoJarsError, cached_jars
from support.processes import free_port

VERSION = "3.9.1"
"""Which the tests compare with: the last one that also runs on ZooKeeper."""

NEWEST = "4.4.0"
"""Which the benchmarks compare with: the newest that Maven serves."""

_START_TIMEOUT_S = 60

_SERVER_JAVA = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
_SERVER_JAVA += ("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true")
"""What Kafka's own start script gives to Java, but for the heap."""


class NoKafkaError(Exception):
    """Apache Kafka's jars are not to be had."""


def kafka_jars(version: str = VERSION) -> Path:
    """The folder of Apache Kafka's jars, fetched once.

    Raises:
        NoKafkaError: They are not there, and cannot be fetched.
    """
    variable = "HEADWATER_KAFKA_JARS" if version == VERSION else "HEADWATER_NEWEST_KAFKA_JARS"
    return _cached("kafka", variable, version)


def require_jars(version: str = VERSION) -> None:
    """Skips a test where Apache Kafka's jars are not to be had; one whose broker does not start fails."""
    try:
        kafka_jars(version)
    except NoKafkaError as error:
        pytest.skip(str(error))


def streams_jars() -> Path:
    """The folder of Kafka Streams' jars and of all that they need, fetched once; raises as `kafka_jars` does."""
    return _cached("kafka-streams", "HEADWATER_KAFKA_STREAMS_JARS", VERSION)


def _cached(name: str, variable: str, version: str) -> Path:
    pom = Path(__file__).with_name(f"{name}-jars.xml")
    try:
        return cached_jars(
            f"{name}-{version}", variable, pom, f"Apache Kafka {version}", {"kafka.version": version}
        )
    except NoJarsError as error:
        raise NoKafkaError(str(error)) from error


@contextlib.contextmanager
def running_kafka(
    directory: Path,
    settings: Mapping[str, str],
    *,
    heap: str,
    version: str = VERSION,
    listeners: str = "",
    java_options: Sequence[str] = (),
) -> Iterator[tuple[int, str]]:
    """One node that is broker and controller (KRaft), with its defaults otherwise: process id and address.

    Args:
        directory: An empty folder for its data, properties and output.
        settings: More of its properties.
        heap: Its heap, as Java writes it.
        version: Its version.
        listeners: Listeners beside the one in plain text, `SASL_SSL://127.0.0.1:9093`, whose map is in `settings`.
        java_options: Of the broker's Java.

    Raises:
        NoKafkaError: The jars are not to be had, or it does not start.
    """
    jars = kafka_jars(version)
    bootstrap, controller = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    given = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": ",".join(
            filter(None, (f"PLAINTEXT://{bootstrap},CONTROLLER://{controller}", listeners))
        ),
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
        of_java = (f"-Xms{heap}", f"-Xmx{heap}", *_SERVER_JAVA, *java_options, *common)
        command = [java, *of_java, "kafka.Kafka", str(properties)]
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
