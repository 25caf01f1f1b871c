"""Whose rows share their coordinates with others, as they are made of several records or of two topics of one name:
told by the ledger.

    topic "left"  offset 0   o--+--> gold.pairs    left 0, made of left 0 and right 0 ---> silver.pairs   left 0
    topic "right" offset 0   o--+
                  offset 1   o-----> gold.pairs    left 0, made of left 0 and right 1 ---> silver.pairs   left 0

A row of a join has the coordinates of its left row, and a window those of its first record; a row that a job makes of
one of these has them, too. A topic that was deleted and made again has the offsets of the old one once more.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater_streams.delta_rows import dataset_of
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.ledger.log import last_batch, lineage, since_rebuilt
from headwater_streams.runtime.home import Home
from headwater_streams.sources.coordinates import SOURCES


def shares_coordinates(home: Home, table: str) -> bool:
    """Whether rows of a table may have the same coordinates as others of it."""
    return any(SOURCES in dataset_of(path).schema.names for path in _made_of(home, table))


def topics_made_again(home: Home, table: str) -> set[str]:
    """The topics that were deleted and made again while rows of a table were made of them."""
    found: set[str] = set()
    for path in _made_of(home, table):
        made = since_rebuilt(lineage(path))
        found |= made_again([c.entry for c in made if c.entry is not None and c.entry.is_batch]).keys()
    return found


def made_again(batches: Iterable[LedgerEntry]) -> dict[str, int]:
    """The topics that were deleted and made again since a job read them first, each with the generation that began to
    read the newest one.

    Args:
        batches: The job's, oldest first.
    """
    again: dict[str, int] = {}
    read: dict[tuple[str, int], tuple[int, int]] = {}
    for entry in batches:
        ranges = [source.ranges for source in entry.sources if source.table is None]
        for topic, partitions in (each for found in ranges for each in found.items()):
            for partition, (start, end) in partitions.items():
                generation, known = read.get((topic, partition), (entry.generation, start))
                if generation < entry.generation and start < known:
                    again[topic], known = entry.generation, end
                read[topic, partition] = (entry.generation, max(known, end))
    return again


def _made_of(home: Home, table: str) -> Iterator[Path]:
    """The folders of a table and of those that its rows were made of, as far as they are there."""
    waiting, known = {table}, set[str]()
    while waiting:
        name = waiting.pop()
        known.add(name)
        path = home.table(name)
        if not path.exists():
            continue
        yield path
        last = last_batch(path)
        waiting |= (set() if last is None else tables_read([last])) - known


def tables_read(entries: Iterable[LedgerEntry]) -> set[str]:
    """The tables that rows were made of."""
    return {s.table for entry in entries for s in entry.sources if s.table is not None}
