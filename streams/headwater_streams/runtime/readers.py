"""Which jobs have read which tables, by the ledger entries of what they wrote."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from headwater_streams.ledger.log import commits, next_commit, since_rebuilt
from headwater_streams.spark.run_facts import facts_of_last_run
from headwater_streams.storage.damage import DamagedFileError, writer_of
from headwater_streams.storage.home import Home


def readers_by_table(home: Home) -> Mapping[str, set[tuple[str, str]]]:
    """The jobs that have read each table, each with a table that it writes; none for a table that is not named."""
    readers: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for name in home.tables():
        try:
            entries = [commit.entry for commit in commits(home.table(name)) if commit.entry is not None]
            read = {(s.table, e.job, e.table) for e in entries for s in e.sources if s.table is not None}
        except DamagedFileError as error:
            read = _by_checkpoint(home, name, error)
        for source, job, table in read:
            readers[source].add((job, table))
    return readers


def read_beyond(home: Home, table: str) -> list[str]:
    """The jobs that have read commits of a table which its log has lost: they would read others under their numbers."""
    end = next_commit(home.table(table))
    jobs = set()
    for name in home.tables():
        history = []
        with suppress(DamagedFileError):  # a table that has to be made again in any case
            history = since_rebuilt([*commits(home.table(name))]) if name != table else []
        for entry in (commit.entry for commit in history if commit.entry is not None):
            ends = [s.versions[1] for s in entry.sources if s.table == table and s.versions is not None]
            if max(ends, default=0) > end:
                jobs.add(entry.job)
    return sorted(jobs)


def _by_checkpoint(home: Home, table: str, damaged: DamagedFileError) -> set[tuple[str, str, str]]:
    """What a table's job reads by its checkpoint, where its log cannot be read.

    Raises:
        DamagedFileError: The checkpoint does not say it either.
    """
    job = writer_of(home.root, table)
    facts = None if job is None else facts_of_last_run(home.checkpoint(job, home.last_generation(job)))
    if job is None or facts is None:
        raise damaged
    tables = [source for each in facts.inputs.values() if each.kind == "table" for source in each.ids]
    return {(source, job, table) for source in tables}


def fed_by(home: Home, tables: Iterable[str]) -> tuple[str, ...]:
    """The jobs that read tables, and the jobs downstream of these, each behind all that feed it."""
    readers, waiting = readers_by_table(home), list(tables)
    jobs: dict[str, None] = {}
    while waiting:
        for job, table in sorted(readers[waiting.pop(0)]):
            jobs.pop(job, None)
            jobs[job] = None
            waiting.append(table)
    return tuple(jobs)
