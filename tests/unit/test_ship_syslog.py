"""Syslog on its way to the topic: the framings of RFC 6587, and the spool between the port and the broker."""

import contextlib
import errno
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import drawn_seed
from headwater.errors import PortInUseError, UsageError
from headwater.ship.frames import SpoolFrames, frame
from headwater.ship.listener import SyslogListener, parse_address
from headwater.ship.spool import Spool
from headwater.ship.syslog import (
    MAX_MESSAGE_BYTES,
    FramingError,
    SyslogFramer,
    SyslogMessage,
    without_line_end,
)

MESSAGES = st.lists(
    st.tuples(
        st.booleans(),
        st.binary(max_size=60).map(lambda text: b"<13>" + text.replace(b"\n", b" ").replace(b"\0", b" ")),
    ),
    max_size=8,
)


def values(messages: list[SyslogMessage]) -> list[bytes]:
    assert all(each.full_bytes is None for each in messages)
    return [each.value for each in messages]


@given(MESSAGES, st.integers(1, 7))
def test_framer_both_framings_in_pieces_of_any_size_give_the_messages(
    messages: list[tuple[bool, bytes]], step: int
) -> None:
    stream = b"".join(b"%d %s" % (len(text), text) if counted else text + b"\n" for counted, text in messages)
    framer = SyslogFramer()
    found = [each for at in range(0, len(stream), step) for each in framer.feed(stream[at : at + step])]
    assert values(found) == [without_line_end(text) for _, text in messages]
    assert framer.rest() == []


def test_framer_counted_message_may_hold_newlines() -> None:
    assert values(SyslogFramer().feed(b"14 <34>1 two\nline7 <34>abc")) == [b"<34>1 two\nline", b"<34>abc"]


def test_framer_line_end_is_left_out_of_both_framings() -> None:
    assert values(SyslogFramer().feed(b"<34>one\r\n\r\n9 <34>two\r\n<34>three\r\n")) == [
        b"<34>one",
        b"<34>two",
        b"<34>three",
    ]


def test_framer_line_that_begins_with_a_number_is_a_line() -> None:
    assert values(
        SyslogFramer().feed(b"2026 was a year\n123456789012 x\n9 lives\n" + b"9" * 21 + b" <\n")
    ) == [
        b"2026 was a year",
        b"123456789012 x",
        b"9 lives",
        b"999999999999999999999 <",
    ]


def test_framer_nul_ends_a_message_too_and_empty_ones_are_none() -> None:
    assert values(SyslogFramer().feed(b"<34>a\0<34>b\n\n\n")) == [b"<34>a", b"<34>b"]


def test_framer_end_of_the_connection_ends_the_message() -> None:
    framer = SyslogFramer()
    assert values(framer.feed(b"<34>a\n<34>the end")) == [b"<34>a"]
    assert values(framer.rest()) == [b"<34>the end"]


def test_framer_end_of_the_connection_within_a_counted_message_is_told() -> None:
    framer = SyslogFramer()
    assert framer.feed(b"20 <34>cut off") == []
    assert framer.rest() == [SyslogMessage(b"<34>cut off", 20)]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(-2, 2) | st.integers(0, 1 << 20)), min_size=1, max_size=4),
    st.integers(100_000, 700_000),
)
@settings(max_examples=30)
def test_framer_long_message_is_cut_at_the_limit_and_the_next_is_whole(
    messages: list[tuple[bool, int]], step: int
) -> None:
    texts = [b"<13>" + b"x" * (MAX_MESSAGE_BYTES - 4 + beyond) for _, beyond in messages]
    stream = b"".join(
        b"%d %s<13>next\n" % (len(text), text) if counted else text + b"\n<13>next\n"
        for (counted, _), text in zip(messages, texts, strict=True)
    )
    framer = SyslogFramer()
    found: list[SyslogMessage] = []
    for at in range(0, len(stream), step):
        found += framer.feed(stream[at : at + step])
        assert len(framer._buffer) <= MAX_MESSAGE_BYTES + 10
    assert framer.rest() == []
    wanted = []
    for text in texts:
        cut = len(text) > MAX_MESSAGE_BYTES
        wanted.append(SyslogMessage(text[:MAX_MESSAGE_BYTES], len(text) if cut else None))
        wanted.append(SyslogMessage(b"<13>next"))
    assert found == wanted


def test_framer_line_without_end_keeps_no_more_than_a_message() -> None:
    framer = SyslogFramer()
    for _ in range(100):
        assert framer.feed(b"9" * 100_000) == []
        assert len(framer._buffer) <= MAX_MESSAGE_BYTES + 10
    assert framer.rest() == [SyslogMessage(b"9" * MAX_MESSAGE_BYTES, 10_000_000)]


@pytest.mark.parametrize("count", [b"1234567890", b"9" * 20])
def test_framer_count_that_no_message_has_is_refused_with_those_before_it(count: bytes) -> None:
    framer = SyslogFramer()
    with pytest.raises(FramingError) as refused:
        framer.feed(b"<34>good\n" + count + b" <34>bad\n<34>good\n")
    assert values(refused.value.messages) == [b"<34>good"]
    assert framer.rest() == []


def test_framer_count_that_no_message_has_is_refused_in_pieces_too() -> None:
    framer = SyslogFramer()
    assert [framer.feed(each) for each in (b"12345", b"67890", b" ")] == [[], [], []]
    with pytest.raises(FramingError):
        framer.feed(b"<34>bad")


def test_datagram_end_of_line_is_left_out() -> None:
    assert without_line_end(b"<34>a\nb\r\n\0") == b"<34>a\nb"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"192.0.2.7", b"::1"]),
            st.binary(max_size=80),
            st.none() | st.integers(1, 10**9),
        ),
        max_size=6,
    )
)
def test_spool_frames_are_read_back_and_a_torn_last_one_is_left(
    frames: list[tuple[bytes, bytes, int | None]],
) -> None:
    body = b"".join(frame(*each) for each in frames)
    records = SpoolFrames().split(body, 0, ends=True)
    assert [(each.peer, each.value, each.full_bytes) for each in records] == frames
    assert (records[-1].end if records else 0) == len(body)
    torn = SpoolFrames().split(body[:-1], 0, ends=True)
    assert [(each.peer, each.value, each.full_bytes) for each in torn] == frames[:-1]


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:514", ("127.0.0.1", 514)), ("[::1]:0", ("::1", 0)), (":6514", ("0.0.0.0", 6514))],
)
def test_address_forms(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["5514", "host:", "host:x", "::1:514"])
def test_address_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not of the form host:port"):
        parse_address(text)


def test_address_with_no_port_is_refused() -> None:
    with pytest.raises(UsageError, match="--syslog host:70000: a port is at most 65535"):
        parse_address("host:70000")


def _spooled(folder: Path) -> list[tuple[bytes | None, bytes | None]]:
    bodies = [each.read_bytes() for each in sorted(folder.glob("*.spool"))]
    return [(each.peer, each.value) for body in bodies for each in SpoolFrames().split(body, 0, ends=True)]


def _await(folder: Path, count: int) -> list[tuple[bytes | None, bytes | None]]:
    deadline = time.monotonic() + 10
    while len(found := _spooled(folder)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_listener_tcp_and_udp_messages_are_in_the_spool(tmp_path: Path) -> None:
    sentences: list[str] = []
    spool = Spool(tmp_path, 1 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, sentences.append)
    host, port = parse_address(listener.address)
    try:
        with socket.create_connection((host, port)) as tcp:
            tcp.sendall(b"8 <34>one\n<34>two\n")
            _await(tmp_path, 2)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"<34>three\n", (host, port))
            found = _await(tmp_path, 3)
        with pytest.raises(PortInUseError):
            SyslogListener(listener.address, spool, sentences.append)
    finally:
        listener.close()
        spool.close()
    assert found == [(b"127.0.0.1", b"<34>one"), (b"127.0.0.1", b"<34>two"), (b"127.0.0.1", b"<34>three")]
    assert sentences == []


def test_listener_long_messages_are_cut_and_counted_and_the_connection_goes_on(tmp_path: Path) -> None:
    sentences: list[str] = []
    spool = Spool(tmp_path, 16 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, sentences.append)
    long = b"<34>" + b"x" * 1_000_000
    try:
        with socket.create_connection(parse_address(listener.address)) as tcp:
            tcp.sendall(b"%d %s<34>two\n%s\n<34>four\n" % (len(long), long, long))
            found = _await(tmp_path, 4)
            tcp.sendall(b"20 <34>broken off")
            tcp.shutdown(socket.SHUT_WR)
            _await(tmp_path, 5)
    finally:
        listener.close()
        spool.close()
    cut = long[:MAX_MESSAGE_BYTES]
    assert [message for _, message in found] == [cut, b"<34>two", cut, b"<34>four"]
    bodies = [each.read_bytes() for each in sorted(tmp_path.glob("*.spool"))]
    records = [each for body in bodies for each in SpoolFrames().split(body, 0, ends=True)]
    assert [each.full_bytes for each in records] == [1_000_004, None, 1_000_004, None, 20]
    assert sentences[-1] == (
        "cut: 3 syslog messages longer than 524288 bytes or broken off with the connection; "
        "the header headwater-syslog-truncated has the full length"
    )
    assert len(sentences) <= 2


def test_listener_count_that_no_message_has_closes_the_connection(tmp_path: Path) -> None:
    sentences: list[str] = []
    spool = Spool(tmp_path, 1 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, sentences.append)
    try:
        with socket.create_connection(parse_address(listener.address), timeout=10) as tcp:
            tcp.sendall(b"<34>one\n1234567890 <34>two\n")
            with contextlib.suppress(ConnectionResetError):
                assert tcp.recv(1) == b""
    finally:
        listener.close()
        spool.close()
    assert _spooled(tmp_path) == [(b"127.0.0.1", b"<34>one")]
    (sentence,) = sentences
    assert sentence == (
        "127.0.0.1 sent a syslog message with a length of more than 9 digits: "
        "what follows cannot be told apart, and its connection was closed"
    )


@pytest.mark.parametrize("limit_bytes", [1 << 20, 16 << 20])
def test_listener_full_spool_makes_tcp_wait_and_loses_nothing(
    tmp_path: Path, limit_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.ship.listener._FULL_CHECK_S", 0.01)
    spool = Spool(tmp_path, limit_bytes)
    listener = SyslogListener("127.0.0.1:0", spool, lambda _: None)
    seed = drawn_seed()
    rng = random.Random(seed)
    messages = [b"<13>%d %s" % (number, b"x" * rng.randrange(20_000)) for number in range(2400)]
    found: list[tuple[bytes | None, bytes | None]] = []
    try:
        with socket.create_connection(parse_address(listener.address)) as tcp:
            tcp.setblocking(False)
            stream = memoryview(b"".join(b"%d %s" % (len(each), each) for each in messages))
            waits = 0
            deadline = time.monotonic() + 30
            while stream and time.monotonic() < deadline:
                try:
                    stream = stream[tcp.send(stream) :]
                except BlockingIOError:
                    waits += 1
                    time.sleep(0.01)
                    if spool.full:  # the shipper has caught up with the files that no longer grow
                        found += _drain(tmp_path, spool)
            tcp.shutdown(socket.SHUT_WR)
            while len(found) < len(messages) and time.monotonic() < deadline:
                time.sleep(0.01)
                spool.close()  # the next message begins a new file
                found += _drain(tmp_path, spool)
    finally:
        listener.close()
        spool.close()
    assert waits > 0
    assert [message for _, message in found] == messages


def _drain(folder: Path, spool: Spool) -> list[tuple[bytes | None, bytes | None]]:
    files = [each for each in sorted(folder.glob("*.spool")) if not spool.writes(str(each))]
    bodies = [each.read_bytes() for each in files]
    for each in files:
        spool.remove(str(each))
    return [(each.peer, each.value) for body in bodies for each in SpoolFrames().split(body, 0, ends=True)]


def test_listener_full_disk_refuses_the_sender_and_takes_what_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences: list[str] = []
    spool = Spool(tmp_path, 1 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, sentences.append)
    try:
        with monkeypatch.context() as full:
            full.setattr(spool, "append", _fails(errno.ENOSPC, once=spool.append))
            with socket.create_connection(parse_address(listener.address), timeout=10) as tcp:
                tcp.sendall(b"<34>one\n<34>tw")
                with contextlib.suppress(ConnectionResetError):
                    assert tcp.recv(1) == b""
        with socket.create_connection(parse_address(listener.address)) as tcp:
            tcp.sendall(b"<34>one\n<34>two\n")
            found = _await(tmp_path, 2)
    finally:
        listener.close()
        spool.close()
    assert [message for _, message in found] == [b"<34>one", b"<34>two"]  # and not <34>tw, which was refused
    assert sentences == ["cannot keep syslog messages: no space left on device"]
    assert listener.failure is None


def test_listener_disk_that_cannot_be_synced_is_told_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.ship.listener._FULL_CHECK_S", 0.001)
    monkeypatch.setattr("headwater.ship.listener._SYNC_S", 0)
    sentences: list[str] = []
    spool = Spool(tmp_path, 1 << 20)
    monkeypatch.setattr(spool, "sync", _fails(errno.EIO))
    listener = SyslogListener("127.0.0.1:0", spool, sentences.append)
    try:
        _until(lambda: sentences)
        with socket.create_connection(parse_address(listener.address)) as tcp:
            tcp.sendall(b"<34>one\n")
            found = _await(tmp_path, 1)
        assert listener.failure is None
    finally:
        listener.close()
        spool.close()
    assert [message for _, message in found] == [b"<34>one"]
    assert set(sentences) == {"cannot write syslog messages through to the disk: input/output error"}


def test_listener_without_open_files_left_is_told_and_takes_the_connection_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.001)
    sentences: list[str] = []
    spool = Spool(tmp_path, 1 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, sentences.append)
    try:
        with socket.socket() as tcp:
            with monkeypatch.context() as full:
                full.setattr(socket.socket, "accept", _fails(errno.EMFILE))
                tcp.connect(parse_address(listener.address))
                tcp.sendall(b"<34>one\n")
                _until(lambda: sentences)
            found = _await(tmp_path, 1)
    finally:
        listener.close()
        spool.close()
    assert sentences[:1] == ["cannot receive syslog: too many open files"]
    assert [message for _, message in found] == [b"<34>one"]


def test_listener_that_has_nobody_to_tell_goes_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, _fails(errno.EPIPE))
    try:
        listener.complain("lost", "nobody reads this")
        with socket.create_connection(parse_address(listener.address)) as tcp:
            tcp.sendall(b"<34>one\n")
            found = _await(tmp_path, 1)
    finally:
        listener.close()
        spool.close()
    assert [message for _, message in found] == [b"<34>one"]


def test_listener_that_ends_by_a_fault_says_which_and_listens_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.ship.listener._FULL_CHECK_S", 0.001)
    fault = RuntimeError("a fault of ours")
    spool = Spool(tmp_path, 1 << 20)
    listener = SyslogListener("127.0.0.1:0", spool, lambda _: None)
    assert listener.failure is None
    with monkeypatch.context() as faulty:
        faulty.setattr(listener, "_say_due", _raises(fault))
        _until(lambda: listener.failure)
    assert listener.failure is fault
    listener._thread.join()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(parse_address(listener.address), timeout=10).close()
    listener.close()
    spool.close()


def _raises(error: BaseException) -> Callable[..., object]:
    def call(*_args: object) -> object:
        raise error

    return call


def _until(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.001)


def _fails(number: int, once: Callable[..., object] | None = None) -> Callable[..., object]:
    """What fails with an error's number: always, or only at the first call."""
    calls: list[None] = []

    def call(*args: object) -> object:
        calls.append(None)
        if once is not None and len(calls) > 1:
            return once(*args)
        raise OSError(number, os.strerror(number))

    return call
