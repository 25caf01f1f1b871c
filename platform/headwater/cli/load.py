"""`headwater load`: a range of a topic into a table or Parquet files, as a batch of Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from headwater.cli._kafka import parse_timestamp_ms
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_broker.numbers import is_natural
from headwater_streams.base.names import is_table_name
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from headwater_streams.runtime.loading import LoadProgress
    from headwater_streams.sources.reader import RecordSource

_PARQUET = "parquet:"
_ROWS = "load.rows"
"""The table of a load into files, in a home of its own."""
_MEGABYTE = 1024 * 1024


def load(
    topic: Annotated[str, typer.Argument(help="What to read.")],
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
      headwater load flights --job delays.py:flights --into history.flights
      headwater load flights --job delays.py:flights --from 2013-01-01 --to 2013-02-01 --into parquet:january
    """
    from headwater.running.environment import one_job, open_environment
    from headwater.running.leases import HomeLease
    from headwater_streams.base.errors import OwnershipError, StreamsError
    from headwater_streams.runtime.loading import (
        LoadRefusedError,
        Sizes,
        TableLoad,
        chunks_of,
        load_job,
        remaining,
        requested,
    )
    from headwater_streams.runtime.planning import plan_jobs
    from headwater_streams.runtime.query import explain
    from headwater_streams.sources.record_sizes import mean_bytes

    folder = Path(into.removeprefix(_PARQUET)) if into.startswith(_PARQUET) else None
    if folder is None and not is_table_name(into):
        raise UsageError(f"--into {into}: give a table, schema.name, or parquet:FOLDER")
    if folder is not None and folder.exists() and not (folder / "_load").is_dir() and any(folder.iterdir()):
        raise UsageError(f"--into {into}: the folder has files of others; name another one, or empty it")
    found, _ = one_job(job, home)
    into_home = home if folder is None else folder / "_load"
    try:
        loading = load_job(found, topic, into if folder is None else _ROWS)
        lease = HomeLease(into_home, loading.name)
        lease.claim(())  # two loads into one table would each read the same rest
    except LoadRefusedError as error:
        raise UsageError(str(error)) from error
    except OwnershipError as error:
        raise UserError(str(error)) from error
    with waiting("starting Spark"):
        environment = open_environment(
            into_home if folder is not None else home,
            bootstrap or _stack_of(home, folder),
            app_name="headwater load",
            master=master,
            jobs=[loading],
        )
    context = environment.context
    try:
        (plan,) = plan_jobs(context, [loading])
        table_load = TableLoad(context, plan)
        existing = context.source.partitions(topic)
        ranges = requested(
            topic,
            existing,
            _places(context.source, topic, existing, start, "--from"),
            _places(context.source, topic, existing, end, "--to"),
        )
        cut_off = table_load.cut_off()
        left = remaining(ranges, [*table_load.done(), cut_off])
        spans = {**cut_off, **{partition: (pairs[0][0], pairs[-1][1]) for partition, pairs in left.items()}}
        sizes = Sizes(bytes_each=mean_bytes(_cluster(home, bootstrap, topic), topic, spans))
        bounds = {"chunk_bytes": chunk_mb * _MEGABYTE, "task_bytes": task_mb * _MEGABYTE}
        chunks = chunks_of(left, sizes, cut_off=cut_off, **bounds)
        table_load.run(chunks, _report)
        if folder is not None:
            _publish(into_home, folder)
        _print_account(topic, into, ranges, table_load.accounting(), json_output=json_output)
    except LoadRefusedError as error:
        raise UsageError(str(error)) from error
    except StreamsError as error:
        raise UserError(str(error), EXIT_FAILED) from error
    except UserError:
        raise
    except Exception as error:
        raise UserError(explain(error), EXIT_FAILED) from error
    finally:
        lease.release()
        context.spark.stop()


def _stack_of(home: Path, folder: Path | None) -> str | None:
    """The brokers of the home's stack, for a load whose tables are elsewhere."""
    from headwater.stack.local import known_bootstrap

    return None if folder is None else known_bootstrap(home) or None


def _cluster(home: Path, bootstrap: str | None, topic: str) -> Any:
    from headwater.running.clusters import Clusters
    from headwater_streams.base.topics import cluster_of

    return Clusters(home, bootstrap).with_brokers(cluster_of(topic))


def _places(
    source: "RecordSource", topic: str, existing: Mapping[int, tuple[int, int]], place: str, option: str
) -> dict[int, int]:
    """The offset of each partition that a place means.

    Raises:
        UsageError: It is no place.
    """
    if place == "earliest":
        return {partition: low for partition, (low, _) in existing.items()}
    if place == "latest":
        return {partition: high for partition, (_, high) in existing.items()}
    if is_natural(place):
        # A partition that is shorter has no such offset; a range that begins behind its end is empty.
        return {partition: min(int(place), high) for partition, (_, high) in existing.items()}
    try:
        time_us = parse_timestamp_ms(place) * 1000
    except ValueError as error:
        raise UsageError(
            f"{option} {place} is no place in a topic: give earliest, latest, an offset, or a time such as "
            "2013-01-01T10:00:00Z"
        ) from error
    since = source.first_since(topic, time_us)
    return {partition: since.get(partition, high) for partition, (_, high) in existing.items()}


def _report(progress: "LoadProgress") -> None:
    progress_console().print(
        f"chunk {progress.chunk} of {progress.chunks}: {progress.read:,} offsets, "
        f"{progress.size_bytes / _MEGABYTE:,.0f} MB so far",
        markup=False,
        highlight=False,
    )


def _publish(home: Path, folder: Path) -> None:
    """Puts the data files of the load's table into the folder, where readers of Parquet look for them."""
    from headwater_streams.storage.delta_files import opened_table
    from headwater_streams.storage.files import link
    from headwater_streams.storage.home import Home

    table = Home(home.resolve()).table(_ROWS)
    for uri in opened_table(table).file_uris():
        path = Path(uri.removeprefix("file://"))
        link(path, folder / path.relative_to(table))


def _print_account(
    topic: str,
    into: str,
    ranges: Mapping[int, tuple[int, int]],
    terms: Mapping[str, int],
    *,
    json_output: bool,
) -> None:
    if json_output:
        print_json({"topic": topic, "into": into, "ranges": ranges, "accounting": dict(terms)})
        return
    offsets = sum(end - start for start, end in ranges.values())
    parts = [f"{n:,} {term}" for term, n in terms.items() if n and term != "read"]
    print_line(
        f"{into}: {quantity(offsets, 'offset')} of {topic}; in all {terms.get('read', 0):,} read = "
        f"{' + '.join(parts) or '0'}"
    )
