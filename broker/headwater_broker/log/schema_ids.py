"""Whether a record's key and value begin with the id of a schema that their subject has, where a topic asks for that.

An id stands in the header of Confluent's wire format: a zero octet, then the id in four, most significant first.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol

from headwater_broker.log.batch import HeaderTuple
from headwater_broker.log.errors import InvalidRecordError, SchemasUnavailableError
from headwater_broker.log.record_stream import stream_records, value_of
from headwater_broker.log.records import UnreadableBatchError

_HEADER = Struct(">bI")
_LISTED_ERRORS = 3


class SchemaIds(Protocol):
    """Which ids subjects have."""

    def has(self, subject: str, number: int) -> bool | None:
        """Whether a schema of the subject has the id; None if that is not known yet. It does not block."""


def check_schema_ids(
    batch: memoryview, header: HeaderTuple, subjects: tuple[str | None, str | None], ids: SchemaIds | None
) -> None:
    """Checks the ids of a batch's keys and values; a null has none.

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
    seen: dict[tuple[str, int], bool | None] = {}
    try:
        for place, record in enumerate(stream_records(batch, header)):
            for subject, part in zip(subjects, value_of(record), strict=True):
                if subject is None or part is None:
                    continue
                if len(part) < _HEADER.size or part[0] != 0:
                    wrong.append(
                        (place, f"it does not begin with the id of a schema, as subject {subject} asks for")
                    )
                    continue
                number = _HEADER.unpack_from(part)[1]
                if (subject, number) not in seen:
                    seen[subject, number] = None if ids is None else ids.has(subject, number)
                if seen[subject, number] is False:
                    wrong.append((place, f"subject {subject} has no schema of id {number}"))
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
        subject, number = unknown[0]
        raise SchemasUnavailableError(
            f"the registry has not said yet whether {subject} has a schema of id {number}"
        )
