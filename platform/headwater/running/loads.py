"""Loads a range of a topic into a table of the home, or into a folder of Parquet files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import UsageError
from headwater.running.clusters import Clusters
from headwater.running.leases import HomeLease
from headwater.stack.local import known_bootstrap
from headwater_broker.numbers import is_natural
from headwater_streams.backfill.values import micros
from headwater_streams.base.names import is_table_name
from headwater_streams.base.topics import cluster_of
from headwater_streams.ledger.known_columns import remember_columns
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.loading import (
    LoadProgress,
    Sizes,
    TableLoad,
    chunks_of,
    load_job,
    remaining,
    requested,
    require_following,
)
from headwater_streams.runtime.loading.planning import CHUNK_BYTES, TASK_BYTES
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.sources.reader import RecordSource
from headwater_streams.sources.record_sizes import mean_bytes
from headwater_streams.storage.delta_files import data_paths, opened_table
from headwater_streams.storage.files import link
from headwater_streams.storage.home import Home

_PARQUET = "parquet:"
_ROWS, _OWN = "load.rows", "_load"
"""The table of a load into files, in a home of its own, `FOLDER/_load`."""

ContextOf = Callable[[Path, str | None, Job], StageContext]
"""Makes what stages reach, by a home, the brokers and the job that is to run."""


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What a load came to.

    Attributes:
        topic: The topic.
        into: The table, or `parquet:FOLDER`.
        ranges: The offsets of the range, by partition.
        accounting: What became of all records that the table was ever loaded with: `read`, and the terms of its
            identity that are not 0.
    """

    topic: str
    into: str
    ranges: Mapping[int, tuple[int, int]]
    accounting: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class LoadBounds:
    """How much a load reads, and at once.

    Attributes:
        start: Where it begins: `"earliest"`, an offset or a time.
        end: Where it ends, exclusive: `"latest"`, an offset or a time.
        chunk_bytes: About how many bytes one commit holds.
        task_bytes: About how many bytes one task reads.

    Raises:
        UsageError: One of them is none.
    """

    start: str = "earliest"
    end: str = "latest"
    chunk_bytes: int = CHUNK_BYTES
    task_bytes: int = TASK_BYTES

    def __post_init__(self) -> None:
        (start_kind, start), (end_kind, end) = map(_parsed, (self.start, self.end))
        if (start_kind == end_kind and start > end) or (start_kind, end_kind) == ("latest", "earliest"):
            raise UsageError(f"from {self.start} to {self.end}: it ends before it begins")
        if min(self.chunk_bytes, self.task_bytes) < 1:
            raise UsageError(f"chunk_bytes={self.chunk_bytes}, task_bytes={self.task_bytes}: give 1 or more")


def load_range(
    topic: str,
    job: Job,
    into: str,
    *,
    home: Path,
    bootstrap: str | None,
    bounds: LoadBounds,
    context_of: ContextOf,
    report: Callable[[LoadProgress], None] = lambda _: None,
) -> LoadReport:
    """Loads a range of a topic; one that was cut off goes on.

    Args:
        topic: The topic.
        job: The job whose function, checks and decoding are used.
        into: A table of the home, or `parquet:FOLDER`.
        home: The home.
        bootstrap: The brokers, or a cluster of the settings; None for those of the settings or of the home's stack.
        bounds: The range, and its parts.
        context_of: Is called once nothing else speaks against the load, as a session takes seconds to start.
        report: Is called after each commit.

    Raises:
        UsageError: `into` is none.
        LoadRefusedError: The job, the table or the range will not do.
        OwnershipError: Another load into the table runs.
        StreamsError: The load failed; it can be run again.
    """
    folder = _folder_of(into)
    loading = load_job(job, topic, into if folder is None else _ROWS)
    place = home if folder is None else folder / _OWN
    with _alone(place, loading):
        if folder is not None:
            _link_lookups(home, place, loading)
        brokers = bootstrap if folder is None else bootstrap or known_bootstrap(home) or None
        context = context_of(place, brokers, loading)
        (plan,) = plan_jobs(context, [loading])
        load = TableLoad(context, plan)
        remember_columns(Home(place), plan.made_of)
        existing = context.source.partitions(topic)
        starts, ends = (_places(context.source, topic, existing, at) for at in (bounds.start, bounds.end))
        ranges = requested(topic, existing, starts, ends)
        cut_off = load.cut_off()
        done = [*load.done(), cut_off]
        left = remaining(ranges, done)
        require_following(topic, left, done)
        spans = {**cut_off, **{partition: (pairs[0][0], pairs[-1][1]) for partition, pairs in left.items()}}
        cluster = Clusters(home, bootstrap).with_brokers(cluster_of(topic))
        chunks = chunks_of(
            left,
            Sizes(bytes_each=mean_bytes(cluster, topic, spans)),
            cut_off=cut_off,
            chunk_bytes=bounds.chunk_bytes,
            task_bytes=bounds.task_bytes,
        )
        load.run(chunks, report)
        if folder is not None:
            _publish(place, folder)
        return LoadReport(topic=topic, into=into, ranges=ranges, accounting=load.accounting())


def _folder_of(into: str) -> Path | None:
    """The folder of `parquet:FOLDER`; None where a table is named.

    Raises:
        UsageError: It is neither, or the folder is not this load's to fill.
    """
    if not into.startswith(_PARQUET):
        if not is_table_name(into):
            raise UsageError(f"into {into}: give a table, schema.name, or parquet:FOLDER")
        return None
    name = into.removeprefix(_PARQUET)
    folder = Path(name)
    if not name or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"into {into}: give a folder behind parquet:, which need not exist")
    if folder.is_dir() and not (folder / _OWN).is_dir() and any(folder.iterdir()):
        raise UsageError(f"into {into}: the folder has files of others; name another one, or empty it")
    return folder


def _link_lookups(home: Path, place: Path, loading: Job) -> None:
    """Has the home of a load into files the tables that its job looks up."""
    for declared in loading.lookups.values():
        table, linked = Home(home.resolve()).table(declared.name), Home(place).table(declared.name)
        if table.is_dir() and not linked.is_symlink():
            linked.parent.mkdir(parents=True, exist_ok=True)
            linked.symlink_to(table, target_is_directory=True)


@contextmanager
def _alone(home: Path, loading: Job) -> Iterator[None]:
    """Holds the table's lease: two loads into one table would each read the same rest."""
    lease = HomeLease(home, loading.name)
    lease.claim(())
    try:
        yield
    finally:
        lease.release()


def _places(
    source: RecordSource, topic: str, existing: Mapping[int, tuple[int, int]], place: str
) -> dict[int, int]:
    """The offset of each partition that a place means."""
    kind, number = _parsed(place)
    if kind == "earliest":
        return {partition: low for partition, (low, _) in existing.items()}
    if kind == "latest":
        return {partition: high for partition, (_, high) in existing.items()}
    if kind == "offset":
        # A partition that is shorter has no such offset; a range that begins behind its end is empty.
        return {partition: min(number, high) for partition, (_, high) in existing.items()}
    since = source.first_since(topic, number)
    return {partition: since.get(partition, high) for partition, (_, high) in existing.items()}


def _parsed(place: str) -> tuple[str, int]:
    """What a place is: `"earliest"` or `"latest"`, an `"offset"` or a `"time"` in microseconds, and which."""
    if place in ("earliest", "latest"):
        return place, 0
    if is_natural(place):
        return "offset", int(place)
    try:
        return "time", micros(place)
    except ValueError as error:
        raise UsageError(
            f"{place} is no place in a topic: give earliest, latest, an offset, or a time such as "
            "2013-01-01T10:00:00Z"
        ) from error


def _publish(home: Path, folder: Path) -> None:
    """Puts the data files of the load's table into the folder, where readers of Parquet look for them."""
    table = Home(home).table(_ROWS)
    for path in data_paths(table, opened_table(table)):
        link(path, folder / path.relative_to(table))
