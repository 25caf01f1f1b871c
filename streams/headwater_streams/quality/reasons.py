"""Why a condition raises, as a result has it and as a person reads it."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

NOT_WORKED_OUT = "not_worked_out"
"""The detail of a result that says why its condition raises for some row."""


def sentence_of(error: "PySparkException") -> str:
    """The first sentence of Spark's message, without its code and its suggestions."""
    from headwater_streams.spark.spark_errors import first_sentence

    return re.sub(r"^\[[A-Z0-9_.]+\] ", "", first_sentence(error)).split(". ")[0].rstrip(".")
