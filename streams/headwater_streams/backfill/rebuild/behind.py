"""Rebuilds of jobs that read what other rebuilds have made, before any of them is swapped in.

    live      topic -> clean -> silver.departures -> long -> gold.long
    shadows   topic -> clean -> silver.departures -> long -> gold.long
                                version 3            has read all of it
    swapped   first the table that feeds, as version 12 of the live one, then the one behind it, whose checkpoint then
              says that it has read the live table up to there

So the jobs behind a table stop for as long as the swaps take, and not for as long as their tables take to be made.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwater_streams.backfill.handover import REBUILD, RESTORE, made_by
from headwater_streams.backfill.progress import is_done
from headwater_streams.backfill.rebuild.spec import RebuildPlan, ShadowHome
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.ledger.log import next_commit
from headwater_streams.runtime.context import StageContext
from headwater_streams.spark.checkpoint import table_offset, version_read
from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.delta_rows import table_id
from headwater_streams.storage.files import matching, read_text, remove
from headwater_streams.storage.home import Home


@dataclass(frozen=True)
class MadeAside:
    """A table that another rebuild has made.

    Attributes:
        name: The table.
        made: Its folder in the shadow.
        rebuild: The other rebuild.
    """

    name: str
    made: Path
    rebuild: str


def made_aside(home: Home, behind: Sequence[str]) -> list[MadeAside]:
    """The tables that other rebuilds have made.

    Raises:
        BackfillError: One is no rebuild, was given up, or has not caught up with its live job.
    """
    found = []
    for backfill in behind:
        folder = BackfillFolder(home, backfill)
        planned = folder.plan()
        folder.require_open()
        if not isinstance(planned, RebuildPlan):
            raise BackfillError(
                f"the backfill {backfill!r} is a {planned.mode}; only a rebuild makes a table to read"
            )
        if not is_done(folder):
            raise BackfillError(
                f"the backfill {backfill!r} has not caught up with its live job; run it first"
            )
        places = Home(folder.rebuilt)
        found += [
            MadeAside(name, places.table(name), backfill) for name in (planned.target, *planned.further)
        ]
    return found


def side_of_maker(home: Home, behind: Sequence[str], table: str, side: str) -> Path | None:
    """Where the one of these rebuilds that makes a table keeps a side table; None where none of them makes it."""
    for folder in (BackfillFolder(home, backfill) for backfill in behind):
        planned = folder.plan()
        if isinstance(planned, RebuildPlan) and table in (planned.target, *planned.further):
            return Home(folder.rebuilt).table(side)
    return None


def reading_aside(context: StageContext, behind: Sequence[str]) -> StageContext:
    """The same context, with the tables that other rebuilds have made in the place of the live ones."""
    if not behind:
        return context
    places = tuple((each.name, each.made) for each in made_aside(context.home, behind))
    return replace(context, home=ShadowHome(context.home.root, places))


def require_unswapped(context: StageContext, planned: RebuildPlan) -> None:
    """Sees to it that what a rebuild reads is still aside.

    Raises:
        BackfillError: It was swapped in.
    """
    for each in made_aside(context.home, planned.behind):
        if made_by(context.home.table(each.name), each.rebuild):
            raise BackfillError(
                f"the backfill {each.rebuild!r} is swapped in by now, and {planned.id!r}, which reads what it made, is "
                "run and verified before that; plan again without it, to read the live table"
            )


def unread(context: StageContext, planned: RebuildPlan, checkpoint: Path) -> list[str]:
    """What a rebuild has not read of the tables that others have made, a sentence each."""
    return [
        f"{each.name} was read up to version {read - 1}, and {each.rebuild} has made {next_commit(each.made) - 1}"
        for each, read in _read(context, planned, checkpoint)
        if read != next_commit(each.made)
    ]


def swapped_versions(context: StageContext, planned: RebuildPlan, checkpoint: Path) -> dict[str, int]:
    """The version of each live table with which what the rebuild read of it was swapped in.

    Raises:
        BackfillError: It was not, it was taken back, or the rebuild has not read all of it.
    """
    found = {}
    for each, _ in _read(context, planned, checkpoint):
        made = made_by(context.home.table(each.name), each.rebuild)
        if REBUILD not in made or RESTORE in made:
            what = (
                "was rolled back; plan again"
                if RESTORE in made
                else "is not swapped in yet; swap that one in first"
            )
            raise BackfillError(f"the backfill {planned.id!r} reads what {each.rebuild!r} made, which {what}")
        found[each.name] = made[REBUILD][0]
    if missing := unread(context, planned, checkpoint):
        raise BackfillError(f"{'; '.join(missing)}: run the backfill {planned.id!r} again, or plan it again")
    return found


def move_offsets(
    context: StageContext, planned: RebuildPlan, staged: Path, versions: Mapping[str, int]
) -> None:
    """Makes a checkpoint that has read tables of shadows one that has read the live ones up to their swaps."""
    lines = {
        table_id(each.made): table_offset(table_id(context.home.table(each.name)), versions[each.name] + 1)
        for each in made_aside(context.home, planned.behind)
        if each.name in versions
    }
    for path in matching(staged / "offsets", "[0-9]*"):
        text = read_text(path).splitlines()
        moved = [
            lines.get(json.loads(line).get("reservoirId"), line) if line.startswith("{") else line
            for line in text
        ]
        if moved != text:  # a link to the shadow's file, which stays as it is
            remove(path.with_name(f".{path.name}.crc"))
            with atomic_file(path) as file:
                file.write("\n".join(moved).encode())


def _read(context: StageContext, planned: RebuildPlan, checkpoint: Path) -> Iterator[tuple[MadeAside, int]]:
    for each in made_aside(context.home, planned.behind):
        version = version_read(checkpoint, table_id(each.made))
        if version is not None:
            yield each, version
