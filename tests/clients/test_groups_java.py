"""Groups with the Java client: a small program, run from its source."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater_broker.testing import RunningBroker

PROGRAM = Path(__file__).parent / "java" / "Groups.java"
SCENARIOS = [
    "shares-Range",
    "shares-RoundRobin",
    "shares-Sticky",
    "shares-CooperativeSticky",
    "static-comes-back",
    "static-is-fenced",
    "operator-removes",
    "operator-deletes",
]


@pytest.fixture
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


def test_java_client_finds_groups_as_kafka_documents_them(any_broker: RunningBroker, class_path: str) -> None:
    done = subprocess.run(
        [
            "java",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            class_path,
            str(PROGRAM),
            any_broker.bootstrap,
        ],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == SCENARIOS
