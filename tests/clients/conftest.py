"""A broker process that clients talk to, with the coordinator in memory and with ZooKeeper."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import READY_TIMEOUT_S, BrokerProcess
from headwater.stack.java import find_java
from headwater.stack.places import jars_dir
from headwater_broker.coordination import ZooKeeperCoordinator
from headwater_broker.testing import RunningBroker, broker
from java_classes import compiled


def _running(request: pytest.FixtureRequest, directory: Path) -> Iterator[BrokerProcess]:
    if request.param == "memory":
        shared_state = ["--coordinator", "memory"]
    else:
        server = request.getfixturevalue("zookeeper")
        shared_state = ["--zookeeper", f"{server.hosts}/{directory.name}-{os.getpid()}"]
    process = BrokerProcess(directory, shared_state).start()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture(params=["memory", "zookeeper"])
def broker_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that is ready, once for each kind of shared state; the test may end it and start it again."""
    yield from _running(request, tmp_path)


@pytest.fixture(scope="module", params=["memory", "zookeeper"])
def shared_process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One as `broker_process` that the tests of a module share: a test keeps to names of its own, and ends it not."""
    yield from _running(request, tmp_path_factory.mktemp("shared"))


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


JavaProgram = Callable[..., list[str]]


@pytest.fixture(scope="session")
def java_program() -> JavaProgram:
    """Gives `java_program(name, *arguments)`: the command that runs a program of java/ with kafka-clients as
    `headwater setup` fetched it, and with what that needs of pyspark's jars."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("needs a JDK: java and javac")
    clients = sorted(jars_dir(os.environ).glob("kafka-clients-*.jar"))
    spark = importlib.util.find_spec("pyspark")
    if not clients or spark is None or spark.origin is None:
        pytest.skip("needs kafka-clients (headwater setup) and pyspark's jars")
    jars = Path(spark.origin).parent / "jars"
    needed = [
        each for name in ("slf4j-api", "lz4", "snappy", "zstd") for each in sorted(jars.glob(f"{name}*.jar"))
    ]
    class_path = ":".join(map(str, [clients[-1], *needed]))
    classes = compiled(sorted((Path(__file__).parent / "java").glob("*.java")), class_path)
    java = [str(find_java(os.environ).executable), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return lambda name, *arguments: [*java, "-cp", f"{class_path}:{classes}", name, *arguments]


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
