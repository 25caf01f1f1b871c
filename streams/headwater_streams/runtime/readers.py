"""Which jobs have read which tables, by the ledger entries of what they wrote."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from headwater_streams.ledger.log import commits
from headwater_streams.runtime.home import Home


def readers_by_table(home: Home) -> Mapping[str, set[tuple[str, str]]]:
    """The jobs that have read each table, each with a table that it writes; none for a table that is not named."""
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for name in home.tables():
        for commit in commits(home.table(name)):
            for source in commit.entry.sources if commit.entry is not None else ():
                if source.table is not None and commit.entry is not None:
                    found[source.table].add((commit.entry.job, commit.entry.table))
    return found


def fed_by(home: Home, tables: Iterable[str]) -> tuple[str, ...]:
    """The jobs that read tables, and those that read theirs, each behind all that feed it."""
    readers, waiting = readers_by_table(home), list(tables)
    found: dict[str, None] = {}
    while waiting:
        for job, table in sorted(readers[waiting.pop(0)]):
            found.pop(job, None)
            found[job] = None
            waiting.append(table)
    return tuple(found)
