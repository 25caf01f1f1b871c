"""`headwater replay`: rows of a table or a file, sent to a topic again."""

from typing import Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    waiting,
)
from headwater.running.cluster import Cluster
from headwater.running.sender import Sender
from headwater_streams.base.plural import quantity


def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|FILE", help="A table, a Parquet file, or a file of JSON, one object a line."
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Where the records go.")],
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Which rows, as SQL's WHERE.", show_default=False),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help="The event time, by which rows are sent in order.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option(metavar="1x|10x|max", help="How many times as fast as the rows came to be.")
    ] = "max",
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="COLUMN", help="The column that becomes the key.", show_default=False),
    ] = None,
    keep_timestamps: Annotated[
        bool,
        typer.Option(
            "--keep-timestamps", help="Give records their event times as timestamps, not the time of now."
        ),
    ] = False,
    skip: Annotated[
        int, typer.Option(metavar="N", min=0, help="Leave out the first N rows, which were sent before.")
    ] = 0,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION", min=0, help="The table's version; by default its newest.", show_default=False
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
) -> None:
    """Send rows that were kept to a topic again, in the order of their time.

    A row becomes JSON of its own columns, without the library's; of a
    quarantine table, the record as it was sent, with its key and headers. A
    line of a file is sent as it stands there. Without --time, rows of a table
    go by the timestamps of their records, and lines in their order.
    Each record has the source and its number there as its origin
    (headwater-origin-... headers), so that a job with
    hw.by_offset(origin=True) takes it once, however often it is replayed.
    Timestamps of long ago would let a topic's retention delete the records at
    once: by default they have the time of now. Starts no Spark.

    \b
    Examples:
      headwater replay silver.departures --topic departures-again --time departed_at --speed 10x
      headwater replay silver.departures__quarantine --topic departures --where "_check = 'has_carrier'"
      headwater replay flights.jsonl --topic flights
    """
    from headwater.running.replay import Selection, parse_speed
    from headwater.running.replaying import kept_rows, send_again

    rate = parse_speed(speed)
    by_time = rate is not None or keep_timestamps
    selection = Selection(source, time_column, key, where, skip, by_time=by_time)
    with kept_rows(home, selection, at) as kept:
        sender = Sender(Cluster(home, bootstrap), topic)
        with waiting(f"replaying {source}"):
            send_again(kept, sender, rate, keep_timestamps=keep_timestamps)
    if json_output:
        print_json({"topic": topic, "sent": sender.sent, "partitions": sender.ranges()})
    else:
        print_line(f"sent {quantity(sender.sent, 'row')} of {source} to {topic}")
