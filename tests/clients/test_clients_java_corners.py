"""Corners of Java's producer and consumer: `Corners.java` prints a line for what comes out as with Apache Kafka."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.stack.java import find_java
from headwater_broker.testing import broker

SOURCE = Path(__file__).parent / "java" / "Corners.java"
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "quota.window.size.seconds": "1",
    "quota.window.num": "3",
}
CAME_OUT = """\
compressions
large
too-large
times
append-time
pause
seek
out-of-range
interceptors
max-poll
offsets-of-a-transaction
offsets-of-a-zombie
fenced
abort-and-go-on
timed-out
cooperative
throttled
compacted
metadata
pattern
deleted-and-made-again
"""


@pytest.fixture(scope="module")
def compiled(class_path: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the scenarios; all codecs' libraries are among pyspark's jars."""
    jars = Path(class_path.rpartition(":")[2]).parent
    codecs = [str(each) for name in ("lz4", "snappy", "zstd") for each in sorted(jars.glob(f"{name}*.jar"))]
    classes = tmp_path_factory.mktemp("classes")
    whole = ":".join([class_path, *codecs, str(classes)])
    subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", whole, SOURCE], check=True, timeout=120)
    java = [str(find_java(os.environ).executable), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [*java, "-cp", whole, "Corners"]


@pytest.mark.timeout(400)
def test_java_corners_come_out_as_kafka_documents_them(compiled: list[str]) -> None:
    with broker(properties=SETTINGS) as running:
        ended = subprocess.run(
            [*compiled, running.bootstrap], capture_output=True, text=True, timeout=380, check=False
        )
    assert ended.stdout == CAME_OUT, ended.stderr[-3000:]


@pytest.mark.timeout(200)
def test_java_idempotent_producer_and_static_member_survive_a_broker_killed_at_random(
    compiled: list[str], broker_process: Any
) -> None:
    seed = int(os.environ.get("HEADWATER_SEED", time.time_ns() % 1_000_000))
    print(f"HEADWATER_SEED={seed}")
    rng = random.Random(seed)
    client = subprocess.Popen(
        [*compiled, broker_process.bootstrap, "restarts"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "begun\n"
        for _ in range(2):
            time.sleep(rng.uniform(0.3, 1))
            broker_process.kill()
            broker_process.start()
        time.sleep(1)
        said, complaints = client.communicate("\n", timeout=120)
    finally:
        client.kill()
        client.communicate()
    assert said == "each once\nrestarts\n", complaints[-3000:]
