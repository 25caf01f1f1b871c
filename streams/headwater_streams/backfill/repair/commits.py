"""By which batch a row of a repair was written: that of the live job which wrote it last, where it had the row."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.delta.delta_table import read_version
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import BATCH, GENERATION
from headwater_streams.spark.columns import col


def with_live_commits(
    context: StageContext, backfill: BackfillPlan, result: DataFrame, affected: Column
) -> DataFrame:
    """The result with `_batch` and `_generation`: of the live row of the same key, else of the plan's last batch.

    Args:
        context: The home.
        backfill: The plan.
        result: The rows that the repair made.
        affected: Which rows of the target they replace.
    """
    target = context.home.table(backfill.target)
    live = read_version(context.spark, target, backfill.base_version).filter(affected)
    names = {key: f"_live_{place}" for place, key in enumerate(backfill.keys)}
    newest = F.max(F.struct(GENERATION, BATCH))  # one that was slipped in twice stands there once again
    live = live.groupBy(*[col(key).alias(name) for key, name in names.items()]).agg(
        newest[BATCH].alias("_live_batch"), newest[GENERATION].alias("_live_generation")
    )
    match: Column = F.lit(True)
    for key, name in names.items():
        match &= col(key).eqNullSafe(F.col(name))
    joined = result.join(live, match, "left")
    joined = joined.withColumn(BATCH, F.coalesce("_live_batch", F.lit(backfill.batch)))
    joined = joined.withColumn(GENERATION, F.coalesce("_live_generation", F.lit(backfill.generation)))
    return joined.drop(*names.values(), "_live_batch", "_live_generation")
