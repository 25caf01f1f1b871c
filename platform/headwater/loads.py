"""Loads from Python, in a notebook or a program: `hw.load`, as `headwater load` has it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.home import home_folder
from headwater.running.environment import one_job, program_context
from headwater.running.loads import LoadBounds, LoadReport, load_range
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.loading import LoadProgress
from headwater_streams.runtime.loading.planning import CHUNK_BYTES, TASK_BYTES

__all__ = ["LoadReport", "load"]


def load(
    topic: str,
    *,
    job: Job | Callable[..., Any] | str,
    into: str,
    start: str | int = "earliest",
    end: str | int = "latest",
    chunk_bytes: int = CHUNK_BYTES,
    task_bytes: int = TASK_BYTES,
    report: Callable[[LoadProgress], None] = lambda _: None,
    home: Path | str | None = None,
    bootstrap: str | None = None,
) -> LoadReport:
    """Loads a range of a topic, as it is when this is called, into a table or a folder of Parquet files.

    It uses the program's Spark session; without one it starts a session and leaves it open. A load that was cut off
    goes on when it is called again.

    Args:
        topic: The topic.
        job: The job whose function, checks and decoding are used: the decorated function, or `"FILE:JOB"`. It need not
            run.
        into: A table of the home, or `"parquet:FOLDER"`.
        start: `"earliest"`, an offset, or a time in ISO 8601: the first record at or after it.
        end: `"latest"`, an offset or a time, exclusive.
        chunk_bytes: About how many bytes one commit holds.
        task_bytes: About how many bytes one task reads.
        report: Is called after each commit.
        home: The home of the tables; by default `$HEADWATER_HOME`, else `.headwater`.
        bootstrap: The brokers, or a cluster of the settings; by default those of the home's running stack.

    Example:
        hw.load("flights", job=flights, into="history.flights", end="2013-02-01").accounting

    Raises:
        UsageError: `into`, `start` or `end` is none, or no brokers are known.
        LoadRefusedError: The job keeps state, another job writes the table, its rows are of other code, or records of
            the range are gone.
        IncompatibleTableError: The table is there, and cannot hold the rows.
        OwnershipError: Another load into the table runs.
        StreamsError: The load failed; it can be called again.
    """
    folder = home_folder(home)
    if isinstance(job, str):
        job, _ = one_job(job, folder)
    return load_range(
        topic,
        job if isinstance(job, Job) else bind(job),
        into,
        home=folder,
        bootstrap=bootstrap,
        bounds=LoadBounds(start=str(start), end=str(end), chunk_bytes=chunk_bytes, task_bytes=task_bytes),
        context_of=_context,
        report=report,
    )


def _context(home: Path, bootstrap: str | None, loading: Job) -> StageContext:
    return program_context(home, bootstrap, app_name="headwater load", needs_broker=True, jobs=[loading])
