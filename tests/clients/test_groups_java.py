"""Groups with the Java client: a small program, run from its source."""

from __future__ import annotations

import subprocess
from pathlib import Path

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
