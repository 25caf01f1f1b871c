"""What the memory coordinator keeps over restarts, and the lease over it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from headwater_broker.coordination import (
    AlreadyOwned,
    Committed,
    ConfigKind,
    Controller,
    CorruptState,
    LeaseLost,
    MemoryCluster,
    MemoryCoordinator,
    MemoryJobLease,
    PartitionState,
)


def test_memory_state_dir_keeps_everything_that_is_not_ephemeral(tmp_path: Path) -> None:
    one = MemoryCoordinator(tmp_path / "state")
    created = one.create_topic("clicks", {0: [1], 1: [1]}, {"retention.ms": "1"}, uuid4())
    moved = PartitionState((1,), 1, 4, (1,), 2, created.partitions[0].version, (2,), (3,))
    one.set_leader_states({("clicks", 0): moved})
    one.create_topic("doomed", {0: [1]}, {}, uuid4())
    one.delete_topic("doomed")
    one.set_config(ConfigKind.BROKER, "1", {"log.segment.bytes": "100"})
    one.commit_offsets("g/ü", {("clicks", 0): Committed(7, 1, "m", 5)})
    one.keep_group("g/ü", b"\x00\xff")
    one.elect_controller(1)
    one.register_member("g/ü", "m", {"clicks": 1})
    first_block = one.allocate_producer_ids()
    two = MemoryCoordinator(tmp_path / "state")  # as after kill -9: nothing was stopped
    assert two.cluster_id() == one.cluster_id()
    assert two.topics() == one.topics()
    assert two.pending_deletions() == {"doomed"}
    assert two.configs(ConfigKind.BROKER) == {"1": {"log.segment.bytes": "100"}}
    assert two.fetch_offsets("g/ü") == {("clicks", 0): Committed(7, 1, "m", 5)}
    assert two.kept_groups() == {"g/ü": b"\x00\xff"}
    assert two.allocate_producer_ids()[0] == sum(first_block)
    assert two.elect_controller(1) == Controller(1, 2)
    assert two.members("g/ü") == {}
    assert two.brokers() == {}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":2}', b'{"version":1}', b"\xff\x00"])
def test_memory_file_that_cannot_be_read_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "coordinator.json"
    path.write_bytes(data)
    with pytest.raises(
        CorruptState, match=r"coordinator\.json cannot be read .*: restore it from a backup; a broker"
    ):
        MemoryCoordinator(tmp_path)
    assert path.read_bytes() == data


def test_memory_without_directory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MemoryCoordinator().create_topic("clicks", {0: [1]}, {}, uuid4())
    assert list(tmp_path.iterdir()) == []


def test_memory_lease_second_driver_is_refused_by_name_until_release() -> None:
    cluster = MemoryCluster()
    first, second = (MemoryJobLease(cluster, "silver.flights", name) for name in ("home-a", "home-b"))
    first.claim([("flights", 0), ("flights", 1)])
    with pytest.raises(AlreadyOwned, match="owned by 'home-a'"):
        second.claim([("flights", 1)])
    first.publish({("flights", 0): 10})
    assert MemoryCoordinator(cluster=cluster).fetch_offsets("silver.flights") == {
        ("flights", 0): Committed(10)
    }
    first.release()
    with second:
        second.claim([("flights", 1)])
        assert second.is_held()
    assert not second.is_held()


def test_memory_lease_lost_publishes_no_more() -> None:
    cluster = MemoryCluster()
    lease = MemoryJobLease(cluster, "job", "me")
    lease.claim([("flights", 0)])
    lease.lose()
    assert not lease.is_held()
    with pytest.raises(LeaseLost):
        lease.publish({("flights", 0): 10})
    with pytest.raises(LeaseLost):
        lease.claim([("flights", 0)])


def test_memory_settings_that_are_taken_away_leave_nothing(tmp_path: Path) -> None:
    one = MemoryCoordinator(tmp_path / "state")
    one.set_config(ConfigKind.CLIENT, "gone", {"producer_byte_rate": "1"})
    for name in ("gone", "never-there"):
        one.set_config(ConfigKind.CLIENT, name, {})
    kept = (tmp_path / "state" / "coordinator.json").read_text()
    assert "gone" not in kept
    assert "never-there" not in kept
    one.stop()
