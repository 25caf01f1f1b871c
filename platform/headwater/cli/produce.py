"""`headwater produce`: lines of standard input or of a file become records of a topic."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, Producer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
)
from headwater.cli._kafka import Cluster, parse_assignments
from headwater.errors import UsageError, UserError, reason
from headwater_streams.base.plural import quantity

_LAST_PARTITION = 2**31 - 1
"""librdkafka takes no larger number."""


def produce(
    topic: Annotated[str, typer.Argument(help="Where the records go.")],
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read lines from here, not standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What stands before it in a line is the key; the rest, the value."),
    ] = None,
    null: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A key or value that reads so is sent as null.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="KEY=VALUE", help="A header of every record; repeatable."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=_LAST_PARTITION, help="The partition; by default the key decides."
        ),
    ] = None,
    compression: Annotated[
        str, typer.Option(metavar="NAME", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send lines from standard input or a file to a topic, one record each.

    Ends once every record is acknowledged by all replicas in sync. A topic
    that is not there is created with the broker's defaults, unless the broker
    has auto.create.topics.enable=false.

    \b
    Examples:
      echo hello | headwater produce greetings
      headwater produce flights --file flights.txt --key-separator :
    """
    if compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise UsageError(f"--compression {compression} is none of none, gzip, snappy, lz4, zstd")
    if key_separator == "":
        raise UsageError("--key-separator is empty: give the text that ends the key")
    cluster = Cluster(home, bootstrap)
    sender = _Sender(cluster, topic, partition, compression)
    fixed_headers = list(parse_assignments(headers, "--header").items())
    try:
        for number, line in enumerate(_lines(file), start=1):
            key, value = _split(line, key_separator, number)
            sender.send(_nullable(key, null), _nullable(value, null), fixed_headers)
    finally:
        sender.finish()
    if json_output:
        print_json({"topic": topic, "sent": sender.sent, "partitions": sender.ranges()})
    else:
        spans = ", ".join(
            f"partition {each['partition']} {_offsets(each['first'], each['last'])}"
            for each in sender.ranges()
        )
        print_line(f"sent {quantity(sender.sent, 'record')} to {topic}" + (f": {spans}" if spans else ""))


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


_LARGEST_BYTES = 100_000_000
"""A broker takes no larger request by default (`socket.request.max.bytes`), and closes the connection."""


class _Sender:
    """A producer that remembers where its records went and what went wrong first."""

    def __init__(self, cluster: Cluster, topic: str, partition: int | None, compression: str) -> None:
        self.sent = 0
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._chosen = {} if partition is None else {"partition": partition}
        self._spans: dict[int, tuple[int, int]] = {}
        self._failure: Any = None
        properties = {
            **cluster.client_properties(),
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 20,
            # The topic decides what is too large, not the client.
            "message.max.bytes": _LARGEST_BYTES,
            "message.timeout.ms": round(cluster.timeout_s * 1000),
        }
        self._producer = Producer(properties)

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, str]],
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    headers=headers,
                    on_delivery=self._delivered,
                    **self._chosen,
                )
            except BufferError:
                self._producer.poll(0.1)
                self._stop_at_failure()
                continue
            except KafkaException as error:
                raise self._cluster.explain(error.args[0], f"topic {self._topic}") from error
            break
        self._producer.poll(0)
        self._stop_at_failure()

    def finish(self) -> None:
        """Wait for every acknowledgement."""
        self._producer.flush()
        self._stop_at_failure()

    def ranges(self) -> list[dict[str, int]]:
        """The offsets that the records took, by partition."""
        return [
            {"partition": partition, "first": first, "last": last}
            for partition, (first, last) in sorted(self._spans.items())
        ]

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        self.sent += 1
        partition, offset = message.partition(), message.offset()
        first, last = self._spans.get(partition, (offset, offset))
        self._spans[partition] = min(first, offset), max(last, offset)

    def _stop_at_failure(self) -> None:
        if self._failure is not None:
            name = self._failure.name()
            sent = f"{quantity(self.sent, 'record was', 'records were')} sent"
            if name in ("_MSG_TIMED_OUT", "_UNKNOWN_PARTITION"):  # which do not say why
                self._cluster.require_leaders(self._topic, self._partition)
            if name == "_MSG_TIMED_OUT":
                raise UserError(
                    f"topic {self._topic} ({sent}): the broker answers, but took no record in "
                    f"{self._cluster.timeout_s:g} s: its disk may be full, or a file of its log gone: headwater status "
                    "and its broker.log say more"
                )
            raise self._cluster.explain(self._failure, f"topic {self._topic} ({sent})")


def _lines(file: Path | None) -> Iterator[bytes]:
    if file is None:
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
        return
    try:
        with file.open("rb") as lines:
            yield from (line.rstrip(b"\r\n") for line in lines)
    except OSError as error:
        raise UserError(f"cannot read {file}: {reason(error)}") from error


def _split(line: bytes, separator: str | None, number: int) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, delimiter, value = line.partition(separator.encode())
    if not delimiter:
        raise UserError(f"line {number} has no {separator!r} to end its key; the lines before it were sent")
    return key, value


def _nullable(field: bytes | None, null: str | None) -> bytes | None:
    return None if null is not None and field == null.encode() else field
