"""How a job's table is laid out: its partitions, the order of its files' rows, its properties, comments and age.

None of it decides which rows a job makes, so a change of it is none of the job's code. Partitions that are computed,
`days(placed_at)`, are columns of the table: `placed_at_day`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headwater_streams.base.arguments import require_list
from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import is_reserved, named_twice
from headwater_streams.base.nearest import nearest

_PART = re.compile(r"\s*(\w+)\s*\(\s*`?([^`()]+?)`?\s*\)\s*")
PARTS_OF_TIME: Mapping[str, str] = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
"""What computes a partition of a time, as Spark's SQL names it, and what its column's name ends with."""
_MOST_CLUSTERED = 4  # columns, as in Delta; each further one orders the files less

_BOOLEANS = ("true", "false")
_DURATION = re.compile(r"(?:interval\s+)?(.+)", re.IGNORECASE)
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
LOG_RETENTION, FILE_RETENTION = _DURATIONS = (
    "delta.logRetentionDuration",
    "delta.deletedFileRetentionDuration",
)
TARGET_FILE_SIZE = "delta.targetFileSize"
_OPTIMIZED_WRITE = "delta.autoOptimize.optimizeWrite"
_SWITCHES = (CHANGE_DATA_FEED, _OPTIMIZED_WRITE)
_NUMBERS = (TARGET_FILE_SIZE, "delta.checkpointInterval")
_KNOWN = (*_SWITCHES, *_DURATIONS, *_NUMBERS)
"""Properties of Delta that a table may have with every reader of Delta's protocol 1."""
_PROTOCOL = "raises the table's protocol, and"
_REFUSED: Mapping[str, str] = {
    "delta.appendOnly": "would refuse the commits by which a backfill replaces rows",
    "delta.columnMapping.mode": f"{_PROTOCOL} readers of protocol 1 would not open it; rename columns in the job",
    "delta.enableDeletionVectors": f"{_PROTOCOL} what reads by Arrow, as DuckDB and Polars may, would not open it",
    "delta.enableTypeWidening": f"{_PROTOCOL} neither deltalake nor DuckDB would open the table",
    "delta.enableRowTracking": f"{_PROTOCOL} deltalake, which compacts the table, would not write it",
    "delta.enableInCommitTimestamps": f"{_PROTOCOL} deltalake, which compacts the table, would not write it",
    "delta.enableExpiredLogCleanup": "would remove the ledger with the log; say delta.logRetentionDuration alone",
    "delta.setTransactionRetentionDuration": "would forget how far a job that waits has come, and the job would write "
    "its last batch twice",
    "delta.randomizeFilePrefixes": "would hide a file's partition from its folder, by which it is read",
    "delta.checkpointPolicy": f"{_PROTOCOL} readers of protocol 1 would not open the table",
    "delta.autoOptimize.autoCompact": "would compact in each batch; the job's upkeep does it between batches",
    "delta.dataSkippingNumIndexedCols": "has no effect: the library keeps statistics of all columns",
    "delta.dataSkippingStatsColumns": "has no effect: the library keeps statistics of all columns",
}
_OWN = "headwater."
"""What properties of the library's own begin with."""
CLUSTERED_BY, KEPT = f"{_OWN}clusterBy", f"{_OWN}keep"


@dataclass(frozen=True)
class Partition:
    """A partition column.

    Attributes:
        name: The column.
        of: The time that it is computed of; None where the function gives it.
        part: What computes it, one of `PARTS_OF_TIME`.
    """

    name: str
    of: str | None = None
    part: str = ""

    def __str__(self) -> str:
        return self.name if self.of is None else f"{self.part}({self.of})"


@dataclass(frozen=True)
class Layout:
    """How a table is laid out.

    Attributes:
        partition_by: Its partition columns.
        cluster_by: The columns by which the rows of its files are sorted.
        properties: Its properties, by their names.
        comment: What it is, for people.
        comments: The same of its columns, by their names.
        keep: For how long its rows are kept, by event time; None for ever.
        keep_by: The column that has a row's event time; None for the one that an input's event time, or a window's end,
            is called.
    """

    partition_by: tuple[Partition, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    comment: str | None = None
    comments: tuple[tuple[str, str], ...] = ()
    keep: str | None = None
    keep_by: str | None = None

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns."""
        return tuple(each.name for each in self.partition_by)

    @property
    def computed(self) -> tuple[Partition, ...]:
        """The partition columns that are computed of a time."""
        return tuple(each for each in self.partition_by if each.of is not None)

    @property
    def keep_us(self) -> int | None:
        """For how many microseconds rows are kept."""
        return None if self.keep is None else in_micros(parse_duration(self.keep))

    @property
    def description(self) -> str:
        """How the table is laid out, for a person; empty where nothing is declared.

        Example:
            >>> Layout((Partition("at_day", "at", "days"), Partition("city")), ("who",), keep="90 days").description
            'partitioned by at_day = days(at), city; sorted by who; kept for 90 days'
        """
        partitions = [p.name if p.of is None else f"{p.name} = {p}" for p in self.partition_by]
        parts = [
            f"partitioned by {', '.join(partitions)}" if partitions else "",
            f"sorted by {', '.join(self.cluster_by)}" if self.cluster_by else "",
            f"kept for {self.keep}" + (f" by {self.keep_by}" if self.keep_by is not None else "")
            if self.keep is not None
            else "",
        ]
        return "; ".join(filter(None, parts))

    @property
    def stored_properties(self) -> dict[str, str]:
        """The properties that the table gets: those declared, and the library's own about its upkeep."""
        own = {CLUSTERED_BY: ",".join(self.cluster_by), KEPT: self.keep or ""}
        return {**dict(self.properties), **{name: value for name, value in own.items() if value}}


PLAIN = Layout()
"""One folder of files, as they come."""


def partitioned_by(columns: Sequence[str]) -> Layout:
    """The layout of a table whose files come into another table with these partition columns."""
    return Layout(tuple(map(Partition, columns)))


def layout_of(
    table: str,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
    comments: Mapping[str, str] | None = None,
    keep: str | None = None,
    keep_by: str | None = None,
    replaces_rows: bool = False,
) -> Layout:
    """What a declaration says of a table's layout.

    Args:
        table: The table.
        partition_by: See `hw.delta`.
        cluster_by: See `hw.delta`.
        properties: See `hw.delta`.
        comment: See `hw.delta`.
        comments: See `hw.delta`.
        keep: See `hw.delta`.
        keep_by: See `hw.delta`.
        replaces_rows: Whether the job's own batches replace rows of the table.

    Raises:
        JobDefinitionError: It contradicts itself, or asks for what a table of the library's cannot have.
    """
    about = f"table {table!r}"
    for argument, names in (("partition_by", partition_by), ("cluster_by", cluster_by)):
        require_list(about, argument, names)
    partitions = tuple(_partition(about, text) for text in partition_by)
    names = [each.name for each in partitions]
    for argument, listed in (("partition_by", names), ("cluster_by", cluster_by)):
        twice = named_twice(listed)
        if twice is not None:
            raise JobDefinitionError(f"{about}: {argument} has {twice!r} twice")
        own = next((name for name in listed if is_reserved(name)), None)
        if own is not None:
            raise JobDefinitionError(f"{about}: {argument} has {own!r}, a column of the library's own")
    both = [name for name in cluster_by if name in names]
    if both:
        raise JobDefinitionError(
            f"{about}: {both[0]!r} is in partition_by and in cluster_by; all rows of a partition have one value of it"
        )
    if len(cluster_by) > _MOST_CLUSTERED:
        raise JobDefinitionError(
            f"{about}: cluster_by has {len(cluster_by)} columns and may have {_MOST_CLUSTERED}; name those that "
            "most queries filter by"
        )
    if cluster_by and str((properties or {}).get(_OPTIMIZED_WRITE, "false")).lower() == "true":
        raise JobDefinitionError(
            f"{about}: cluster_by sorts the rows that a batch writes, and the property {_OPTIMIZED_WRITE!r} shuffles "
            "them again; leave one of the two out"
        )
    if keep is not None:
        try:
            parse_duration(keep)
        except JobDefinitionError as error:
            raise JobDefinitionError(f"{about}: keep={error}") from error
    elif keep_by is not None:
        raise JobDefinitionError(
            f"{about}: keep_by={keep_by!r} is by what rows are let go of; write keep= with it"
        )
    return Layout(
        partitions,
        tuple(cluster_by),
        _properties(about, properties or {}, replaces_rows=replaces_rows),
        comment,
        tuple((comments or {}).items()),
        keep,
        keep_by,
    )


def _partition(about: str, text: str) -> Partition:
    parts = _PART.fullmatch(text)
    if parts is None:
        if "(" in text or ")" in text:
            raise JobDefinitionError(f"{about}: partition_by={text!r} is no column; {_parts_allowed()}")
        return Partition(text)
    part, of = parts[1].lower(), parts[2]
    if part not in PARTS_OF_TIME:
        raise JobDefinitionError(
            f"{about}: partition_by={text!r}: there is no {parts[1]}(...); {_parts_allowed()}"
        )
    return Partition(f"{of.replace('.', '_')}_{PARTS_OF_TIME[part]}", of, part)


def _parts_allowed() -> str:
    return (
        f"write a column, or {', '.join(f'{part}(time)' for part in PARTS_OF_TIME)}; compute others in the "
        "function, and name their column"
    )


def _properties(
    about: str, properties: Mapping[str, object], *, replaces_rows: bool
) -> tuple[tuple[str, str], ...]:
    """The properties as Delta has them, all texts.

    Raises:
        JobDefinitionError: One is not allowed.
    """
    result = {}
    for name, value in properties.items():
        if value is None:
            raise JobDefinitionError(
                f"{about}: the property {name!r} has no value; give it one, or leave it out"
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        problem = _property_problem(name, text, replaces_rows=replaces_rows)
        if problem is not None:
            raise JobDefinitionError(f"{about}: the property {name!r} {problem}")
        result[name] = f"interval {_duration(text)}" if name in _DURATIONS else text
    return tuple(result.items())


def _property_problem(name: str, value: str, *, replaces_rows: bool) -> str | None:
    """Why a table cannot have a property, as a predicate; None where it can."""
    if name.startswith(_OWN):
        return "begins with 'headwater.', which the library keeps for its own"
    if not name.startswith("delta."):
        return None if name.strip() else "is called nothing"
    if name in _REFUSED and value.lower() not in ("false", "none", "classic"):
        return _REFUSED[name]
    if name.startswith(("delta.feature.", "delta.minReader", "delta.minWriter")):
        return f"{_PROTOCOL} tables stay at those that every reader opens"
    if name not in _KNOWN and name not in _REFUSED:
        return f"is none that the library knows; there are {nearest(name, _KNOWN)}"
    if name in _SWITCHES and value not in _BOOLEANS:
        return f"is true or false, not {value!r}"
    if name in _NUMBERS and not (value.isdecimal() and int(value)):
        of_bytes = (
            "a number of bytes, as 134217728" if name == TARGET_FILE_SIZE else "a number of commits, as 50"
        )
        return f"is {of_bytes}, not {value!r}"
    if name == CHANGE_DATA_FEED and value == "true" and replaces_rows:
        return (
            "is for tables that only get rows, mode='append': each batch of an updating one writes the files anew that "
            "hold its keys, and the feed would show all of their rows as deleted and inserted"
        )
    if name in _DURATIONS:
        try:
            parse_duration(_duration(value))
        except JobDefinitionError as error:
            return f"is no duration: {error}"
    return None


def _duration(value: str) -> str:
    match = _DURATION.fullmatch(value.strip())
    return match[1] if match else value


def retention(properties: Mapping[str, str], name: str) -> timedelta | None:
    """A duration among a table's properties, None where it has none that the library reads.

    Example:
        >>> retention({"delta.logRetentionDuration": "interval 7 days"}, "delta.logRetentionDuration")
        datetime.timedelta(days=7)
    """
    try:
        return parse_duration(_duration(properties[name])) if name in properties else None
    except JobDefinitionError:  # another tool's, as "interval 1 month"
        return None


def partitioning_problem(table: str, stored: Sequence[str], layout: Layout) -> str | None:
    """Why rows of a declared layout cannot be written to a table as it is, as a sentence; None where they can."""
    declared = layout.partition_columns
    if tuple(stored) == declared:
        return None
    return (
        f"{table}: the table is {partitioned_text(stored)}, and the job declares it {partitioned_text(declared)}; put "
        "partition_by= back, or write the same rows anew: headwater jobs rewrite, or build the table again: beside the "
        "live one with headwater backfill plan JOB --rebuild, or from empty with headwater jobs rebuild"
    )


def partitioned_text(columns: Sequence[str]) -> str:
    """How a table is partitioned, in words."""
    return f"partitioned by {', '.join(columns)}" if columns else "not partitioned"
