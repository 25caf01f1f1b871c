"""Checks that judge rows or batches without taking rows aside: `fail` stops the job before the commit, `warn` warns."""

import logging
from collections.abc import Mapping
from copy import copy
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.check import On
from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.plural import quantity
from headwater_streams.plan.job import Job
from headwater_streams.quality.columns import speaking_of
from headwater_streams.spark.guarded import judged, violates

OUTPUT_METRIC = "headwater_output"
"""The observation of a stateful query's result: its judging checks."""

_log = logging.getLogger(__name__)


def observe_output(job: Job, result: DataFrame) -> DataFrame:
    """The result of a stateful job's function, its judging checks observed on the way."""
    gate = CheckGate(job, "output")
    return result.observe(OUTPUT_METRIC, *gate.aggregates()) if gate else result


class CheckGate:
    """The judging checks of one side of a job, evaluated as aggregates in the job's own pass."""

    def __init__(self, job: Job, on: On) -> None:
        self._job = job
        self._checks = [check for check in job.checks if check.on == on and check.action != "quarantine"]
        self.warnings: list[str] = []

    def __len__(self) -> int:
        """How many checks it has."""
        return len(self._checks)

    def over(self, frame: DataFrame) -> "CheckGate":
        """The gate with the checks that speak of the frame's columns."""
        gate = copy(self)
        gate._checks = list(speaking_of(frame, self._checks))  # noqa: SLF001 - a copy
        gate.warnings = []
        return gate

    def aggregates(self) -> list[Column]:
        """The checks' aggregates, one or two for each, to be observed with the batch. None of them can raise."""
        columns = []
        for i, check in enumerate(self._checks):
            if check.level == "row":
                columns.append(F.count_if(violates(check.expression)).alias(f"check_{i}"))
                continue
            holds, raised = judged(check.expression)
            # A share of no rows raises, too, and an empty batch breaks nothing.
            raised &= F.count(F.lit(1)) > 0
            columns += [holds.alias(f"check_{i}"), raised.alias(f"check_{i}_raised")]
        return columns

    def judge_rows(self, rows: DataFrame, batch: int) -> None:
        """Evaluates the checks over rows that are at hand, in a pass of their own; without checks it does nothing.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        if self:
            (outcome,) = rows.agg(*self.aggregates()).collect()
            self.judge(outcome.asDict(), batch)

    def judge(self, observed: Mapping[str, Any], batch: int) -> None:
        """Looks at what was observed.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        for i, check in enumerate(self._checks):
            outcome = observed.get(f"check_{i}")  # absent where no row flowed
            name = f"the check {check.name!r} ({check.expression})"
            if check.level == "row":
                broken = f"{quantity(outcome, 'row fails', 'rows fail')} {name}" if outcome else None
            elif observed.get(f"check_{i}_raised"):
                broken = f"{name} cannot be worked out for the batch"
            else:
                broken = f"the batch fails {name}" if outcome is False else None
            if broken is None:
                continue
            message = f"job {self._job.name!r}, batch {batch}: {broken}"
            if check.action == "fail":
                raise CheckFailedError(f"{message}; nothing of the batch was committed")
            self.warnings.append(message)
            _log.warning(message)
