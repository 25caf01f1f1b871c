"""What a query ended with is looked into once, however often one asks: brokers are asked, and files are read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headwater as hw
from backfill_facts import part
from headwater_streams.base.errors import UnavailableError
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.query import JobQuery
from headwater_streams.storage.home import Home

PLAN = part({"clicks": hw.topic("clicks", schema="who STRING")})
LOST = "some data may have been lost because they are not available in Kafka any more"


class Brokers:
    """None answers."""

    def __init__(self) -> None:
        self.asked = 0

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        self.asked += 1
        raise UnavailableError(f"nobody answers for {topic}")


def ended(home: Path, brokers: Brokers, message: str) -> JobQuery:
    """A query of which Spark says anew, at each question, what ended it."""
    context: Any = SimpleNamespace(home=Home(home), source=brokers)
    stage: Any = None
    query: Any = JobQuery(context, PLAN, stage, 1, NoLease())
    query._query = SimpleNamespace(exception=lambda: RuntimeError(message))
    made: JobQuery = query
    return made


def test_brokers_are_asked_once_why_input_is_gone(tmp_path: Path) -> None:
    brokers = Brokers()
    query = ended(tmp_path, brokers, LOST)
    failures = [query.failure() for _ in range(4)]
    assert str(failures[0]) == "nobody answers for clicks"
    assert all(each is failures[0] for each in failures)
    assert brokers.asked == 1


def test_files_are_read_once_and_the_job_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(JobQuery, "damage_behind", lambda _query, error: looked.append(error))
    query = ended(tmp_path, Brokers(), "no such column")
    first, _, last = [query.failure() for _ in range(3)]
    assert first is not None
    assert first is last
    assert len(looked) == 1
    assert first.__notes__ == ["job 'clean'"]
