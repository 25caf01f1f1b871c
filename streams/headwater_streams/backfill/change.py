"""What a swap makes of a table: its rows now, and those that take their place, compared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater_streams.backfill.diff import SHOWN, Diff, keyed_diff
from headwater_streams.backfill.whole import WholePlan
from headwater_streams.base.names import is_reserved
from headwater_streams.base.record import Part
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import next_commit
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import PLACE, ROW
from headwater_streams.storage.home import Home


@dataclass(frozen=True, kw_only=True)
class Change(Part):
    """What a swap changes in a table.

    Attributes:
        diff: The rows that differ.
        table_version: The table's version that it speaks of; -1 where there is no such table yet.
        notes: What was not compared, a sentence each.
        accounting: The terms of a repair's run for this table, as the swap's ledger entry will carry them.
    """

    WHAT = "the change of a table"

    diff: Diff
    table_version: int
    notes: tuple[str, ...] = ()
    accounting: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The change as it is stored and printed; the notes stand in the verdict."""
        accounting = {"accounting": dict(self.accounting)} if self.accounting else {}
        return {"diff": self.diff.to_json(), "table_version": self.table_version, **accounting}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Change":
        """The change as it was stored."""
        value = cls.checked(value)
        accounting = value.get("accounting", {})
        return cls(
            diff=Diff.from_json(value["diff"]), table_version=value["table_version"], accounting=accounting
        )


def newest_of(home: Home, names: Iterable[str]) -> dict[str, tuple[Path, int]]:
    """The folder of each table and its newest version; -1 where it is not there yet."""
    tables = {name: home.table(name) for name in names}
    return {name: (table, next_commit(table) - 1) for name, table in tables.items()}


def changes_of(
    context: StageContext,
    planned: WholePlan,
    made: Mapping[str, tuple[Path, int]],
    limit: int = SHOWN,
) -> dict[str, Change]:
    """Compares a job's tables with what takes their place, the target first.

    Args:
        context: The session and the home.
        planned: The backfill, which says by what rows of the target are known; those of other tables are known by
            their coordinates.
        made: The folder and version of what takes each table's place.
        limit: The most rows of each kind in a diff's samples.
    """
    names = (planned.target, *(name for name in made if name != planned.target))
    live = newest_of(context.home, names)
    return {name: _change_of(context.spark, planned, name, live[name], made[name], limit) for name in names}


def _change_of(
    spark: SparkSession,
    planned: WholePlan,
    name: str,
    live: tuple[Path, int],
    made: tuple[Path, int],
    limit: int,
) -> Change:
    """Compares two versions of one of a job's tables; the live one's is -1 where it is not there yet."""
    then, version = read_version(spark, *made), live[1]
    now = read_version(spark, *live) if version >= 0 else spark.createDataFrame([], then.schema)
    keys, own = planned.keys, planned.columns
    if name != planned.target:
        keys = (*PLACE, ROW) if ROW in then.columns else PLACE
        every = dict.fromkeys((*now.columns, *then.columns))
        own = tuple(column for column in every if not is_reserved(column))
    common = [column for column in own if column in now.columns and column in then.columns]
    of = "" if name == planned.target else f"{name}: "
    notes = tuple(
        f"{of}only one of the two has the column {column}" for column in own if column not in common
    )
    return Change(diff=keyed_diff(now, then, keys, common, limit), table_version=version, notes=notes)
