"""Rows for which a job's function raises, on their way to windows or to a join that a repair makes again.

They are found as the live job finds them, and left out as there. A step reads some rows that the one before it has
read, so what was found in that is known from the start.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import DataFrame

from headwater_streams.backfill.repair.input import first_to_last
from headwater_streams.base.ledger_entry import LedgerEntry, intersection, merge_ranges
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.stages.failing_pairs import find_all_failing, merged
from headwater_streams.runtime.stages.failing_rows import FailingByInput
from headwater_streams.runtime.stages.narrowing import Place


def found_among(
    plan: JobPlan,
    given: Mapping[str, DataFrame],
    live: Sequence[LedgerEntry],
    who: str,
    error: Exception,
    preferred: FailingByInput = MappingProxyType({}),
) -> FailingByInput:
    """The rows for which the function raises, alone or, of a join, in a pair.

    Args:
        plan: The job.
        given: The rows that it is given, with their coordinates, by input.
        live: The batches of the live job; those that the rows are of may have so many such rows each.
        who: The job and the step, for a sentence.
        error: What this ended with.
        preferred: Rows that are to blame for a pair sooner than others.

    Raises:
        Exception: The error, where no row is to blame, or the job stops at one.
        RowErrorsError: There are more of them than the job allows.
    """
    ranges = {name: first_to_last(rows) for name, rows in given.items()}
    read = merge_ranges(list(ranges.values()))
    batches = sum(any(intersection(source.ranges, read) for source in entry.sources) for entry in live)
    found = find_all_failing(plan, given, ranges, who, error, lambda: preferred, max(1, batches))
    if not any(found.values()):
        raise error
    return found


class KnownFailing:
    """What is known of a step, by input."""

    def __init__(self, planned: FailingByInput) -> None:
        """Args: what the plan knows, of all steps."""
        self._planned, self._before, self._now = planned, planned, planned

    def begin(self) -> None:
        """Begins the next step."""
        self._before, self._now = self._now, self._planned

    def add(self, found: FailingByInput) -> None:
        """Adds what was found in the step."""
        self._now = merged(self._now, found)

    @property
    def found(self) -> FailingByInput:
        """What the step leaves out."""
        return merged(self._before, self._now)

    def of(self, name: str) -> Mapping[Place, str]:
        """The same of an input."""
        return self.found.get(name, {})
