"""`quality.results`: what every check came to, one row a check and batch, or version of a table. Without Spark.

A batch's results stand in its ledger entry, and so are committed with the batch, once. `ledger.check_results` copies
them from there right after the commit, by a mark of the table, so that a copy that was cut short goes on where it was.
The results of a batch that a check stopped have no commit to stand in; they are written when they are not those that
were written of it last, however often it is tried. A suite adds a row for each of its expectations.

Rows are in the order in which they were recorded: a clock that was ahead, and was set right, would have its results
count as the newest. `recorded` is the version of the table that the rows came with, or one a little before it, as
others may append meanwhile; rows of one append are of one table, by whose version they are in order. Tables from before
there was this column get it with the next append; what they have is in order of time, before all others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.rule import Past
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.storage.delta_files import opened_table, reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of, require_table
from headwater_streams.storage.home import Home

RESULTS_TABLE = "quality.results"
Kind = Literal["batch", "stopped", "suite", "manual", "backfill"]
_RANGE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("job", pa.string()),
        ("table", pa.string()),
        ("check", pa.string()),
        ("outcome", pa.string()),
        ("action", pa.string()),
        ("kind", pa.string()),
        ("generation", pa.int32()),
        ("batch", pa.int64()),
        ("version", pa.int64()),
        ("judged", pa.int64()),
        ("failed", pa.int64()),
        ("observed", pa.string()),
        ("values", pa.map_(pa.string(), pa.float64())),
        ("sample", pa.list_(pa.string())),
        ("ranges", pa.list_(_RANGE)),
        ("recorded", pa.int64()),
    ]
)
RECORDED = "recorded"
ORDER = (RECORDED, "version", "at")
"""The columns that rows are in order by."""
_TRIES = 8
_ROWS_OF_A_PART = 500_000


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was judged.

    Attributes:
        kind: A batch that was committed, one that a check stopped, a suite over a version of a table that ran by
            itself, one that a person ran, or a backfill.
        at_ms: When.
        table: The table, `schema.name`.
        job: The job; None where none is known.
        generation: The job's generation.
        batch: The batch.
        version: The table's version that has the batch, or that was judged.
        ranges: The offsets that the batch read.
    """

    kind: Kind
    at_ms: int
    table: str
    job: str | None = None
    generation: int | None = None
    batch: int | None = None
    version: int | None = None
    ranges: Ranges | None = None


def rows_of(judged: Judged, results: Sequence[CheckResult]) -> list[dict[str, Any]]:
    """The rows of what was judged."""
    ranges = [
        {"topic": topic, "partition": partition, "start": start, "end": end}
        for topic, partitions in (judged.ranges or {}).items()
        for partition, (start, end) in partitions.items()
    ]
    return [
        {
            "at": datetime.fromtimestamp(judged.at_ms / 1000, UTC),
            "job": judged.job,
            "table": judged.table,
            "check": each.check,
            "outcome": each.outcome,
            "action": each.action,
            "kind": judged.kind,
            "generation": judged.generation,
            "batch": judged.batch,
            "version": judged.version,
            "judged": each.judged,
            "failed": each.failed,
            "observed": each.observed,
            "values": [(name, None if v is None else float(v)) for name, v in each.values.items()],
            "sample": list(each.sample),
            "ranges": ranges,
        }
        for each in results
    ]


@dataclass(frozen=True)
class Mark:
    """How far rows of one origin have been appended: a number that grows, under a name.

    Attributes:
        name: The origin.
        before: What the mark was when the rows were collected; -1 for none yet.
        after: What it is once they are there.
        others: Further marks that are set with it.
    """

    name: str
    before: int
    after: int
    others: Mapping[str, int] = field(default_factory=dict)


def place_of(row: Mapping[str, Any]) -> str:
    """What a row of the table judged: `batch 7`, `batch 7, stopped`, `version 12`, or `version 12, a backfill`.

    What a person ran is `version 12, by hand`.
    """
    if row["kind"] == "batch":
        return f"batch {row['batch']}"
    if row["kind"] == "stopped":
        return f"batch {row['batch']}, stopped"
    return f"version {row['version']}" + {"backfill": ", a backfill", "manual": ", by hand"}.get(
        row["kind"], ""
    )


def opened_results(home: Home) -> DeltaTable | None:
    """The table; None where nothing was judged yet."""
    path = home.table(RESULTS_TABLE)
    return opened_table(path) if has_versions(path) else None


def append(
    home: Home, rows: Sequence[dict[str, Any]], mark: Mark | None = None, opened: DeltaTable | None = None
) -> bool:
    """Appends rows; says whether it did. It does not where somebody else has moved the mark meanwhile.

    Args:
        home: The home.
        rows: What `rows_of` gives.
        mark: Moved with them; None for rows that are appended however often they are.
        opened: The table as it was when `mark.before` was looked up; opened anew by default.
    """
    path = home.table(RESULTS_TABLE)
    if opened is None:
        require_table(path, SCHEMA)
    made = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    numbers = {} if mark is None else {mark.name: mark.after, **mark.others}
    marks = [Transaction(name, number) for name, number in numbers.items()]
    for attempt in range(_TRIES):
        if opened is None or attempt:
            opened = opened_table(path)
        if mark is not None and last_mark(opened, mark.name) != mark.before:
            return False
        data = made.set_column(
            SCHEMA.get_field_index(RECORDED), RECORDED, pa.repeat(pa.scalar(opened.version() + 1), len(rows))
        )
        try:
            write_deltalake(
                opened,
                data,
                mode="append",
                schema_mode=None if _has_order(opened) else "merge",
                commit_properties=CommitProperties(app_transactions=marks),
            )
        except CommitFailedError:
            # Another process wrote under the same name: whether it wrote these rows is looked up anew.
            if attempt == _TRIES - 1:
                raise
            continue
        return True
    return False


def _has_order(opened: DeltaTable) -> bool:
    return any(field.name == RECORDED for field in opened.schema().fields)


def last_mark(opened: DeltaTable | None, name: str) -> int:
    """The number of a mark, -1 where there is none."""
    mark = None if opened is None else opened.transaction_version(name)
    return -1 if mark is None else int(mark)


def history(
    home: Home,
    *,
    job: str | None = None,
    table: str | None = None,
    check: str | None = None,
    kind: Kind | None = None,
    since: datetime | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows that match, the first to be recorded first; none where nothing was judged yet."""
    names = None if columns is None else list(dict.fromkeys([*columns, *ORDER]))
    return _in_order(_read(home, {"job": job, "table": table, "check": check, "kind": kind}, since, names))


def order_of(found: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row, by which they are in order."""
    at = np.asarray(found["at"].cast(pa.int64()))
    recorded = found[RECORDED]
    if recorded.null_count == len(recorded):
        return at
    # All times, of rows without a number, are below these: the years 1 to 9999 are 58 bits of microseconds.
    within = np.asarray(found["version"].fill_null(0))
    numbered = np.asarray(recorded.fill_null(0)) << 31 | within
    return np.where(np.asarray(recorded.is_valid()), numbered + (1 << 62), at)


def ran_by_itself(found: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows say how a check is: what a person ran may be of any version, and of a check that nobody else has."""
    kinds = found["kind"]
    encoded = kinds if pa.types.is_dictionary(kinds.type) else kinds.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    itself = np.array([name != "manual" for name in whole.dictionary.to_pylist()], dtype=np.bool_)
    result: npt.NDArray[np.bool_] = itself[np.asarray(whole.indices)]
    return result


def for_trends(
    home: Home,
    columns: Sequence[str],
    *,
    table: str | None = None,
    check: str | None = None,
    since: datetime | None = None,
) -> Iterator[pa.Table]:
    """Columns of the rows that match, in parts and in no order, with texts as dictionaries: millions of rows are read
    in a fraction of the time so, and of the memory, that they take as `history` gives them."""
    texts = [name for name in columns if pa.types.is_string(SCHEMA.field(name).type)]
    parts, rows = list[pa.RecordBatch](), 0
    with _reading(home, texts) as found:
        if found is None:
            return
        where = _matching({"table": table, "check": check}, since)
        for batch in found.to_batches(columns=list(columns), filter=where):
            parts.append(batch)
            rows += batch.num_rows
            if rows >= _ROWS_OF_A_PART:
                yield pa.Table.from_batches(parts)
                parts, rows = [], 0
    if rows:
        yield pa.Table.from_batches(parts)


def newest(home: Home, table: str) -> list[dict[str, Any]]:
    """The newest row of each check of a table, by the checks' names; what a person ran, of one that has no others."""
    last: dict[str, tuple[tuple[bool, int], datetime]] = {}
    for part in for_trends(home, ["check", "kind", *ORDER], table=table):
        itself, keys = ran_by_itself(part), order_of(part)
        order = np.lexsort((keys, itself))
        encoded = part["check"].unify_dictionaries().combine_chunks()
        codes, places = np.unique(np.asarray(encoded.indices)[order][::-1], return_index=True)
        for code, place in zip(codes, order[::-1][places], strict=True):
            check, key = encoded.dictionary[int(code)].as_py(), (bool(itself[place]), int(keys[place]))
            if check not in last or key > last[check][0]:
                last[check] = key, part["at"][int(place)].as_py()
    if not last:
        return []
    found = history(home, table=table, since=min(at for _, at in last.values()))
    rows = found.take(np.argsort(ran_by_itself(found), kind="stable")).to_pylist()
    return [row for _, row in sorted({row["check"]: row for row in rows}.items())]


def _read(
    home: Home,
    wanted: Mapping[str, str | Sequence[str] | None],
    since: datetime | None,
    columns: Sequence[str] | None,
) -> pa.Table:
    with _reading(home) as found:
        if found is None:
            return SCHEMA.empty_table()
        names = None if columns is None else list(columns)
        return found.to_table(columns=names, filter=_matching(wanted, since))


def _in_order(found: pa.Table) -> pa.Table:
    return found.take(np.argsort(order_of(found), kind="stable"))


@contextmanager
def _reading(home: Home, dictionaries: Sequence[str] = ()) -> Iterator[ds.Dataset | None]:
    """The table's rows, to be read in the block; None where nothing was judged yet."""
    path = home.table(RESULTS_TABLE)
    if not has_versions(path):
        yield None
        return
    with reading(path):
        rows = dataset_of(path, dictionaries=dictionaries)
        if RECORDED not in rows.schema.names:
            rows = rows.replace_schema(rows.schema.append(SCHEMA.field(RECORDED)))
        yield rows


def _matching(
    wanted: Mapping[str, str | Sequence[str] | None], since: datetime | None
) -> pc.Expression | None:
    conditions = [
        pc.field(name) == value if isinstance(value, str) else pc.field(name).isin(list(value))
        for name, value in wanted.items()
        if value is not None
    ]
    if since is not None:
        conditions.append(pc.field("at") >= since)
    return reduce(and_, conditions) if conditions else None


def last_stopped(home: Home, job: str, generation: int, batch: int) -> list[dict[str, Any]]:
    """The rows that were written of a batch when a check stopped it last; none where none has."""
    found = history(home, job=job, kind="stopped")
    mine = pc.and_(pc.equal(found["generation"], generation), pc.equal(found["batch"], batch))
    rows = found.filter(mine).to_pylist()
    return [row for row in rows if row["at"] == rows[-1]["at"]]


def past_of(
    home: Home, job: str, check: str, count: int | None, *, after_ms: int | None = None
) -> list[Past]:
    """What a check measured of the last batches that were committed, so many or all, by their time, oldest first; or
    after a time."""
    wanted = {"job": job, "check": check, "kind": "batch"}
    found = _read(home, wanted, _just_after(after_ms), ["at", "values"])
    return _last(found.sort_by("at"), count)


def _just_after(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp((ms + 1) / 1000, UTC)


def past_since(home: Home, job: str, checks: Sequence[str], after_ms: int | None) -> dict[str, list[Past]]:
    """What checks of a job measured of the batches after a time, or of all, by the checks' names, oldest first."""
    wanted = {"job": job, "check": checks, "kind": "batch"}
    found = _read(home, wanted, _just_after(after_ms), ["at", "check", "values"]).sort_by("at")
    result: dict[str, list[Past]] = {}
    for name, past in zip(found["check"].to_pylist(), _last(found, None), strict=True):
        result.setdefault(name, []).append(past)
    return result


def past_of_suites(home: Home, table: str, check: str, count: int, before: int) -> list[Past]:
    """What a check measured of the last versions of a table before one that a suite judged, oldest first; of each once,
    however often it was judged."""
    wanted = {"table": table, "check": check, "kind": ("suite", "manual")}
    found = _in_order(_read(home, wanted, None, ["values", *ORDER]))
    found = found.filter(pc.less(found["version"], before))
    _, places = np.unique(np.asarray(found["version"])[::-1], return_index=True)
    return _last(found.take(found.num_rows - 1 - places), count)


def _last(found: pa.Table, count: int | None) -> list[Past]:
    rows = found.slice(0 if count is None else max(0, found.num_rows - count))
    return [Past(round(row["at"].timestamp() * 1000), dict(row["values"] or ())) for row in rows.to_pylist()]
