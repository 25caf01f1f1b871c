"""What checks came to, and what they rejected, from Python; no Spark session is started.

    hw.quality.history("silver.visits", check="fast").to_pandas().plot(x="at", y="failed")
    hw.quality.rejected("silver.visits", checks=["has_page"]).num_rows

`home` is the home of the tables, by default `$HEADWATER_HOME`, else `.headwater`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from headwater.errors import UsageError
from headwater.home import existing_home
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.nearest import nearest
from headwater_streams.base.target import QUARANTINE_SUFFIX
from headwater_streams.ledger.quarantined import Which, rejected_rows
from headwater_streams.quality import results
from headwater_streams.storage.home import Home

__all__ = ["history", "rejected"]


def history(
    table: str | None = None,
    *,
    check: str | None = None,
    since: datetime | None = None,
    home: Path | str | None = None,
) -> pa.Table:
    """What checks came to, as rows of `quality.results`, oldest first.

    Args:
        table: Only the checks of this table, `schema.name`.
        check: Only this check.
        since: Only from this time on; in UTC where it names no zone.
        home: The home.

    Raises:
        UsageError: There is no such home.
    """
    return results.history(Home(existing_home(home)), table=table, check=check, since=_in_utc(since))


def rejected(
    table: str,
    *,
    checks: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    offsets: Ranges | None = None,
    discarded: bool = False,
    home: Path | str | None = None,
) -> pa.Table:
    """The records of a table's quarantine that are open, by their coordinates and without their values; the last
    rejection of each.

    Args:
        table: The table, `schema.name`.
        checks: Only those that one of these checks rejected.
        since: Only records of this time or later.
        until: Only records before this time.
        offsets: Only those in these half-open ranges, topic -> partition -> (start, end).
        discarded: Whether also those that were discarded.
        home: The home.

    Raises:
        UsageError: There is no such home or table.
    """
    place = Home(existing_home(home))
    tables = place.tables()
    if not {table, table + QUARANTINE_SUFFIX} & {*tables}:
        raise UsageError(f"there is no table {table}; the tables are {nearest(table, tables) or 'none'}")
    which = Which(
        checks=checks, since=_in_utc(since), until=_in_utc(until), offsets=offsets, discarded=discarded
    )
    return rejected_rows(place, table, which)


def _in_utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
