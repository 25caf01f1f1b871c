"""Compares a row table's rows with what its commits wrote. A row that is gone or slipped in is named by its
coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import EXPLODED, LedgerEntry
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.audit.columns import columns_of, rows_by_batch
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.expired import expired_among, expired_rows
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.places import Stretches, inside
from headwater_streams.ledger.repeats import more_than_once
from headwater_streams.ledger.shared import (
    has_places,
    recreated_topics_after,
    recreated_topics_of,
    shares_coordinates,
    tables_read,
)
from headwater_streams.storage.delta_files import data_file
from headwater_streams.storage.delta_rows import data_files, dataset_of
from headwater_streams.storage.files import exists
from headwater_streams.storage.home import Home

_SAMPLES = 5

_Coordinates = tuple[str | None, int | None, int | None, int | None]
"""Topic, partition, offset, and the place in the record where that may become several rows."""
_ROW = pa.field("_row", pa.int64())
_PLACES = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])
_GENERATION = pa.field("_generation", pa.int32())
_TIME = pa.timestamp("us", "UTC")


def check_rows(
    audit: TableAudit,
    home: Home,
    live: Sequence[Commit],
    repairs: Sequence[Commit],
    beginnings: Sequence[LedgerEntry],
    expiries: Sequence[Commit] = (),
) -> None:
    """Checks that a table has, for each batch, the rows that its commit wrote, and for each repair those of its range,
    but those that have expired since.

    Args:
        audit: What is found.
        home: Where the table is.
        live: The batches' commits.
        repairs: The swaps and rollbacks, oldest first; the rows of a range are those of the last one.
        beginnings: The entries with which generations began, oldest first.
        expiries: The commits that let go of old rows.
    """
    path = home.table(audit.table)
    has_rows = _ROW.name in dataset_of(path).schema.names
    places = _PLACES.append(_ROW) if has_rows else _PLACES
    rows = columns_of(path, [*places.names, "_batch", "_generation"])
    twice = _places(more_than_once(rows.filter(pc.is_valid(rows["_offset"]))))
    entries = [commit.entry for commit in live if commit.entry is not None]
    read = tables_read(entries) if twice else ()
    if twice and not any(
        shares_coordinates(home, name)
        or recreated_topics_of(home, name)
        or (not has_rows and has_places(home, name))
        for name in read
    ):
        stand = quantity(len(twice), "row stands", "rows stand")
        audit.findings.append(f"{audit.table}: {stand} there twice: {_named(twice)}")
    ranges = [_Replaced.by(repair, beginnings) for repair in repairs]
    own = rows.filter(~_in_one_of(rows, ranges)) if repairs else rows
    counts = rows_by_batch(own)
    unknown, whole = 0, list[LedgerEntry]()
    expired = expired_rows(commit.entry for commit in expiries if commit.entry is not None)
    for commit in live:
        assert commit.entry is not None
        batch = (commit.entry.generation, commit.entry.batch)
        count = counts.pop(batch, 0)
        subject = f"{audit.table} batch {commit.entry.batch}"
        is_repaired = any(of.has_some_of(commit) for of in ranges)
        if not is_repaired and count == commit.rows_added - expired[batch]:
            whole += [commit.entry] if not expired[batch] else []
            continue
        written = _written(path, commit, places, expiries)
        if written is not None:
            _name_difference(audit, subject, written, own.filter(_of_batch(own, batch)), ranges)
        elif is_repaired:
            unknown += 1
        else:
            audit.findings.append(
                f"{subject}: {count} rows where its commit wrote {_less(commit.rows_added, expired[batch])}; its files "
                "were removed since, so the rows cannot be named"
            )
    for (generation, batch_number), count in sorted(counts.items(), key=str):
        strangers = _places(own.filter(_of_batch(own, (generation, batch_number))))
        of = "no batch" if batch_number is None else f"batch {batch_number}"
        audit.findings.append(
            f"{audit.table}: {quantity(count, 'row')} of {of}, which no commit wrote: {_named(strangers)}"
        )
    for number, repair in enumerate(repairs):
        assert repair.entry is not None
        later, subject = ranges[number + 1 :], f"{audit.table}, {_action(repair)}"
        mine = rows.filter(ranges[number].mask(rows) & ~_in_one_of(rows, later))
        written = _written(path, repair, places, expiries)
        since = any(commit.version > repair.version for commit in expiries)
        if written is not None:
            _name_difference(audit, subject, written, mine, later, within=ranges[number])
        elif since or any(_overlap(ranges[number].pairs, of.pairs) for of in later):
            unknown += 1
        elif mine.num_rows != repair.entry.totals["written"]:
            audit.findings.append(
                f"{subject}: {mine.num_rows} rows are in its range where it wrote {repair.entry.totals['written']}; "
                "its files were removed since, so the rows cannot be named"
            )
    _check_records(audit, own, whole)
    if unknown:
        audit.notes.append(
            f"{audit.table}: of {quantity(unknown, 'commit')}, part of whose rows a later repair replaced or have "
            "expired, the files were removed since, so their other rows were not looked at"
        )


def _check_records(audit: TableAudit, rows: pa.Table, whole: Sequence[LedgerEntry]) -> None:
    """Checks, where a record may have become several rows, that those of a batch are of as many as its entry says.

    Args:
        audit: What is found.
        rows: The rows.
        whole: The entries of batches whose rows are all there. Of rows that were made of a table's, which may be
            several to a record themselves, nothing is checked.
    """
    of_topics = [e for e in whole if e.explodes and all(source.table is None for source in e.sources)]
    if not of_topics:
        return
    topics = rows["_topic"].dictionary_encode()
    rows = rows.set_column(rows.schema.get_field_index("_topic"), "_topic", topics).unify_dictionaries()
    records = rows_by_batch(rows.group_by(["_generation", "_batch", *_PLACES.names]).aggregate([]))
    for entry in of_topics:
        count, expected = records[entry.generation, entry.batch], entry.totals[EXPLODED]
        if count != expected:
            audit.findings.append(
                f"{audit.table} batch {entry.batch}: its rows are of {quantity(count, 'record')}, and {expected} "
                "became rows"
            )


def _action(repair: Commit) -> str:
    assert repair.entry is not None
    return f"{Extra.ACTION.of(repair.entry)} of backfill {Extra.BACKFILL.of(repair.entry)}"


def _pairs_of(commit: Commit) -> Stretches:
    """The offsets that a commit's rows come from."""
    assert commit.entry is not None
    pairs: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for source in commit.entry.sources:
        for topic, partitions in source.ranges.items():
            for partition, pair in partitions.items():
                pairs.setdefault((topic, partition), []).append(pair)
    return pairs


def _overlap(one: Stretches, other: Stretches) -> bool:
    return any(
        max(start, low) < min(end, high)
        for place, pairs in one.items()
        for start, end in pairs
        for low, high in other.get(place, ())
    )


@dataclass(frozen=True)
class _Replaced:
    """The rows that a repair has replaced.

    Attributes:
        pairs: Their offsets.
        since: Of topics that were made again before, the first generation whose rows are of the newest one then.
        until: Of topics that were made again later, the first generation whose rows are not of that one any more.
    """

    pairs: Stretches
    since: Mapping[str, int]
    until: Mapping[str, int]

    @classmethod
    def by(cls, repair: Commit, beginnings: Sequence[LedgerEntry]) -> "_Replaced":
        assert repair.entry is not None
        until = recreated_topics_after(beginnings, repair.entry.generation)
        return cls(_pairs_of(repair), Extra.SINCE.get(repair.entry, {}), until)

    def mask(self, rows: pa.Table) -> np.ndarray:
        """True where a row is among them; `rows` have their `_generation`."""
        mask = inside(rows, self.pairs)
        for topic, generation in self.since.items():
            of_topic: Any = pc.fill_null(pc.equal(rows["_topic"], topic), False).to_numpy()
            newest: Any = pc.fill_null(pc.greater_equal(rows["_generation"], generation), False).to_numpy()
            mask &= ~of_topic | newest
        for topic, generation in self.until.items():
            of_topic = pc.fill_null(pc.equal(rows["_topic"], topic), False).to_numpy()
            older: Any = pc.fill_null(pc.less(rows["_generation"], generation), True).to_numpy()
            mask &= ~of_topic | older
        return mask

    def has_some_of(self, batch: Commit) -> bool:
        """Whether rows of a batch may be among them."""
        assert batch.entry is not None
        at = batch.entry.generation
        others = {topic for topic, generation in self.since.items() if at < generation}
        others |= {topic for topic, generation in self.until.items() if at >= generation}
        pairs = {place: pairs for place, pairs in _pairs_of(batch).items() if place[0] not in others}
        return _overlap(pairs, self.pairs)


def _in_one_of(rows: pa.Table, ranges: Sequence[_Replaced]) -> np.ndarray:
    return reduce(np.logical_or, [of.mask(rows) for of in ranges], np.zeros(rows.num_rows, dtype=bool))


def _less(rows: int, expired: int) -> str:
    return f"{rows}, of which {expired} have expired" if expired else str(rows)


def _written(path: Path, commit: Commit, places: pa.Schema, expiries: Sequence[Commit]) -> pa.Table | None:
    """The coordinates of the rows in a commit's files, as they were written, but those that have expired since; None
    where a file is gone.

    A commit without a row has no file.
    """
    files = [data_file(path, name) for name in commit.added_paths]
    if not all(exists(file) for file in files) or (commit.rows_added and not files):
        return None
    written = places.append(_GENERATION)
    if not files:
        return written.empty_table()
    # The commits of a rebuild's shadow all came to the table with one version.
    at = (commit.version, commit.timestamp_ms)
    later = [e.entry for e in expiries if e.entry is not None and (e.version, e.timestamp_ms) > at]
    rows = data_files(files, _with_ages(written, later)).to_table()
    for entry in later:
        rows = rows.filter(pa.array(~_expired_at(rows, entry)))
    return rows.select(written.names)


def _with_ages(places: pa.Schema, expiries: Sequence[LedgerEntry]) -> pa.Schema:
    """The columns, and those by which rows have expired."""
    for name in dict.fromkeys(Extra.EXPIRED_BY.of(entry) for entry in expiries):
        places = places.append(pa.field(name, _TIME))
    return places


def _expired_at(rows: pa.Table, expiry: LedgerEntry) -> np.ndarray:
    """True at the rows that an expiry let go of, and at older ones, which were not there any more."""
    horizon = pa.scalar(Extra.EXPIRED_BEFORE_US.of(expiry), _TIME)
    old: np.ndarray = pc.fill_null(pc.less(rows[Extra.EXPIRED_BY.of(expiry)], horizon), False).to_numpy()
    among = expired_among(expiry)
    if among is not None:
        old = old & inside(rows, among)
    return old


def _name_difference(
    audit: TableAudit,
    subject: str,
    written: pa.Table,
    rows: pa.Table,
    replaced: Sequence[_Replaced],
    *,
    within: _Replaced | None = None,
) -> None:
    """Names the rows that are gone from those that a commit wrote, and those that came to them.

    Args:
        audit: What is found.
        subject: The commit, for a sentence.
        written: The coordinates of what it wrote.
        rows: Those that are there.
        replaced: The ranges whose rows are a later commit's.
        within: The range that the commit is about, where its files hold others' rows, too.
    """
    meant = ~_in_one_of(written, replaced)
    if within is not None:
        meant &= within.mask(written)
    places = [name for name in written.column_names if name != _GENERATION.name]
    wrote, now = written.filter(meant).select(places), rows.select(places)
    gone, new = _more(wrote, now), _more(now, wrote)
    if gone:
        audit.findings.append(f"{subject}: {quantity(len(gone), 'row is', 'rows are')} gone: {_named(gone)}")
    if new:
        audit.findings.append(f"{subject}: {quantity(len(new), 'row')} slipped in: {_named(new)}")


def _more(one: pa.Table, other: pa.Table) -> list[_Coordinates]:
    """The places that one table has more often than the other."""
    signs = [
        rows.append_column("_times", pa.array(np.full(rows.num_rows, sign)))
        for rows, sign in ((one, 1), (other, -1))
    ]
    times = pa.concat_tables(signs).group_by(one.column_names).aggregate([("_times", "sum")])
    more = times.filter(pc.greater(times["_times_sum"], 0))
    return [
        place
        for place, n in zip(_places(more), more["_times_sum"].to_pylist(), strict=True)
        for _ in range(n)
    ]


def _of_batch(rows: pa.Table, batch: tuple[int | None, int | None]) -> pa.Array:
    """Where the rows of a batch are; None for those that say none."""
    parts = [
        pc.is_null(rows[name]) if number is None else pc.equal(rows[name], number)
        for name, number in zip(("_generation", "_batch"), batch, strict=True)
    ]
    return pc.and_(*parts)


def _places(rows: pa.Table) -> list[_Coordinates]:
    columns = [rows.column(name).to_pylist() for name in _PLACES.names]
    has_rows = _ROW.name in rows.column_names
    columns.append(rows.column(_ROW.name).to_pylist() if has_rows else [None] * rows.num_rows)
    return list(zip(*columns, strict=True))


def _named(places: Sequence[_Coordinates]) -> str:
    order = sorted(places, key=lambda place: (str(place[0]), *(number or 0 for number in place[1:])))
    names = ", ".join(
        "one without coordinates"
        if None in (topic, partition, offset)
        else f"{topic} {partition} offset {offset}" + ("" if row is None else f" row {row}")
        for topic, partition, offset, row in order[:_SAMPLES]
    )
    return names + (f" and {len(places) - _SAMPLES} more" if len(places) > _SAMPLES else "")
