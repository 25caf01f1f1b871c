"""`headwater consume`: the records of a topic, as lines or as JSON."""

import base64
import json
import sys
from typing import Annotated, Any

import typer
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, TopicPartition

from headwater.cli._common import DEFAULT_HOME, BootstrapOption, HomeOption, print_line
from headwater.cli._kafka import Cluster, resolve_offset
from headwater_broker.log.unreadable import UNREADABLE_HEADER
from headwater_broker.shown import escaped_data, escaped_json
from headwater_broker.wire.fetch import PAST_UNREADABLE
from headwater_streams.plural import counted

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
    in the log that nobody can read is told, and passed over.

    \b
    Examples:
      headwater consume flights --count 10
      headwater consume flights --from latest --follow --json
      headwater consume photos --raw --count 1 > photo
    """
    cluster = Cluster(home, bootstrap)
    wanted = cluster.require_leaders(topic, partition)
    properties = {"enable.partition.eof": True, "isolation.level": isolation}
    properties["client.rack"] = PAST_UNREADABLE.decode()
    with cluster.errors(f"topic {topic}"), cluster.consumer(**properties) as consumer:
        ends = {}
        assigned = []
        for number in wanted:
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
            printer.tell_escaped()


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
        left = count
        while open_partitions and left != 0:
            messages = consumer.consume(_BATCH if left is None else min(left, _BATCH), timeout=1.0)
            for message in messages:
                number = message.partition()
                end = ends[number]
                if message.error() is not None:
                    if message.error().name() != "_PARTITION_EOF":
                        raise self._cluster.explain(message.error(), f"topic {self._topic}")
                    # What is left before the end may be records that a reader never sees, such as markers.
                    if end is not None and message.offset() >= end:
                        open_partitions.discard(number)
                    continue
                if number in open_partitions and (end is None or message.offset() < end):
                    unreadable = _unreadable(message)
                    if unreadable is None:
                        sys.stdout.buffer.write(self._line(message))
                        left = None if left is None else left - 1
                    else:
                        print_line(f"headwater: {self._topic} {number}: {unreadable}", file=sys.stderr)
                if end is not None and message.offset() + 1 >= end:
                    open_partitions.discard(number)
            sys.stdout.buffer.flush()

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

    def tell_escaped(self) -> None:
        """Says that what was printed is not what was produced, where that is so."""
        if self._escaped:
            print_line(
                f"headwater: {counted(self._escaped, 'record')} with control characters or bytes that are not UTF-8, "
                "shown escaped; --raw prints what was produced",
                file=sys.stderr,
            )


def _unreadable(message: Any) -> str | None:
    """What a record says that stands for a batch that nobody can read; None of any other."""
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
