"""`audit.counts`: what each tier saw of each topic and bucket, and what is said of it, as a Delta table.

A row for each topic, bucket, tier and place; the tier `broker` has the offsets of the bucket's records, by which the
next audit goes on where this one ended, and knows the buckets of records that retention has removed. The tiers
`producer` and `appended` have what was said of the bucket, so that the topic of counts need not be read again. An audit
writes anew the buckets whose rows have changed. Its commit says up to where each partition was counted, and what else
the next audit needs to judge no more than what is new.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.errors import UnavailableError
from headwater_streams.ledger.counts.facts import Mark, TopicLog
from headwater_streams.ledger.counts.findings import BucketVerdict, TierCount
from headwater_streams.ledger.counts.log_runs import LogRuns
from headwater_streams.ledger.counts.said import Place
from headwater_streams.ledger.counts.stretches import Stretches
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import opened_table, reading
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
        ("unknown", pa.int64()),
        ("said", pa.string()),
    ]
)
_COUNTED = "headwater.counted"
_FORMAT = 2
SETTLED = ("complete", "unknown")
"""A bucket of which nothing is open either: it is judged again when something new is said of it, or read in it."""
_MARKS = 20
_KINDS = ("missing", "doubled", "uncounted", "unknown", "open")
_AT_ONCE = "another audit of {} wrote {} at the same time; run this one again"
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What an audit leaves to the next one, so that this one judges what is new.

    Attributes:
        told: The id of the topic of counts, as far as its brokers give one, and up to where each partition was read.
        sources: The newest records of producers that may still be spoken of: with the partition that has it, its time,
            and whether that is the brokers'.
        acknowledged: How many records their counts name, by instance.
        begun_ms: When the first one of the other producers began.
        first_judged: The first bucket of which records are judged that came before the first claimed one.
        first_claimed: The first offset of each partition that a producer claims.
        group_ms: Stretches of time that no bucket goes over, of whatever width they are counted.
        totals: How many buckets have which status.
        is_compacted: Whether the topic was compacted.
        tables: What each table was like that was compared.
        judge_all: Whether the next audit has to judge all buckets.
    """

    told: tuple[str | None, Mapping[int, int]]
    sources: Sequence[tuple[str, int, int, bool]] = ()
    acknowledged: Mapping[str, int] = field(default_factory=dict)
    begun_ms: int | None = None
    first_judged: int | None = None
    first_claimed: Mapping[int, int] = field(default_factory=dict)
    group_ms: int
    totals: Mapping[str, int] = field(default_factory=dict)
    is_compacted: bool = False
    tables: Mapping[str, Any] = field(default_factory=dict)
    judge_all: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Standing":
        """Reads what a commit says."""
        topic_id, ends = value["told"]
        return cls(
            **{
                **value,
                "told": (topic_id, _by_number(ends)),
                "sources": [(text, p, at_ms, stamped) for text, p, at_ms, stamped in value["sources"]],
                "first_claimed": _by_number(value["first_claimed"]),
            }
        )


def _by_number(value: Mapping[str, int]) -> dict[int, int]:
    return {int(number): each for number, each in value.items()}


@dataclass(frozen=True)
class Counted:
    """What earlier audits counted of a topic.

    Attributes:
        bucket_ms: How wide their buckets are; None where there was none.
        runs: The records.
        bounds: The offsets that were looked at, by partition.
        marks: Where the partitions ended each time, oldest first.
        topic_id: The topic's id at the last time; None where its brokers gave none.
        lost: Records that an audit saw and that a later one did not find in the log, by partition.
        unseen: Offsets within the bounds whose records had been removed before an audit looked, by partition.
        again: Where the topic was deleted and made again, up to when counts are of the former one, by the brokers'
            clock, and when this one was looked at first.
        heard_ms: The brokers' time of the newest counts that the last audit had read before it looked; 0 where
            that is not known.
        standing: What the last audit left; None where it was one of an older Headwater.
        number: How many audits wrote, as the table knows it.
    """

    bucket_ms: int | None = None
    runs: LogRuns = field(default_factory=lambda: LogRuns({}))
    bounds: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    marks: Sequence[Mark] = ()
    topic_id: str | None = None
    lost: Mapping[int, Sequence[BucketRun]] = field(default_factory=dict)
    unseen: Mapping[int, Stretches] = field(default_factory=dict)
    again: tuple[int, int] | None = None
    heard_ms: int = 0
    standing: Standing | None = None
    number: int = 0


def counted_before(home: Home, topic: str) -> Counted:
    """What `audit.counts` has of a topic."""
    path = home.table(COUNTS_TABLE)
    if not has_versions(path):
        return Counted()
    # Before the rest: an audit that writes meanwhile is seen when this one writes.
    number = _number(opened_table(path), topic)
    newest_first = (_said(file, topic) for _, file in reversed([*log_files(path)]))
    said = [*islice((each for each in newest_first if each is not None), _MARKS)][::-1]
    if not said:
        return Counted(number=number)
    with reading(path):
        where = (pc.field("topic") == topic) & (pc.field("tier") == "broker")
        runs = LogRuns.of_rows(dataset_of(path).to_table(columns=["bucket", "offsets"], filter=where))
    newest = said[-1]
    return Counted(
        newest["bucket_ms"],
        runs,
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
        Standing.from_json(newest["standing"]) if newest["format"] > 1 else None,
        number,
    )


def topics_counted(home: Home) -> set[str]:
    """The topics of which somebody had counted something when an audit wrote last."""
    path = home.table(COUNTS_TABLE)
    for _, file in reversed(log_files(path)):
        said = _said(file)
        if said is not None:
            return set(said.get("topics", ()))
    return set()


def rows_of(home: Home, topic: str, buckets: Collection[int] | None = None) -> list[dict[str, Any]]:
    """The rows of a topic: of some buckets, or all."""
    path = home.table(COUNTS_TABLE)
    if not has_versions(path):
        return []
    where = pc.field("topic") == topic
    if buckets is not None:
        if not buckets:
            return []
        times = [_time_of(bucket) for bucket in sorted(buckets)]
        bounds = (pc.field("bucket") >= times[0]) & (pc.field("bucket") <= times[-1])
        where = where & bounds & pc.field("bucket").isin(pa.array(times, SCHEMA.field("bucket").type))
    return _read(home, where)


def unsettled(home: Home, topic: str) -> set[int]:
    """The buckets of a topic that are judged each time."""
    path = home.table(COUNTS_TABLE)
    if not has_versions(path):
        return set()
    where = (pc.field("topic") == topic) & (~pc.field("status").isin([*SETTLED]) | (pc.field("open") > 0))
    with reading(path):
        rows = dataset_of(path).to_table(columns=["bucket"], filter=where)
    return {bucket_start(each) for each in rows["bucket"].unique().to_pylist()}


def stored_verdicts(home: Home, topic: str, beside: Collection[int]) -> list[BucketVerdict]:
    """What is said of the buckets of a topic but for some."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in rows_of(home, topic):
        rows.setdefault(bucket_start(row["bucket"]), []).append(row)
    return [
        BucketVerdict(
            topic,
            bucket,
            of_it[0]["status"],
            {kind: of_it[0][kind] for kind in _KINDS if of_it[0][kind]},
            tuple(
                TierCount(topic, bucket, row["tier"], row["place"], row["records"], row["open"])
                for row in of_it
            ),
        )
        for bucket, of_it in sorted(rows.items())
        if bucket not in beside
    ]


def bucket_start(bucket: datetime) -> int:
    """When a bucket begins, in milliseconds since the epoch."""
    return round(bucket.timestamp() * 1000)


def _time_of(bucket_start_ms: int) -> datetime:
    return datetime.fromtimestamp(bucket_start_ms / 1000, UTC)


def _read(home: Home, where: pc.Expression) -> list[dict[str, Any]]:
    path = home.table(COUNTS_TABLE)
    with reading(path):
        dataset = dataset_of(path)
        there = [name for name in SCHEMA.names if name in dataset.schema.names]  # an older table has less
        rows = dataset.to_table(columns=there, filter=where).to_pylist()
    nothing = dict.fromkeys(name for name in SCHEMA.names if name not in there)
    return [row | nothing for row in rows]


def _number(table: DeltaTable, topic: str) -> int:
    return table.transaction_version(_app(topic)) or 0


def _app(topic: str) -> str:
    return f"{_COUNTED}/{topic}"


def _said(file: Any, topic: str | None = None) -> dict[str, Any] | None:
    """What a commit of the table says of a topic, or of any."""
    for action in actions_of(file):
        text = action.get("commitInfo", {}).get(_COUNTED)
        if text is None:
            continue
        value = json.loads(text)
        if not 1 <= value.get("format", 0) <= _FORMAT:
            raise DamagedFileError(
                file,
                f"says what was counted in the format {value.get('format')!r}; this Headwater knows {_FORMAT}",
            )
        if topic is None or value["topic"] == topic:
            said: dict[str, Any] = value
            return said
    return None


def keep(
    home: Home,
    log: TopicLog,
    verdicts: Sequence[BucketVerdict],
    at_ms: int,
    *,
    before: Counted,
    standing: Standing,
    stored: Iterable[Mapping[str, Any]],
    said: Mapping[Place, str] | None = None,
    topic_id: str | None = None,
    lost: Mapping[int, Sequence[BucketRun]] | None = None,
    heard_ms: int = 0,
    topics: Collection[str] = (),
    judged_all: bool = True,
) -> int:
    """Writes what was counted and found of a topic; returns how many buckets were written.

    Args:
        home: The home.
        log: What the brokers hold of the buckets that were judged.
        verdicts: What is said of these.
        at_ms: When the log was read.
        before: What stood there.
        standing: What the next audit needs; its totals are of the buckets that were judged.
        stored: The rows of these buckets that stand there; all of the topic's where all were judged.
        said: What was said of these buckets.
        topic_id: The topic's id; None where its brokers give none.
        lost: Records that an audit saw and that are not in the log now, by partition.
        heard_ms: The brokers' time of the newest counts that were read before; 0 where that is not known.
        topics: Those of which somebody has counted something.
        judged_all: Whether these are all buckets of the topic.

    Raises:
        UnavailableError: Another audit of the same topic wrote at the same time.
    """
    path = home.table(COUNTS_TABLE)
    require_table(path, SCHEMA)
    rows = rows_for(log, verdicts, said or {})
    old, new = _by_bucket(stored), _by_bucket(rows)
    changes = {bucket for bucket in {*old, *new} if old.get(bucket) != new.get(bucket)}
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
    counted["standing"], counted["topics"] = asdict(standing), sorted(topics)
    first = min(changes, default=None)
    if (
        judged_all and first is not None
    ):  # to name them all would take longer than to write those between them anew
        changes = {bucket for bucket in {*old, *new} if bucket >= first}
    changed = [row for row in rows if row["bucket"] in changes]
    table = pa.Table.from_pylist(changed, schema=SCHEMA)
    opened = opened_table(path)
    if _number(opened, log.topic) != before.number:
        raise UnavailableError(_AT_ONCE.format(log.topic, COUNTS_TABLE))
    properties = CommitProperties(
        custom_metadata={_COUNTED: json.dumps(counted, separators=(",", ":"))},
        app_transactions=[Transaction(_app(log.topic), before.number + 1)],
    )
    gone = changes & old.keys()
    try:
        if not gone:
            write_deltalake(opened, table, mode="append", schema_mode="merge", commit_properties=properties)
        else:
            write_deltalake(
                opened,
                table,
                mode="overwrite",
                schema_mode="merge",
                predicate=_predicate(log.topic, changes, named=not judged_all),
                commit_properties=properties,
            )
    except CommitFailedError as error:
        raise UnavailableError(_AT_ONCE.format(log.topic, COUNTS_TABLE)) from error
    return len({row["bucket"] for row in changed})


def _predicate(topic: str, buckets: Collection[datetime], *, named: bool) -> str:
    """The rows of some buckets of a topic, in SQL; by the bounds files are left out."""
    topic = topic.replace("'", "''")
    times = [f"'{bucket:{_TIME}}'" for bucket in sorted(buckets)]
    bounds = f"topic = '{topic}' AND bucket >= {times[0]} AND bucket <= {times[-1]}"
    return f"{bounds} AND bucket IN ({', '.join(times)})" if named else bounds


def _by_bucket(rows: Iterable[Mapping[str, Any]]) -> dict[datetime, list[str]]:
    result: dict[datetime, list[str]] = {}
    for row in rows:
        result.setdefault(row["bucket"], []).append(json.dumps(row, default=str, sort_keys=True))
    return {bucket: sorted(texts) for bucket, texts in result.items()}


def rows_for(
    log: TopicLog, verdicts: Iterable[BucketVerdict], said: Mapping[Place, str]
) -> list[dict[str, Any]]:
    """The rows that say it."""
    return [row for verdict in verdicts for row in _rows(log, verdict, said)]


def _rows(log: TopicLog, verdict: BucketVerdict, said: Mapping[Place, str]) -> list[dict[str, Any]]:
    bucket = verdict.bucket_start_ms
    common = {
        "topic": log.topic,
        "bucket": _time_of(bucket),
        "bucket_ms": log.bucket_ms,
        "status": verdict.status,
        **{kind: verdict.numbers.get(kind, 0) for kind in ("missing", "doubled", "uncounted", "unknown")},
    }
    return [
        {
            **common,
            "tier": count.tier,
            "place": count.where,
            "records": count.count,
            "open": count.open,
            "offsets": _offsets(log, bucket) if count.tier == "broker" else None,
            "said": said.get((bucket, count.tier, count.where)),
        }
        for count in verdict.counts
    ]


def _offsets(log: TopicLog, bucket: int) -> list[dict[str, int]]:
    return [
        {"partition": partition, "start": start, "end": end}
        for partition in sorted(log.runs)
        for start, end in log.by_bucket(partition).get(bucket, ())
    ]


def totals(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many buckets have which status."""
    return Counter({row["bucket"]: row["status"] for row in rows}.values())


@dataclass(frozen=True)
class CountsTable:
    """What audits keep in a home."""

    home: Home

    def rows(self, topic: str, buckets: Collection[int] | None = None) -> list[dict[str, Any]]:
        """See `rows_of`."""
        return rows_of(self.home, topic, buckets)

    def unsettled(self, topic: str) -> set[int]:
        """See `unsettled`."""
        return unsettled(self.home, topic)

    def keep(self, log: TopicLog, verdicts: Sequence[BucketVerdict], at_ms: int, **about: Any) -> int:
        """See `keep`."""
        return keep(self.home, log, verdicts, at_ms, **about)
