"""A name that there is not ends every verb with status 2 and one sentence; 1 is for what was tried and failed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater_broker.testing import RunningBroker, broker

pytestmark = pytest.mark.story


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
        "quality history no.such",
        "quality history --check nosuch",
        "quality suggest no.such",
        "quality run no.such",
        "quarantine show no.such",
        "quarantine discard no.such --because x",
        "trace no.such",
        "lineage no.such --to x",
        "replay no.such --topic x",
        "audit --counts nosuch",
        "jobs explain ../nosuch",
        "backfill status ../../nosuch",
        "backfill abort ../nosuch",
        "audit ../no.such",
        "late ../no.such",
        "quality show ../no.such",
    ],
)
def test_unknown_name_is_status_2_and_one_sentence(
    running: RunningBroker, headwater: Any, tmp_path: Path, command: str
) -> None:
    words = command.split()
    if words[0] in ("topics", "consume", "groups", "replay") or "--counts" in words:
        words += ["--bootstrap", running.bootstrap]
    (tmp_path / ".headwater").mkdir()
    done = headwater(*words)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("headwater: ")
    assert "no.such" in line or "nosuch" in line
