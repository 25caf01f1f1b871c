"""The weather reports of the full demo: Avro, by schemas in a registry, of which the second comes halfway."""

import io
import json
import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from headwater.demo.events import WEATHER, Event
from headwater.demo.weather import MEASURED
from headwater_streams.sources.registry_client import RefusedByRegistryError, RegistryClient

SUBJECT = f"{WEATHER}-value"
_HEADER = struct.Struct(">bI")  # a zero octet and the schema's id: Confluent's wire format
_TIMEOUT_S = 30
REFUSED = "INVALID_RECORD"
"""The error of a record without a schema that its topic asks for."""


def schema(version: int) -> dict[str, Any]:
    """The schema of a report.

    Args:
        version: 1; 2, which has a field more; or 3, which cannot read what was written with them.
    """
    fields: list[dict[str, Any]] = [
        {"name": "origin", "type": "string"},
        {"name": "observed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        *({"name": name, "type": ["null", "double"], "default": None} for name in MEASURED),
    ]
    if version > 1:
        fields.append({"name": "station", "type": ["null", "string"], "default": None})
    if version > 2:
        fields.append({"name": "pressure", "type": "double"})  # no default: older reports have none
    return {"type": "record", "name": "Report", "fields": fields}


class Reports:
    """Writes reports by the registry's schemas."""

    def __init__(self, registry: str, until_chunk: int) -> None:
        """Prepare; nothing is registered yet.

        Args:
            registry: The registry's address.
            until_chunk: The last chunk whose reports have the first version.
        """
        self._client = RegistryClient(registry)
        self._until_chunk = until_chunk
        self._ids: dict[int, int] = {}

    def register(self, version: int) -> int:
        """The id of a version of the schema, which is registered if the subject does not have it."""
        if version not in self._ids:
            answer = self._client.ask("POST", "subjects", SUBJECT, "versions", body=_body(version))
            self._ids[version] = int(answer["id"])
        return self._ids[version]

    def value(self, event: Event, chunk: int) -> bytes:
        """The value that an event is sent with: a report in Avro, another event as it is."""
        if event.topic != WEATHER:
            return event.value
        return self._written(event, 1 if chunk <= self._until_chunk else 2)

    def values(self, event: Event) -> Iterator[bytes]:
        """The values that an event may have been sent with."""
        if event.topic != WEATHER:
            yield event.value
            return
        yield self._written(event, 1)
        yield self._written(event, 2)

    def refuses_incompatible(self) -> bool:
        """Whether the registry refuses a version that could not read those before."""
        try:
            self._client.ask("POST", "subjects", SUBJECT, "versions", body=_body(3))
        except RefusedByRegistryError:
            return True
        return False

    def versions(self) -> list[int]:
        """The versions that the registry has."""
        return [int(each) for each in self._client.ask("GET", "subjects", SUBJECT, "versions")]

    def _written(self, event: Event, version: int) -> bytes:
        from avro.io import BinaryEncoder, DatumWriter
        from avro.schema import make_avsc_object

        report = json.loads(event.value)
        report["observed_at"] = datetime.fromisoformat(report["observed_at"])
        out = io.BytesIO(_HEADER.pack(0, self.register(version)))
        out.seek(0, io.SEEK_END)
        DatumWriter(make_avsc_object(schema(version))).write(report, BinaryEncoder(out))
        return out.getvalue()


def answer_without_schema(bootstrap: str) -> str:
    """Send a report that has no schema.

    Args:
        bootstrap: The brokers, host:port.

    Returns:
        The name of the error that its producer gets: `REFUSED`, unless something is wrong; empty if it was taken.
    """
    answers: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        answers.append("" if error is None else error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    producer.produce(WEATHER, b'{"origin": "JFK"}', on_delivery=delivered)
    producer.flush(_TIMEOUT_S)
    return answers[0] if answers else "no answer"


def _body(version: int) -> dict[str, Any]:
    return {"schema": json.dumps(schema(version)), "schemaType": "AVRO"}
