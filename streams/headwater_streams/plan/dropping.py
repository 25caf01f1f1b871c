"""Checks with `action="drop"`: the rows that they leave out never reach the job's function."""

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame

from headwater_streams.base.check import Check
from headwater_streams.quality.columns import speaking_of
from headwater_streams.spark.guarded import violates


def without_dropped(
    function: Callable[..., Any], checks: Sequence[Check], inputs: Collection[str]
) -> Callable[..., Any]:
    """A job's function with its checks' filters in front of it.

    A row that is dropped so is one that the job filtered: in the ledger, in a backfill and in what is recomputed of it.
    How many there were, each check's result says.

    Args:
        function: The job's function.
        checks: The job's checks.
        inputs: The names of its inputs, as far as they are no look-ups.
    """
    dropping = [check for check in checks if check.action == "drop"]
    if not dropping:
        return function

    @wraps(function)
    def filtered(**frames: DataFrame) -> Any:
        for name in inputs:
            if name not in frames:
                continue
            spoken = dropping if len(inputs) == 1 else speaking_of(frames[name], dropping)
            for check in spoken:
                frames[name] = frames[name].where(~violates(check.expression))
        return function(**frames)

    return filtered
