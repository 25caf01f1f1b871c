"""What a repair is about: the range asked for, the rows of the target that it replaces, the plan as it is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.values import (
    PLAN_FORMAT,
    FolderRecord,
    LiveBatchId,
    Span,
    micros,
    ranges_from_json,
    ranges_to_json,
)
from headwater_streams.base.ledger_entry import Ranges, SourceRange, merge_ranges
from headwater_streams.base.moments import iso
from headwater_streams.base.record import Part
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START
from headwater_streams.runtime.lookups import LookupVersion, Versions
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.sources.coordinates import GENERATION, TOPIC


@dataclass(frozen=True, kw_only=True)
class Affected:
    """The rows of the target that a backfill replaces: windows that begin in these times, or rows of these offsets.

    Attributes:
        ranges: The offsets.
        windows: The times.
        since: Of topics that were made again, the first generation whose rows are of the newest one.
        closed_until_us: Of sessions, those that end there or before, microseconds; None for all. The live job writes
            others, which begin as early, once they are closed.
        until: Of topics that were made again since, the first generation whose rows are of another one.
    """

    ranges: Ranges
    windows: tuple[Span, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)
    closed_until_us: int | None = None
    until: Mapping[str, int] = field(default_factory=dict)

    def condition(self) -> Column:
        """True for an affected row of the target, never NULL."""
        if not self.windows:
            return self.of_offsets()
        inside = _begins_in(self.windows) & self.of_times(F.unix_micros(WINDOW_START))
        if self.closed_until_us is None:
            return inside
        return inside & F.coalesce(F.unix_micros(WINDOW_END) <= self.closed_until_us, F.lit(False))

    def of_times(self, time_us: Column) -> Column:
        """True where a time, in microseconds, is in one of the windows."""
        return any_of([(time_us >= start) & (time_us < end) for start, end in self.windows])

    def of_offsets(self) -> Column:
        """True where a row's coordinates are in one of the ranges."""
        offsets = Offsets.of([self.ranges])
        condition = offsets.reach() & offsets.condition() & of_newest(self.since)
        for topic, generation in self.until.items():
            is_other = ~F.col(TOPIC).eqNullSafe(F.lit(topic))
            condition &= is_other | F.coalesce(F.col(GENERATION) < generation, F.lit(True))
        return condition

    def before(self, end: int) -> "Affected":
        """The windows that begin before a time."""
        return self.between(self.windows[0][0], end)

    def between(self, start: int, end: int) -> "Affected":
        """The windows that begin in `[start, end)`."""
        cut = ((max(start, s), min(end, e)) for s, e in self.windows)
        return replace(self, windows=tuple((s, e) for s, e in cut if s < e))


def _begins_in(windows: Sequence[Span]) -> Column:
    """True for windows from the first of some to the last. It stands beside the exact condition, by which Delta and
    Parquet can skip no file and no part of one; where it is NULL, that one is false."""
    start, end = (
        F.timestamp_micros(F.lit(at)) for at in (min(s for s, _ in windows), max(e for _, e in windows))
    )
    return (F.col(WINDOW_START) >= start) & (F.col(WINDOW_START) < end)


def of_newest(since: Mapping[str, int]) -> Column:
    """True for rows, with their coordinates and `_generation`, but of topics that were made again since; never NULL."""
    condition: Column = F.lit(True)
    for topic, generation in since.items():
        is_other = ~F.col(TOPIC).eqNullSafe(F.lit(topic))
        condition &= is_other | F.coalesce(F.col(GENERATION) >= generation, F.lit(False))
    return condition


@dataclass(frozen=True, kw_only=True)
class Chunk(Part):
    """What is committed to the shadow in one step: windows of a stretch of time, some batches of the live job, or what
    joins the left rows of some offsets, and the right rows of some that have no partner.

    Attributes:
        number: 0 for the first; the chunk's transaction mark.
        rows: How many rows it was estimated to read.
        span: The stretch of window starts, half-open.
        batches: The batches, in their order.
        lefts: The offsets of the left rows.
        rights: The offsets of the right rows, of a join that keeps those without a partner.
        moments: Of sessions, the times of the rows that are read for them, half-open.
    """

    WHAT = "a step of a plan"
    STORED_AS: ClassVar[Mapping[str, str]] = {"span": "windows"}

    number: int
    rows: int
    span: Span | None = None
    batches: tuple[LiveBatchId, ...] = ()
    lefts: Ranges = field(default_factory=dict)
    rights: Ranges = field(default_factory=dict)
    moments: Span | None = None

    @property
    def ranges(self) -> Ranges:
        """The offsets that it reads; empty where that is told by windows."""
        return merge_ranges([*[batch.ranges for batch in self.batches], self.lefts, self.rights])

    def to_json(self) -> dict[str, Any]:
        """The step as a plan has it; which one it is, its place there says."""
        if self.span is not None:
            moments = {} if self.moments is None else {"moments": [iso(at) for at in self.moments]}
            return {"rows": self.rows, "windows": [iso(self.span[0]), iso(self.span[1])], **moments}
        if self.lefts or self.rights:
            rights = {"rights": ranges_to_json(self.rights)} if self.rights else {}
            return {"rows": self.rows, "lefts": ranges_to_json(self.lefts), **rights}
        return {"rows": self.rows, "batches": [batch.to_json() for batch in self.batches]}

    @classmethod
    def from_json(cls, number: int, value: Any) -> "Chunk":
        """The step that stands at a place of a plan."""
        known = cls.checked({"number": number, **value})
        return cls(
            number=number,
            rows=known["rows"],
            span=_span_from_json(known["windows"]) if "windows" in known else None,
            batches=tuple(LiveBatchId.from_json(batch) for batch in known.get("batches", ())),
            lefts=ranges_from_json(known.get("lefts", {})),
            rights=ranges_from_json(known.get("rights", {})),
            moments=_span_from_json(known["moments"]) if "moments" in known else None,
        )


def whole(chunks: Sequence[Chunk]) -> Chunk:
    """All steps of windows in one."""

    def over(spans: Sequence[Span | None]) -> Span | None:
        told = [span for span in spans if span is not None]
        return (min(start for start, _ in told), max(end for _, end in told)) if told else None

    rows = sum(chunk.rows for chunk in chunks)
    return Chunk(
        number=0, rows=rows, span=over([c.span for c in chunks]), moments=over([c.moments for c in chunks])
    )


@dataclass(frozen=True, kw_only=True)
class PinnedInput(Part):
    """A table that is read at one version, so that every step reads the same rows.

    Attributes:
        table: Its name.
        version: The last version that is read; everything up to it was read by the live job.
        until: The (generation, batch) of the last commit of rows in it.
        was_rewritten: Whether rows in it were replaced since the live job read them.
    """

    WHAT = "an input of a plan"

    table: str
    version: int
    until: tuple[int, int]
    was_rewritten: bool

    def to_json(self) -> dict[str, Any]:
        """The input as a plan has it."""
        return {
            "table": self.table,
            "version": self.version,
            "until": list(self.until),
            "was_rewritten": self.was_rewritten,
        }

    @classmethod
    def from_json(cls, value: Any) -> "PinnedInput":
        """The input that stands in a plan."""
        known = cls.checked(value)
        return cls(**{**known, "until": tuple(known["until"])})


@dataclass(frozen=True, kw_only=True)
class FurtherTable(Part):
    """Another table of a job that writes several.

    Attributes:
        columns: The columns that are compared.
        base_version: The table's version that was planned on.
        keys: The columns that name a row, where records may become several rows of one of the job's tables; else they
            are those of the target.
    """

    WHAT = "a further table of a plan"

    columns: tuple[str, ...]
    base_version: int
    keys: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The table as a plan has it, beside its name."""
        keys = {"keys": list(self.keys)} if self.keys else {}
        return {"columns": list(self.columns), "base_version": self.base_version, **keys}

    @classmethod
    def from_json(cls, value: Any) -> "FurtherTable":
        """The table that stands in a plan."""
        known = cls.checked(value)
        return cls(
            columns=tuple(known["columns"]),
            base_version=known["base_version"],
            keys=tuple(known.get("keys", ())),
        )


@dataclass(frozen=True, kw_only=True)
class BackfillPlan(FolderRecord):
    """A backfill, decided and never changed.

    Attributes:
        id: Its name; the same range, code and tables give the same one.
        job: The job.
        reference: Where the job was loaded from, for the command line; empty from Python.
        kind: `"row"`, `"window"` or `"join"`, as-of or not.
        target: The table that is mended.
        quarantine: The table of the job's rejected records.
        input_name: The input's name in the job's function, by which the ledger accounts for it; of a join the left one.
        keys: The columns that name a row of the target.
        columns: The columns that are compared.
        fingerprint: The digest of the code that will run.
        asked: The range as it was asked for.
        ranges: The offsets that are read again, by topic and partition.
        windows: In which times the windows begin that are folded again, whole; empty for other jobs.
        rows: How many rows the run is estimated to read.
        chunks: The steps of the run.
        base_version: The target's version that was planned on.
        generation: The live job's generation.
        batch: The live job's last batch then.
        pinned: The table that is read, of a join the left one; None where topics are.
        notes: What a person should know, each a sentence.
        created_at: When it was made.
        mode: `"repair"`: a closed range is replaced; the job's checkpoint stays.
        lookups: The look-ups that are read at one version; the others as the live batches read them.
        feeds: The jobs that read the target, and those that read theirs, each behind all that feed it. They pass over
            the swap, so what they made of the range stays until it is repaired, too.
        further: The job's other tables, where it writes several; their rows are known by their coordinates, too.
        partner: Of a join, the right table.
        partner_name: Its input's name, of a join that keeps right rows without a partner.
        since, closed_until_us: See `Affected`.
        topic_ids: The topics that the job reads, or that fill the tables which it reads, each with its id.
        failing: Of sessions, the rows for which the function raises, and why: where a session begins depends on them.
        open: Of windows that are written as rows come, when the first begins that is not closed yet, and the last
            ends: the live job may write them again from its own state, which the repair does not change.
    """

    WHAT = "a plan"
    FILE = "plan"
    FORMAT = PLAN_FORMAT
    STORED_AS: ClassVar[Mapping[str, str]] = {"pinned": "input", "closed_until_us": "closed_until"}

    id: str
    job: str
    reference: str
    kind: Literal["row", "window", "join"]
    target: str
    quarantine: str
    input_name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    fingerprint: str
    asked: Mapping[str, Any]
    ranges: Ranges
    windows: tuple[Span, ...]
    rows: int
    chunks: tuple[Chunk, ...]
    base_version: int
    generation: int
    batch: int
    pinned: PinnedInput | None
    notes: tuple[str, ...]
    created_at: str
    mode: Literal["repair"] = "repair"
    lookups: Versions = field(default_factory=dict)
    feeds: tuple[str, ...] = ()
    further: Mapping[str, FurtherTable] = field(default_factory=dict)
    partner: PinnedInput | None = None
    partner_name: str = ""
    since: Mapping[str, int] = field(default_factory=dict)
    closed_until_us: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    failing: Mapping[Place, str] = field(default_factory=dict)
    open: Span | None = None

    @property
    def affected(self) -> Affected:
        """The rows of the target that are replaced."""
        return Affected(
            ranges=self.ranges, windows=self.windows, since=self.since, closed_until_us=self.closed_until_us
        )

    @property
    def lefts(self) -> Ranges:
        """Of a join, the offsets of the left rows that are joined again."""
        return merge_ranges([chunk.lefts for chunk in self.chunks])

    @property
    def rights(self) -> Ranges:
        """Of a join, the offsets of the right rows that are written if they have no partner."""
        return merge_ranges([chunk.rights for chunk in self.chunks])

    def sources(self, ranges: Ranges) -> tuple[SourceRange, ...]:
        """What is read where offsets of the plan are."""
        if self.pinned is None:
            return (SourceRange(input=self.input_name, ranges=ranges, topic=next(iter(ranges), None)),)
        of_right = {topic: found for topic, found in ranges.items() if topic in self.rights}
        others = {topic: found for topic, found in ranges.items() if topic not in of_right}
        sources = (_source_of(self.input_name, others, self.pinned),)
        if not of_right:
            return sources
        assert self.partner is not None
        return (*sources, _source_of(self.partner_name, of_right, self.partner))

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that a swap changes, in its order; the target is the last."""
        return (self.quarantine, *self.further, self.target)

    @property
    def parts(self) -> "dict[str, BackfillPlan]":
        """The plan as each of the job's tables alone has it, the target's first."""
        alone = replace(self, further={})
        others = {
            name: replace(
                alone,
                target=name,
                columns=of.columns,
                base_version=of.base_version,
                keys=of.keys or self.keys,
            )
            for name, of in self.further.items()
        }
        return {self.target: alone, **others}

    @property
    def app_id(self) -> str:
        """The Delta application id of the backfill's commits."""
        return f"backfill/{self.id}"

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored and printed."""
        lookups = {name: found.to_json() for name, found in sorted(self.lookups.items())}
        further = [{"table": name, **of.to_json()} for name, of in self.further.items()]
        some = {
            "lookups": lookups,
            "further": further,
            "feeds": list(self.feeds),
            "partner": None if self.partner is None else self.partner.to_json(),
            "partner_name": self.partner_name,
            "since": dict(self.since),
            "topic_ids": dict(self.topic_ids),
            "failing": [[*place, why] for place, why in sorted(self.failing.items())],
            "closed_until": None if self.closed_until_us is None else iso(self.closed_until_us),
            "open": None if self.open is None else [iso(at) for at in self.open],
        }
        return {name: value for name, value in some.items() if value} | {
            **self.version_key(),
            "id": self.id,
            "mode": self.mode,
            "job": self.job,
            "reference": self.reference,
            "kind": self.kind,
            "target": self.target,
            "quarantine": self.quarantine,
            "input_name": self.input_name,
            "keys": list(self.keys),
            "columns": list(self.columns),
            "fingerprint": self.fingerprint,
            "asked": dict(self.asked),
            "ranges": ranges_to_json(self.ranges),
            "windows": [[iso(start), iso(end)] for start, end in self.windows],
            "rows": self.rows,
            "chunks": [chunk.to_json() for chunk in self.chunks],
            "base_version": self.base_version,
            "generation": self.generation,
            "batch": self.batch,
            "input": None if self.pinned is None else self.pinned.to_json(),
            "notes": list(self.notes),
            "created_at": self.created_at,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "BackfillPlan":
        """The plan as it was stored."""
        value = cls.checked(value)
        return cls(
            id=value["id"],
            job=value["job"],
            reference=value["reference"],
            kind=value["kind"],
            target=value["target"],
            quarantine=value["quarantine"],
            input_name=value["input_name"],
            keys=tuple(value["keys"]),
            columns=tuple(value["columns"]),
            fingerprint=value["fingerprint"],
            asked=value["asked"],
            ranges=ranges_from_json(value["ranges"]),
            windows=tuple(_span_from_json(span) for span in value["windows"]),
            rows=value["rows"],
            chunks=tuple(Chunk.from_json(number, chunk) for number, chunk in enumerate(value["chunks"])),
            base_version=value["base_version"],
            generation=value["generation"],
            batch=value["batch"],
            pinned=_pinned_from_json(value["input"]),
            notes=tuple(value["notes"]),
            created_at=value["created_at"],
            lookups={
                name: LookupVersion.from_json(found) for name, found in value.get("lookups", {}).items()
            },
            feeds=tuple(value.get("feeds", ())),
            further={
                of["table"]: FurtherTable.from_json({key: each for key, each in of.items() if key != "table"})
                for of in value.get("further", [])
            },
            partner=_pinned_from_json(value.get("partner")),
            partner_name=value.get("partner_name", ""),
            since=value.get("since", {}),
            closed_until_us=micros(value["closed_until"]) if "closed_until" in value else None,
            topic_ids=value.get("topic_ids", {}),
            failing={(topic, p, offset): why for topic, p, offset, why in value.get("failing", ())},
            open=_span_from_json(value["open"]) if "open" in value else None,
        )


def _source_of(name: str, ranges: Ranges, pinned: PinnedInput) -> SourceRange:
    return SourceRange(input=name, ranges=ranges, table=pinned.table, versions=(0, pinned.version + 1))


def _pinned_from_json(value: Mapping[str, Any] | None) -> PinnedInput | None:
    return None if value is None else PinnedInput.from_json(value)


def _span_from_json(value: Sequence[str]) -> Span:
    start, end = value
    return micros(start), micros(end)
