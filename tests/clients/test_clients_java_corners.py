"""Corners of Java's producer and consumer: `Corners.java` prints a line for what comes out as with Apache Kafka."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from headwater_broker.testing import broker

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "quota.window.size.seconds": "1",
    "quota.window.num": "2",
}
CAME_OUT = """\
throttled
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
compacted
metadata
pattern
deleted-and-made-again
"""


@pytest.mark.timeout(400)
def test_java_corners_come_out_as_kafka_documents_them(
    java_program: Callable[..., list[str]],
) -> None:
    with broker(properties=SETTINGS) as running:
        command = java_program("Corners", running.bootstrap)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert ended.stdout == CAME_OUT, ended.stderr[-3000:]


@pytest.mark.timeout(200)
def test_java_idempotent_producer_and_static_member_survive_a_broker_killed_at_random(
    java_program: Callable[..., list[str]], broker_process: Any
) -> None:
    seed = int(os.environ.get("HEADWATER_SEED", time.time_ns() % 1_000_000))
    print(f"HEADWATER_SEED={seed}")
    rng = random.Random(seed)
    client = subprocess.Popen(
        java_program("Corners", broker_process.bootstrap, "restarts"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "begun\n"
        for _ in range(2):
            time.sleep(rng.uniform(0.1, 0.6))
            broker_process.kill()
            broker_process.start()
        time.sleep(0.3)
        said, complaints = client.communicate("\n", timeout=120)
    finally:
        client.kill()
        client.communicate()
    assert said == "each once\nrestarts\n", complaints[-3000:]
