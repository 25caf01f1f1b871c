"""Replays from Python, in a notebook or a program: `hw.replay`, as `headwater replay` has it."""

from dataclasses import dataclass
from pathlib import Path

from headwater.home import home_folder
from headwater.running.cluster import Cluster
from headwater.running.replay import Selection, parse_speed
from headwater.running.replaying import kept_rows, send_again
from headwater.running.sender import Sender

__all__ = ["ReplayReport", "replay"]


@dataclass(frozen=True)
class ReplayReport:
    """What a replay came to.

    Attributes:
        topic: The topic.
        sent: How many records were acknowledged.
        version: The version of the table that was sent; None of a file.
    """

    topic: str
    sent: int
    version: int | None


def replay(
    source: str | Path,
    *,
    topic: str,
    where: str | None = None,
    time: str | None = None,
    speed: str | float = "max",
    key: str | None = None,
    keep_timestamps: bool = False,
    skip: int = 0,
    at: int | None = None,
    home: Path | str | None = None,
    bootstrap: str | None = None,
) -> ReplayReport:
    """Sends rows of a table or a file to a topic again, in the order of their time. No Spark is started.

    Each record has an origin, so that a job with `hw.by_offset(origin=True)` takes it once, however often it is sent.

    Args:
        source: The table, `"schema.name"`, or a file: `.parquet`, or `.jsonl` with an object a line.
        topic: Where the records go.
        where: Which rows, as SQL's `WHERE`; all by default.
        time: The column of the event time; by default the timestamp of the row's record.
        speed: How many times as fast as the rows came to be, `10` or `"10x"`; `"max"` for as fast as it goes.
        key: The column that becomes the key.
        keep_timestamps: Gives records their event times as timestamps, not the time of now.
        skip: How many of the first rows are left out, as they were sent before.
        at: The table's version; its newest by default.
        home: The home of the tables; by default `$HEADWATER_HOME`, else `.headwater`.
        bootstrap: The brokers, or a cluster of the settings; by default those of the home's running stack.

    Example:
        hw.replay("silver.departures", topic="departures-again", time="departed_at", speed=10).sent

    Raises:
        UsageError: There is no such table, file, column or topic, or no brokers are known.
        UserError: A record could not be sent; it can be called again, with `at=` the version that the message names.
    """
    folder = home_folder(home)
    rate = parse_speed(str(speed))
    by_time = rate is not None or keep_timestamps
    with kept_rows(folder, Selection(str(source), time, key, where, skip, by_time=by_time), at) as kept:
        sender = Sender(Cluster(folder, bootstrap), topic)
        send_again(kept, sender, rate, keep_timestamps=keep_timestamps)
        return ReplayReport(topic, sender.sent, kept.version)
