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
        name: A table that it, or its way back, has changed.
        other: One that it has not come to.
        is_back: Whether its way back was interrupted.
    """

    repair: str
    name: str
    other: str
    is_back: bool

    @property
    def told(self) -> str:
        """What it did and did not do."""
        return f"the backfill {self.repair!r} has changed {self.name} and not {self.other} yet"


def repairs_among(made: Iterable[Commit]) -> dict[str, dict[str, int]]:
    """The versions that repairs made, by their ids and what they did, the oldest repair first."""
    found: dict[str, dict[str, int]] = {}
    for commit in made:
        if commit.entry is not None and commit.entry.kind == "backfill":
            backfill, action = Extra.BACKFILL.of(commit.entry), Extra.ACTION.of(commit.entry)
            found.setdefault(backfill, {})[action] = commit.version
    return found


def repairs_of(home: Home, name: str) -> dict[str, dict[str, int]]:
    """The same of a table; none where it does not exist."""
    return repairs_among(_made(home, name))


def half_done(home: Home, target: str, others: Sequence[str], *, but: str = "") -> HalfDone | None:
    """A repair, but one, that has changed another table of a job and not its target, or was put back in some only.

    Args:
        home: The home.
        target: The table that a swap, and its way back, change last.
        others: The tables before it.
        but: A repair that may be.
    """
    made = {name: _made(home, name) for name in (*others, target)}
    begun = made[target][0].entry if made[target] else None
    # An ingest job shares the quarantine of the job that it feeds, and its repairs are none of the other's.
    mine = {c.entry.job for c in made[target] if c.entry is not None}
    # A side table's log does not say that what it held was made void by the generation that began with empty tables.
    since = begun.generation if begun is not None and Extra.ACTION.get(begun) == "rebuild" else 0
    repairs = {
        name: repairs_among(
            c for c in found if c.entry and c.entry.job in mine and c.entry.generation >= since
        )
        for name, found in made.items()
    }
    for repair in dict.fromkeys(repair for found in repairs.values() for repair in found):
        actions = {name: found[repair] for name, found in repairs.items() if repair in found}
        there = [name for name, done in actions.items() if ROLLBACK not in done]
        back = [name for name in actions if name not in there]
        if repair != but and there and (back or target not in actions):
            return HalfDone(repair, (back or there)[0], there[-1] if back else target, bool(back))
    return None


def _made(home: Home, name: str) -> list[Commit]:
    table = home.table(name)
    return since_rebuilt(lineage(table)) if next_commit(table) else []
