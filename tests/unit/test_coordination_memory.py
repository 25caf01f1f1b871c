"""What the memory coordinator keeps over restarts, and the lease over it."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest

from headwater_broker.coordination import (
    AlreadyOwned,
    Committed,
    ConfigKind,
    Controller,
    CoordinatorUnavailable,
    CorruptState,
    LeaseLost,
    MemoryCluster,
    MemoryCoordinator,
    MemoryJobLease,
    PartitionState,
)
from headwater_broker.coordination.memory_file import MemoryFile


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


def test_memory_file_of_which_any_bit_is_flipped_or_that_is_cut_is_not_believed(tmp_path: Path) -> None:
    one = MemoryCoordinator(tmp_path)
    one.create_topic("t", {0: [1]}, {}, uuid4())
    one.commit_offsets("g", {("t", 0): Committed(7)})
    path = tmp_path / "coordinator.json"
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(CorruptState):
            MemoryCoordinator(tmp_path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptState):
            MemoryCoordinator(tmp_path)
    path.write_bytes(re.sub(rb',"digest":"[0-9a-f]*"', b"", whole))  # as versions before wrote it
    assert MemoryCoordinator(tmp_path).topics() == one.topics()


def test_memory_change_that_the_disk_refuses_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = MemoryCoordinator(tmp_path)
    one.create_topic("t", {0: [1]}, {}, uuid4())
    one.commit_offsets("g", {("t", 0): Committed(7)})
    first = one.allocate_producer_ids()
    write = MemoryFile.write

    def refused(file: MemoryFile, data: bytes) -> None:
        raise CoordinatorUnavailable("no space left on device")

    monkeypatch.setattr(MemoryFile, "write", refused)
    with pytest.raises(CoordinatorUnavailable):
        one.commit_offsets("g", {("t", 0): Committed(9)})
    with pytest.raises(CoordinatorUnavailable):
        one.keep_group("g", b"members")
    with pytest.raises(CoordinatorUnavailable):
        one.delete_group("g")
    with pytest.raises(CoordinatorUnavailable):
        one.create_topic("u", {0: [1]}, {}, uuid4())
    with pytest.raises(CoordinatorUnavailable):
        one.allocate_producer_ids()
    assert one.fetch_offsets("g") == {("t", 0): Committed(7)}
    assert one.kept_groups() == {}
    assert list(one.topics()) == ["t"]
    monkeypatch.setattr(MemoryFile, "write", write)
    one.commit_offsets("h", {("t", 0): Committed(1)})
    assert one.allocate_producer_ids()[0] > sum(first) - 1
    two = MemoryCoordinator(tmp_path)
    assert two.fetch_offsets("g") == {("t", 0): Committed(7)}
    assert two.fetch_offsets("h") == {("t", 0): Committed(1)}
    assert list(two.topics()) == ["t"]


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
