"""Transactions through Kafka's own Java client."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

FINDINGS = """\
copied 60 distinct 60 aborts true
listed java-worker Ongoing
described Ongoing [out-0] 60000 true
active true epoch 0
fenced ProducerFencedException
fenced by admin
"""


def test_java_client_transactions_commit_abort_fence_and_are_described(
    broker_process: Any, java_program: Callable[..., list[str]]
) -> None:
    command = java_program("TransactionsClient", broker_process.bootstrap)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == FINDINGS, ended.stderr
