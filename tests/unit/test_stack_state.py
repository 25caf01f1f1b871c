"""stack.json: what is believed of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from damaged_files import DAMAGES
from headwater.errors import UserError
from headwater.stack.local import bootstrap_of, data_dir
from headwater.stack.processes import start_child, start_ticks
from headwater.stack.state import (
    Member,
    StackState,
    note_parent,
    open_lock,
    read_end,
    read_state,
    remove_end,
    remove_state,
    running_state,
    unlisted_parent,
    write_end,
    write_state,
)


def _state(*, pid: int, ticks: int, ready: bool = True) -> StackState:
    members = (
        Member("zookeeper", None, "127.0.0.1:2181", pid, ticks),
        Member("broker", 1, "127.0.0.1:9092", pid, ticks),
        Member("broker", 2, "127.0.0.1:9093", pid, ticks),
    )
    return StackState(
        pid=pid,
        start_ticks=ticks,
        ready=ready,
        started_at_ms=1,
        coordinator="zookeeper",
        zookeeper="127.0.0.1:2181",
        members=members,
        host="127.0.0.1",
        properties={"num.partitions": "6"},
    )


def _ours() -> tuple[int, int]:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return os.getpid(), ticks


def test_state_written_is_read_back(tmp_path: Path) -> None:
    pid, ticks = _ours()
    state = _state(pid=pid, ticks=ticks)
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert running_state(tmp_path) == state
    assert state.bootstrap == "127.0.0.1:9092,127.0.0.1:9093"
    remove_state(tmp_path)
    assert read_state(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_end_is_kept_until_the_next_start_and_where_it_cannot_be_kept_nothing_happens(tmp_path: Path) -> None:
    assert read_end(tmp_path) == ""
    write_end(tmp_path, "broker 1 was killed by SIGKILL")
    assert read_end(tmp_path) == "broker 1 was killed by SIGKILL"
    remove_end(tmp_path)
    remove_end(tmp_path)
    assert read_end(tmp_path) == ""
    write_end(tmp_path / "nowhere", "no folder")
    assert read_end(tmp_path / "nowhere") == ""


def test_state_of_a_stack_that_is_not_ready_is_not_running(tmp_path: Path) -> None:
    pid, ticks = _ours()
    write_state(tmp_path, _state(pid=pid, ticks=ticks, ready=False))
    assert running_state(tmp_path) is None


def test_state_of_a_process_number_used_again_is_not_running(tmp_path: Path) -> None:
    pid, ticks = _ours()
    write_state(tmp_path, _state(pid=pid, ticks=ticks - 1))
    assert running_state(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"members": 1}', '{"members": [], "strange": 1}'])
def test_state_that_is_torn_or_strange_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    assert read_state(tmp_path) is None


def test_state_of_which_any_bit_is_flipped_is_not_believed(tmp_path: Path) -> None:
    state = _state(pid=_ours()[0], ticks=_ours()[1])
    write_state(tmp_path, state)
    path = tmp_path / "stack.json"
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        assert read_state(tmp_path) in (None, state), bit
    fields = json.loads(whole)
    del fields["digest"]  # as versions before wrote it
    path.write_text(json.dumps(fields))
    assert read_state(tmp_path) == state


@pytest.mark.parametrize("damage", DAMAGES)
def test_stack_whose_state_is_damaged_is_found_by_its_lock(tmp_path: Path, damage: str) -> None:
    data = data_dir(tmp_path)
    data.mkdir()
    assert unlisted_parent(data) is None
    pid, ticks = _ours()
    with open_lock(data) as lock:
        note_parent(lock)
        write_state(data, _state(pid=pid, ticks=ticks))
        assert unlisted_parent(data) is None
        with open_lock(data):  # as a second start, which is refused
            assert (data / "stack.lock").read_text() == f"{pid} {ticks}\n"
        DAMAGES[damage](data / "stack.json")
        assert unlisted_parent(data) == pid
        with pytest.raises(
            UserError, match=r"as process \d+, but .*stack\.json is gone or damaged: headwater up"
        ):
            bootstrap_of(tmp_path)
    DAMAGES[damage](data / "stack.lock")
    assert unlisted_parent(data) is None
    with pytest.raises(UserError, match="no stack runs"):
        bootstrap_of(tmp_path)


def test_start_ticks_of_a_process_that_ended_are_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert start_ticks(child.pid) is None


def test_start_child_ends_when_its_parent_is_killed() -> None:
    script = (
        "import os, signal, subprocess, sys\n"
        "from headwater.stack.processes import start_child\n"
        "sleeper = [sys.executable, '-c', 'import time; print(flush=True); time.sleep(600)']\n"
        "child = start_child(sleeper, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = start_child([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    with parent.stdout as stdout:
        child_pid = int(stdout.readline())
        # The pipe is the child's too: it ends once both are gone.
        stdout.read()
    assert parent.wait() == -9
    while start_ticks(child_pid) is not None:
        pass
