"""Which records of a batch a job's function raises for.

A division by zero, a cast, an index or a Python function that raises for one record ends the whole batch, and does so
each time that it is tried again. So a batch that failed is computed once more in parts, halved until single records are
left; what is computed is thrown away. Only a batch that fails pays: some twenty parts for each such record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.base.errors import RowErrorsError, StreamsError
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.plan.job import Job
from headwater_streams.runtime.faults import passes, refused, speaks_of_loss
from headwater_streams.sources.coordinates import OFFSET, PARTITION, PLACE, TOPIC
from headwater_streams.sources.problems import Problem
from headwater_streams.spark.spark_errors import is_of_a_stop, row_error_message

Place = tuple[str, int, int]
"""A record's topic, partition and offset."""
_Stretch = tuple[str, int, int, int]
"""Offsets of a partition: topic, partition, first, one past the last."""
FUNCTION = "function"
"""What quarantine gives for a check where the function raises."""
_SHOWN = 3


class Prepared(Protocol):
    """A pass that is about to be made."""

    def release(self) -> None:
        """Lets go of what it keeps for several results."""


_Pass = TypeVar("_Pass", bound=Prepared)
_Written = TypeVar("_Written")
_Failing = TypeVar("_Failing")


def without_failing(
    over: Callable[[_Failing | None], _Pass],
    write: Callable[[_Pass], _Written],
    blamed: Callable[[_Pass, Exception], _Failing],
) -> tuple[_Pass, _Written]:
    """Makes a pass. Where the function raises for some records, it makes the pass once more without these.

    Args:
        over: Prepares a pass, given what is wrong with some records.
        write: Makes it.
        blamed: Finds these records, by a pass and the error with which it ended.
    """
    passed = over(None)
    try:
        return passed, write(passed)
    except Exception as error:
        failing = blamed(passed, error)
    finally:
        passed.release()
    passed = over(failing)
    try:
        return passed, write(passed)
    finally:
        passed.release()


def failing(
    job: Job,
    compute: Callable[[Column], object],
    ranges: Ranges,
    who: str,
    error: Exception,
    batches: int = 1,
) -> Problem:
    """What is wrong with the records for which a job's function raises; see `failing_places`."""
    return problem_of(failing_places(job, compute, ranges, who, error, batches))


def failing_places(
    job: Job,
    compute: Callable[[Column], object],
    ranges: Ranges,
    who: str,
    error: Exception,
    batches: int = 1,
) -> dict[Place, str]:
    """The records for which a job's function raises, and why it does.

    Args:
        job: The job.
        compute: Computes the function for those records for which a condition on their coordinates holds.
        ranges: The offsets of the batch.
        who: The job and the batch, for a sentence.
        error: What the batch ended with.
        batches: Of how many batches of the job these are.

    Raises:
        Exception: The error, where no record is to blame, or the job stops at one.
        RowErrorsError: There are more of them than the job allows.
    """
    stretches = [
        (topic, partition, start, end)
        for topic, partitions in sorted(ranges.items())
        for partition, (start, end) in sorted(partitions.items())
        if start < end
    ]
    if not stretches or not may_be_of_rows(job, error):
        raise error
    places = [(topic, partition) for topic, partition, _, _ in stretches]
    records = _count(stretches)
    search = _Search(compute, places, job.max_errors.most(records, batches), records, who)
    try:
        if search.error_of([]) is not None or search.error_of(stretches) is None:
            raise _NotOfRowsError
        search.narrow(stretches)
    except _NotOfRowsError:
        raise error from None
    return search.failing


def require_few(failing: Sequence[tuple[Place, str]], most: int, records: int, who: str) -> None:
    """Sees to it that a job may go on without some records.

    Args:
        failing: The records, and why its function raises for them.
        most: How many they may be at most.
        records: How many records were read.
        who: The job and the batch, for a sentence.

    Raises:
        RowErrorsError: They are more.
    """
    if len(failing) > most:
        samples = [f"{spell_place(place)} ({why})" for place, why in failing[:_SHOWN]]
        raise RowErrorsError(
            f"{who}: the function raises for more than {most} of {records} records, such as {', '.join(samples)}; "
            "nothing of the batch was committed: mend the function, or let more of them go to quarantine (max_errors=)"
        )


def spell_place(place: Place) -> str:
    """A record's coordinates, for a sentence."""
    topic, partition, offset = place
    return f"{topic} {partition} offset {offset}"


class _NotOfRowsError(Exception):
    """The pass fails without any record, too, or does not fail a second time."""


def may_be_of_rows(job: Job, error: Exception) -> bool:
    """Whether rows may be to blame for an error, and the job wants to go on without them."""
    return job.on_error == "quarantine" and not is_of_others(error)


def is_of_others(error: Exception) -> bool:
    """Whether, by what it says, no row caused the error."""
    of_brokers = passes(error) or speaks_of_loss(error) or refused(error) is not None
    return isinstance(error, StreamsError) or of_brokers or is_of_a_stop(error)


def problem_of(raising: Mapping[Place, str]) -> Problem:
    """What is wrong with these records: the function raises for them, for these reasons."""
    reasons = F.create_map(
        *[F.lit(text) for place, reason in raising.items() for text in (key_of(place), reason)]
    )
    reason = F.try_element_at(reasons, place_key())
    return Problem(FUNCTION, reason.isNotNull(), reason)


@dataclass
class _Search:
    compute: Callable[[Column], object]
    places: Sequence[tuple[str, int]]
    most: int
    records: int
    who: str
    failing: dict[Place, str] = field(default_factory=dict)

    def narrow(self, stretches: Sequence[_Stretch]) -> None:
        """Finds the records among stretches that fail together."""
        if _count(stretches) == 1:
            self._take(stretches)
            return
        left, right = _halves(stretches)
        left_fails = self.error_of(left) is not None
        if left_fails:
            self.narrow(left)
        # One of the two fails: where it is not the left one, the right one need not be tried.
        if not left_fails or self.error_of(right) is not None:
            self.narrow(right)

    def _take(self, stretches: Sequence[_Stretch]) -> None:
        ((topic, partition, offset, _),) = stretches
        error = self.error_of(stretches)
        if error is None:
            raise _NotOfRowsError  # it fails together with others alone
        self.failing[topic, partition, offset] = row_error_message(error)
        require_few([*self.failing.items()], self.most, self.records, self.who)

    def error_of(self, stretches: Sequence[_Stretch]) -> Exception | None:
        # The partitions keep one order, so that Spark compiles one piece of code for all parts.
        spans = {(topic, partition): (start, end) for topic, partition, start, end in stretches}
        place = F.array_position(
            F.array(*[F.lit(f"{topic}\t{partition}") for topic, partition in self.places]),
            F.concat_ws("\t", F.col(TOPIC), F.col(PARTITION).cast("string")),
        )
        first, end = (
            F.try_element_at(
                _numbers([spans.get(each, (0, 0))[bound] for each in self.places]), place.cast("int")
            )
            for bound in (0, 1)
        )
        try:
            self.compute((F.col(OFFSET) >= first) & (F.col(OFFSET) < end))
        except Exception as error:
            if is_of_others(error):
                raise
            return error
        return None


def _numbers(numbers: Sequence[int]) -> Column:
    """An array that Spark hands to its code, and does not write into it."""
    return F.split(F.lit(",".join(map(str, numbers))), ",").cast("array<bigint>")


def _count(stretches: Sequence[_Stretch]) -> int:
    return sum(end - start for _, _, start, end in stretches)


def _halves(stretches: Sequence[_Stretch]) -> tuple[list[_Stretch], list[_Stretch]]:
    left: list[_Stretch] = []
    right: list[_Stretch] = []
    half = _count(stretches) // 2
    for topic, partition, start, end in stretches:
        middle = min(end, start + max(0, half - _count(left)))
        if start < middle:
            left.append((topic, partition, start, middle))
        if middle < end:
            right.append((topic, partition, middle, end))
    return left, right


def key_of(place: Place) -> str:
    """A record's coordinates as `place_key` has them."""
    topic, partition, offset = place
    return f"{topic}\t{partition}\t{offset}"


def place_key(within: str = "") -> Column:
    """The coordinates of a row in one text; `within` is the prefix of their columns, such as "pair."."""
    return F.concat_ws("\t", *[F.col(within + name).cast("string") for name in PLACE])
