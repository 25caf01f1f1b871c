"""Generations: which checkpoint and which Delta application id a job's table belongs to now.

The number is a transaction mark of the target itself, `txn{appId: "<job>/generation", version: g}`, so that the table
and the checkpoint that feeds it change hands in one commit.
"""

from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.sinks.delta_table import last_batch


def generation_id(job: str) -> str:
    """The application id of the mark that holds a job's generation."""
    return f"{job}/generation"


def current_generation(context: StageContext, job: Job) -> int:
    """The generation of a job's table, 1 before the first swap of a checkpoint."""
    table = context.home.table(job.target.name)
    if not (table / "_delta_log").exists():
        return 1
    return max(1, last_batch(context.spark, table, generation_id(job.name)))
