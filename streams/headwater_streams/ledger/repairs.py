"""What repairs did to tables, by the tables' logs: which ones, and whether one has changed some tables and not all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater_streams.base.extra import Extra
from headwater_streams.base.target import declared_name
from headwater_streams.ledger.log import Commit, lineage, next_commit, since_rebuilt
from headwater_streams.storage.home import Home

SWAP, ROLLBACK = "swap", "rollback"


def again(job: str, start: str, end: str) -> str:
    """The command that plans a repair of windows once more."""
    return f"headwater backfill plan {declared_name(job)} --event-time {start} {end}"


@dataclass(frozen=True)
class HalfDone:
    """A repair that was interrupted between two of a job's tables.

    Attributes:
        repair: Its id.
        name: A table that it, or its rollback, has changed.
        other: A table that it has not changed yet.
        is_back: Whether its rollback was interrupted.
    """

    repair: str
    name: str
    other: str
    is_back: bool

    @property
    def description(self) -> str:
        """What it did and did not do."""
        return f"the backfill {self.repair!r} has changed {self.name} and not {self.other} yet"


def repairs_among(commits: Iterable[Commit]) -> dict[str, dict[str, int]]:
    """The versions that repairs made, by their ids and what they did, the oldest repair first."""
    versions: dict[str, dict[str, int]] = {}
    for commit in commits:
        if commit.entry is not None and commit.entry.kind == "backfill":
            backfill, action = Extra.BACKFILL.of(commit.entry), Extra.ACTION.of(commit.entry)
            versions.setdefault(backfill, {})[action] = commit.version
    return versions


def repairs_of(home: Home, name: str) -> dict[str, dict[str, int]]:
    """The same of a table; none where it does not exist."""
    return repairs_among(_commits_of(home, name))


def half_done(home: Home, target: str, others: Sequence[str], *, but: str = "") -> HalfDone | None:
    """A repair that has changed another table of a job and not its target, or was rolled back in some tables only.

    Args:
        home: The home.
        target: The table that a swap, and a rollback, change last.
        others: The tables before it.
        but: A repair that is passed over.
    """
    commits = {name: _commits_of(home, name) for name in (*others, target)}
    first = commits[target][0].entry if commits[target] else None
    # An ingest job shares the quarantine of the job that it feeds, and its repairs are none of the other's.
    mine = {c.entry.job for c in commits[target] if c.entry is not None}
    # A side table's log does not say that what it held was made void by the generation that began with empty tables.
    since = first.generation if first is not None and Extra.ACTION.get(first) == "rebuild" else 0
    repairs = {
        name: repairs_among(c for c in log if c.entry and c.entry.job in mine and c.entry.generation >= since)
        for name, log in commits.items()
    }
    for repair in dict.fromkeys(repair for versions in repairs.values() for repair in versions):
        actions = {name: versions[repair] for name, versions in repairs.items() if repair in versions}
        in_effect = [name for name, done in actions.items() if ROLLBACK not in done]
        rolled_back = [name for name in actions if name not in in_effect]
        if repair != but and in_effect and (rolled_back or target not in actions):
            return HalfDone(
                repair,
                (rolled_back or in_effect)[0],
                in_effect[-1] if rolled_back else target,
                bool(rolled_back),
            )
    return None


def _commits_of(home: Home, name: str) -> list[Commit]:
    table = home.table(name)
    return since_rebuilt(lineage(table)) if next_commit(table) else []
