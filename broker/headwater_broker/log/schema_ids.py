"""Whether a record's key and value name a schema that their subject has, where a topic asks for that.

They begin with it as in Confluent's wire format: a zero octet, then the id in four, most significant first. Or a header
of the record has it, which goes before: those octets, or a one and the schema's GUID in sixteen. Of Protobuf there
follows which message of the schema it is. (Source: `SchemaId` and `DualSchemaIdDeserializer` of Confluent's clients.)
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from struct import Struct
from typing import Protocol

from headwater_broker.log.batch import HeaderTuple
from headwater_broker.log.errors import InvalidRecordError, SchemasUnavailableError
from headwater_broker.log.record_stream import Streamed, headers_of, parts_of, stream_records
from headwater_broker.log.records import UnreadableBatchError

_HEADER = Struct(">bI")
_GUID_BYTES = 16
_HEADER_NAMES = (b"__key_schema_id", b"__value_schema_id")
_LISTED_ERRORS = 3


class SchemaIds(Protocol):
    """Which ids subjects have."""

    def has(self, subject: str, name: int | str) -> bool | None:
        """Whether a schema of the subject has the id or the GUID; None if that is not known yet. It does not block."""


def check_schema_ids(
    batch: memoryview, header: HeaderTuple, subjects: tuple[str | None, str | None], ids: SchemaIds | None
) -> None:
    """Checks the schemas that a batch's keys and values name; a null has none.

    Args:
        batch: A whole batch, whose records are in order.
        header: Its header.
        subjects: Of the keys and of the values; None where they are not checked.
        ids: Who knows the ids.

    Raises:
        InvalidRecordError: A key or a value has no id, or one that its subject does not have.
        SchemasUnavailableError: It is not known yet whether the subject has an id: the producer is to send it again.
    """
    wrong: list[tuple[int, str]] = []
    seen: dict[tuple[str, int | str], bool | None] = {}
    try:
        for place, record in enumerate(stream_records(batch, header)):
            key, value, at = parts_of(record)
            named = _NOT_NAMED if record[0][at : at + 1] == b"\0" else _named_in_headers(record, at)
            for subject, part, header_value in zip(subjects, (key, value), named, strict=True):
                if subject is None or part is None:
                    continue
                if header_value is not None:
                    name = _name_of(header_value[: 1 + _GUID_BYTES])
                elif len(part) >= _HEADER.size and part[0] == 0:
                    name = _HEADER.unpack_from(part)[1]
                else:
                    name = None
                if name is None:
                    where = "it does not begin with" if header_value is None else "its header does not have"
                    wrong.append((place, f"{where} the id of a schema, as subject {subject} asks for"))
                    continue
                if (subject, name) not in seen:
                    seen[subject, name] = None if ids is None else ids.has(subject, name)
                if seen[subject, name] is False:
                    wrong.append((place, f"subject {subject} has no schema of id {name}"))
    except UnreadableBatchError as error:
        raise InvalidRecordError(str(error)) from error
    if wrong:
        listed = "; ".join(f"record {place}: {text}" for place, text in wrong[:_LISTED_ERRORS])
        raise InvalidRecordError(f"{len(wrong)} records are refused: {listed}", wrong)
    if ids is None and seen:
        raise InvalidRecordError(
            "the topic asks for ids of schemas: set the broker's confluent.schema.registry.url"
        )
    unknown = [key for key, known in seen.items() if known is None]
    if unknown:
        subject, name = unknown[0]
        raise SchemasUnavailableError(
            f"the registry has not said yet whether {subject} has a schema of id {name}"
        )


_NOT_NAMED = (None, None)


def _named_in_headers(record: Streamed, at: int) -> tuple[bytes | None, bytes | None]:
    """What a record's headers say of the schemas of its key and its value: of several, the last one counts."""
    last = dict(headers_of(record, at))
    key, value = (last.get(name) for name in _HEADER_NAMES)
    return key, value


@lru_cache(maxsize=1024)
def _name_of(header_value: bytes) -> int | str | None:
    """The id or the GUID that a header begins with; None if it is neither."""
    if header_value[:1] == b"\0" and len(header_value) >= _HEADER.size:
        number: int = _HEADER.unpack_from(header_value)[1]
        return number
    if header_value[:1] == b"\1" and len(header_value) > _GUID_BYTES:
        return str(uuid.UUID(bytes=header_value[1:]))
    return None
