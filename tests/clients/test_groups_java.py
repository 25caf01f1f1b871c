"""Groups with the Java client: a small program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from headwater_broker.testing import RunningBroker

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


def test_java_client_finds_groups_as_kafka_documents_them(
    any_broker: RunningBroker, java_program: Callable[..., list[str]]
) -> None:
    command = java_program("Groups", any_broker.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == SCENARIOS
