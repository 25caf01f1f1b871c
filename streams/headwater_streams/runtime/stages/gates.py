"""Checks that judge rows or batches in a job's own pass.

`fail` stops the job before the commit, `warn` warns, and the rows of a `drop` are counted before they are left out.

Rows that go to quarantine are counted where they are written, see `rejected_checks`.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.internal import InternalFunction

from headwater_streams.base.check import Check, On
from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.extra import ExtraValues
from headwater_streams.base.rule import Judgement, KeysRule, MeasuredRule
from headwater_streams.plan.job import Job
from headwater_streams.quality.check_result import (
    MOST_SAMPLED,
    NOT_WORKED_OUT,
    CheckResult,
    in_entry,
    merged,
    of_batch,
    of_rows,
    sentence,
    stops,
)
from headwater_streams.quality.columns import speaking_of
from headwater_streams.quality.rules.keys import judged_keys
from headwater_streams.quality.rules.schema import Columns
from headwater_streams.runtime.stages.check_memory import Before
from headwater_streams.sources.coordinates import OFFSET, PARTITION, TOPIC
from headwater_streams.spark.guarded import judged, measured, violates

OUTPUT_METRIC = "headwater_output"
"""The observation of a stateful query's result: its judging checks."""
_ROWS = "check_rows"

_log = logging.getLogger(__name__)


def observe_output(job: Job, result: DataFrame) -> DataFrame:
    """The result of a stateful job's function, its judging checks observed on the way."""
    gate = CheckGate(job, "output")
    return result.observe(OUTPUT_METRIC, *gate.aggregates()) if gate else result


def checks_extra(*gates: "CheckGate") -> ExtraValues:
    """What an entry says of the results of a batch's gates, where there are any."""
    return in_entry(merged(gate.results for gate in gates).values())


class CheckGate:
    """The judging checks of one side of a job, evaluated as aggregates in the job's own pass.

    Attributes:
        results: What the checks of the last batch came to, by their names.
        warnings: The sentences of those that were warned of.
    """

    def __init__(self, job: Job, on: On) -> None:
        self._job = job
        mine = [check for check in job.checks if check.on == on and check.action != "quarantine"]
        self._checks = [check for check in mine if not isinstance(check.rule, KeysRule | Columns)]
        self._apart = [check for check in mine if isinstance(check.rule, KeysRule | Columns)]
        self.warnings: list[str] = []
        self.results: dict[str, CheckResult] = {}

    def __len__(self) -> int:
        """How many checks it has that are evaluated in the pass."""
        return len(self._checks)

    @property
    def needs_rows(self) -> bool:
        """Whether it has checks that need the rows that were written."""
        return bool(self._apart)

    def over(self, frame: DataFrame) -> "CheckGate":
        """The gate with the checks that speak of the frame's columns."""
        gate = copy(self)
        gate._checks = list(speaking_of(frame, self._checks))  # noqa: SLF001 - a copy
        gate._apart = list(speaking_of(frame, self._apart))  # noqa: SLF001 - a copy
        gate.warnings, gate.results = [], {}
        return gate

    def aggregates(self, *, located: bool = False) -> list[Column]:
        """The checks' aggregates, one or a few for each, to be observed with the batch. None of them can raise.

        Args:
            located: Whether the rows have their coordinates, so that some of those that fail can be named.
        """
        if not self._checks:
            return []
        columns = [F.count(F.lit(1)).alias(_ROWS)]
        for i, check in enumerate(self._checks):
            if isinstance(check.rule, MeasuredRule):
                measures = check.rule.measures.values()
                columns += [
                    measured(sql).cast("double").alias(f"check_{i}_{n}") for n, sql in enumerate(measures)
                ]
            elif check.level == "row":
                fails = violates(check.expression)
                columns.append(F.count_if(fails).alias(f"check_{i}"))
                if located:
                    place = F.when(
                        fails,
                        F.concat_ws(":", *[F.col(c).cast("string") for c in (TOPIC, PARTITION, OFFSET)]),
                    )
                    sample = InternalFunction.collect_top_k(place, MOST_SAMPLED, False)
                    columns.append(F.array_join(sample, "\n").alias(f"check_{i}_sample"))
            else:
                holds, raised = judged(check.expression)
                # A share of no rows raises, too, and an empty batch breaks nothing.
                raised &= F.count(F.lit(1)) > 0
                columns += [holds.alias(f"check_{i}"), raised.alias(f"check_{i}_raised")]
        return columns

    def judge_rows(self, rows: DataFrame, batch: int, *, before: Before | None = None) -> None:
        """Evaluates the checks over rows that are at hand, in a pass of their own; without checks it does nothing.

        Args:
            rows: The rows.
            batch: The batch.
            before: As for `judge`.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        if self:
            (outcome,) = rows.agg(*self.aggregates()).collect()
            self.judge(outcome.asDict(), batch, before=before)

    def judge(
        self,
        observed: Mapping[str, Any],
        batch: int,
        *,
        before: Before | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Looks at what was observed.

        A backfill has no batches before it, and makes old rows: freshness, volume and drift say nothing of it.

        Args:
            observed: The values of `aggregates`, by their names.
            batch: The batch.
            before: Gives what rules measured of earlier batches; None in a backfill, where these are not judged.
            now_ms: The time; by default the clock's.

        Raises:
            CheckFailedError: A check does not hold, and its batch may not be committed.
        """
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        found = [
            (check, self._result(i, check, observed, before, now_ms))
            for i, check in enumerate(self._checks)
            if before is not None or not isinstance(check.rule, MeasuredRule)
        ]
        self.take(found, batch)

    def judge_keys(
        self,
        rows: Callable[[Sequence[str]], pa.Table],
        others: Callable[[KeysRule, pa.Table], pa.Table | None],
        columns: Mapping[str, str],
        batch: int,
        *,
        of_batch_alone: bool = True,
    ) -> None:
        """Judges the checks that need the rows that were written.

        Args:
            rows: Gives their values of some columns.
            others: Gives the values of another table that a rule compares some rows with; None where there is none.
            columns: All columns of the rows, with their types.
            batch: The batch.
            of_batch_alone: Whether the rows are those of one batch; else rules that speak of batches are left out.

        Raises:
            CheckFailedError: As for `judge`.
        """
        found = []
        for check in self._apart:
            if not of_batch_alone and check.rule is not None and check.rule.is_of_batches:
                continue
            if isinstance(check.rule, KeysRule):
                keys = rows(check.rule.columns)
                judgement, count = judged_keys(check.rule, keys, others), keys.num_rows
            else:
                assert isinstance(check.rule, Columns)
                judgement, count = check.rule.judge(columns), 0
            found.append((check, of_batch(check, judged=count, judgement=judgement)))
        self.take(found, batch)

    def take(self, found: Sequence[tuple[Check, CheckResult]], batch: int) -> None:
        """Keeps results, warns of what is broken, and stops the job where it must not commit.

        Raises:
            CheckFailedError: The first that stops it; the error has all results.
        """
        self.results.update({check.name: result for check, result in found})
        for check, result in found:
            if not result.is_broken:
                continue
            message = f"job {self._job.name!r}, batch {batch}: {sentence(check, result)}"
            if stops(result):
                failed = CheckFailedError(f"{message}; nothing of the batch was committed")
                failed.results = tuple(self.results.values())
                raise failed
            self.warnings.append(message)
            _log.warning(message)

    def _result(
        self, i: int, check: Check, observed: Mapping[str, Any], before: Before | None, now_ms: int
    ) -> CheckResult:
        rows = observed.get(_ROWS) or 0  # absent where no row flowed
        if isinstance(check.rule, MeasuredRule):
            values = {name: observed.get(f"check_{i}_{n}") for n, name in enumerate(check.rule.measures)}
            past = before(check, check.rule.remembers) if before and check.rule.remembers else ()
            return of_batch(
                check, judged=rows, judgement=check.rule.judge(values, past, now_ms), values=values
            )
        outcome = observed.get(f"check_{i}")
        if check.level == "row":
            sample = str(observed.get(f"check_{i}_sample") or "").split("\n")
            return of_rows(check, judged=rows, failed=outcome or 0, sample=[*filter(None, sample)])
        if observed.get(f"check_{i}_raised"):
            return of_batch(check, judged=rows, judgement=Judgement(False, NOT_WORKED_OUT))
        return of_batch(check, judged=rows, judgement=Judgement(outcome is not False, ""))
