"""How it is learnt which of a record's own columns a job uses."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.joins import columns as joins
from headwater_streams.operators.windows import grouping
from headwater_streams.plan.job import Job, bind
from headwater_streams.plan.record_columns import (
    attribute_hint,
    named_record_columns,
    unresolved_record_column,
    where_record_columns_are,
    with_record,
)

clicks = hw.topic("clicks", schema="who STRING, at TIMESTAMP", event_time="at", watermark="1 hour")


class _Unresolved(AnalysisException):
    def __init__(self, condition: str, parameters: Mapping[str, str]) -> None:
        self._of = condition, dict(parameters)

    def getCondition(self) -> str | None:
        return self._of[0]

    def getMessageParameters(self) -> dict[str, str] | None:
        return self._of[1]


@pytest.fixture
def job() -> Job:
    @hw.job(
        name="copied", target=hw.delta("silver.clicks"), dedup=hw.by_key(["who", "_key"], within="1 hour")
    )
    @hw.check("traced", "_HEADERS['trace'] IS NOT NULL")
    @hw.check("kept", "_key IS NULL", on="output", action="warn")
    def copied(clicks: Any) -> Any:
        return clicks

    return bind(copied)


def test_checks_of_the_input_and_keys_of_copies_name_columns(job: Job) -> None:
    assert named_record_columns(job) == ["_key", "_headers"]
    assert named_record_columns(replace(job, dedup=None)) == ["_headers"]
    of_output = tuple(check for check in job.checks if check.on == "output")
    assert named_record_columns(replace(job, dedup=None, checks=of_output)) == []


def test_topics_give_columns_in_one_order_whichever_was_met_first(job: Job) -> None:
    both = with_record(with_record(job, ["_headers"]), ["_key"])
    assert [each.record for each in both.topics] == [("_key", "_headers")]
    assert both == with_record(both, ["_key"])
    assert with_record(job, []) is job
    of_table = replace(job, inputs={"clicks": hw.table("silver.other")})
    assert with_record(of_table, ["_key"]) == of_table


@pytest.mark.parametrize(
    ("condition", "parameters", "column"),
    [
        ("UNRESOLVED_COLUMN.WITH_SUGGESTION", {"objectName": "`_key`", "proposal": "`who`"}, "_key"),
        ("UNRESOLVED_COLUMN.WITHOUT_SUGGESTION", {"objectName": "`_headers`.`trace`"}, "_headers"),
        ("CANNOT_RESOLVE_DATAFRAME_COLUMN", {"name": '"_key"'}, "_key"),
        ("UNRESOLVED_COLUMN.WITH_SUGGESTION", {"objectName": "`_HEADERS`.`trace`"}, "_headers"),
        ("UNRESOLVED_COLUMN.WITH_SUGGESTION", {"objectName": "`who_`"}, None),
        ("DATATYPE_MISMATCH", {"objectName": "`_key`"}, None),
    ],
)
def test_spark_says_which_column_is_not_there(
    condition: str, parameters: Mapping[str, str], column: str | None
) -> None:
    error = _Unresolved(condition, parameters)
    assert unresolved_record_column(error) == column
    wrapped = JobDefinitionError("job 'x': line 4: no such column")
    wrapped.__cause__ = error
    assert unresolved_record_column(wrapped) == column
    assert unresolved_record_column(JobDefinitionError("another")) is None


def test_hidden_column_behind_a_dot_is_told_how_to_be_named() -> None:
    def hint(condition: str, name: str) -> str:
        return attribute_hint(_Unresolved(condition, {"attr_name": name}))

    assert hint("ATTRIBUTE_NOT_SUPPORTED", "_key") == '; write F.col("_key")'
    assert hint("ATTRIBUTE_NOT_SUPPORTED", "_offset") == '; write F.col("_offset")'
    assert hint("ATTRIBUTE_NOT_SUPPORTED", "who_") == ""
    assert hint("UNRESOLVED_COLUMN", "_key") == ""


def test_hidden_column_that_an_operator_names_needs_another_name() -> None:
    class Frame:
        columns = ("who", "at")

    frame: Any = Frame()
    with pytest.raises(
        JobDefinitionError, match=r"tumbling: no column '_key'; there are who, at; _key is hidden"
    ):
        grouping.require_columns("tumbling", frame, ["_key"], "at")
    with pytest.raises(
        JobDefinitionError, match=r"the left side has no column '_key'; it has who, at; _key is hid"
    ):
        joins.require_columns("join", "left", frame, ["_key"])
    with pytest.raises(JobDefinitionError, match=r"no column 'key'; there are who, at$"):
        grouping.require_columns("tumbling", frame, ["key"], "at")


def test_columns_that_are_nowhere_are_told_by_what_the_job_reads(job: Job) -> None:
    assert "until they are joined or grouped" in where_record_columns_are(job, "_key")
    of_table = replace(job, inputs={"clicks": hw.table("silver.other")})
    assert "and this job reads tables" in where_record_columns_are(of_table, "_key")
