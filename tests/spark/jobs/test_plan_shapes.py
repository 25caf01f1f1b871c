"""The shapes of the plans of each kind of job, kept beside the tests of the rules that are decided by them.

`HEADWATER_WRITE_SHAPES=1` writes them anew: what a newer Spark makes of the same functions is seen in the difference.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from headwater_streams.operators.recording import recording
from headwater_streams.plan.analysis import analyse, own_schemas
from headwater_streams.plan.chain import empty
from headwater_streams.plan.job import Job
from headwater_streams.spark.frames import empty_frame
from headwater_streams.spark.plan_shape import PlanShape, plan_shape
from job_kinds import KINDS
from plan_shapes import SHAPES

_NAMES = T.StructType([T.StructField("who", T.StringType()), T.StructField("name", T.StringType())])


def _shapes(spark: SparkSession) -> Iterator[tuple[str, PlanShape]]:
    for kind in KINDS:
        tables = {"dim.names": _NAMES}
        for job in kind.jobs(1):
            yield f"{kind.name}: {job.name}", plan_shape(_result(job, spark, tables))
            tables |= analyse(job, spark, tables).schemas


def _result(job: Job, spark: SparkSession, tables: dict[str, T.StructType]) -> DataFrame:
    frames = {name: empty(spark, schema, mark=name) for name, schema in own_schemas(job, tables).items()}
    looked_up = {name: empty_frame(spark, tables[declared.name]) for name, declared in job.lookups.items()}
    with recording(lambda result: empty(spark, result.schema)):
        return job.results(**frames, **looked_up)[job.target.name]


def test_shapes_of_plans_are_those_that_the_rules_are_tested_with(spark: SparkSession) -> None:
    found: dict[str, Any] = {name: shape.to_json() for name, shape in _shapes(spark)}
    if "HEADWATER_WRITE_SHAPES" in os.environ:
        Path(SHAPES).write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(Path(SHAPES).read_text())
    assert all(PlanShape.from_json(value).to_json() == value for value in found.values())
