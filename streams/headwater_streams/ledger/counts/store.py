"""`audit.counts`: what each tier saw of each topic and bucket, and what is said of it, as a Delta table.

A row for each topic, bucket, tier and place; the tier `broker` has the offsets of the bucket's records, by which the
next audit goes on where this one ended, and knows the buckets of records that retention has removed. An audit writes
anew the buckets from the oldest one that has changed on. Its commit says up to where each partition was counted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.errors import UnavailableError
from headwater_streams.ledger.counts.facts import Mark, TopicLog
from headwater_streams.ledger.counts.findings import BucketVerdict
from headwater_streams.ledger.counts.stretches import Stretches
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.delta_log import actions_of, has_versions, log_files
from headwater_streams.storage.delta_rows import dataset_of, require_table
from headwater_streams.storage.home import Home

COUNTS_TABLE = "audit.counts"
_OFFSETS = pa.list_(pa.struct([("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("bucket", pa.timestamp("us", "UTC")),
        ("bucket_ms", pa.int64()),
        ("tier", pa.string()),
        ("place", pa.string()),
        ("records", pa.int64()),
        ("open", pa.int64()),
        ("status", pa.string()),
        ("missing", pa.int64()),
        ("doubled", pa.int64()),
        ("uncounted", pa.int64()),
        ("offsets", _OFFSETS),
    ]
)
_COUNTED = "headwater.counted"
_FORMAT = 1
_MARKS = 20
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True)
class Counted:
    """What earlier audits counted of a topic.

    Attributes:
        bucket_ms: How wide their buckets are; None where there was none.
        runs: The records, by partition.
        bounds: The offsets that were looked at, by partition.
        marks: Where the partitions ended each time, oldest first.
        topic_id: The topic's id at the last time; None where its brokers gave none.
        lost: Records that an audit saw and that were behind the log's end at a later one, by partition.
        unseen: Offsets within the bounds whose records had been removed before an audit looked, by partition.
        again: Where the topic was deleted and made again, up to when counts are of the former one, by the brokers'
            clock, and when this one was looked at first.
        heard_ms: The brokers' time of the newest counts that the last audit had read before it looked; 0 where
            that is not known.
    """

    bucket_ms: int | None = None
    runs: Mapping[int, Sequence[BucketRun]] = field(default_factory=dict)
    bounds: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    marks: Sequence[Mark] = ()
    topic_id: str | None = None
    lost: Mapping[int, Sequence[BucketRun]] = field(default_factory=dict)
    unseen: Mapping[int, Stretches] = field(default_factory=dict)
    again: tuple[int, int] | None = None
    heard_ms: int = 0


def counted_before(home: Home, topic: str) -> Counted:
    """What `audit.counts` has of a topic."""
    path = home.table(COUNTS_TABLE)
    if not has_versions(path):
        return Counted()
    newest_first = (_said(file, topic) for _, file in reversed([*log_files(path)]))
    said = [*islice((each for each in newest_first if each is not None), _MARKS)][::-1]
    if not said:
        return Counted()
    with reading(path):
        where = (pc.field("topic") == topic) & (pc.field("tier") == "broker")
        rows = dataset_of(path).to_table(columns=["bucket", "offsets"], filter=where).to_pylist()
    runs: dict[int, list[BucketRun]] = {}
    for row in rows:
        start_ms = round(row["bucket"].timestamp() * 1000)
        for each in row["offsets"] or ():
            runs.setdefault(each["partition"], []).append(BucketRun(each["start"], each["end"], start_ms))
    newest = said[-1]
    return Counted(
        newest["bucket_ms"],
        {partition: _apart(of_it) for partition, of_it in runs.items()},
        {int(partition): (start, end) for partition, (start, end) in newest["bounds"].items()},
        tuple(
            Mark(each["at_ms"], {int(partition): end for partition, (_, end) in each["bounds"].items()})
            for each in said
        ),
        newest["topic_id"],
        {int(partition): [BucketRun(*run) for run in of_it] for partition, of_it in newest["lost"].items()},
        {
            int(partition): [(start, end) for start, end in of_it]
            for partition, of_it in newest["unseen"].items()
        },
        None if newest["again"] is None else (newest["again"][0], newest["again"][1]),
        newest["heard_ms"],
    )


def _apart(runs: Sequence[BucketRun]) -> list[BucketRun]:
    """The runs in order, each offset once, whatever stands in the table."""
    result: list[BucketRun] = []
    for run in sorted(runs, key=lambda run: (run.start, -run.end)):
        start = max(run.start, result[-1].end) if result else run.start
        if start < run.end:
            result.append(replace(run, start=start))
    return result


def _said(file: Any, topic: str) -> dict[str, Any] | None:
    """What a commit of the table says of a topic."""
    for action in actions_of(file):
        text = action.get("commitInfo", {}).get(_COUNTED)
        if text is None:
            continue
        value = json.loads(text)
        if value.get("format") != _FORMAT:
            raise DamagedFileError(
                file,
                f"says what was counted in the format {value.get('format')!r}; this Headwater knows {_FORMAT}",
            )
        if value["topic"] == topic:
            said: dict[str, Any] = value
            return said
    return None


def keep(
    home: Home,
    log: TopicLog,
    verdicts: Sequence[BucketVerdict],
    at_ms: int,
    *,
    topic_id: str | None = None,
    lost: Mapping[int, Sequence[BucketRun]] | None = None,
    heard_ms: int = 0,
) -> int:
    """Writes what was counted and found of a topic; returns how many buckets were written.

    Args:
        home: The home.
        log: What the brokers hold.
        verdicts: What is said of each bucket.
        at_ms: When the log was read.
        topic_id: The topic's id; None where its brokers give none.
        lost: Records that an audit saw and that are behind the log's end now, by partition.
        heard_ms: The brokers' time of the newest counts that were read before; 0 where that is not known.

    Raises:
        UnavailableError: Another audit of the same topic wrote at the same time.
    """
    path = home.table(COUNTS_TABLE)
    require_table(path, SCHEMA)
    rows = [row for verdict in verdicts for row in _rows(log, verdict)]
    with reading(path):
        stored = dataset_of(path).to_table(filter=pc.field("topic") == log.topic).to_pylist()
    first = _first_change(stored, rows)
    counted = {"format": _FORMAT, "topic": log.topic, "bucket_ms": log.bucket_ms, "at_ms": at_ms}
    counted["topic_id"], counted["heard_ms"] = topic_id, heard_ms
    counted["lost"] = {
        str(partition): [(run.start, run.end, run.bucket_start_ms) for run in runs]
        for partition, runs in (lost or {}).items()
        if runs
    }
    counted["unseen"] = {str(partition): list(pairs) for partition, pairs in log.unseen.items() if pairs}
    counted["again"] = log.again
    counted["bounds"] = {str(partition): list(bounds) for partition, bounds in log.counted.items()}
    properties = CommitProperties(custom_metadata={_COUNTED: json.dumps(counted, separators=(",", ":"))})
    changed = [] if first is None else [row for row in rows if row["bucket"] >= first]
    table = pa.Table.from_pylist(changed, schema=SCHEMA)
    try:
        if first is None:
            write_deltalake(str(path), table, mode="append", commit_properties=properties)
        else:
            topic = log.topic.replace("'", "''")
            # Also where nothing is stored yet: of two audits that come so far at once one is told.
            changes = f"topic = '{topic}' AND bucket >= '{first:{_TIME}}'"
            write_deltalake(
                str(path), table, mode="overwrite", predicate=changes, commit_properties=properties
            )
    except CommitFailedError as error:
        raise UnavailableError(
            f"another audit of {log.topic} wrote {COUNTS_TABLE} at the same time; run this one again"
        ) from error
    return len({row["bucket"] for row in changed})


def _first_change(stored: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> datetime | None:
    """The oldest bucket whose rows differ; None where none do."""
    before, now = _by_bucket(stored), _by_bucket(rows)
    return min((bucket for bucket in {*before, *now} if before.get(bucket) != now.get(bucket)), default=None)


def _by_bucket(rows: Sequence[Mapping[str, Any]]) -> dict[datetime, list[str]]:
    result: dict[datetime, list[str]] = {}
    for row in rows:
        result.setdefault(row["bucket"], []).append(json.dumps(row, default=str, sort_keys=True))
    return {bucket: sorted(texts) for bucket, texts in result.items()}


def _rows(log: TopicLog, verdict: BucketVerdict) -> list[dict[str, Any]]:
    common = {
        "topic": log.topic,
        "bucket": datetime.fromtimestamp(verdict.bucket_start_ms / 1000, UTC),
        "bucket_ms": log.bucket_ms,
        "status": verdict.status,
        **{kind: verdict.numbers.get(kind, 0) for kind in ("missing", "doubled", "uncounted")},
    }
    return [
        {
            **common,
            "tier": count.tier,
            "place": count.where,
            "records": count.count,
            "open": count.open,
            "offsets": _offsets(log, verdict.bucket_start_ms) if count.tier == "broker" else None,
        }
        for count in verdict.counts
    ]


def _offsets(log: TopicLog, bucket: int) -> list[dict[str, int]]:
    return [
        {"partition": partition, "start": run.start, "end": run.end}
        for partition, runs in sorted(log.runs.items())
        for run in runs
        if run.bucket_start_ms == bucket
    ]
