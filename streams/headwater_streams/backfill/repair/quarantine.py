"""What a repair of windows or of a join changes in the quarantine of its job.

A repair judges the rows that it reads again, and by what it finds they stand in quarantine or not:

    in quarantine before    of the code of now          in quarantine after
    a                       comes into its window       -
    b                       still raises                b, for the reason of now
    -                       c raises                    c

They are known by their coordinates, which are written down when the repair is verified. A row of several windows is
judged with the first that are repaired. A row of a session that is left as it is stays in quarantine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.failing import found_among
from headwater_streams.backfill.repair.joins.replay import JoinReplay, good_of
from headwater_streams.backfill.repair.rejected import rejected_among
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.windows.kinds import replay_of
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.backfill.values import FolderRecord
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.plural import quantity
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.side import quarantine_schema
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.failing_rows import compute_function
from headwater_streams.runtime.stages.narrowing import Place
from headwater_streams.sources.coordinates import PLACE
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.files import exists

_Places = frozenset[Place]


@dataclass(frozen=True, kw_only=True)
class RejectedRows(FolderRecord):
    """The rows of the quarantine table that a repair replaces, as they are stored: by their coordinates."""

    WHAT = "the list of the rejected rows"
    FILE = "rejected"

    offsets: Offsets

    def to_json(self) -> dict[str, Any]:
        """The list as it is stored."""
        return self.version_key() | {"offsets": self.offsets.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> "RejectedRows":
        """The list as it was stored."""
        return cls(offsets=Offsets.from_json(cls.checked(value)["offsets"]))


@dataclass(frozen=True)
class Judged:
    """The rows of the quarantine table that a repair replaces.

    Attributes:
        rows: Which, by their coordinates.
        gone: How many leave it.
        there: How many the repair puts there.
    """

    rows: Offsets
    gone: int
    there: int

    @property
    def notes(self) -> list[str]:
        """What a person should know, each a sentence."""
        left = quantity(
            self.gone,
            "row that was in quarantine is used now, and leaves it",
            "rows that were in quarantine are used now, and leave it",
        )
        there = quantity(
            self.there,
            "row of the range goes to quarantine, or stays there",
            "rows of the range go to quarantine, or stay there",
        )
        return [*([left] if self.gone else []), *([there] if self.there else [])]


def judge_rejected(
    context: StageContext, folder: BackfillFolder, planned: BackfillPlan, plan: JobPlan
) -> Judged:
    """Finds out which rows of the quarantine table a repair replaces, and writes it down; the run must be done.

    Args:
        context: The session and the home.
        folder: The repair's folder.
        planned: The repair, of windows or of a join.
        plan: The job.
    """
    now = _places(folder.quarantine)
    before = _read_again(context, planned, plan)
    left = before - now
    if left:
        left -= _unused(context, planned, plan, left)
    rows = Offsets.at(left | now)
    if rows.count:
        ensure_table(context.spark, folder.quarantine, "the quarantine", quarantine_schema())
    folder.write(RejectedRows(offsets=rows))
    return Judged(rows, len(left), len(now))


def judged_rows(folder: BackfillFolder) -> Offsets:
    """The rows of the quarantine table that a verified repair replaces."""
    stored = folder.read(RejectedRows)
    return Offsets(pairs={}) if stored is None else stored.offsets


def _places(table: Path) -> _Places:
    if not exists(table):
        return frozenset()
    return _of(dataset_of(table).to_table(list(PLACE)))


def _of(rows: pa.Table) -> _Places:
    return frozenset(zip(*(rows[name].to_pylist() for name in PLACE), strict=True))


def _read_again(context: StageContext, planned: BackfillPlan, plan: JobPlan) -> _Places:
    """The rows in quarantine that the repair reads: what its inputs do not hold was rejected on the way to them."""
    if not DeltaTable(str(context.home.table(planned.quarantine))).file_uris():
        return frozenset()
    read = _read(context, planned, plan)
    return frozenset(at for rows in read for at in rejected_among(context, planned.quarantine, rows))


def _read(context: StageContext, planned: BackfillPlan, plan: JobPlan) -> list[DataFrame]:
    if planned.kind == "window":
        return [replay_of(context, plan, planned).read_by(planned)]
    replay = JoinReplay(context, plan, planned, _live(context, planned))
    return [
        decoded.frame
        for chunk in planned.chunks
        for decoded in replay.read_by(chunk.lefts, chunk.rights).values()
    ]


def _unused(context: StageContext, planned: BackfillPlan, plan: JobPlan, left: _Places) -> _Places:
    """Those of some rows that the repair read, and does not use: their sessions stay as they are, or they raise where
    the join was not in need of them."""
    at, live = Offsets.at(left).condition(), _live(context, planned)
    if planned.kind == "window":
        unplaced = replay_of(context, plan, planned).unplaced(planned, at)
        return frozenset() if unplaced is None else _of(unplaced.select(*PLACE).toArrow())
    sides = JoinReplay(context, plan, planned, live).read_by(planned.lefts, planned.rights)
    given = {name: good_of(decoded).filter(at) for name, decoded in sides.items()}
    return _raising(plan, given, live, f"job {planned.job!r}, its rows in quarantine")


def _raising(plan: JobPlan, given: Mapping[str, DataFrame], live: Sequence[LedgerEntry], who: str) -> _Places:
    try:
        compute_function(plan, given)
    except Exception as error:
        found = found_among(plan, given, live, who, error)
        return frozenset(place for places in found.values() for place in places)
    return frozenset()


def _live(context: StageContext, planned: BackfillPlan) -> list[LedgerEntry]:
    table = context.home.table(planned.target)
    return read_history(table, planned.target, planned.job, until=planned.base_version).entries()
