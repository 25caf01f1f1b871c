"""Columns that `select("*")` leaves out and that can be selected by name: a row's coordinates travel with it so."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import RECORD_COLUMNS
from headwater_streams.spark.columns import col
from headwater_streams.spark.gateway import scala_object, to_list
from headwater_streams.spark.plain_ways import or_plainly

_METADATA_COLUMN = {"__metadata_col": True}  # catalyst's METADATA_COL_ATTR_KEY


def hide(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Makes columns invisible to `select("*")` and friends while they stay reachable by name; a record's own columns
    always are, where the rows have them."""
    names = [*names, *[name for name in RECORD_COLUMNS if name in df.columns and name not in names]]
    visible = [col(name) for name in df.columns if name not in names]
    marked = df.select(*visible, *[F.col(name).alias(name, metadata=_METADATA_COLUMN) for name in names])
    hidden = marked.select(*visible)
    project = scala_object(df.sparkSession, "org.apache.spark.sql.catalyst.plans.logical.Project")
    tagged = marked._jdf.logicalPlan().output().takeRight(len(names))  # noqa: SLF001 - no public door to a plan's tags
    hidden._jdf.logicalPlan().setTagValue(project.hiddenOutputTag(), tagged)  # noqa: SLF001
    return hidden


def reveal(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Puts the hidden columns `names` behind the visible ones.

    Raises:
        JobDefinitionError: One of them is neither visible nor hidden.
    """
    missing = [name for name in names if name not in df.columns]
    try:
        return df.select("*", *[_plain(name) for name in missing])
    except AnalysisException as error:
        raise JobDefinitionError(
            f"the rows have lost {missing[0]!r} and all that tells what records they are of: a grouping, a union of "
            "Spark's, a join by columns' names, mapInPandas, mapInArrow and the like make rows of their own; use "
            "select, withColumn, filter, hw.enrich and hw.union on the inputs themselves"
        ) from error


def _can_select(df: DataFrame, name: str) -> bool:
    try:
        df.select(F.col(name))
    except AnalysisException:
        return False
    return True


@or_plainly(_can_select)
def has_hidden(df: DataFrame, name: str) -> bool:
    """Whether `name` can be revealed. It asks the plan: an exception of Spark's takes 0.1 s to reach Python."""
    if name in df.columns:
        return True
    attributes = to_list(df._jdf.queryExecution().analyzed().metadataOutput())  # noqa: SLF001
    return [str(attribute.name()) for attribute in attributes].count(name) == 1


def _plain(name: str) -> Column:
    # The copy is an ordinary column again: a metadata column would vanish at the next `select("*")`.
    return F.col(name).alias(name, metadata={"__metadata_col": False})
