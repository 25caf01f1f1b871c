"""Which clusters `headwater audit --counts --mirror` looks into, and what it says where a topic has no mirror there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.audit import counts
from headwater.errors import UsageError
from headwater_broker.testing import RunningBroker, broker
from kafka_clients import admin_of
from mirrored_topics import make_anew, make_topic, mirror_once, send

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def west() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "1"}) as running:
        make_topic(running.bootstrap, "clicks")
        send(running.bootstrap, "clicks", range(20))
        yield running


@pytest.fixture
def east() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "1"}) as running:
        yield running


def places(
    home: Path, west: RunningBroker, mirror: str, topics: tuple[str, ...] = ("clicks",)
) -> dict[str, set[str]]:
    """Where records are, by the topics that are audited."""
    audits = counts(topics, home=home, bootstrap=west.bootstrap, mirrors=[mirror])
    assert not any(each.findings for each in audits)
    return {
        each.topic: {f"{one.tier} {one.where}".strip() for verdict in each.verdicts for one in verdict.counts}
        for each in audits
    }


def test_mirror_is_named_by_its_brokers_or_by_the_settings(
    west: RunningBroker, east: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_once(west.bootstrap, east.bootstrap)
    mirror_once(west.bootstrap, east.bootstrap, topics="clicks", prefix="w.")
    address = east.bootstrap
    assert places(tmp_path / "1", west, address) == {
        "clicks": {"broker", f"mirror {address}", f"mirror {address}:w.clicks"},
        f"{address}:clicks": {"broker"},
        f"{address}:w.clicks": {"broker"},
    }
    monkeypatch.setenv("HEADWATER_CLUSTER_EAST_BOOTSTRAP", address)
    by_name = places(tmp_path / "2", west, "east")
    assert set(by_name) == {"clicks", "east:clicks", "east:w.clicks"}
    assert places(tmp_path / "2", west, address) == by_name  # what has a name goes by it
    with pytest.raises(UsageError, match=r"no section \[cluster.eats\]: did you mean east"):
        places(tmp_path / "2", west, "eats")


def test_topic_without_a_mirror_in_a_cluster_is_said_to_have_none(
    west: RunningBroker, east: RunningBroker, tmp_path: Path
) -> None:
    make_topic(west.bootstrap, "orders")
    expected = f"clicks is not mirrored from {west.bootstrap} into {east.bootstrap}; what is: "
    with pytest.raises(UsageError, match=f"{expected}nothing"):
        places(tmp_path, west, east.bootstrap)
    mirror_once(west.bootstrap, east.bootstrap)
    assert set(places(tmp_path, west, east.bootstrap)) == {"clicks", f"{east.bootstrap}:clicks"}
    admin_of(east.bootstrap).delete_topics(["clicks"])["clicks"].result(10)
    with pytest.raises(UsageError, match=f"{expected}orders"):
        places(tmp_path, west, east.bootstrap)


def test_topic_that_others_made_where_a_copy_was_deleted_is_not_compared(
    west: RunningBroker, east: RunningBroker, tmp_path: Path
) -> None:
    mirror_once(west.bootstrap, east.bootstrap)
    make_anew(east.bootstrap, "clicks", range(5))
    with pytest.raises(UsageError, match="clicks is not mirrored"):
        places(tmp_path, west, east.bootstrap)


def test_copy_of_a_topic_that_was_made_again_is_not_compared_with_the_new_one(
    west: RunningBroker, east: RunningBroker, tmp_path: Path
) -> None:
    mirror_once(west.bootstrap, east.bootstrap)
    make_anew(west.bootstrap, "clicks", range(30))
    with pytest.raises(UsageError, match="clicks is not mirrored"):
        places(tmp_path, west, east.bootstrap)
