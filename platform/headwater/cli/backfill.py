"""`headwater backfill`: repair, rebuild or rewind a table; prove the rows, then swap them in."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headwater.cli._backfill_job import errors, home_of, planned_job, planned_session, session_of
from headwater.cli._backfill_run import run_planned
from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    report_damaged,
    waiting,
)
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.base.plural import quantity
from headwater_streams.storage.damage import DamagedFileError

app = typer.Typer(
    rich_markup_mode="rich",
    no_args_is_help=True,
    help=(
        "Repair, rebuild or rewind a table: plan it, run it aside, prove it, swap it in. Ranges are half-open: the end "
        "is exclusive.\n\n\b\nExample:\n  headwater backfill plan jobs/flights.py:delay_by_carrier --all"
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
_RANGES = (
    "--offsets, --start and --end, --event-time, --since-version, --quarantined, --late, --all, --rebuild or "
    "--rewind"
)


@app.command("plan")
def plan_backfill(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="PATH_OR_MODULE[:job]",
            help="The job, with the code that is to run; one of ./jobs, or that was run, also by its name.",
        ),
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
            "--event-time",
            metavar="START END",
            help="The event time, of a join its left rows'; aligned outwards to whole windows.",
        ),
    ] = None,
    since_version: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="What the job committed after version N of its table."),
    ] = None,
    quarantined: Annotated[
        bool,
        typer.Option(
            "--quarantined",
            help="The records in quarantine, and what lies between the first and the last of each partition.",
        ),
    ] = False,
    late: Annotated[
        bool,
        typer.Option(
            "--late", help="The windows, or a join's left rows, that late rows belong to, to fold these in."
        ),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Everything that the job has read.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="The whole table anew, with its checkpoint: for any kind of job, and any change of it; --table first, "
            "where that is of what its topic is read into.",
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
            help="With --rewind, of a job with several tables the one that VERSION is of; with --rebuild, one before "
            "the job's own, that its topic or another operator fills, which is made anew.",
        ),
    ] = None,
    behind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="With --rebuild: read what this rebuild has made, which is not swapped in yet; repeats.",
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

    A repair replaces the rows of a range of times or offsets, and the live job's checkpoint stays. A rebuild makes the
    whole table again from the beginning of the job's inputs, beside the live one; at the swap it takes its place, with
    a checkpoint of its own. A rewind puts the job's tables and checkpoint back to an earlier version; the job runs
    forward from there.

    \b
    Examples:
      headwater backfill plan jobs/flights.py:delay_by_carrier --event-time 2013-01-05 2013-01-06
      headwater backfill plan jobs/flights.py:clean_departures --offsets departures:0=100-200
      headwater backfill plan jobs/flights.py:clean_departures --start 2013-01-05T10:00:00Z --end 2013-01-06
      headwater backfill plan jobs/flights.py:clean_departures --quarantined
      headwater backfill plan jobs/flights.py:delay_by_carrier --late
      headwater backfill plan jobs/flights.py:join_flights --rebuild
      headwater backfill plan jobs/flights.py:join_flights --rebuild --behind clean_departures-1f0c92ab
      headwater backfill plan jobs/flights.py:join_flights --rewind 12
      headwater backfill plan jobs/requests.py:split_requests --rewind 12 --table silver.bots
    """
    from headwater.cli._backfill import parse_offsets, print_plan, print_whole
    from headwater.running.clusters import reads_default
    from headwater.running.environment import one_job
    from headwater_streams.backfill.repair.selection import Selection
    from headwater_streams.backfill.store import BackfillError

    if (start is None) != (end is None):
        raise UsageError("give --start and --end together; the end is exclusive")
    chosen = [
        *(bool(offsets), start is not None, event_time is not None, since_version is not None),
        *(quarantined, late, everything, rebuild, rewind is not None),
    ]
    if sum(chosen) != 1:
        raise UsageError(f"{'say which range: give' if not sum(chosen) else 'give only'} one of {_RANGES}")
    if behind and not rebuild:
        raise UsageError("--behind names a rebuild whose tables another one reads; give it with --rebuild")
    if table is not None and rewind is None and not rebuild:
        raise UsageError(
            "--table says which table --rewind's VERSION is of, or what --rebuild makes; give one"
        )
    ranges = parse_offsets(offsets) if offsets else None
    timestamps = None if start is None or end is None else (start, end)
    try:
        Selection.of(ranges, timestamps, event_time, since_version)  # before Spark starts
    except BackfillError as error:
        raise UsageError(str(error)) from error
    job, where = one_job(reference, home)
    with (
        errors(),
        session_of(home, bootstrap, needs_broker=reads_default(job), is_brief=True) as context,
    ):
        from headwater_streams import backfill

        if rebuild or rewind is not None:
            whole = (
                backfill.plan_rebuild(context, job, reference=where, table=table, behind=behind or ())
                if rewind is None
                else backfill.plan_rewind(context, job, version=rewind, table=table, reference=where)
            )
            takes_s = backfill.estimated_s(context.home, whole)
            if json_output:
                print_json({**whole.to_json(), "estimated_s": takes_s})
            else:
                print_whole(whole, takes_s)
            return
        try:
            planned = backfill.plan(
                context,
                job,
                offsets=ranges,
                timestamps=timestamps,
                event_time=event_time,
                since_version=since_version,
                rows="quarantined" if quarantined else "late" if late else None,
                reference=where,
                lookups=lookups,
            )
        except backfill.NothingToRepairError as nothing:
            if json_output:
                print_json({"id": None, "notes": [str(nothing)]})
            else:
                print_line(str(nothing))
            return
        takes_s = backfill.estimated_s(context.home, planned)
    if json_output:
        print_json({**planned.to_json(), "estimated_s": takes_s})
    else:
        print_plan(planned, takes_s)


@app.command()
def preview(
    backfill_id: IdArgument,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="The most rows to show of each kind, the first by their keys."),
    ] = 5,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show which rows the backfill would add, remove and change, a rebuild's once it has run. Nothing is written.

    \b
    Examples:
      headwater backfill preview delay_by_carrier-1f0c92ab
      headwater backfill preview delay_by_carrier-1f0c92ab --limit 100
    """
    from headwater.cli._backfill import print_changes, print_notes

    with planned_job(home, bootstrap, backfill_id, only_repairs=True) as (context, job):
        from headwater_streams import backfill

        with waiting(f"comparing {backfill_id}"):
            changes = backfill.preview_tables(context, backfill_id, job, limit=limit)
    diffs = {name: change.diff for name, change in changes.items()}
    notes = [note for change in changes.values() for note in change.notes]
    first, *others = diffs
    if json_output:
        beside = {name: diffs[name].to_json() for name in others}
        print_json({**diffs[first].to_json(), "beside": beside, "notes": notes})
        return
    print_changes(diffs, "" if others else diffs[first].digest, "more: --limit N")
    print_notes(notes)


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
    run_planned(home, bootstrap, backfill_id, json_output, nice)


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

    with errors():
        backfill.resume(home_of(home), backfill_id)
    run_planned(home, bootstrap, backfill_id, json_output, nice)


@app.command()
def pause(backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Make a run stop after the step that it is at; it stays so until `resume`.

    \b
    Example:
      headwater backfill pause delay_by_carrier-1f0c92ab
    """
    from headwater_streams import backfill

    with errors():
        _show(backfill.pause(home_of(home), backfill_id), json_output)


@app.command()
def status(backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Show where a backfill is.

    \b
    Example:
      headwater backfill status delay_by_carrier-1f0c92ab --json
    """
    from headwater_streams import backfill

    with errors():
        _show(backfill.status(home_of(home), backfill_id), json_output)


@app.command("list")
def list_all(json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Show the backfills of this home, the oldest first.

    \b
    Example:
      headwater backfill list
    """
    from headwater.cli._backfill import print_status
    from headwater_streams import backfill

    damaged: list[DamagedFileError] = []
    with errors():
        statuses = backfill.list_backfills(home_of(home), damaged.append)
    if json_output:
        print_json(statuses)
    else:
        print_status(statuses)
    report_damaged(damaged)


@app.command("versions")
def list_versions(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="PATH_OR_MODULE[:job]", help="The job; one of ./jobs, or that was run, also by its name."
        ),
    ],
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
    from headwater.running.environment import one_job
    from headwater_streams import backfill

    job, _ = one_job(reference, home)
    with errors():
        versions = backfill.versions(home_of(home), job, table=table)[: -limit - 1 : -1]
    if json_output:
        print_json([version.to_json() for version in versions])
    else:
        print_versions(versions)


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

    with planned_job(home, bootstrap, backfill_id, needs_broker=False, nice=_NICE) as (context, job):
        from headwater_streams import backfill

        with waiting(f"verifying {backfill_id}"):
            verdict = backfill.verify(context, backfill_id, job, recompute=recompute)
        state = backfill.status(context.home, backfill_id)["state"]
    if html is not None:
        _write_page(home, backfill_id, html)
    if json_output:
        print_json(verdict.to_json())
    else:
        # Whole tables that were swapped in are not what they were compared with any more; a repair's range is.
        can_preview = state in ("verified", "failed") or verdict.table_version is None
        more = f"more: headwater backfill preview {backfill_id} --limit N" if can_preview else ""
        print_verdict(verdict, job.target.name, more, state=state)
        if html is not None:
            print_line(f"as a page: {html}")
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
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Replace the range in the table by the verified shadow, in one commit. Readers see the old or the new.

    \b
    Examples:
      headwater backfill swap delay_by_carrier-1f0c92ab
      headwater backfill swap delay_by_carrier-1f0c92ab --accept-diff 1f3d5b79a0c2e4f6
    """
    from headwater.cli._backfill import print_behind, print_notes, still_open
    from headwater_streams.backfill.store import BackfillFolder

    with planned_session(home, bootstrap, backfill_id) as context:
        from headwater_streams import backfill

        with waiting(f"swapping {backfill_id} in"):
            done = backfill.swap(context, backfill_id, accept_diff=accept_diff)
    if json_output:
        print_json(done)
        return
    message = f"swapped in as version {done['version']} of {done['target']}"
    generation = done.get("generation")
    if generation is None:
        beside = done.get("beside", {})
        message += "".join(f", {each['version']} of {name}" for name, each in beside.items())
        unchanged = sum(each["proof"]["rows_outside"] for each in (done, *beside.values()))
        print_line(f"{message}; {quantity(unchanged, 'other row')} unchanged")
    else:
        pause_text = "" if done["held_s"] is None else f", the job held for {done['held_s']:.1f} s"
        print_line(
            f"{message}, generation {generation}{pause_text}; a job that runs the same code goes on with it"
        )
    if "open" in done:
        print_notes([still_open(BackfillFolder(home_of(home), backfill_id).plan().job, *done["open"])])
    print_behind(done.get("feeds", ()), done.get("ranges"))


@app.command()
def rollback(
    backfill_id: IdArgument,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Put the rows before the swap back, in one commit. The plan is done with then: to swap again, plan again.

    \b
    Example:
      headwater backfill rollback delay_by_carrier-1f0c92ab
    """
    from headwater_streams.backfill.store import BackfillFolder

    with planned_session(home, bootstrap, backfill_id) as context:
        from headwater_streams import backfill

        with waiting(f"rolling {backfill_id} back"):
            done = backfill.rollback(context, backfill_id)
    if json_output:
        print_json(done)
    else:
        others = ", ".join(BackfillFolder(home_of(home), backfill_id).plan().further)
        print_line(
            f"rolled back as version {done['version']} of {done['target']}{others and f', and {others}'}"
        )


@app.command()
def abort(backfill_id: IdArgument, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """Give a backfill up that was not swapped in, and remove its shadow.

    \b
    Example:
      headwater backfill abort delay_by_carrier-1f0c92ab
    """
    from headwater_streams import backfill

    with errors():
        _show(backfill.abort(home_of(home), backfill_id), json_output)


def _write_page(home: Path, backfill_id: str, path: Path) -> None:
    from headwater.cli._verdict_page import page
    from headwater_streams.backfill.store import BackfillFolder
    from headwater_streams.backfill.verdict import Verdict

    folder = BackfillFolder(home_of(home), backfill_id)
    verdict = folder.read(Verdict)
    assert verdict is not None, "it was just written"
    try:
        path.write_text(page(folder.plan().to_json(), verdict.to_json()), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--html {path}: {error.strerror}; name a file that can be written") from error


def _show(backfill_status: dict[str, Any], json_output: bool) -> None:
    from headwater.cli._backfill import print_status

    if json_output:
        print_json(backfill_status)
    else:
        print_status([backfill_status])
