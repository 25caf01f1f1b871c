"""Transactions through Kafka's own Java client."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "java" / "TransactionsClient.java"
FINDINGS = """\
copied 60 distinct 60 aborts true
listed java-worker Ongoing
described Ongoing [out-0] 60000 true
active true epoch 0
fenced ProducerFencedException
fenced by admin
"""


def _classpath() -> str:
    """kafka-clients and what it logs with."""
    folder = Path(os.environ.get("HEADWATER_JARS", f"{sys.prefix}/share/headwater/jars"))
    spec = importlib.util.find_spec("pyspark")
    jars = sorted(folder.glob("kafka-clients-*.jar"))
    if spec is None or spec.origin is None or not jars or shutil.which("javac") is None:
        pytest.skip("needs kafka-clients' jar (make setup), pyspark's jars and a JDK")
    logging = sorted((Path(spec.origin).parent / "jars").glob("slf4j-api-*.jar"))
    return ":".join(map(str, [*jars, *logging]))


def test_java_client_transactions_commit_abort_fence_and_are_described(broker_process: Any) -> None:
    command = ["java", "-Xmx256m", "-cp", _classpath(), str(SOURCE), broker_process.bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == FINDINGS, ended.stderr
