"""What of a group outlives its coordinator, and the bytes that it is kept as.

JSON, `{"version":1,"generation":...,"members":[...]}` with metadata and assignments in base64; a large one is
compressed by zlib, whose first byte is no brace. It is what Kafka 3.9 writes as `GroupMetadataValue`, except that
a member is kept with all of its protocols: a new member has to have one in common with it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import Any

_VERSION = 1
_COMPRESS_FROM_BYTES = 64 * 1024
_MAX_PLAIN_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeptMember:
    """A member, as its last JoinGroup had it, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """A generation: of a stable group, or of one that has no members any more."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[KeptMember, ...] = ()


def encode_group(group: KeptGroup, since_ms: int) -> bytes:
    """The bytes to keep.

    Args:
        group: The group.
        since_ms: The time of day since which it is in this state.
    """
    value = asdict(group)
    del value["group_id"]
    for member in value["members"]:
        member["protocols"] = [[name, _text(metadata)] for name, metadata in member["protocols"]]
        member["assignment"] = _text(member["assignment"])
    data = json.dumps({"version": _VERSION, "since_ms": since_ms, **value}, separators=(",", ":")).encode()
    return data if len(data) < _COMPRESS_FROM_BYTES else zlib.compress(data)


def decode_group(group_id: str, data: bytes) -> tuple[KeptGroup, int]:
    """The group, and the time of day since which it is in its state.

    Raises:
        ValueError: The bytes are something else, or of a later version.

    >>> group = KeptGroup("g", 7, "consumer", None, None)
    >>> decode_group("g", encode_group(group, 1000)) == (group, 1000)
    True
    """
    try:
        value = json.loads(data if data.startswith(b"{") else _inflated(data))
        if value["version"] != _VERSION:
            raise ValueError(f"version {value['version']!r}; this program reads version {_VERSION}")
        members = tuple(_member(each) for each in value["members"])
        group = KeptGroup(
            group_id,
            int(value["generation"]),
            value["protocol_type"],
            value["protocol"],
            value["leader"],
            members,
        )
        return group, int(value["since_ms"])
    except (KeyError, TypeError, zlib.error) as error:
        raise ValueError(repr(error)) from error


def _member(value: dict[str, Any]) -> KeptMember:
    protocols = tuple((str(name), b64decode(metadata)) for name, metadata in value["protocols"])
    return KeptMember(**{**value, "protocols": protocols, "assignment": b64decode(value["assignment"])})


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, _MAX_PLAIN_BYTES)
    if not inflater.eof:
        raise ValueError("compressed bytes that end early, or are too many")
    return plain
