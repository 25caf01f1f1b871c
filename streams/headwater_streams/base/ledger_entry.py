"""The ledger entry: what a Delta commit made by a job carries in `userMetadata`, in the same atomic commit.

    {"headwater": 1, "job": "departures", "generation": 1, "batch": 17, "table": "silver.departures",
     "kind": "row" | "scd" | "window" | "join" | "as_of" | "side" | "backfill" | "generation" | "expiry",
     "fingerprint": "9f2c...",
     "sources": [{"input": "departures", "topic": "departures", "ranges": {"departures": {"0": [120, 160]}}},
                 {"input": "departures", "table": "silver.departures", "versions": [3, 5], "ranges": {...}}],
     "accounting": {"departures": {"read": 40, "written": 39, ...}},
     "partitions": {"departures": {"0": {"read": 40, "written": 39, ...}}},
     "max_event_time_us": 1357034400000000, "seen": {"cluster\\ttopic\\t0": [[0, 160]]}}

`seen` is all that the job has seen; where that is much, most commits have `seen_changed` in its place, the origins that
their batch touched, each whole (see `operators.dedup.memory`).

Ranges and versions are half-open. A source has `left_out`, versions among its own, where rows were not read because a
rollback had taken them back by then. `partitions` has the terms by topic and partition where they were counted so: for
row stages all of them (up to 64 partitions in a batch), for stateful stages `read = kept + late + quarantined`.
`accounting` has one set of terms for each input. `max_event_time_us` is the greatest event time that had come by then,
in the entries of row stages and of windows that read a topic themselves. What only commits of one kind say stands in
`extra`, whose keys are in `base.extra`. The terms:

- row stages: `read = written + filtered + duplicate + quarantined`. Where a function makes several rows of a record, as
  explode does, `exploded` is the number of records that became rows, and `written` that of their rows:
  `read = exploded + filtered + duplicate + quarantined`. A record of which no row came is `filtered`. Of a batch that
  read several inputs all have `exploded`, or none. An entry with that term is of version 2 of the format, see
  `LedgerEntry.FORMAT`
- slowly changing dimensions: `read = changed + deleted + filtered + duplicate + quarantined`, the change events and
  those that delete. Of them `kept` stand in the table of changes. `held` is the change in the number of events that
  the table's rows stand for (the sum of `_changes`): an event counts until a newer one of the key (type 1) or a later
  one of the same sequence takes its place, or a delete
- windows: `read = folded + filtered + late + quarantined`. Where windows overlap also `placed`, the pairs of a folded
  row and an open window, which is what the windows count; `missed`, the pairs of a folded row and a closed one; and
  `partly_late`, the rows that were folded (or filtered) and stand in the late table for the windows that lack them.
  Late rows that are only counted (`late="count"`) stand in no table, and `extra.late` says so.
  Where windows are written when they are closed also `placed (or folded) = emitted + open`: what the windows written
  in this batch count, and the change in the number of pairs that wait in open ones
- joins, each side: `read = matched + waiting + expired + filtered + late + quarantined`, where `waiting` is the change
  in the number of waiting rows, so that the sum over all batches is the number that waits now (of the right side not
  behind a repair, by which its rows may have got or lost their first partner); a semi join's right side:
  `read = kept + filtered + late + quarantined`
- as-of joins of two streams, left: `read = matched + unmatched + waiting + filtered + quarantined`, where `unmatched`
  rows got the final answer that there is none and `waiting` is a change as above; right: `read = kept + filtered +
  late + quarantined`, for a row may be the answer to any number of others

A row job with several tables has an entry in each, with the same `read`. The entry in the first has the offsets seen
and the quarantine; the others name that table in `extra.beside`.

A commit of kind "backfill" replaces rows, so its terms say what came and what stood there `before`; a rollback's entry
has the two changed about, so that what a table holds is the live entries' terms and, over all backfills, the sums of

- windows: `folded - before` (rows that the windows count; `read = folded + filtered + quarantined`), and
  `late_folded`, the rows of the late table that are counted from now on (negative in a rollback), each once however
  often it is folded;
- row stages: `written - before` and `quarantined - quarantined_before` (`read = written + filtered + duplicate +
  expired + quarantined`, where `expired` rows are older than the table keeps them, and are not written again; with
  `exploded` as above, which counts records, `expired` are the records of which all rows are so); in the quarantine
  table, whose rows of the range change hands in a commit of its own: `quarantined - before`.

Its `sources` are what was read again.

A commit of kind "generation" begins one: its `batch` is -1, and `seen` and `max_event_time_us` are what the new
generation goes on with. `extra.action` says how. In other tables of the job and in side tables its action is "rebuild"
or "clear": rows of generations before, or of batches that came after the last one, were removed. Where a job that keeps
state was renewed, `extra.warm_up` ends where the last batch of the generation before ended.

A commit of kind "expiry" let go of rows that were older than the table keeps them. Its terms are by the table: the rows
`expired`, and of windows the rows that these `counted`. `extra.expired` has them by the batch that wrote them: in the
table a batch has what it wrote, less these.

A rebuild beside the live table (`backfill.rebuild`; `extra.backfill` is its id) makes two of that kind. One has
`extra.shadow`: files came in place of all rows. The other takes that back, with the action "restore": the rows are
those of `extra.replaced_version` again, and `batch`, `seen` and the rest are what the last commit before that said, for
the old checkpoint goes on under a new number. A rewind's, with the action "rewind", says the same of an earlier
version, `extra.restored_version`, in each of the job's tables; in a side table the rows of later batches were removed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headwater_streams.base.extra import Extra
from headwater_streams.base.record import Part, Record

Kind = Literal["row", "scd", "window", "join", "as_of", "side", "backfill", "generation", "expiry"]
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]
"""Half-open offset ranges: topic -> partition -> (start, end)."""
Partitions = Mapping[str, Mapping[int, Mapping[str, int]]]
"""Terms by topic and partition."""

NO_WATERMARK_MS = -377_705_116_800_000
"""The watermark of a query that has seen nothing yet: the year -9999, before every event."""

TERMS: Mapping[str, tuple[str, ...]] = {
    "row": ("written", "filtered", "duplicate", "quarantined"),
    "scd": ("changed", "deleted", "filtered", "duplicate", "quarantined"),
    "window": ("folded", "filtered", "late", "quarantined"),
    "join": ("matched", "waiting", "expired", "kept", "filtered", "late", "quarantined"),
    "as_of": ("matched", "unmatched", "waiting", "kept", "filtered", "late", "quarantined"),
}
"""The terms whose sum is `read`, by the kind of stage; see `identity_terms`."""
EXPLODED = "exploded"
"""The term of records that became rows, where a record may become several."""
EXPIRED = "expired"
"""The term of rows that are older than their table keeps them; of records that became several rows, of those of which
all rows are."""
EXPIRY: Final = "expiry"
"""The kind of a commit that lets go of such rows."""


def identity_terms(kind: str, terms: Mapping[str, int]) -> dict[str, int]:
    """Those of some terms whose sum is `read`: records are counted, whatever number of rows was made of them.

    Example:
        >>> identity_terms("row", {"read": 4, "exploded": 3, "written": 7, "filtered": 1})
        {'exploded': 3, 'filtered': 1}
    """
    names = TERMS.get(kind, ())
    if kind == "row":
        names = (EXPLODED if EXPLODED in terms else names[0], *names[1:-1], EXPIRED, names[-1])
    return {term: terms[term] for term in names if term in terms}


def with_records(terms: Mapping[str, int]) -> dict[str, int]:
    """The terms of a row stage with the number of records that became rows, where those of one row each have none.

    So the terms of batches before and after a function began to explode its records can be summed.
    """
    became = {} if EXPLODED in terms or "written" not in terms else {EXPLODED: terms["written"]}
    return {**became, **terms}


@dataclass(frozen=True, kw_only=True)
class SourceRange(Part):
    """What a batch read of one input.

    Attributes:
        input: The parameter's name in the job's function.
        ranges: The offsets, by topic and partition.
        topic: The topic, when the input is one.
        table: The table, when the input is one.
        versions: The table's versions, half-open.
        left_out: Those of them whose rows were not read: a rollback had taken them back by then.
    """

    WHAT = "a source of a ledger entry"

    input: str
    ranges: Ranges
    topic: str | None = None
    table: str | None = None
    versions: tuple[int, int] | None = None
    left_out: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The source as it stands in an entry."""
        value: dict[str, Any] = {"input": self.input}
        if self.topic is not None:
            value["topic"] = self.topic
        if self.table is not None:
            value["table"] = self.table
        if self.versions is not None:
            value["versions"] = list(self.versions)
        if self.left_out:
            value["left_out"] = list(self.left_out)
        value["ranges"] = {
            topic: {str(partition): list(pair) for partition, pair in partitions.items()}
            for topic, partitions in self.ranges.items()
        }
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SourceRange":
        """The source that stands in an entry."""
        value = cls.checked(value)
        ranges = {
            topic: {int(partition): (pair[0], pair[1]) for partition, pair in partitions.items()}
            for topic, partitions in value["ranges"].items()
        }
        versions = value.get("versions")
        return cls(
            input=value["input"],
            ranges=ranges,
            topic=value.get("topic"),
            table=value.get("table"),
            versions=None if versions is None else (versions[0], versions[1]),
            left_out=tuple(value.get("left_out", ())),
        )


@dataclass(frozen=True, kw_only=True)
class LedgerEntry(Record):
    """One commit of a job: where its rows came from and what became of every row read.

    What `extra` may have depends on the kind of commit, see `base.extra`. An unknown key in it is not refused.
    """

    WHAT = "a ledger entry"
    FORMAT = 2
    """That of entries which an older Headwater would misread: to it the books of records that became several rows would
    not balance, and an expiry would be the batch that a generation goes on from. All others are written as 1."""
    FORMAT_KEY = "headwater"

    job: str
    generation: int
    batch: int
    table: str
    kind: Kind
    sources: tuple[SourceRange, ...] = ()
    accounting: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fingerprint: str = ""
    max_event_time_us: int | None = None
    seen: Mapping[str, list[tuple[int, int]]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    partitions: Partitions = field(default_factory=dict)
    seen_changed: Mapping[str, list[tuple[int, int]]] | None = None

    @property
    def is_batch(self) -> bool:
        """Whether it is the commit of a batch to the job's own table."""
        return self.kind in TERMS

    @property
    def explodes(self) -> bool:
        """Whether it counts the records that became rows apart from the rows."""
        return any(EXPLODED in terms for terms in self.accounting.values())

    @property
    def watermark_ms(self) -> int:
        """The watermark that Spark ran the batch with; `NO_WATERMARK_MS` where it had none."""
        return watermark_from_json(Extra.WATERMARK_MS.get(self))

    @property
    def input_watermarks_ms(self) -> Mapping[str, int | None]:
        """Of a join, the watermark of each input behind the batch, as far as the entry tells; None where nothing was
        seen of it."""
        return Extra.WATERMARKS_MS.get(self, {})

    @property
    def totals(self) -> Counter[str]:
        """The terms of all inputs together."""
        total: Counter[str] = Counter()
        for terms in self.accounting.values():
            total.update(terms)
        return total

    def imbalances(self) -> list[str]:
        """The inputs whose terms do not add up, each as a sentence; empty when the books balance."""
        sentences = []
        for name, terms in self.accounting.items():
            parts = identity_terms(self.kind, terms)
            if parts and terms["read"] != sum(parts.values()):
                spelled = " + ".join(f"{value} {term}" for term, value in parts.items())
                sentences.append(
                    f"{self.table} batch {self.batch}, input {name}: read {terms['read']} is not {spelled}"
                )
        return sentences

    def to_json(self) -> str:
        """The entry as it stands in `userMetadata`."""
        value: dict[str, Any] = {
            self.FORMAT_KEY: self.FORMAT if self.explodes or self.kind == EXPIRY else 1,
            "job": self.job,
            "generation": self.generation,
            "batch": self.batch,
            "table": self.table,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "sources": [source.to_json() for source in self.sources],
            "accounting": {name: dict(terms) for name, terms in self.accounting.items()},
        }
        if self.max_event_time_us is not None:
            value["max_event_time_us"] = self.max_event_time_us
        if self.seen is not None:
            value["seen"] = dict(self.seen)
        if self.seen_changed is not None:
            value["seen_changed"] = dict(self.seen_changed)
        if self.partitions:
            value["partitions"] = {
                topic: {str(partition): dict(terms) for partition, terms in partitions.items()}
                for topic, partitions in self.partitions.items()
            }
        if self.extra:
            value["extra"] = dict(self.extra)
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> "LedgerEntry | None":
        """The entry in a commit's `userMetadata`, or None if the commit is not a job's.

        Raises:
            NewerRecordError: A newer Headwater wrote it.
            ValueError: It is no entry.
        """
        if not text or '"headwater"' not in text:
            return None
        try:
            value = json.loads(text)
        except ValueError:
            return None
        if not isinstance(value, dict) or type(value.get(cls.FORMAT_KEY)) is not int:
            return None  # whoever has a key of that name
        value = cls.checked(value)
        for source in value.get("extra", {}).get(Extra.WARM_UP, {}).get("sources", ()):
            SourceRange.checked(source)
        return cls(
            job=value["job"],
            generation=value["generation"],
            batch=value["batch"],
            table=value["table"],
            kind=value["kind"],
            sources=tuple(SourceRange.from_json(source) for source in value["sources"]),
            accounting=value["accounting"],
            fingerprint=value.get("fingerprint", ""),
            max_event_time_us=value.get("max_event_time_us"),
            seen=_pairs(value.get("seen")),
            extra=value.get("extra", {}),
            partitions={
                topic: {int(partition): terms for partition, terms in partitions.items()}
                for topic, partitions in value.get("partitions", {}).items()
            },
            seen_changed=_pairs(value.get("seen_changed")),
        )


def summed_terms(entries: Sequence[LedgerEntry]) -> Counter[str]:
    """The terms of a job's batches and of all their inputs together, those of before and after its function began to
    make several rows of a record among them."""
    explodes, total = any(entry.explodes for entry in entries), Counter[str]()
    for entry in entries:
        for terms in entry.accounting.values():
            total.update(with_records(terms) if explodes and entry.kind == "row" else terms)
    return total


def _pairs(seen: dict[str, list[list[int]]] | None) -> dict[str, list[tuple[int, int]]] | None:
    return None if seen is None else {key: [(a, b) for a, b in pairs] for key, pairs in seen.items()}


def is_undone(entry: LedgerEntry, beginning: LedgerEntry) -> bool:
    """Whether a commit is of a batch that came after the one that a later generation begins with, see above.

    A repair's is of none: its `batch` is the mark of the swap. Nor is one that put rows back: its `batch` is the last
    that the table had by then, and the files are of the batches that wrote them.
    """
    is_batch = entry.kind not in ("backfill", "generation", EXPIRY)
    last = Extra.AFTER.of(beginning)
    after = (last["generation"], last["batch"])
    return is_batch and entry.generation < beginning.generation and (entry.generation, entry.batch) > after


def watermark_to_json(watermark_ms: int) -> int | None:
    """A watermark as entries have it: null for none."""
    return None if watermark_ms == NO_WATERMARK_MS else watermark_ms


def watermark_from_json(stored_ms: int | None) -> int:
    """The inverse of `watermark_to_json`."""
    return NO_WATERMARK_MS if stored_ms is None else stored_ms


def warm_up_sources(entry: LedgerEntry) -> tuple[SourceRange, ...]:
    """What a generation that an entry began reads again for its state; nothing for other entries."""
    warm_up = Extra.WARM_UP.get(entry, {}) if entry.kind == "generation" else {}
    return tuple(SourceRange.from_json(source) for source in warm_up.get("sources", ()))


def rows_in_windows(terms: Mapping[str, int]) -> int:
    """The rows that windows count: each as often as it was placed, once its window was written."""
    return next((terms[term] for term in ("emitted", "placed", "folded") if term in terms), 0)


def spelled(ranges: Mapping[str, Mapping[Any, Sequence[int]]]) -> list[str]:
    """Ranges for a person, each partition's by itself.

    Example:
        >>> spelled({"clicks": {0: (5, 9)}})
        ['clicks 0 [5, 9)']
    """
    return [
        f"{topic} {partition} [{start}, {end})"
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
    ]


def merge_ranges(parts: list[Ranges]) -> dict[str, dict[int, tuple[int, int]]]:
    """The smallest range of each partition that holds all of `parts`."""
    merged: dict[str, dict[int, tuple[int, int]]] = {}
    for ranges in parts:
        for topic, partitions in ranges.items():
            for partition, (start, end) in partitions.items():
                widest = merged.setdefault(topic, {}).get(partition, (start, end))
                merged[topic][partition] = (min(start, widest[0]), max(end, widest[1]))
    return merged


def intersection(one: Ranges, other: Ranges) -> dict[str, dict[int, tuple[int, int]]]:
    """The offsets that are in both."""
    common: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in one.items():
        for partition, (start, end) in partitions.items():
            low, high = other.get(topic, {}).get(partition, (0, 0))
            if max(start, low) < min(end, high):
                common.setdefault(topic, {})[partition] = (max(start, low), min(end, high))
    return common


def count_of(ranges: Ranges) -> int:
    """How many offsets ranges hold."""
    return sum(end - start for partitions in ranges.values() for start, end in partitions.values())


def gone_of(
    read: Mapping[int, tuple[int, int]], available: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """What was read of a topic's partitions and they do not hold any more, in their order; all of a partition that is
    not there.

    Example:
        >>> gone_of({0: (2, 9), 1: (0, 5), 2: (0, 3)}, {0: (4, 12), 1: (0, 7)})
        {0: (2, 4), 2: (0, 3)}
    """
    earliest = {partition: available.get(partition, (end, end))[0] for partition, (_, end) in read.items()}
    return {
        p: (start, min(end, earliest[p])) for p, (start, end) in sorted(read.items()) if start < earliest[p]
    }
