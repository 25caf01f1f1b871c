"""The side tables of a job that is put back: the rows of its later batches are taken out of them.

Each of a job's batches has files of its own there, and those of the later ones go. A repair of rows writes the
quarantine's files anew, and with it the rows of earlier batches; where one came later, the table is put back to before
the first commit that is undone. A side table that another job writes, too, has no such version.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone
from headwater_streams.ledger.log import Commit, commits, lineage
from headwater_streams.ledger.repairs import ROLLBACK, SWAP
from headwater_streams.plan.job import Job
from headwater_streams.storage.home import Home

Repairs = Mapping[str, Mapping[str, int]]
"""The versions that repairs made, by their ids and what they did."""


@dataclass(frozen=True)
class Undone:
    """What of a side table is undone.

    Attributes:
        files: The files that the job's later batches added.
        before: The version to put the table back to, where a repair came later; else None.
    """

    files: frozenset[str]
    before: int | None


def undone_of(side: Path, job: str, begun: LedgerEntry, later: Repairs, version: int) -> Undone:
    """What of a side table a rewind undoes.

    Args:
        side: The table.
        job: The job.
        begun: The entry with which the job's next generation begins.
        later: The repairs of the job's table.
        version: The version of that table that is gone back to.
    """
    made, undone = lineage(side), undone_repairs(later, version)  # without what was taken back already
    void = [c for c in made if c.entry is not None and c.entry.job == job and is_undone(c.entry, begun)]
    repaired = [c for c in made if _repair_of(c) in undone]
    before = min(c.version for c in (*void, *repaired)) - 1 if repaired else None
    return Undone(frozenset(path for commit in void for path in commit.added_paths), before)


def undone_repairs(repairs: Repairs, version: int) -> set[tuple[str, str]]:
    """What repairs did after a version, each with its id and `"swap"` or `"rollback"`."""
    return {
        (repair, action) for repair, done in repairs.items() for action, at in done.items() if at > version
    }


@dataclass(frozen=True, kw_only=True)
class RepairedSide:
    """A side table that a repair has written anew.

    Attributes:
        name: The table.
        repair: The first repair that did.
        others: The other jobs that have rows there.
    """

    name: str
    repair: str
    others: tuple[str, ...]


def repaired_sides(home: Home, job: Job, repairs: Repairs, version: int) -> list[RepairedSide]:
    """The side tables of a job that repairs after a version have written anew."""
    undone, found = undone_repairs(repairs, version), []
    for name in {side for target in job.targets for side in (target.quarantine_table, target.late_table)}:
        made = lineage(home.table(name)) if undone else []
        repaired = [_repair_of(c) for c in made if _repair_of(c) in undone]
        if repaired:
            known = (c.entry for c in commits(home.table(name)) if c.entry is not None)
            others = {entry.job for entry in known} - {job.name}
            found.append(RepairedSide(name=name, repair=repaired[0][0], others=tuple(sorted(others))))
    return found


def why_not_undone(sides: Iterable[RepairedSide]) -> str | None:
    """Why side tables cannot be put back to where they were, as the end of a sentence; None where they can: what
    another job wrote stays in a side table where a version of this one's rows is restored."""
    for side in (side for side in sides if side.others):
        return (
            f"it was repaired by {side.repair} since, which wrote {side.name} anew, where rows of the job "
            f"{side.others[0]!r} are, too; plan a rebuild: headwater backfill plan JOB --rebuild"
        )
    return None


def told_undone(repairs: Repairs, version: int) -> Iterable[str]:
    """What a person should know of repairs that are undone with the batches, a sentence each."""
    for repair, done in repairs.items():
        if SWAP in done and done[SWAP] > version and ROLLBACK not in done:
            yield f"the repair {repair}, swapped in with version {done[SWAP]}, is undone, too"
        elif done.get(ROLLBACK, -1) > version and done.get(SWAP, -1) <= version:
            yield f"the repair {repair}, rolled back with version {done[ROLLBACK]}, is in effect again"


def _repair_of(commit: Commit) -> tuple[str, str]:
    entry = commit.entry
    if entry is None or entry.kind != "backfill":
        return "", ""
    return Extra.BACKFILL.of(entry), Extra.ACTION.of(entry)
