"""A part of the windows that is folded again, and which late rows had been folded in before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import Folded
from headwater_streams.backfill.repair.spec import Affected
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.sources.coordinates import BATCH, GENERATION


@dataclass(frozen=True)
class Replayed:
    """A part of the result that is about to be computed.

    Attributes:
        rows: The rows, with the target's columns.
        gate: The checks of the input, to be judged by `judge_input`.
        terms: Gives the account, once the rows have been written.
        rejected: The bad rows that are counted here, as quarantine holds them.
        given: The rows that the function is given, with their coordinates, by input.
    """

    rows: DataFrame
    gate: CheckGate
    terms: Callable[[], dict[str, int]]
    rejected: DataFrame
    given: Mapping[str, DataFrame]

    def release(self) -> None:
        """See `Prepared`: nothing is kept."""


def folded_before(earlier: Sequence[Folded], start_us: Column) -> Column:
    """True for a row, with its commit, that a backfill has folded into the window that begins there, never NULL."""
    condition: Column = F.lit(False)
    for one in earlier:
        inside = Affected(ranges={}, windows=one.windows).of_times(start_us)
        until = F.struct(F.lit(one.until[0]), F.lit(one.until[1]).cast("long"))
        condition |= inside & (F.struct(F.col(GENERATION), F.col(BATCH)) <= until)
    return F.coalesce(condition, F.lit(False))
