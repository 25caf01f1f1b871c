"""What is easily got wrong in the arguments of operators and declarations is refused before Spark is asked."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column
from pyspark.sql.types import StructType

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError


class Frame:
    """Stands for a DataFrame: an operator asks a wrong call for nothing but these."""

    schema = StructType().add("k", "string").add("at", "timestamp")
    columns = schema.names


COLUMN = object.__new__(Column)  # a real one needs a session
TIMES = {"left_time": "at", "right_time": "at"}
WITHIN = {**TIMES, "within": "1 hour"}


def refusal(call: Callable[[Any], object]) -> str:
    with pytest.raises(JobDefinitionError) as error:
        call(Frame())
    return str(error.value)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda df: hw.tumbling(df, "at", "1 hour", by="k"), "tumbling: by='k' is not a list; write ['k']"),
        (lambda df: hw.hopping(df, "at", "1 hour", "1 minute", by="k"), "hopping: by='k' is not a list"),
        (
            lambda df: hw.cumulative(df, "at", "1 hour", "1 minute", by="k"),
            "cumulative: by='k' is not a list",
        ),
        (lambda df: hw.session(df, "at", "1 hour", by="k"), "session: by='k' is not a list"),
        (lambda df: hw.count_window(df, "at", 2, by="k"), "count_window: by='k' is not a list"),
        (lambda df: hw.grouped(df, by="k", state="unbounded"), "grouped: by='k' is not a list"),
        (lambda df: hw.latest(df, by="k", order="at", state="unbounded"), "latest: by='k' is not a list"),
        (lambda df: hw.enrich(df, df, on="k"), "enrich: on='k' is not a list"),
        (lambda df: hw.top(1, "at", "k"), "top: columns='k' is not a list"),
        (lambda df: hw.join(df, df, on=COLUMN, **WITHIN), 'join: on= takes names, not columns; write ["name", ...]'),
        (lambda df: hw.grouped(df, by=[COLUMN], state="unbounded"), "grouped: by= takes names, not columns"),
        (lambda _: hw.delta("gold.x", keys="k"), "table 'gold.x': keys='k' is not a list"),
        (lambda df: hw.join(df, df, on="k", **WITHIN), "join: on='k' is not a list"),
        (lambda df: hw.as_of(df, df, by="k", **TIMES), "as_of: by='k' is not a list"),
        (lambda _: hw.by_key("shop", within="1 hour"), "write the columns as a list, ['shop']"),
    ],
)  # fmt: skip
def test_one_name_for_a_list_of_them_is_told(call: Callable[[Any], object], told: str) -> None:
    assert told in refusal(call)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda df: hw.hopping(df, "at", "1 hour", "2 hours"),
            "windows of 1 hour every 2 hours leave gaps, and rows would fall into none",
        ),
        (
            lambda df: hw.cumulative(df, "at", "1 hour", "25 minutes"),
            "the size 1 hour is not a multiple of the step 25 minutes",
        ),
        (lambda df: hw.latest(df, by=["k"], order="at", state="1 day"), "state='1 day' is not 'unbounded'"),
        (
            lambda df: hw.join(df, df, on=["k"], how="outer", **WITHIN),
            "how='outer' is not one of inner, left, right, full, semi",
        ),
        (
            lambda df: hw.as_of(df, df, by=["k"], direction="up", **TIMES),
            "the directions are 'backward', 'forward', 'nearest'",
        ),
        (lambda df: hw.enrich(df, df, on=[]), "name a column or more, and 'left' or 'inner'"),
        (lambda _: hw.by_key(["shop"], within="soon"), "'soon' is not a duration"),
    ],
)
def test_operator_that_cannot_be_is_refused_with_the_reason(call: Callable[[Any], object], told: str) -> None:
    assert told in refusal(call)


@pytest.mark.parametrize("size", [0, -1, 2.0, "2", True])
def test_count_window_size_that_is_no_number_of_rows_is_refused(size: Any) -> None:
    told = refusal(lambda df: hw.count_window(df, "at", size))
    assert f"size={size!r} is not a whole number of rows, 1 or more" in told


def test_target_and_targets_together_are_told() -> None:
    with pytest.raises(JobDefinitionError, match="target= and targets= are both given"):
        hw.job(target=hw.delta("gold.one"), targets={"two": hw.delta("gold.two")})


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ({}, "is not a dict of targets by names"),
        ({"a": "silver.a"}, "is not a dict of targets by names"),
        ({"a": hw.delta("silver.a"), "b": hw.delta("silver.a")}, "two of targets= are the table silver.a"),
    ],
)
def test_fan_out_wrong_targets_are_refused_where_they_are_declared(
    targets: dict[str, object], told: str
) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        hw.job(targets=targets)  # type: ignore[arg-type]
    assert told in str(refused.value)
