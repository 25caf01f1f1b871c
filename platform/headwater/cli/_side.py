"""What `headwater late` and `headwater quarantine` share: a look at the side table of a table."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli._common import console, print_json, print_line
from headwater.errors import UsageError
from headwater_streams.base.extra import Extra
from headwater_streams.base.nearest import nearest
from headwater_streams.base.target import CHANGES_SUFFIX, LATE_SUFFIX, QUARANTINE_SUFFIX

if TYPE_CHECKING:
    from headwater_streams.storage.home import Home

_KINDS = {LATE_SUFFIX: "late", QUARANTINE_SUFFIX: "rejected"}
_INGEST = "__ingest_"


def show_side(
    home: Path,
    table: str,
    suffix: str,
    limit: int,
    order: str,
    *,
    json_output: bool,
    raw: bool,
    where: Callable[[str], Sequence[str]] = lambda _: (),
) -> tuple[str, int]:
    """Prints the newest rows of a table's side table; returns the side table's owner and the number of rows.

    Args:
        home: The home.
        table: The table, or its side table.
        suffix: What side tables of this kind are called behind their owner's name.
        limit: The most rows.
        order: Which come first, in SQL.
        json_output: Whether as JSON.
        raw: Whether values are printed as they are.
        where: Gives conditions in SQL that the rows of an owner's side table are to meet.

    Raises:
        UsageError: There is no such table.
    """
    from headwater.sql.output import json_text, print_table
    from headwater.sql.session import SqlSession
    from headwater_streams.storage.home import Home

    _refuse_side(table, suffix)
    place, named = Home(home), table.removesuffix(suffix)
    owner, topics = (named, ()) if named + suffix in place.tables() else _owner_of(place, named)
    name = owner + suffix
    steps = [each for each in place.tables() if each.startswith(f"{owner}__step_") and each.endswith(suffix)]
    if steps:
        print_line(f"{owner} is made in steps, which have {', '.join(steps)}, too", file=sys.stderr)
    if name not in place.tables():
        if named not in place.tables():
            near = nearest(name, [each for each in place.tables() if each.endswith(suffix)])
            raise UsageError(f"there is no table {named + suffix}; there are {near or 'none of its kind'}")
        if json_output:
            print_json([])
        print_line(f"{named} has no {_KINDS[suffix]} rows", file=sys.stderr)
        return owner, 0
    if owner != named:
        of_them = f", where its rows are those of {' and '.join(topics)}" if topics else ""
        print_line(f"{named} shares {name} with {owner}{of_them}", file=sys.stderr)
    conditions = [f"_topic IN ({', '.join(map(sql_text, topics))})"] if topics else []
    conditions += where(owner)
    of_them = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    schema, _, bare = name.partition(".")
    with SqlSession(home) as session:
        result = session.run(f'SELECT * FROM "{schema}"."{bare}" {of_them}ORDER BY {order} LIMIT {limit}')
    if json_output:
        print_json([json.loads(json_text(row)) for row in result.objects()])
    elif len(result):
        print_table(result, console(), max_rows=limit, raw=raw)
    else:
        print_line(f"{name} is empty" if not conditions else f"{name} has none of them", file=sys.stderr)
    return owner, len(result)


def _refuse_side(table: str, suffix: str) -> None:
    """Refuses a side table: it has no side tables of its own, and another kind has its own command."""
    for other in (LATE_SUFFIX, QUARANTINE_SUFFIX, CHANGES_SUFFIX):
        owner = table.removesuffix(other)
        if owner != table and other != suffix:
            hint = f"headwater {other.removeprefix('__')} {owner} shows it, and " if other in _KINDS else ""
            verb = f"headwater {suffix.removeprefix('__')} {owner}"
            raise UsageError(
                f"{table} is a side table of {owner}: {hint}{verb} shows the {_KINDS[suffix]} rows"
            )


def _owner_of(home: "Home", table: str) -> tuple[str, tuple[str, ...]]:
    """The owner of a table's side tables, and the topics whose rows in them belong to this table.

    A job with several tables writes the side tables of its first one. An ingest job writes those of the job that it
    feeds, and shares them with other ingest jobs: only its topics tell its rows from theirs.
    """
    from headwater_streams.ledger.log import commits_backwards

    if table not in home.tables():
        return table, ()
    entries = (commit.entry for commit in commits_backwards(home.table(table)))
    last = next((entry for entry in entries if entry is not None and entry.is_batch), None)
    if last is None:
        return table, ()
    _, is_ingest, of_input = last.job.rpartition(_INGEST)
    owner = Extra.BESIDE.get(last, table.removesuffix(_INGEST + of_input) if is_ingest else table)
    topics = {
        topic for source in last.sources if is_ingest and source.table is None for topic in source.ranges
    }
    return owner, tuple(sorted(topics))


def sql_text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
