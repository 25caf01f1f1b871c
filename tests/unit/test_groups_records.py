"""Keys and values of `__consumer_offsets`, byte by byte as Kafka 3.9 writes them."""

from __future__ import annotations

import struct

from headwater_broker.groups import (
    KeptGroup,
    KeptMember,
    decode_offset_key,
    group_key,
    group_value,
    offset_key,
    offset_value,
)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def test_offset_key_is_version_1() -> None:
    assert offset_key("gr", "topic", 7) == b"\0\1" + text("gr") + text("topic") + struct.pack(">i", 7)


def test_offset_key_is_read_back_and_others_are_none() -> None:
    assert decode_offset_key(offset_key("gr", "topic", 7)) == ("gr", "topic", 7)
    for other in (b"", b"\0", group_key("gr"), offset_key("gr", "topic", 7)[:-1], b"\0\1\x7f\xff"):
        assert decode_offset_key(other) is None


def test_offset_value_is_version_3_and_1_where_it_expires() -> None:
    assert offset_value(9, 4, "é", 1000, None) == (
        struct.pack(">hqi", 3, 9, 4) + text("é") + struct.pack(">q", 1000)
    )
    assert offset_value(9, 4, "", 1000, 2000) == (
        struct.pack(">hq", 1, 9) + text("") + struct.pack(">qq", 1000, 2000)
    )


def test_offset_value_longer_than_its_schema_is_cut_between_characters() -> None:
    value = offset_value(9, 4, "é" * 20_000, 1000, None)
    assert value[14:16] == struct.pack(">h", 32_766)
    assert value[16:-8].decode() == "é" * 16_383


def test_group_value_is_version_3() -> None:
    member = KeptMember(
        "m-1", None, "client", "/127.0.0.1", 45_000, 60_000, (("range", b"other"), ("sticky", b"sub")), b"as"
    )
    group = KeptGroup("gr", 5, "consumer", "sticky", "m-1", (member,))
    assert group_key("gr") == b"\0\2" + text("gr")
    assert group_value(group, 1234) == (
        b"\0\3"
        + text("consumer")
        + struct.pack(">i", 5)
        + text("sticky")
        + text("m-1")
        + struct.pack(">qi", 1234, 1)
        + text("m-1")
        + struct.pack(">h", -1)
        + text("client")
        + text("/127.0.0.1")
        + struct.pack(">ii", 60_000, 45_000)
        + struct.pack(">i", 3)
        + b"sub"
        + struct.pack(">i", 2)
        + b"as"
    )


def test_group_value_without_members_has_nulls() -> None:
    empty = KeptGroup("gr", 6, None, None, None)
    assert group_value(empty, 1) == (
        b"\0\3" + text("") + struct.pack(">i", 6) + b"\xff\xff" * 2 + struct.pack(">qi", 1, 0)
    )
