"""`headwater backfill`: rewind offsets, rebuild a range aside, prove it, swap it in."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    progress_console,
    waiting,
)
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.plural import counted

if TYPE_CHECKING:
    from headwater_streams.runtime.context import StageContext
    from headwater_streams.runtime.home import Home
    from headwater_streams.runtime.job import Job

app = typer.Typer(
    rich_markup_mode="rich",
    no_args_is_help=True,
    help=(
        "Rewind offsets, rebuild a table's range aside, prove it, swap it in. Ranges are half-open: the end is "
        "exclusive.\n\n\b\nExample:\n  headwater backfill plan jobs/flights.py:delay_by_carrier --all"
    ),
)

_NICE = 10  # a live job then has nine tenths of a core that both want
NiceOption = Annotated[
    int,
    typer.Option(
        "--nice",
        metavar="N",
        min=0,
        max=19,
        help="How far it stands back from this machine's cores where live jobs want them: 0 not at all, 19 wholly.",
    ),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The backfill, as `plan` and `list` name it.")]
_RANGES = "--offsets, --start and --end, --event-time, --since-version, --all, --rebuild or --rewind"


@app.command("plan")
def plan_backfill(
    reference: Annotated[
        str, typer.Argument(metavar="PATH_OR_MODULE[:job]", help="The job, with the code that is to run.")
    ],
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets", metavar="TOPIC:PARTITION=START-END", help="Offsets, the end exclusive; repeats."
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="TIME", help="The records' timestamps from here on, with --end.")
    ] = None,
    end: Annotated[
        str | None, typer.Option(metavar="TIME", help="The records' timestamps before this.")
    ] = None,
    event_time: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--event-time", metavar="START END", help="The event time; aligned outwards to whole windows."
        ),
    ] = None,
    since_version: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="What the job committed after version N of its table."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that the job has read.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="The whole table anew, with its checkpoint: for any kind of job, and any change of it.",
        ),
    ] = False,
    rewind: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            min=0,
            help="All tables of the job, its checkpoint and offsets back to this version of its table.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Of a job with several tables, the one that --rewind's VERSION is of; the first by default.",
        ),
    ] = None,
    lookups: Annotated[
        Literal["as_read", "newest"],
        typer.Option(help="Read look-ups at the versions that the live batches read, or as they are now."),
    ] = "as_read",
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Plan a repair of a range, a rebuild or a rewind: what is read again, what is replaced. Nothing is changed.

    A repair mends closed windows, or rows by their offsets, and the live job's checkpoint stays. A rebuild makes a
    table anew from the beginning of the job's inputs, beside the live one, and takes its place with the checkpoint.
    A rewind puts the job's tables and checkpoint back to an earlier version; the job runs forward from there.

    \b
    Examples:
      headwater backfill plan jobs/flights.py:delay_by_carrier --event-time 2013-01-05 2013-01-06
      headwater backfill plan jobs/flights.py:clean_departures --offsets departures:0=100-200
      headwater backfill plan jobs/flights.py:clean_departures --start 2013-01-05T10:00:00Z --end 2013-01-06
      headwater backfill plan jobs/flights.py:join_flights --rebuild
      headwater backfill plan jobs/flights.py:join_flights --rewind 12
      headwater backfill plan jobs/requests.py:split_requests --rewind 12 --table silver.bots
    """
    from headwater.cli._backfill import parse_offsets, print_plan, print_whole

    if (start is None) != (end is None):
        raise UsageError("give --start and --end together; the end is exclusive")
    given = [
        *(bool(offsets), start is not None, event_time is not None, since_version is not None),
        *(everything, rebuild, rewind is not None),
    ]
    if sum(given) != 1:
        raise UsageError(f"say which range: give one of {_RANGES}")
    if table is not None and rewind is None:
        raise UsageError("--table says which table the VERSION of --rewind is of; give both")
    job, where = _one_job(reference)
    with _errors(), _context(home, bootstrap, needs_broker=bool(job.topics)) as context:
        from headwater_streams import backfill

        if rebuild or rewind is not None:
            whole = (
                backfill.plan_rebuild(context, job, reference=where)
                if rewind is None
                else backfill.plan_rewind(context, job, version=rewind, table=table, reference=where)
            )
            if json_output:
                print_json(whole.to_json())
            else:
                print_whole(whole)
            return
        planned = backfill.plan(
            context,
            job,
            offsets=parse_offsets(offsets) if offsets else None,
            timestamps=None if start is None or end is None else (start, end),
            event_time=event_time,
            since_version=since_version,
            reference=where,
            lookups=lookups,
        )
    if json_output:
        print_json(planned.to_json())
    else:
        print_plan(planned)


@app.command()
def preview(
    backfill_id: IdArgument,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show which rows the backfill would add, remove and change. Nothing is written.

    \b
    Example:
      headwater backfill preview delay_by_carrier-1f0c92ab
    """
    from headwater.cli._backfill import print_diff

    with _planned(home, bootstrap, backfill_id) as (context, job):
        from headwater_streams import backfill

        diff = backfill.preview(context, backfill_id, job)
    if json_output:
        print_json(diff.to_json())
    else:
        print_diff(diff)


@app.command()
def run(
    backfill_id: IdArgument,
    bootstrap: BootstrapOption = None,
    nice: NiceOption = _NICE,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Rebuild the range in a shadow table; killed at any point, the same command goes on.

    It takes what the live jobs of the machine leave of its cores; see --nice.

    \b
    Examples:
      headwater backfill run delay_by_carrier-1f0c92ab
      headwater backfill run delay_by_carrier-1f0c92ab --nice 0
    """
    _run(home, bootstrap, backfill_id, json_output, nice)


@app.command()
def resume(
    backfill_id: IdArgument,
    bootstrap: BootstrapOption = None,
    nice: NiceOption = _NICE,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Take a pause back and run what is left.

    \b
    Example:
      headwater backfill resume delay_by_carrier-1f0c92ab
    """
    from headwater_streams import backfill

    with _errors():
        backfill.resume(_home(home), backfill_id)
    _run(home, bootstrap, backfill_id, json_output, nice)


@app.command()
def pause(backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Make a run stop after the step that it is at; it stays so until `resume`.

    \b
    Example:
      headwater backfill pause delay_by_carrier-1f0c92ab
    """
    from headwater_streams import backfill

    with _errors():
        _show(backfill.pause(_home(home), backfill_id), json_output)


@app.command()
def status(backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Show where a backfill is.

    \b
    Example:
      headwater backfill status delay_by_carrier-1f0c92ab --json
    """
    from headwater_streams import backfill

    with _errors():
        _show(backfill.status(_home(home), backfill_id), json_output)


@app.command("list")
def list_all(json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Show the backfills of this home, the oldest first.

    \b
    Example:
      headwater backfill list
    """
    from headwater.cli._backfill import print_status
    from headwater_streams import backfill

    with _errors():
        found = backfill.list_backfills(_home(home))
    if json_output:
        print_json(found)
    else:
        print_status(found)


@app.command("versions")
def list_versions(
    reference: Annotated[str, typer.Argument(metavar="PATH_OR_MODULE[:job]", help="The job.")],
    table: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Of a job with several tables, which; the first by default."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most versions to show, the newest first.")] = 20,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show the batches that a job's table comes from, each with its version, for `plan JOB --rewind VERSION`.

    \b
    Examples:
      headwater backfill versions jobs/flights.py:join_flights
      headwater backfill versions jobs/requests.py:split_requests --table silver.bots --limit 100
    """
    from headwater.cli._backfill import print_versions
    from headwater_streams import backfill

    job, _ = _one_job(reference)
    with _errors():
        found = backfill.versions(_home(home), job, table=table)[: -limit - 1 : -1]
    if json_output:
        print_json([version.to_json() for version in found])
    else:
        print_versions(found)


@app.command()
def verify(
    backfill_id: IdArgument,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a page with findings, diff and timeline."),
    ] = None,
    recompute: Annotated[
        Literal["all", "sample", "none"],
        typer.Option(help="How much to recompute from the raw topic, in one batch, and to compare."),
    ] = "sample",
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Prove a finished run: accounting, offsets, checks, a keyed diff; rows and aggregates recomputed from the topic.

    Exit status 0: passed, 1: not. A sample is recomputed, of 50,000 offsets or a twentieth of them, whichever is
    more; without a broker the verdict notes that nothing was.

    \b
    Examples:
      headwater backfill verify delay_by_carrier-1f0c92ab
      headwater backfill verify delay_by_carrier-1f0c92ab --recompute all
      headwater backfill verify delay_by_carrier-1f0c92ab --html verdict.html
    """
    from headwater.cli._backfill import print_verdict

    _stand_back(_NICE)
    with _planned(home, bootstrap, backfill_id, needs_broker=False) as (context, job):
        from headwater_streams import backfill

        verdict = backfill.verify(context, backfill_id, job, recompute=recompute)
    if html is not None:
        _write_page(home, backfill_id, html)
    if json_output:
        print_json(verdict.to_json())
    else:
        print_verdict(verdict, job.target.name)
        if html is not None:
            typer.echo(f"as a page: {html}")
    if not verdict.passed:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def swap(
    backfill_id: IdArgument,
    accept_diff: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST", help="The digest of the diff that you read; refused if it is another one now."
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Replace the range in the table by the verified shadow, in one commit. Readers see the old or the new.

    \b
    Examples:
      headwater backfill swap delay_by_carrier-1f0c92ab
      headwater backfill swap delay_by_carrier-1f0c92ab --accept-diff 1f3d5b79a0c2e4f6
    """
    with _errors(), _context(home, None, needs_broker=False) as context:
        from headwater_streams import backfill

        done = backfill.swap(context, backfill_id, accept_diff=accept_diff)
    if json_output:
        print_json(done)
        return
    said = f"swapped in as version {done['version']} of {done['target']}"
    generation = done.get("generation")
    if generation is None:
        print(f"{said}; {counted(done['proof']['rows_outside'], 'other row')} unchanged")
    else:
        held = "" if done["held_s"] is None else f", the job held for {done['held_s']:.1f} s"
        print(f"{said}, generation {generation}{held}; a job that runs the same code goes on with it")


@app.command()
def rollback(
    backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME
) -> None:
    """Put the rows before the swap back, in one commit.

    \b
    Example:
      headwater backfill rollback delay_by_carrier-1f0c92ab
    """
    with _errors(), _context(home, None, needs_broker=False) as context:
        from headwater_streams import backfill

        done = backfill.rollback(context, backfill_id)
    if json_output:
        print_json(done)
    else:
        print(f"rolled back as version {done['version']} of {done['target']}")


@app.command()
def abort(backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Give a backfill up that was not swapped in, and remove its shadow.

    \b
    Example:
      headwater backfill abort delay_by_carrier-1f0c92ab
    """
    from headwater_streams import backfill

    with _errors():
        _show(backfill.abort(_home(home), backfill_id), json_output)


def _write_page(home: Path, backfill_id: str, path: Path) -> None:
    from headwater.cli._verdict_page import page
    from headwater_streams.backfill.store import BackfillFolder

    folder = BackfillFolder(_home(home), backfill_id)
    try:
        path.write_text(page(folder.read("plan") or {}, folder.read("verdict") or {}), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--html {path}: {error.strerror}; name a file that can be written") from error


def _run(home: Path, bootstrap: str | None, backfill_id: str, json_output: bool, nice: int) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    _stand_back(nice)
    with _planned(home, bootstrap, backfill_id) as (context, job):
        from headwater_streams import backfill

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=progress_console(), transient=True) as bar:
            steps = bar.add_task(backfill_id, total=None)

            def show(progress: "backfill.Progress") -> None:
                rate = f"{counted(progress.rows_read, 'row')}, {progress.rows_per_second:,.0f}/s"
                bar.update(steps, completed=progress.chunks_done, total=progress.chunks, description=rate)

            done = backfill.run(context, backfill_id, job, on_progress=show)
    if json_output:
        print_json(done.to_json())
        return
    steps, rows = counted(done.chunks, "step"), counted(done.rows_read, "row")
    following = "resume" if done.state == "paused" else "verify"
    print(
        f"{done.state}: {done.chunks_done} of {steps}, {rows} read; next: headwater backfill {following} {backfill_id}"
    )


def _stand_back(nice: int) -> None:
    """Lowers the priority of this process, and of the JVM that it will start."""
    if hasattr(os, "nice"):
        os.nice(max(0, nice - os.nice(0)))


def _one_job(reference: str) -> tuple["Job", str]:
    from headwater.running.environment import find_jobs

    jobs = find_jobs([reference])
    if len(jobs) != 1:
        names = ", ".join(job.name for job in jobs)
        raise UsageError(f"{reference} has several jobs: write {reference}:NAME with one of {names}")
    # Another folder may be the current one when the backfill is run.
    module = reference.rpartition(":")[0] or reference
    where = str(Path(module).resolve()) if Path(module).is_file() else module
    return jobs[0], f"{where}:{jobs[0].name}"


def _home(home: Path) -> "Home":
    from headwater_streams.runtime.home import Home

    return Home(home.resolve())


def _show(found: dict[str, Any], json_output: bool) -> None:
    from headwater.cli._backfill import print_status

    if json_output:
        print_json(found)
    else:
        print_status([found])


@contextmanager
def _errors() -> Iterator[None]:
    from headwater_streams.backfill.store import UnknownBackfillError
    from headwater_streams.errors import JobDefinitionError, StreamsError

    try:
        yield
    except (JobDefinitionError, UnknownBackfillError) as error:
        raise UsageError(str(error)) from error
    except StreamsError as error:
        raise UserError(str(error), EXIT_FAILED) from error


@contextmanager
def _context(home: Path, bootstrap: str | None, *, needs_broker: bool) -> Iterator["StageContext"]:
    from headwater.running.environment import open_environment

    with waiting("starting Spark"):
        environment = open_environment(
            home, bootstrap, app_name="headwater backfill", needs_broker=needs_broker
        )
    try:
        yield environment.context
    finally:
        environment.context.spark.stop()


@contextmanager
def _planned(
    home: Path, bootstrap: str | None, backfill_id: str, *, needs_broker: bool = True
) -> Iterator[tuple["StageContext", "Job"]]:
    """The session and the job of a backfill; a row job's records are read from the brokers."""
    from headwater_streams.backfill.store import BackfillFolder

    with _errors():
        planned = BackfillFolder(_home(home), backfill_id).plan()
        if not planned.reference:
            raise UserError(
                f"{backfill_id} was planned from Python and does not say where its job is; run it there"
            )
        job, _ = _one_job(planned.reference)
        broker = needs_broker and planned.kind == "row"
        with _context(home, bootstrap, needs_broker=broker) as context:
            yield context, job
