"""Whose rows are made of several records and share their coordinates with others: told by the ledger.

    topic "left"  offset 0   o--+--> gold.pairs    left 0, made of left 0 and right 0 ---> silver.pairs   left 0
    topic "right" offset 0   o--+
                  offset 1   o-----> gold.pairs    left 0, made of left 0 and right 1 ---> silver.pairs   left 0

A row of a join has the coordinates of its left row, and a window those of its first record; a row that a job makes of
one of these has them, too.
"""

from collections.abc import Iterable

from headwater_streams.delta_rows import dataset_of
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.ledger.log import last_batch
from headwater_streams.runtime.home import Home
from headwater_streams.sources.coordinates import SOURCES


def shares_coordinates(home: Home, table: str) -> bool:
    """Whether rows of a table may have the same coordinates as others of it."""
    waiting, known = {table}, set[str]()
    while waiting:
        name = waiting.pop()
        known.add(name)
        path = home.table(name)
        if not path.exists():
            continue
        if SOURCES in dataset_of(path).schema.names:
            return True
        last = last_batch(path)
        waiting |= (set() if last is None else tables_read([last])) - known
    return False


def tables_read(entries: Iterable[LedgerEntry]) -> set[str]:
    """The tables that rows were made of."""
    return {s.table for entry in entries for s in entry.sources if s.table is not None}
