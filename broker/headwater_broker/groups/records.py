"""How a group is stored in `__consumer_offsets`: Kafka's OffsetCommit and GroupMetadata keys and values.

    key    version (int16): 1 = group, topic, partition (int32); 2 = group
    value  of 1, version 3: offset (int64), leader epoch (int32), metadata, commit time (int64, ms)
           of 1, version 1: offset, metadata, commit time, expiry time (int64, ms); where a client asked for one
           of 2, version 3: protocol type, generation (int32), protocol, leader, time of the state (int64, ms),
           and for each member its id, instance id, client id, client host, rebalance and session timeout (int32,
           ms), subscription, assignment

Strings have an int16 length, -1 for null; bytes and arrays an int32 one. A key without a value says that what it
names is no more. Source: `group-coordinator/src/main/resources/common/message` of Apache Kafka 3.9.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from headwater_broker.groups.kept import KeptGroup, KeptMember

_SHORT = Struct(">h")
_INT = Struct(">i")
_OFFSET_VALUE_HEAD = Struct(">hqi")
_EXPIRING_VALUE_HEAD = Struct(">hq")
_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")
_TWO_INTS = Struct(">ii")

_OFFSET_KEY_VERSION = _SHORT.pack(1)
_OLD_OFFSET_KEY_VERSION = _SHORT.pack(0)
_GROUP_KEY_VERSION = _SHORT.pack(2)
_OFFSET_VALUE_VERSION = 3
_EXPIRING_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = _SHORT.pack(3)
_NULL = _SHORT.pack(-1)
_MAX_STRING_BYTES = 2**15 - 1


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset.

    >>> offset_key("g", "t", 1).hex(" ", 2)
    '0001 0001 6700 0174 0000 0001'
    """
    return _OFFSET_KEY_VERSION + _string(group) + _string(topic) + _INT.pack(partition)


def decode_offset_key(key: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition of a committed offset; None for the key of something else.

    >>> decode_offset_key(offset_key("g", "t", 1))
    ('g', 't', 1)
    """
    if key[: _SHORT.size] not in (_OFFSET_KEY_VERSION, _OLD_OFFSET_KEY_VERSION):
        return None
    try:
        group, at = _text(key, _SHORT.size)
        topic, at = _text(key, at)
        (partition,) = _INT.unpack_from(key, at)
    except (StructError, UnicodeDecodeError):
        return None
    return group, topic, partition


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = at + _SHORT.size + _SHORT.unpack_from(data, at)[0]
    return data[at + _SHORT.size : end].decode(), end


def offset_value(
    offset: int, leader_epoch: int, metadata: str, timestamp_ms: int, expires_ms: int | None
) -> bytes:
    """The value of a committed offset.

    >>> offset_value(5, -1, "", 7, None).hex()
    '00030000000000000005ffffffff00000000000000000007'
    """
    if expires_ms is not None:
        head = _EXPIRING_VALUE_HEAD.pack(_EXPIRING_VALUE_VERSION, offset)
        return head + _string(metadata) + _TWO_LONGS.pack(timestamp_ms, expires_ms)
    head = _OFFSET_VALUE_HEAD.pack(_OFFSET_VALUE_VERSION, offset, leader_epoch)
    return head + _string(metadata) + _LONG.pack(timestamp_ms)


def group_key(group: str) -> bytes:
    """The key of a group's generation."""
    return _GROUP_KEY_VERSION + _string(group)


def group_value(group: KeptGroup, since_ms: int) -> bytes:
    """The value of a generation.

    Args:
        group: The generation.
        since_ms: The time of day since which the group is in its state.
    """
    parts = [
        _GROUP_VALUE_VERSION,
        _string(group.protocol_type or ""),
        _INT.pack(group.generation),
        _nullable(group.protocol),
        _nullable(group.leader),
        _LONG.pack(since_ms),
        _INT.pack(len(group.members)),
        *(_member(member, group.protocol) for member in group.members),
    ]
    return b"".join(parts)


def _member(member: KeptMember, protocol: str | None) -> bytes:
    subscription = next((metadata for name, metadata in member.protocols if name == protocol), b"")
    return b"".join(
        (
            _string(member.member_id),
            _nullable(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _TWO_INTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _INT.pack(len(subscription)),
            subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    )


def _string(text: str) -> bytes:
    data = text.encode(errors="replace")
    if len(data) > _MAX_STRING_BYTES:  # metadata may be longer than the record's schema has room for
        data = data[:_MAX_STRING_BYTES].decode(errors="ignore").encode()
    return _SHORT.pack(len(data)) + data


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else _string(text)
