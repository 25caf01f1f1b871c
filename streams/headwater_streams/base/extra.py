"""The keys of `LedgerEntry.extra`: what an entry says that only commits of its kind have.

Each key stands here once, with its meaning and the type of its value; no other module spells one. They are on disk, so
none of them may be renamed.

A writer uses the keys in a dict: `extra={Extra.HOW: "left", Extra.LEFT: "orders"}`. A reader asks the key for its value
in an entry: `Extra.HOW.of(entry)`, or `Extra.GAPS.get(entry, {})` where the entry may lack it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar, overload

T = TypeVar("T")

Deed = Literal["renew", "rebuild", "clear", "restore", "rewind", "swap", "rollback", "chunk"]
RangesByTopic = Mapping[str, Mapping[Any, Sequence[int]]]
"""Half-open offset ranges: topic -> partition -> [start, end]."""


class LastBatch(TypedDict):
    """The batch that a table ended with."""

    generation: int
    batch: int


class OpenWindows(TypedDict):
    """The windows of a repair that were open at its swap: from when to when (ISO 8601), and the job's last batch."""

    windows: Sequence[str]
    batch: int


class ReadVersion(TypedDict):
    """The version of a look-up table that a batch read, and the table's id."""

    table: str
    version: int
    id: str


ExtraValues = dict[str, Any]
"""Keys with their values: those of an entry, or what one part of a stage adds to them."""


class HasExtra(Protocol):
    """An entry."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """What it says beyond its fields."""


class Key(str, Generic[T]):
    """A key of `extra`, with the type of its value; on disk it is the string that it is."""

    __slots__ = ()

    def of(self, entry: HasExtra) -> T:
        """The value in an entry that has the key."""
        value: T = entry.extra[self]
        return value

    @overload
    def get(self, entry: HasExtra) -> T | None: ...

    @overload
    def get(self, entry: HasExtra, default: T) -> T: ...

    def get(self, entry: HasExtra, default: T | None = None) -> T | None:
        """The value in an entry; the default where it lacks the key."""
        value: T | None = entry.extra.get(self, default)
        return value

    def is_in(self, entry: HasExtra) -> bool:
        """Whether an entry has the key."""
        return self in entry.extra


class Extra:
    """All keys, by the kind of commit that has them."""

    # Batches of any job.

    WARNINGS = Key[Sequence[str]]("warnings")
    """What checks with `action="warn"` found, each as a sentence."""
    CHECKS = Key[Sequence[Mapping[str, Any]]]("checks")
    """What each check came to, see `quality.check_result`: `[{"check": "has_carrier", "outcome": "held", ...}]`."""
    GAPS = Key[Mapping[str, Mapping[str, Mapping[str, int]]]]("gaps")
    """How many offsets hold no record (transaction markers, aborted or compacted records), by input, topic and
    partition: `{"departed": {"departures": {"0": 3}}}`."""

    # Batches of row jobs.

    BESIDE = Key[str]("beside")
    """In the tables of a job but its first: the first one, which has the offsets seen and the quarantine."""
    LOOKUPS = Key[Mapping[str, ReadVersion]]("lookups")
    """The version of each look-up that the batch read:
    `{"airports": {"table": "dim.airports", "version": 7, "id": "..."}}`."""
    COLD = Key[int]("cold")
    """`by_offset`: the generation whose rows of `headwater.seen` count, once origins were moved there; see
    `operators.dedup.memory`."""
    KEYS_SINCE = Key[int]("keys_since")
    """`by_key`: the first batch whose file of keys is still needed."""

    # Batches of jobs that keep state.

    LATE = Key[Literal["count"]]("late")
    """Late rows are only counted, and stand in no table."""
    WATERMARK_MS = Key[int | None]("watermark_ms")
    """The watermark that Spark ran the batch with; null before there was one. Entries of older Headwaters lack it."""
    WATERMARKS_MS = Key[Mapping[str, int | None]]("watermarks_ms")
    """Joins: the watermark of each input behind the batch; null where nothing was seen of it:
    `{"orders": 1357034400000, "payments": null}`."""
    WATERMARK_US = Key[int | None]("watermark_us")
    """Count windows: the watermark of the input. As-of joins: that of the right side."""
    SEEN_US = Key[int | None]("seen_us")
    """The greatest event time behind `watermark_us`."""
    OPEN_ROWS = Key[Mapping[str, int]]("open_rows")
    """Count windows: the number of rows in each part of the state, by the part's batch."""
    HOW = Key[str]("how")
    """Joins and as-of joins: the kind of join, "inner", "left", …"""
    LEFT = Key[str]("left")
    """As-of joins: the left input."""
    SIDES = Key[Mapping[str, str]]("sides")
    """Joins: the side of each input, "left" or "right"."""
    TIMES = Key[Sequence[str]]("times")
    """Joins: the columns of the table that hold the event times of its rows' sources. Older entries lack it."""
    PAIRS = Key[int]("pairs")
    """Joins: how many of the batch's rows are pairs."""
    ALONE = Key[int]("alone")
    """Joins: how many of the batch's rows have no partner."""

    # Beginnings of generations, and backfills.

    ACTION = Key[Deed]("action")
    """What the commit does. Of a generation: "renew" keeps the rows, "rebuild" removes or replaces them, "rewind" and
    "restore" put earlier rows back, "clear" removes rows from a side table or a further table. Of a repair: "swap",
    "rollback", or "chunk" in a shadow."""
    BACKFILL = Key[str]("backfill")
    """The id of the backfill that made the commit."""
    REPLACED_VERSION = Key[int]("replaced_version")
    """The table's version before a swap, rollback, rebuild, rewind or restore."""

    # Beginnings of generations.

    AFTER = Key[LastBatch]("after")
    """The batch of the generation before that the target ended with."""
    STARTS = Key[Mapping[str, Mapping[Any, int]]]("starts")
    """The next offset of each partition, by topic."""
    LOST = Key[RangesByTopic]("lost")
    """The ranges that the old generation had not read and that are gone."""
    ANEW = Key[Sequence[str]]("anew")
    """The topics that were deleted and made again; they are read from their beginning."""
    TOPIC_IDS = Key[Mapping[str, str]]("topic_ids")
    """Of a renewal: the ids of the topics that the offsets belong to, where the broker gives any."""
    WARM_UP = Key[Mapping[str, Any]]("warm_up")
    """Of the renewal of a job that keeps state: what batch 0 reads again, of which nothing is committed, and the
    watermarks of that batch: `{"watermark_ms": 1357034400000, "watermarks_ms": {...}, "sources": [...]}`."""
    SHADOW = Key[str]("shadow")
    """Of a backfill that rebuilt the table: the folder, below the home, of the table whose files replaced all rows. Its
    log has the batches that wrote them."""
    BEHIND = Key[Mapping[str, int]]("behind")
    """Of the same: the versions at which the swap brought the tables that this one is made of."""
    RESTORED_VERSION = Key[int]("restored_version")
    """Of a rewind or restore: the version whose rows are there again."""

    # Expiries.

    EXPIRED_BEFORE_US = Key[int]("expired_before_us")
    """The time before which rows are gone, microseconds."""
    EXPIRED_BY = Key[str]("expired_by")
    """The column that says how old a row is."""
    EXPIRED = Key[Sequence[Sequence[int]]]("expired")
    """The rows of each batch that are gone: `[generation, batch, rows]`."""
    EXPIRED_AMONG = Key[Sequence[Sequence[Any]]]("expired_among")
    """In the shadow of a rebuild: the offsets whose rows are gone where they are before that time, `[topic, partition,
    start, end]`; the others came to the live table after its rows had expired. Without it, those of all batches before
    the entry."""

    # Repairs.

    WINDOWS = Key[Sequence[tuple[str, str]]]("windows")
    """Of windows: those that were repaired, ISO 8601, half-open."""
    UNTIL = Key[Sequence[int]]("until")
    """Of windows: generation and batch of the last commit of the input that was folded."""
    OPEN = Key[OpenWindows]("open")
    """Of windows: those that were open at the swap."""
    SINCE = Key[Mapping[str, int]]("since")
    """Of topics that were deleted and made again before: the first generation whose rows are replaced."""
    REJECTED = Key[Sequence[Any]]("rejected")
    """In the quarantine table of windows and joins: the offsets whose rows the swap replaced."""
    FAILED_BEHIND = Key[Sequence[Any]]("failed_behind")
    """In the quarantine table of a row job: the offsets in the range whose rows the swap left alone, since the job that
    reads its table raised for them."""
    ROWS = Key[int]("rows")
    """In a shadow: how many rows the chunk wrote."""
