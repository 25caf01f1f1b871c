"""A name that there is not ends every verb with status 2 and one sentence; 1 is for what was tried and failed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater_broker.testing import RunningBroker, broker


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.mark.parametrize(
    "command",
    [
        "topics describe nosuch",
        "topics delete nosuch",
        "consume nosuch --count 1",
        "groups describe nosuch",
        "jobs list nosuch.py",
        "jobs status nosuch.py",
        "jobs explain nosuch",
        "backfill status nosuch",
        "audit no.such",
        "late no.such",
        "quarantine no.such",
        "quality show no.such",
    ],
)
def test_unknown_name_is_status_2_and_one_sentence(
    running: RunningBroker, tmp_path: Path, command: str
) -> None:
    words = command.split()
    if words[0] in ("topics", "consume", "groups"):
        words += ["--bootstrap", running.bootstrap]
    environ = {name: value for name, value in os.environ.items() if name != "HEADWATER_HOME"}
    (tmp_path / ".headwater").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli", *words],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("headwater: ")
    assert "no.such" in line or "nosuch" in line
