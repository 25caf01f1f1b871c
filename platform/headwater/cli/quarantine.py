"""`headwater quarantine`: the records that a job rejected, why, and what is done about them."""

import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    RawOption,
    print_json,
    print_line,
    print_table,
    waiting,
)
from headwater.cli._side import show_side, sql_text
from headwater.errors import EXIT_FAILED, UsageError
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headwater_streams.base.ledger_entry import Ranges
    from headwater_streams.ledger.quarantined import Which
    from headwater_streams.plan.job import Job
    from headwater_streams.runtime.context import StageContext


class _TableFirst(TyperGroup):
    """Takes `headwater quarantine TABLE` for `headwater quarantine show TABLE`: a table's name has a dot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the command in front where a table stands in its place."""
        if args and args[0] not in self.commands and any("." in each for each in args):
            args = ["show", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True, cls=_TableFirst)

CheckOption = Annotated[
    list[str] | None, typer.Option("--check", metavar="NAME", help="Only what this check rejected; repeats.")
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records of this time or later, ISO 8601.")
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Only records before this time.")]
OffsetsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC:PARTITION=START-END", help="Only these offsets, the end exclusive; repeats."),
]


@app.callback()
def _quarantine() -> None:
    """Show the records that a job rejected, replay them once the job was mended, or discard them.

    \b
    Examples:
      headwater quarantine list
      headwater quarantine silver.departures --limit 5
      headwater quarantine replay jobs/flights.py:clean_departures --check has_carrier
    """


@app.command("list")
def list_all(json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME) -> None:
    """List the tables that have rejected records, how many are open, and which checks rejected them.

    \b
    Example:
      headwater quarantine list
    """
    from headwater_streams.ledger.quarantined import summaries
    from headwater_streams.storage.home import Home

    found = summaries(Home(home))
    if json_output:
        print_json(
            [
                {
                    "table": each.table,
                    "open": each.rows,
                    "discarded": each.discarded,
                    "checks": dict(each.checks),
                    "newest": None if each.newest is None else each.newest.isoformat(),
                }
                for each in found
            ]
        )
        return
    print_table(
        ["table", "open", "discarded", "rejected by", "newest (UTC)"],
        [
            (
                each.table,
                each.rows,
                each.discarded,
                ", ".join(f"{check} {count:,}" for check, count in each.checks.items()),
                None if each.newest is None else f"{each.newest:%Y-%m-%d %H:%M:%S}",
            )
            for each in found
        ],
        empty="no job has rejected a record",
    )


@app.command()
def show(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The table whose rejected records are shown.")
    ],
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="The most records to show, those of the newest batch first."),
    ] = 20,
    check: CheckOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offsets: OffsetsOption = None,
    open_only: Annotated[bool, typer.Option("--open", help="Leave out those that were discarded.")] = False,
    json_output: JsonOption = False,
    raw: RawOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show the records of TABLE__quarantine: every reason, the raw bytes, the coordinates.

    Once the job was mended, `quarantine replay JOB` reads them again.

    \b
    Examples:
      headwater quarantine show silver.departures --limit 5
      headwater quarantine show silver.departures --check has_carrier --since 2013-01-01T10:00:00Z
    """
    which = _which(check, since, until, offsets, discarded=not open_only)
    show_side(
        home,
        table,
        "__quarantine",
        limit,
        "_batch DESC, _topic, _partition, _offset",
        json_output=json_output,
        raw=raw,
        where=lambda owner: _conditions(home, owner, which),
    )


@app.command()
def replay(
    reference: Annotated[
        str, typer.Argument(metavar="JOB", help="PATH_OR_MODULE[:job], with the code that is to run.")
    ],
    check: CheckOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offsets: OffsetsOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be read again, or why it cannot be, and do nothing."),
    ] = False,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Read rejected records again through the job's present code, into the same table, each once.

    It is a repair: planned, run beside the live job, proved, and swapped in by one commit. A repair reads whole ranges
    of offsets, so rows between two rejected records are made anew, too, and a discarded record between them is judged
    again; how many these are is said. What is rejected again stays in quarantine.
    Records of a job with a window or a join were rejected before its ingest table, which is mended first:
    headwater backfill plan JOB --quarantined. --dry-run plans it, too, and is refused where the repair would be.
    Exit status 0: swapped in, or nothing to do; 1: the proof failed, and nothing was changed.

    \b
    Examples:
      headwater quarantine replay jobs/flights.py:clean_departures
      headwater quarantine replay jobs/flights.py:clean_departures --check has_carrier --dry-run
    """
    from headwater.cli._backfill_job import errors, session_of
    from headwater.running.clusters import reads_default
    from headwater.running.environment import one_job
    from headwater_streams.ledger.quarantined import hull

    job, where = one_job(reference, home)
    table = job.target.name
    _refuse_ingested(home, table, reference)
    rows = _rows(home, table, _which(check, since, until, offsets))
    if not rows:
        if json_output:
            print_json({"table": table, "records": 0, "version": None})
        else:
            print_line(f"no rejected record of {table} is open, of these{_there_are(home, table)}")
        return
    ranges = hull(rows)
    spans = [
        f"{topic}:{partition}={start}-{end}"
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
    ]
    between = _discarded_in(home, table, ranges)
    beside = f"; {quantity(between, 'discarded record')} between them read again, too" if between else ""
    counts = {"table": table, "records": len(rows), "discarded_between": between}
    with errors(), session_of(home, bootstrap, needs_broker=reads_default(job), is_brief=True) as context:
        from headwater_streams import backfill

        planned = backfill.plan(context, job, offsets=ranges, reference=where, dry_run=dry_run)
        done = {} if dry_run else _repaired(context, planned.id, job, len(rows))
    if dry_run:
        if json_output:
            print_json({**counts, "offsets": spans, "version": None})
        else:
            print_line(f"{quantity(len(rows), 'rejected record')} of {table} in {', '.join(spans)}{beside}")
        return
    left = {(row["_topic"], row["_partition"], row["_offset"]) for row in _rows(home, table, _which())}
    again = sum((row["_topic"], row["_partition"], row["_offset"]) in left for row in rows)
    if json_output:
        print_json({**counts, "rejected_again": again, "backfill": planned.id, "version": done["version"]})
        return
    print_line(
        f"{quantity(len(rows), 'rejected record')} read again into version {done['version']} of {table}, "
        f"{again:,} of them rejected again{beside}; headwater backfill rollback {planned.id} takes it back"
    )


def _repaired(context: "StageContext", planned: str, job: "Job", records: int) -> "Mapping[str, Any]":
    """Runs a repair, proves it and swaps it in; gives what the swap did.

    Raises:
        Exit: The proof failed, and nothing was changed; why is said.
    """
    from headwater_streams import backfill

    with waiting(f"reading {quantity(records, 'rejected record')} of {job.target.name} again"):
        backfill.run(context, planned, job)
        verdict = backfill.verify(context, planned, job)
    if verdict.passed:
        return backfill.swap(context, planned)
    wrong = "; ".join(f"{each.name}: {each.detail}" for each in verdict.findings if not each.ok)
    print_line(
        f"nothing was changed, as the proof of {planned} failed: {wrong}; "
        f"headwater backfill abort {planned} lets go of it",
        file=sys.stderr,
    )
    raise typer.Exit(EXIT_FAILED)


def _refuse_ingested(home: "Path", table: str, reference: str) -> None:
    """Refuses a table of a job that keeps state: a repair of its windows reads what its ingest table has let in.

    Raises:
        UsageError: It is one; the message says what mends both.
    """
    from headwater_streams.base.target import is_part
    from headwater_streams.storage.home import Home

    parts = [each for each in Home(home).tables() if is_part(each, table)]
    if parts:
        raise UsageError(
            f"records of {table} are rejected on their way into {parts[0]}, which is to be mended first: "
            f"headwater backfill plan {reference} --quarantined, which says what follows"
        )


def _there_are(home: "Path", table: str) -> str:
    """What checks rejected, for somebody who asked for other records: the end of a sentence."""
    from headwater_streams.quality.rejected import names_in

    rows = _rows(home, table, _which())
    checks = Counter(check for row in rows for check in names_in(row["_check"])).most_common()
    return f"; there are {', '.join(f'{count:,} by {check}' for check, count in checks)}" if checks else ""


@app.command()
def discard(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="The table whose rejected records are to be left as they are."),
    ],
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with them.")],
    check: CheckOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offsets: OffsetsOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are open.")] = False,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Note that rejected records are to be left as they are: they are no longer open, and are not replayed.

    Say which are meant, or --all. No row is removed, as the ledger counts each: the note stands in quality.discarded.

    \b
    Example:
      headwater quarantine discard silver.departures --check has_carrier --because "test traffic of 1 January"
    """
    from headwater_streams.ledger.quarantined import Which
    from headwater_streams.ledger.quarantined import discard as note
    from headwater_streams.storage.home import Home

    if not because.strip():
        raise UsageError("--because: say why, so that the next person knows")
    which = _which(check, since, until, offsets)
    rows = _rows(home, table, which)
    if everything and which != Which():
        raise UsageError(
            "--all is each record that is open: leave --check, --since, --until and --offsets out"
        )
    if not everything and which == Which():
        are_open = f"{quantity(len(rows), f'rejected record of {table} is', f'rejected records of {table} are')} open"
        raise UsageError(
            f"{are_open}: say which are meant, by --check, --since, --until or --offsets, or --all"
        )
    noted = note(Home(home), table, rows, because.strip(), int(time.time() * 1000))
    if json_output:
        print_json({"table": table, "discarded": noted})
        return
    others = "" if rows else _there_are(home, table)
    print_line(f"{quantity(noted, 'rejected record')} of {table} discarded{others}")


def _which(
    check: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    offsets: list[str] | None = None,
    *,
    discarded: bool = False,
) -> "Which":
    from headwater.cli._backfill import parse_offsets
    from headwater_streams.ledger.quarantined import Which

    return Which(
        checks=tuple(check or ()),
        since=_moment("--since", since),
        until=_moment("--until", until),
        offsets=parse_offsets(offsets) if offsets else None,
        discarded=discarded,
    )


def _rows(home: "Path", table: str, which: "Which") -> list[dict[str, Any]]:
    from headwater_streams.ledger.quarantined import rejected
    from headwater_streams.storage.home import Home

    place = Home(home)
    if f"{table}__quarantine" not in place.tables():
        raise UsageError(
            f"there is no table {table}__quarantine; headwater quarantine list says which there are"
        )
    return rejected(place, table, which)


def _discarded_in(home: "Path", table: str, ranges: "Ranges") -> int:
    """How many of the records in some ranges were discarded."""
    from headwater_streams.ledger.quarantined import Which, rejected_rows
    from headwater_streams.storage.home import Home

    rows = rejected_rows(Home(home), table, Which(offsets=ranges, discarded=True)).num_rows
    return int(rows - rejected_rows(Home(home), table, Which(offsets=ranges)).num_rows)


def _conditions(home: "Path", table: str, which: "Which") -> list[str]:
    """The same as conditions of SQL, for rows that may be more than memory holds."""
    from headwater_streams.ledger.quarantined import DISCARDED_TABLE
    from headwater_streams.storage.home import Home

    conditions = []
    if which.checks:
        names = ", ".join(map(sql_text, which.checks))
        conditions.append(f"list_has_any(string_split(_check, ', '), [{names}])")
    conditions += [
        f"_timestamp {sign} TIMESTAMPTZ {sql_text(moment.isoformat())}"
        for sign, moment in ((">=", which.since), ("<", which.until))
        if moment is not None
    ]
    if which.offsets is not None:
        ranges = [
            f"_topic = {sql_text(topic)} AND _partition = {partition} AND _offset >= {start} AND _offset < {end}"
            for topic, partitions in which.offsets.items()
            for partition, (start, end) in partitions.items()
        ]
        conditions.append(f"({' OR '.join(ranges)})")
    if not which.discarded and DISCARDED_TABLE in Home(home).tables():
        conditions.append(
            f'NOT EXISTS (SELECT 1 FROM quality.discarded AS d WHERE d."table" = {sql_text(table)} '
            "AND d.topic = coalesce(_topic, '') AND d.\"partition\" = coalesce(_partition, 0) "
            'AND d."offset" = coalesce(_offset, 0))'
        )
    return conditions


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: write a time such as 2013-01-01T10:00:00Z") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
