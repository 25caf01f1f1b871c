"""How the windows of each kind are folded again."""

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from headwater_streams.backfill.history import Folded, TableHistory
from headwater_streams.backfill.repair.sessions.replay import SessionReplay
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.repair.windows.replay import Replayed, WindowReplay
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.windows.session import SessionWindow


class Replay(Protocol):
    """Windows, folded again from the rows of their input."""

    def read_by(self, planned: BackfillPlan) -> DataFrame:
        """The rows that a repair reads."""

    def fold(self, backfill: BackfillPlan, chunk: Chunk, earlier: Sequence[Folded]) -> Replayed:
        """The windows of a step, whole."""

    def judge_input(self, backfill: BackfillPlan, chunk: Chunk, gate: CheckGate) -> None:
        """Judges the checks of the input over the rows of a step."""


def replay_of(context: StageContext, plan: JobPlan, planned: BackfillPlan) -> Replay:
    """The windows of a repair."""
    assert planned.pinned is not None
    if not isinstance(plan.operator, SessionWindow):
        return WindowReplay(context, plan, planned.pinned)
    target = context.home.table(planned.target)
    live = TableHistory(target, planned.target, planned.job, until=planned.base_version)
    return SessionReplay(context, plan, planned.pinned, live.closed_until_us)
