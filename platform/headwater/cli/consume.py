"""`headwater consume`: the records of a topic, as lines or as JSON."""

import base64
import json
import sys
import time
from typing import Annotated, Any

import typer
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, TopicPartition

from headwater.cli._common import DEFAULT_HOME, BootstrapOption, HomeOption, print_line
from headwater.cli._kafka import resolve_offset
from headwater.errors import UsageError, UserError
from headwater.running.cluster import Cluster
from headwater_broker.log.unreadable import UNREADABLE_HEADER
from headwater_broker.shown import escaped_data, escaped_json
from headwater_broker.wire.fetch import PAST_UNREADABLE
from headwater_streams.base.plural import quantity

_BATCH = 500


def consume(
    topic: Annotated[str, typer.Argument(help="What to read.")],
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="earliest, latest, an offset or a time.")
    ] = "earliest",
    end: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Stop before it: latest, an offset or a time.")
    ] = "latest",
    follow: Annotated[bool, typer.Option("--follow", help="Go on as records arrive, until stopped.")] = False,
    count: Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after so many records.")] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Read this partition only.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the key and this before each value.")
    ] = None,
    isolation: Annotated[
        str, typer.Option(metavar="LEVEL", help="read_committed or read_uncommitted.")
    ] = "read_committed",
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, with key, headers and place.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print keys and values byte for byte, not escaped: for pipes.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
) -> None:
    """Print the records of a topic, from the beginning to what is its end now.

    A time is as 2013-01-01T10:00:00Z and means the first record at or after
    it. Control characters, but for tabs and line breaks, and bytes that are
    not UTF-8 are shown as \\x1b, as a terminal would obey them; --raw prints
    what was produced. In JSON such bytes are an object with base64. A batch
    in the log that nobody can read, and offsets that are gone, are told, and
    passed over; at one whose checksum is wrong the command ends.

    \b
    Examples:
      headwater consume flights --count 10
      headwater consume flights --from latest --follow --json
      headwater consume photos --raw --count 1 > photo
    """
    if raw and json_output:
        raise UsageError("--raw and --json exclude each other: JSON has bytes that are not text as base64")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation {isolation} is none of read_committed, read_uncommitted")
    cluster = Cluster(home, bootstrap)
    partitions = cluster.require_leaders(topic, partition)
    properties = {
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "client.rack": PAST_UNREADABLE.decode(),
        # librdkafka hands out what a damaged batch seems to hold, and asks for the rest of it for ever.
        "check.crcs": True,
        # Its own rule goes to the end, past all that can still be read.
        "auto.offset.reset": "error",
    }
    with cluster.errors(f"topic {topic}"), cluster.consumer(**properties) as consumer:
        ends = {}
        assigned = []
        for number in partitions:
            first = resolve_offset(consumer, topic, number, start, cluster.timeout_s)
            last = resolve_offset(consumer, topic, number, end, cluster.timeout_s)
            if follow or first < last:
                ends[number] = None if follow else last
                assigned.append(TopicPartition(topic, number, first))
        if not assigned:
            return
        consumer.assign(assigned)
        printer = _Printer(cluster, topic, key_separator, as_json=json_output, raw=raw)
        try:
            printer.run(consumer, ends, count)
        finally:
            printer.report_escaped()


class _Printer:
    """Prints records until each partition's end, or the wanted number of them, is reached."""

    def __init__(
        self, cluster: Cluster, topic: str, key_separator: str | None, *, as_json: bool, raw: bool
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._separator = None if key_separator is None else key_separator.encode()
        self._as_json = as_json
        self._raw = raw
        self._escaped = 0

    def run(self, consumer: Any, ends: dict[int, int | None], count: int | None) -> None:
        open_partitions = set(ends)
        remaining = count
        heard_s = time.monotonic()
        while open_partitions and remaining != 0:
            messages = consumer.consume(_BATCH if remaining is None else min(remaining, _BATCH), timeout=1.0)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > self._cluster.timeout_s:
                heard_s = time.monotonic()
                for number in open_partitions:
                    if ends[number] is not None:  # with --follow it goes on waiting
                        self._cluster.require_leaders(self._topic, number)
            for message in messages:
                if message.error() is not None and self._goes_on_at(consumer, message):
                    continue
                number = message.partition()
                end = ends[number]
                if message.error() is not None:
                    # The last offsets before the end may be records that a reader never sees, such as markers.
                    if end is not None and message.offset() >= end:
                        open_partitions.discard(number)
                    continue
                if number in open_partitions and (end is None or message.offset() < end):
                    unreadable = _unreadable(message)
                    if unreadable is None:
                        sys.stdout.buffer.write(self._line(message))
                        remaining = None if remaining is None else remaining - 1
                    else:
                        print_line(f"headwater: {self._topic} {number}: {unreadable}", file=sys.stderr)
                if end is not None and message.offset() + 1 >= end:
                    open_partitions.discard(number)
            sys.stdout.buffer.flush()

    def _goes_on_at(self, consumer: Any, message: Any) -> bool:
        """Whether reading goes on after a message that is an error; False at a partition's end.

        Raises:
            UserError: It does not go on.
        """
        name, number, offset = message.error().name(), message.partition(), message.offset()
        if name == "_PARTITION_EOF":
            return False
        if name == "GROUP_AUTHORIZATION_FAILED":
            return True  # librdkafka looks for the coordinator of a group that is not used
        place = f"topic {self._topic}: partition {number}"
        if name == "_BAD_MSG":
            raise UserError(
                f"{place} is damaged in its log: {message.error().str()}; --from with an offset behind that reads what "
                "follows, and a broker that starts again says more in its log"
            )
        if name == "_AUTO_OFFSET_RESET":
            at = TopicPartition(self._topic, number)
            # After it reported a lost offset, the broker answers once with the offset behind the gap as the earliest.
            at.offset = consumer.get_watermark_offsets(at, timeout=self._cluster.timeout_s)[0]
            if at.offset > offset:
                print_line(
                    f"headwater: {place} has lost offsets {offset} to {at.offset - 1}: reading goes on behind them",
                    file=sys.stderr,
                )
                consumer.incremental_unassign([at])
                consumer.incremental_assign([at])
                return True
        raise self._cluster.explain(message.error(), f"topic {self._topic}")

    def _line(self, message: Any) -> bytes:
        if self._as_json:
            return escaped_json(json.dumps(_described(message), ensure_ascii=False)).encode() + b"\n"
        key = b"" if self._separator is None else (message.key() or b"")
        value = message.value() or b""
        if not self._raw:
            produced = key, value
            key, value = escaped_data(key), escaped_data(value)
            self._escaped += (key, value) != produced
        return key + (self._separator or b"") + value + b"\n"

    def report_escaped(self) -> None:
        """Notes on standard error how many records were printed escaped."""
        if self._escaped:
            print_line(
                f"headwater: {quantity(self._escaped, 'record')} with control characters or bytes that are not UTF-8, "
                "shown escaped; --raw prints what was produced",
                file=sys.stderr,
            )


def _unreadable(message: Any) -> str | None:
    """The text of a record that stands for an unreadable batch; None for any other record."""
    headers = message.headers()
    if not headers or headers[0][0] != UNREADABLE_HEADER.decode():
        return None
    return (headers[0][1] or b"").decode(errors="replace")


def _described(message: Any) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    timed = kind != TIMESTAMP_NOT_AVAILABLE
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms if timed else None,
        "timestamp_type": ("create" if kind == TIMESTAMP_CREATE_TIME else "append") if timed else None,
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in message.headers() or ()],
    }


def _text(field: bytes | str | None) -> Any:
    if field is None or isinstance(field, str):
        return field
    try:
        return field.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(field).decode("ascii")}
