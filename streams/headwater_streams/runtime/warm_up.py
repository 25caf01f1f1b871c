"""A warm-up: what a new generation of a stateful job reads again, writing nothing, so that it has the old one's state.

    the job's input   ----------[P0 ========================= P1)--------------->
                                 rows of all that is open       where the last generation's last commit ended

The state of windows and joins is made of rows whose event time is not further behind the watermark than a window is
long, or a pair apart. Those rows begin in the input at P0, which follows from the ledger. The new generation's first
batch, number 0, reads [P0, P1) as one and runs with the watermark of the old one's last commit: what that had closed
or let go of by then leaves the state, and nothing of the batch is committed. From P1 on it goes on as ever.

Spark is made to read exactly that by the first file of the new checkpoint's offset log, which is written before the
query starts: a batch that is planned there and not done is run as it is planned, after every kill.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from headwater_streams.base.durations import in_micros
from headwater_streams.base.errors import DataLossError, StreamsError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import (
    NO_WATERMARK_MS,
    LedgerEntry,
    SourceRange,
    merge_ranges,
    warm_up_sources,
    watermark_from_json,
    watermark_to_json,
)
from headwater_streams.base.record import NewerRecordError, Part
from headwater_streams.ledger.log import Commit, commits, lineage, since_rebuilt
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.operators.windows.cumulative import CumulativeWindow
from headwater_streams.operators.windows.hopping import HoppingWindow
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.operators.windows.tumbling import TumblingWindow
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import InputReader
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.spark.checkpoint import (
    last_planned,
    plan_first_batch,
    read_offsets,
    table_offset,
)
from headwater_streams.spark.watermark import batch_metadata
from headwater_streams.storage.delta_files import data_file
from headwater_streams.storage.files import exists, remove_tree

_US_PER_MS = 1000


@dataclass(frozen=True, kw_only=True)
class WarmUp(Part):
    """What is read again; it stands in the entry that began the generation.

    Attributes:
        watermark_ms: The watermark that the last commit of the generation before was made at, in milliseconds;
            `NO_WATERMARK_MS` for none.
        sources: The versions of each table, or the offsets of each topic, `[P0, P1)`. An input of which nothing had
            come is not named.
        input_watermarks_ms: Of a join, the watermark of each input behind that commit; see `LedgerEntry`.
    """

    WHAT = "what a generation reads again"
    STORED_AS: ClassVar[Mapping[str, str]] = {
        "watermark_ms": Extra.WATERMARK_MS,
        "input_watermarks_ms": Extra.WATERMARKS_MS,
    }

    watermark_ms: int
    sources: tuple[SourceRange, ...]
    input_watermarks_ms: Mapping[str, int | None] = field(default_factory=dict)

    def ledger_extra(self) -> ExtraValues:
        """What the entry's `extra` says of it."""
        return {Extra.WARM_UP: self.to_json()}

    def to_json(self) -> dict[str, Any]:
        """What is read again, as it is stored."""
        sources = [source.to_json() for source in self.sources]
        stored: dict[str, Any] = {
            Extra.WATERMARK_MS: watermark_to_json(self.watermark_ms),
            "sources": sources,
        }
        if self.input_watermarks_ms:
            stored[Extra.WATERMARKS_MS] = dict(self.input_watermarks_ms)
        return stored

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "WarmUp":
        """What was stored."""
        value = cls.checked(value)
        return cls(
            watermark_ms=watermark_from_json(value[Extra.WATERMARK_MS]),
            sources=tuple(SourceRange.from_json(source) for source in value["sources"]),
            input_watermarks_ms=value.get(Extra.WATERMARKS_MS, {}),
        )

    @classmethod
    def of(cls, entry: LedgerEntry | None) -> "WarmUp | None":
        """What a generation has to read again, where its newest entry is the one that began it."""
        sources = warm_up_sources(entry) if entry is not None else ()
        if entry is None or not sources:
            return None
        try:
            return cls.from_json(Extra.WARM_UP.of(entry))
        except NewerRecordError as error:
            raise StreamsError(
                f"{entry.table}: what generation {entry.generation} of job {entry.job!r} is to read again {error}; a "
                "newer Headwater wrote it: update this one"
            ) from error

    def source(self, declared: Input) -> SourceRange | None:
        """What is read again of one input."""
        return _source_of(declared, self.sources)

    def __str__(self) -> str:
        """What is read again, for a person."""
        read = [
            f"versions [{source.versions[0]}, {source.versions[1]}) of {source.table}"
            if source.versions is not None
            else ", ".join(
                f"{topic} {partition} offsets [{start}, {end})"
                for topic, partitions in source.ranges.items()
                for partition, (start, end) in partitions.items()
            )
            for source in self.sources
        ]
        return ", ".join(read)


def why_not(plan: JobPlan) -> str | None:
    """Why a warm-up cannot give the state of a job, as the end of a sentence; None where it can."""
    spec = plan.operator
    if isinstance(spec, SessionWindow):
        return "keeps sessions, and an open one may reach back any time"
    if isinstance(spec, CountWindow):
        return "numbers the rows of each key from the first one on"
    if isinstance(spec, TumblingWindow | HoppingWindow | CumulativeWindow):
        return None
    if isinstance(spec, IntervalJoin):
        direct = any(isinstance(declared, TopicInput) for declared in plan.job.inputs.values())
        return (
            "only counts its late rows, which, read again, cannot be told from those in time"
            if direct
            else None
        )
    return "keeps state that no watermark ends, which would take all of its input"


def find_warm_up(context: StageContext, plan: JobPlan, generation: int) -> WarmUp | None:
    """What the next generation of a job must read again; None where this one has read nothing.

    Args:
        context: The home, the topics.
        plan: The job, whose state a warm-up can give.
        generation: Its generation now.

    Raises:
        StreamsError: Nothing says which watermark the last commit had, what must be read again is gone, or Spark would
            drop some of it.
    """
    job = plan.job
    history = since_rebuilt(lineage(context.home.table(job.target.name)))
    entries = [c.entry for c in history if c.entry is not None and c.entry.job == job.name]
    last = next((e for e in reversed(entries) if e.is_batch or WarmUp.of(e) is not None), None)
    if last is None:
        return None
    before = WarmUp.of(last)
    watermark_ms = (
        before.watermark_ms if before is not None else _watermark_of(context, plan, generation, last)
    )
    needed_us = None
    if watermark_ms != NO_WATERMARK_MS and (watermark_ms or not _writes_zero_for_none(entries)):
        needed_us = watermark_ms * _US_PER_MS - in_micros(_reach(plan))
        if needed_us < 0:
            raise StreamsError(
                f"job {job.name!r}: its state is made of rows of 1970 or before, which Spark drops as late where they "
                f"are read again behind a watermark; use headwater jobs rebuild {job.name}"
            )
    sources, unknown = [], [*(before or last).sources]
    for name, declared in job.inputs.items():
        ended = _source_of(declared, (before or last).sources)
        if ended is None:  # nothing of it had come
            continue
        unknown = [each for each in unknown if (each.table, each.topic) != (ended.table, ended.topic)]
        if isinstance(declared, TableInput):
            source = _of_table(InputReader(context, name, declared, job.name), ended, needed_us)
        else:
            source = SourceRange(
                input=name, ranges=offsets_needed(entries, ended, needed_us), topic=ended.topic
            )
            _require_offsets(context, job.name, source)
        if source is not None:
            sources.append(source)
    if unknown:
        raise StreamsError(
            f"job {job.name!r} does not read {unknown[0].table or unknown[0].topic} any more, which its state is made "
            f"of; use headwater jobs rebuild {job.name}"
        )
    inputs_ms = (before or last).input_watermarks_ms
    return (
        WarmUp(watermark_ms=watermark_ms, sources=tuple(sources), input_watermarks_ms=inputs_ms)
        if sources
        else None
    )


def _writes_zero_for_none(entries: Sequence[LedgerEntry]) -> bool:
    """Whether an older Headwater wrote the first entries: 0 where there was no watermark, which is NULL now."""
    return not any(Extra.WATERMARK_MS.get(entry, 0) is None for entry in entries)


def plan_warm_up(context: StageContext, plan: JobPlan, checkpoint: Path, warm_up: WarmUp) -> None:
    """Begins a generation's checkpoint with the batch that reads everything again, and forgets the state of one that
    was not done.

    Raises:
        DataLossError: What must be read is not there any more.
    """
    # Spark 4.1.3 goes on with the state that a refused batch left, though it runs the batch anew.
    remove_tree(checkpoint / "state")
    if last_planned(checkpoint) is not None:
        return
    lines: list[str | None] = []
    # Spark's sources stand in the order of the plan: a join's left one first.
    for place, name in enumerate(plan.sides or plan.job.inputs):
        declared = plan.job.inputs[name]
        source = warm_up.source(declared)
        if source is None:
            lines.append(None)
        elif isinstance(declared, TopicInput):
            _require_offsets(context, plan.job.name, source)
            lines += context.source.begin(declared, checkpoint, place, source.ranges)
        else:
            reader = InputReader(context, name, declared, plan.job.name)
            _require_commits(reader, source)
            assert source.versions is not None
            lines.append(table_offset(reader.table_id, source.versions[1]))
    plan_first_batch(
        checkpoint,
        str(uuid.uuid4()),
        batch_metadata(context.spark, warm_up.watermark_ms, context.now_ms()),
        lines,
    )


def _source_of(declared: Input, sources: Sequence[SourceRange]) -> SourceRange | None:
    """What was read of an input, whatever its parameter was called."""
    if isinstance(declared, TopicInput):
        return next((source for source in sources if source.topic == ",".join(declared.names)), None)
    return next((source for source in sources if source.table == declared.name), None)


def _reach(plan: JobPlan) -> timedelta:
    """How far behind the watermark a row may be and still be part of the state."""
    spec = plan.operator
    if isinstance(spec, IntervalJoin):
        return spec.within
    assert isinstance(spec, TumblingWindow | HoppingWindow | CumulativeWindow)
    return spec.size


def _watermark_of(context: StageContext, plan: JobPlan, generation: int, last: LedgerEntry) -> int:
    if Extra.WATERMARK_MS.is_in(last):
        return last.watermark_ms
    planned = read_offsets(context.home.checkpoint(plan.job.name, generation), last.batch)
    if planned is None:
        raise StreamsError(
            f"job {plan.job.name!r}: nothing says which watermark batch {last.batch} of {last.table} was made at, for "
            f"an older Headwater made it and its checkpoint is gone; use headwater jobs rebuild {plan.job.name}"
        )
    return planned.watermark_ms


def _of_table(reader: InputReader, ended: SourceRange, needed_us: int | None) -> SourceRange | None:
    """The commits of a table from the first one that has a row young enough to be needed."""
    assert ended.versions is not None
    first, end = reader.first_version, ended.versions[1]
    if end <= first:
        return None
    start = first_needed(commits(reader.path, since=first, until=end), first, needed_us)
    # The newest commit is read in any case: a query over a table begins with a commit that is there.
    source = SourceRange(input=ended.input, ranges={}, table=ended.table, versions=(min(start, end - 1), end))
    _require_commits(reader, source)
    return source


def first_needed(history: Iterable[Commit], first: int, needed_us: int | None) -> int:
    """The first version of a table with rows that may be as young as a time, by what its entries say.

    Args:
        history: Its commits, oldest first.
        first: The version to begin with where no entry says more.
        needed_us: The time, in microseconds since the epoch; None: all rows are needed.
    """
    older = [commit.version for commit in history if _all_older(commit.entry, needed_us)]
    return older[-1] + 1 if older else first


def offsets_needed(
    entries: Sequence[LedgerEntry], ended: SourceRange, needed_us: int | None
) -> dict[str, dict[int, tuple[int, int]]]:
    """The offsets with records that may be as young as a time: from the start of the first batch that read one.

    Args:
        entries: The entries of the job that read them, oldest first.
        ended: What its last commit read.
        needed_us: The time, in microseconds since the epoch; None: all records are needed.
    """
    read = [(e, s.ranges) for e in entries if e.is_batch for s in e.sources if s.topic == ended.topic]
    spans = merge_ranges([*(ranges for _, ranges in read), ended.ranges])
    starts = {topic: {p: start for p, (start, _) in of_topic.items()} for topic, of_topic in spans.items()}
    older = next((ranges for e, ranges in reversed(read) if _all_older(e, needed_us)), {})
    for topic, partitions in older.items():
        starts[topic] |= {partition: end for partition, (_, end) in partitions.items()}
    return {
        topic: {partition: (starts[topic][partition], end) for partition, (_, end) in partitions.items()}
        for topic, partitions in ended.ranges.items()
    }


def _all_older(entry: LedgerEntry | None, needed_us: int | None) -> bool:
    """Whether nothing that was read up to a batch is so young that it is needed."""
    if entry is None or not entry.is_batch or entry.max_event_time_us is None or needed_us is None:
        return False
    return entry.max_event_time_us < needed_us - _US_PER_MS  # Spark's watermark is in whole milliseconds


def _require_commits(reader: InputReader, source: SourceRange) -> None:
    assert source.versions is not None
    since, until = source.versions
    reader.require_commits(since)
    added = (c.added_paths for c in commits(reader.path, since=since, until=until) if c.is_append)
    gone = [path for paths in added for path in paths if not exists(data_file(reader.path, path))]
    if gone:
        raise DataLossError(
            f"job {reader.job!r}: the state is made of versions [{since}, {until}) of {source.table}, and {len(gone)} "
            f"of their files were vacuumed, {gone[0]} among them; use headwater jobs rebuild {reader.job}"
        )


def _require_offsets(context: StageContext, job: str, source: SourceRange) -> None:
    for topic, partitions in source.ranges.items():
        bounds = context.source.partitions(topic)
        for partition, (start, end) in partitions.items():
            earliest, following = bounds.get(partition, (0, 0))
            if start < end and (start < earliest or end > following):
                raise DataLossError(
                    f"job {job!r}: its state is made of {topic} {partition} offsets [{start}, {end}), and "
                    f"[{earliest}, {following}) are there; use headwater jobs rebuild {job}"
                )
