"""`headwater produce`: lines of standard input or of a file become records of a topic."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
)
from headwater.cli._kafka import parse_assignments
from headwater.errors import UsageError, UserError, reason
from headwater.running.cluster import Cluster
from headwater.running.sender import Sender
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
    sender = Sender(cluster, topic, partition, compression)
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
