"""Whose rows share their coordinates with others, as they are made of several records or of two topics of one name:
the ledger says so.

    topic "left"  offset 0   o--+--> gold.pairs    left 0, made of left 0 and right 0 ---> silver.pairs   left 0
    topic "right" offset 0   o--+
                  offset 1   o-----> gold.pairs    left 0, made of left 0 and right 1 ---> silver.pairs   left 0

A row of a join has the coordinates of its left row, and a window those of its first record; a row that a job makes of
one of these has them, too. A topic that was deleted and made again has the offsets of the old one once more. Rows that
a job makes of one record by explode have `_row` besides, and share no coordinates.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.log import last_batch, lineage, since_rebuilt
from headwater_streams.plan.written import WrittenAs
from headwater_streams.sources.coordinates import ROW, SOURCES
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.files import exists
from headwater_streams.storage.home import Home


def shares_coordinates(home: Home, table: str) -> bool:
    """Whether rows of a table may have the same coordinates as others of it."""
    return any(SOURCES in dataset_of(path).schema.names for path in _sources_of(home, table))


def has_places(home: Home, table: str) -> bool:
    """Whether a record may have become several rows of a table, each with its place in it."""
    path = home.table(table)
    return exists(path) and ROW in dataset_of(path).schema.names


def recreated_topics_of(home: Home, table: str) -> set[str]:
    """The topics that were deleted and made again while rows of a table were made of them."""
    topics: set[str] = set()
    for path in _sources_of(home, table):
        topics |= recreated_topics(
            c.entry for c in since_rebuilt(lineage(path)) if c.entry is not None
        ).keys()
    return topics


def recreated_topics(entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """The topics that were deleted and made again since a job read them first, each with the generation that began to
    read the newest one.

    Args:
        entries: Those of the job, oldest first, its generations' among them.
    """
    again: dict[str, int] = {}
    for entry in entries:
        again |= dict.fromkeys(Extra.ANEW.get(entry, ()), entry.generation)
    return again


def recreated_topics_after(entries: Iterable[LedgerEntry], generation: int) -> dict[str, int]:
    """The topics that were deleted and made again after a generation of a job, each with the one that began to read the
    next topic of that name; arguments as above."""
    again: dict[str, int] = {}
    for entry in (entry for entry in entries if entry.generation > generation):
        again = dict.fromkeys(Extra.ANEW.get(entry, ()), entry.generation) | again
    return again


def written_as(home: Home, name: str) -> WrittenAs:
    """How the rows of a table were written last, by the ledger."""
    last = last_batch(home.table(name))
    final = last is not None and any("emitted" in terms for terms in last.accounting.values())
    return WrittenAs(final, shares_coordinates(home, name), has_places(home, name))


def _sources_of(home: Home, table: str) -> Iterator[Path]:
    """The folders of a table and of those that its rows were made of, as far as they are there."""
    waiting, visited = {table}, set[str]()
    while waiting:
        name = waiting.pop()
        visited.add(name)
        path = home.table(name)
        if not exists(path):
            continue
        yield path
        last = last_batch(path)
        waiting |= (set() if last is None else tables_read([last])) - visited


def tables_read(entries: Iterable[LedgerEntry]) -> set[str]:
    """The tables that rows were made of."""
    return {s.table for entry in entries for s in entry.sources if s.table is not None}
