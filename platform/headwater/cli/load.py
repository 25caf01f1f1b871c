"""`headwater load`: a range of a topic into a table or Parquet files, as a batch of Spark."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    progress_console,
    waiting,
)
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.running.loads import LoadReport
    from headwater_streams.plan.job import Job
    from headwater_streams.runtime.context import StageContext
    from headwater_streams.runtime.loading import LoadProgress

_MEGABYTE = 1024 * 1024


def load(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    into: Annotated[
        str,
        typer.Option(
            "--into", metavar="TABLE|parquet:FOLDER", help="A table of the home, or a folder of files."
        ),
    ],
    job: Annotated[
        str,
        typer.Option(
            "--job", metavar="FILE:JOB", help="The job whose function, checks and decoding are used."
        ),
    ],
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="earliest, an offset or a time.")
    ] = "earliest",
    end: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Stop before it: latest, an offset or a time.")
    ] = "latest",
    chunk_mb: Annotated[
        int, typer.Option("--chunk-mb", metavar="N", min=1, help="About how many megabytes one commit holds.")
    ] = 512,
    task_mb: Annotated[
        int, typer.Option("--task-mb", metavar="N", min=1, help="About how many megabytes one task reads.")
    ] = 64,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where Spark runs; by default spark.master.", show_default=False),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
) -> None:
    """Load a range of a topic into a table, as a batch of Spark.

    The range is closed when the command begins: --to latest is the end as it
    is then. It is read in chunks of about as many bytes, each split among
    Spark's tasks, and each is one commit with its account, as a job's batch:
    decoded, checked and counted alike, rejected records in the quarantine
    table. A load that was killed is run again, and goes on behind its last
    commit; nothing of it is kept at the broker. A time is as
    2013-01-01T10:00:00Z and means the first record at or after it. headwater
    audit proves the table, as it does a job's.

    \b
    Examples:
      headwater load clicks --job jobs/clicks.py:keep_clicks --into history.clicks
      headwater load clicks --job jobs/clicks.py:keep_clicks --from 2024-01-01 --to 2024-02-01 --into parquet:january
    """
    from headwater.running.environment import one_job, open_environment
    from headwater.running.loads import LoadBounds, load_range
    from headwater_streams.base.errors import StreamsError
    from headwater_streams.runtime.loading import LoadRefusedError
    from headwater_streams.runtime.query import explain

    sessions: list[SparkSession] = []

    def context_of(place: Path, brokers: str | None, loading: "Job") -> "StageContext":
        with waiting("starting Spark"):
            environment = open_environment(
                place, brokers, app_name="headwater load", master=master, jobs=[loading]
            )
        sessions.append(environment.context.spark)
        return environment.context

    bounds = LoadBounds(
        start=start, end=end, chunk_bytes=chunk_mb * _MEGABYTE, task_bytes=task_mb * _MEGABYTE
    )
    found, _ = one_job(job, home)
    try:
        done = load_range(
            topic,
            found,
            into,
            home=home,
            bootstrap=bootstrap,
            bounds=bounds,
            context_of=context_of,
            report=_report,
        )
    except LoadRefusedError as error:
        raise UsageError(str(error)) from error
    except StreamsError as error:
        raise UserError(str(error), EXIT_FAILED) from error
    except UserError:
        raise
    except Exception as error:
        raise UserError(explain(error), EXIT_FAILED) from error
    finally:
        for session in sessions:
            session.stop()
    _print_account(done, json_output=json_output)


def _report(progress: "LoadProgress") -> None:
    progress_console().print(
        f"chunk {progress.chunk} of {progress.chunks}: {progress.read:,} offsets, "
        f"{progress.size_bytes / _MEGABYTE:,.0f} MB so far",
        markup=False,
        highlight=False,
    )


def _print_account(done: "LoadReport", *, json_output: bool) -> None:
    if json_output:
        print_json(asdict(done))
        return
    offsets = sum(end - start for start, end in done.ranges.values())
    parts = [f"{n:,} {term}" for term, n in done.accounting.items() if term != "read"]
    print_line(
        f"{done.into}: {quantity(offsets, 'offset')} of {done.topic}; in all {done.accounting.get('read', 0):,} read = "
        f"{' + '.join(parts) or '0'}"
    )
