"""Regular expressions in a condition: one that is none raises for each row, not where the condition is analysed."""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater_streams.spark.gateway import jvm_class, to_list
from headwater_streams.spark.plain_ways import or_plainly
from headwater_streams.spark.spark_errors import JvmError, first_sentence, reason_of

_WITH_PATTERN = frozenset({
    "RLike", "RegExpCount", "RegExpExtract", "RegExpExtractAll", "RegExpInStr", "RegExpReplace", "RegExpSubStr",
    "StringSplit",
})  # fmt: skip
_PATTERN = 1
"""The place of the pattern among their children."""


def _not_known(_selected: DataFrame) -> str | None:
    return None


@or_plainly(_not_known)
def wrong_pattern(selected: DataFrame) -> str | None:
    """What is wrong with a constant regular expression of a frame's columns; None where all are right.

    Without the private names nothing is wrong: the condition then raises, and holds for no row.

    Args:
        selected: A frame that selects a condition.
    """
    plan = selected._jdf.queryExecution().analyzed()  # noqa: SLF001 - as in `guarded`
    open_expressions = to_list(plan.expressions())
    while open_expressions:
        expression = open_expressions.pop()
        children = to_list(expression.children())
        open_expressions += children
        if str(expression.getClass().getSimpleName()) in _WITH_PATTERN and len(children) > _PATTERN:
            wrong = _wrong(children[_PATTERN])
            if wrong is not None:
                return wrong
    return None


def _wrong(pattern: Any) -> str | None:
    if not pattern.foldable():
        return None
    text = pattern.eval(None)
    if text is None:
        return None
    try:
        jvm_class(SparkSession.active(), "java.util.regex.Pattern").compile(str(text.toString()))
    except (PySparkException, JvmError) as error:
        told = first_sentence(error) if isinstance(error, PySparkException) else reason_of(error)
        return f"{text.toString()} is no regular expression of Java's: {told}"
    return None
