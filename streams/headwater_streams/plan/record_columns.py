"""Which of a record's own columns, `_key` and `_headers`, a job uses.

Its checks and its deduplication name them in texts. Of its function Spark says that one is not there, and the function
is called once more with it.
"""

from collections.abc import Collection
from dataclasses import replace

from pyspark.errors import PySparkException

from headwater_streams.base.names import RECORD_COLUMNS, folded, may_name
from headwater_streams.operators.dedup import ByKey
from headwater_streams.plan.job import Job
from headwater_streams.sources.coordinates import ROW, ROW_COLUMNS
from headwater_streams.sources.inputs import Input, TopicInput

_UNRESOLVED = ("UNRESOLVED_COLUMN", "CANNOT_RESOLVE_DATAFRAME_COLUMN")
"""Spark's conditions of an error about a column that is not there."""


def named_record_columns(job: Job) -> list[str]:
    """Those that a job's checks of the input or its deduplication name."""
    keys = job.dedup.columns if isinstance(job.dedup, ByKey) else ()
    texts = [check.expression for check in job.checks if check.on == "input"]
    return [name for name in RECORD_COLUMNS if name in keys or any(may_name(text, name) for text in texts)]


def with_record(job: Job, names: Collection[str]) -> Job:
    """A job whose topics give these columns, too."""

    def widened(declared: Input) -> Input:
        if not isinstance(declared, TopicInput):
            return declared
        record = tuple(name for name in RECORD_COLUMNS if name in names or name in declared.record)
        return replace(declared, record=record)

    if not names:
        return job
    return replace(job, inputs={name: widened(declared) for name, declared in job.inputs.items()})


def unresolved_record_column(error: BaseException | None) -> str | None:
    """The column that an error, or what it came of, says is not there; None where it is about anything else."""
    while error is not None:
        if isinstance(error, PySparkException) and (error.getCondition() or "").startswith(_UNRESOLVED):
            named = error.getMessageParameters() or {}
            column = str(named.get("objectName", named.get("name", ""))).strip('`"').partition("`")[0]
            return next((each for each in RECORD_COLUMNS if folded(each) == folded(column)), None)
        error = error.__cause__ or error.__context__
    return None


def attribute_hint(error: PySparkException) -> str:
    """What a sentence adds about a hidden column that a function took by a dot, `orders._key`; nothing for others."""
    if error.getCondition() != "ATTRIBUTE_NOT_SUPPORTED":
        return ""
    name = str((error.getMessageParameters() or {}).get("attr_name", ""))
    return f'; write F.col("{name}")' if name in (*RECORD_COLUMNS, *ROW_COLUMNS, ROW) else ""


def where_record_columns_are(job: Job, name: str) -> str:
    """Why one is not there though the job's topics give it."""
    if not job.topics:
        return (
            f"{name} is a column of a topic's records, and this job reads tables; have the job that writes them keep "
            "it, under another name"
        )
    return (
        f"{name} is a column of the records of {', '.join(job.topic_names)} until they are joined or grouped; give it "
        "another name before, or in a row-by-row job whose table this one reads"
    )
