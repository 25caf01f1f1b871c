"""How windows of each kind are folded again."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame

from headwater_streams.backfill.history import Folded
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.repair.windows.fixed.replay import FixedReplay
from headwater_streams.backfill.repair.windows.folding import Replayed
from headwater_streams.backfill.repair.windows.sessions.replay import SessionReplay
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.narrowing import Place


class Replay(Protocol):
    """Windows, folded again from the rows of their input."""

    def leaving_out(self, failing: Mapping[Place, str]) -> "Replay":
        """The same without some rows, for which the function raises."""

    def read_by(self, planned: BackfillPlan) -> DataFrame:
        """The rows that a repair reads."""

    def fold(self, backfill: BackfillPlan, chunk: Chunk, earlier: Sequence[Folded]) -> Replayed:
        """The windows of a step, whole.

        Args:
            backfill: The plan.
            chunk: The step.
            earlier: The late rows that earlier backfills folded in; they are not counted as late again.
        """

    def unplaced(self, planned: BackfillPlan, which: Column) -> DataFrame | None:
        """Of the rows that a repair reads and for which a condition holds, those that are in none of its windows, with
        their coordinates, though the function hands them to its operator; None where there can be none."""

    def judge_input(self, backfill: BackfillPlan, chunk: Chunk, gate: CheckGate) -> None:
        """Judges the checks of the input over the rows of a step.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """


def replay_of(context: StageContext, plan: JobPlan, planned: BackfillPlan) -> Replay:
    """The windows of a repair."""
    assert planned.pinned is not None
    if planned.closed_until_us is None:
        return FixedReplay(context, plan, planned.pinned, planned.failing)
    return SessionReplay(context, plan, planned.pinned, planned.closed_until_us, planned.failing)
