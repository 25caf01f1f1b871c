"""The parts of the ZooKeeper coordinator that need no ZooKeeper."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_broker.coordination import Committed, CorruptState
from headwater_broker.coordination.zookeeper import znodes
from headwater_broker.coordination.zookeeper.naming import escape, unescape
from headwater_broker.coordination.zookeeper.process import Liveness, ProcessIdentity
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession
from headwater_broker.coordination.zookeeper.transaction import Create, Delete, Operation, SetData, chunked


def is_allowed(component: str) -> bool:
    """ZooKeeper's `PathUtils.validatePath`, for one component; it sees UTF-16 units."""
    units = component.encode("utf-16-be", errors="surrogatepass")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return (
        component not in {"", ".", ".."}
        and "/" not in component
        and not any(
            code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
            for code in codes
        )
    )


@given(st.text() | st.text(alphabet="./%2FE\0\x7f"))
def test_naming_any_name_comes_back_from_an_allowed_component(name: str) -> None:
    component = escape(name)
    assert is_allowed(component)
    assert unescape(component) == name


@given(st.text(max_size=4), st.text(max_size=4))
def test_naming_different_names_have_different_components(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."}))
def test_naming_topic_names_stay_as_they_are(name: str) -> None:
    assert escape(name) == name


@given(
    st.builds(
        Committed,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.integers(0, 2**62),
    )
)
def test_offset_codec_round_trips_and_begins_with_the_number(committed: Committed) -> None:
    data = znodes.encode_offset(committed)
    assert znodes.decode_offset("/x", data) == committed
    assert int(data.split(b"\n")[0]) == committed.offset


@pytest.mark.parametrize("data", [b"", b"x", b"1\nx", b"1\n[]", b'1.5\n{"epoch":1}'])
def test_offset_codec_refuses_what_is_no_offset(data: bytes) -> None:
    with pytest.raises(CorruptState, match="/consumers/g"):
        znodes.decode_offset("/consumers/g", data)


@given(
    st.lists(st.builds(Create, st.text(max_size=20), st.binary(max_size=300)), max_size=40),
    st.integers(200, 2000),
)
def test_chunked_keeps_order_and_stays_below_the_size(creates: list[Create], max_bytes: int) -> None:
    chunks = list(chunked(creates, max_bytes))
    assert [operation for chunk in chunks for operation in chunk] == creates
    for chunk in chunks:
        assert chunk
        assert (
            len(chunk) == 1
            or sum(len(c.path.encode()) + len(c.data) for c in chunk if isinstance(c, Create)) < max_bytes
        )


def test_chunked_counts_every_kind_of_operation() -> None:
    operations: list[Operation] = [SetData("/a", b"x" * 100), Delete("/b"), Create("/c", b"x" * 100)]
    assert [len(chunk) for chunk in chunked(operations, 300)] == [2, 1]


def test_process_this_one_is_alive_and_another_start_is_gone() -> None:
    me = ProcessIdentity.current()
    assert ProcessIdentity.from_json(me.to_json()) == me
    assert me.liveness() is Liveness.ALIVE
    assert replace(me, started=me.started + 1).liveness() is Liveness.GONE  # its pid was given to us
    assert replace(me, machine="elsewhere").liveness() is Liveness.UNKNOWN


def test_process_that_ended_is_gone_even_before_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = replace(ProcessIdentity.current(), pid=child.pid, started=_start_ticks(child.pid))
    assert identity.liveness() is Liveness.ALIVE
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identity.liveness() is Liveness.GONE  # a zombie
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    assert identity.liveness() is Liveness.GONE


def _start_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return int(stat.rpartition(")")[2].split()[19])


def test_session_is_alive_for_two_thirds_of_the_timeout_after_the_last_answered_request() -> None:
    now = [100.0]
    session = ZooKeeperSession("127.0.0.1:1", session_timeout_ms=6000, clock=lambda: now[0])
    session._session_id = 7
    assert not session.is_alive(7)
    session._answered(sent_at=99.0)
    session._answered(sent_at=98.0)  # an answer that was overtaken
    assert session.is_alive(7)
    assert not session.is_alive(8)
    assert not session.is_alive(None)
    now[0] = 102.9
    assert session.is_alive(7)
    now[0] = 103.0
    assert not session.is_alive(7)
