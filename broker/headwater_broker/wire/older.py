"""Versions that Kafka 3.9 answers and kio has no schemas for: made of kio's lowest version, without what they lack.

librdkafka and sarama ask in them where they are told that the broker is of Kafka 0.8; ListOffsets 0 is no part of a
newer one, see `list_offsets_v0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, get_args, get_origin

from kio.static.primitive import i16, i64


class _Older(NamedTuple):
    """What a version lacks; names count at every depth.

    Attributes:
        next_version: The version that kio has.
        request: Fields that the request lacks.
        response: Fields that the response lacks.
        stamped: Whether each partition of the request has a `commit_timestamp` behind its offset.
    """

    next_version: int
    request: frozenset[str] = frozenset()
    response: frozenset[str] = frozenset()
    stamped: bool = False


_THROTTLE = frozenset({"throttle_time"})
_MEMBER = frozenset({"generation_id_or_member_epoch", "member_id", "retention_time"})

_OLDER: Mapping[tuple[str, int], _Older] = {
    ("offset_commit", 0): _Older(2, _MEMBER),
    ("offset_commit", 1): _Older(2, frozenset({"retention_time"}), stamped=True),
    ("offset_fetch", 0): _Older(1),
    ("create_topics", 0): _Older(2, frozenset({"validate_only"}), _THROTTLE | {"error_message"}),
    ("create_topics", 1): _Older(2, response=_THROTTLE),
    ("delete_topics", 0): _Older(1, response=_THROTTLE),
    ("offset_for_leader_epoch", 0): _Older(
        2, frozenset({"current_leader_epoch"}), _THROTTLE | {"leader_epoch"}
    ),
    ("offset_for_leader_epoch", 1): _Older(2, frozenset({"current_leader_epoch"}), _THROTTLE),
    ("alter_replica_log_dirs", 0): _Older(1),
    ("describe_log_dirs", 0): _Older(1),
    ("create_delegation_token", 0): _Older(1),
    ("renew_delegation_token", 0): _Older(1),
    ("expire_delegation_token", 0): _Older(1),
    ("describe_delegation_token", 0): _Older(1),
}
"""From the `versions` of the fields in Apache Kafka 3.9's message definitions."""


def older_type(name: str, version: int, kind: str, class_name: str) -> type[Any] | None:
    """The class of such a message; None where there is none.

    Args:
        name: kio's name of the schema package.
        version: The version.
        kind: `request` or `response`.
        class_name: Of kio's class.
    """
    if (name, version) == ("list_offsets", 0):
        module = import_module("headwater_broker.wire.list_offsets_v0")
        message_class: type[Any] = getattr(module, class_name)
        return message_class
    older = _OLDER.get((name, version))
    if older is None:
        return None
    module = import_module(f"kio.schema.{name}.v{older.next_version}.{kind}")
    is_request = kind == "request"
    lacking = older.request if is_request else older.response
    return _less(getattr(module, class_name), version, lacking, is_request and older.stamped)


@cache
def _less(entity_type: Any, version: int, lacking: frozenset[str], stamped: bool) -> type[Any]:
    members: list[tuple[str, Any, Any]] = []
    for each in fields(entity_type):
        if each.name in lacking:
            continue
        members.append((each.name, _less_within(each.type, version, lacking, stamped), _copy(each)))
        if stamped and each.name == "committed_offset":
            members.append(
                ("commit_timestamp", i64, field(metadata={"kafka_type": "int64"}, default=i64(-1)))
            )
    namespace = {
        "__type__": entity_type.__type__,
        "__version__": i16(version),
        "__flexible__": False,
    }
    return make_dataclass(
        entity_type.__name__, members, frozen=True, slots=True, kw_only=True, namespace=namespace
    )


def _less_within(kind: Any, version: int, lacking: frozenset[str], stamped: bool) -> Any:
    if get_origin(kind) is tuple:
        return tuple[_less_within(get_args(kind)[0], version, lacking, stamped), ...]  # type: ignore[misc]
    if is_dataclass(kind):
        nested: Any = kind
        return _less(nested, version, lacking, stamped)
    return kind


def _copy(each: Field[Any]) -> Any:
    if each.default is MISSING:
        return field(metadata=each.metadata)
    return field(metadata=each.metadata, default=each.default)
