"""What `headwater doctor` and `headwater status` say of the disk under a stack."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bad_batches import NONE, cases, plain, raw_batch
from headwater.config import load_settings
from headwater.stack.checks import examine
from headwater.stack.disks import (
    disk_problem,
    lost_partitions,
    lost_records,
    offline_partitions,
    unreadable_records,
)
from headwater.stack.state import note_parent, open_lock
from headwater_broker.log.batch import HEADER
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.logs import OneLog

_PROBE = """
import sys
from pathlib import Path
from headwater.stack.disks import disk_problem
print(disk_problem(Path(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("options", "problem"), [("size=1m", "is full"), ("size=100m", ""), ("size=100m,ro", "is read-only")]
)
def test_disk_problem_of_a_small_disk(tmp_path: Path, options: str, problem: str) -> None:
    mount = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let a test mount a small disk of its own")
    done = subprocess.run(
        [*command, sys.executable, "-c", _PROBE, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.stderr == ""
    assert problem in done.stdout
    assert bool(problem) is bool(done.stdout.strip())


def test_lost_records_are_told_with_offsets_file_and_what_to_do(tmp_path: Path) -> None:
    data = tmp_path / "stack"
    folder = data / "broker-2" / "log"
    folder.mkdir(parents=True)
    assert lost_records(data) == []
    file = folder / "t-0" / "a b.log"
    (folder / ".headwater-missing-offsets").write_text(f"t 0 3 6 {file}\n")
    (told,) = lost_records(data)
    assert told.startswith(f"t-0 of broker-2 has lost offsets 3 to 5: {file} is gone or short: restore it")
    found = [each for each in examine(tmp_path, {}, load_settings({}).settings) if each.subject == "records"]
    assert [(each.state, each.detail) for each in found] == [("wrong", told)]


def test_partitions_that_are_offline_are_told_with_the_reason(tmp_path: Path) -> None:
    data = tmp_path / "stack"
    folder = data / "broker-2" / "log"
    folder.mkdir(parents=True)
    assert offline_partitions(data) == []
    (folder / ".headwater-offline").write_text("t 0 /a b/t-0/0.log is damaged: restore it\n")
    assert offline_partitions(data) == [
        "t-0 of broker-2 cannot be read: /a b/t-0/0.log is damaged: restore it"
    ]
    assert offline_partitions(data)[0] in _told(tmp_path)


def test_partition_whose_folder_is_gone_is_told_while_no_stack_runs(tmp_path: Path) -> None:
    data = tmp_path / "stack"
    folder = data / "broker-1" / "log"
    kept = OneLog(folder, "orders", {})
    kept.log.append(memoryview(build_batch([b"x"] * 3)), now_ms=0)
    kept.log.write_dirty()
    kept.manager.close()
    assert lost_partitions(data) == []
    shutil.rmtree(folder / "orders-0")
    (told,) = lost_partitions(data)
    assert told.startswith(
        f"orders-0 of broker-1 had records up to offset 2, and {folder}/orders-0 is gone: put it back"
    )
    assert told in _told(tmp_path)
    with open_lock(data) as lock:  # of a stack that starts: its broker will tell
        note_parent(lock)
        assert told not in _told(tmp_path)
    (folder / "replication-offset-checkpoint").write_bytes(b"garbage")
    assert lost_partitions(data) == [told]
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    assert lost_partitions(data) == []


def _told(home: Path) -> list[str]:
    found = examine(home, {}, load_settings({}).settings)
    return [each.detail for each in found if (each.subject, each.state) == ("records", "wrong")]


def test_disk_problem_of_a_disk_with_room_is_none(tmp_path: Path) -> None:
    assert disk_problem(tmp_path) == ""


def test_unreadable_records_are_told_with_their_offsets(tmp_path: Path) -> None:
    old = OneLog(tmp_path / "stack" / "broker-1" / "log", "orders", {})
    for batch in (raw_batch(plain(3), 3), cases(NONE)["garbage"], raw_batch(plain(1), 1)):
        view = memoryview(batch)
        old.log.append(view, now_ms=0, looked_into=(view, HEADER.unpack_from(view), 0))
        old.log.write_dirty()
    bad = "a batch at offsets 3 to 5 that no consumer can read (record 0 of 3 has a length of -4)"
    assert unreadable_records(tmp_path / "stack") == [f"orders-0 of broker-1 has {bad}: go on at offset 6"]
