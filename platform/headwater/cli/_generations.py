"""`headwater jobs renew` and `jobs rebuild`: new generations of jobs that cannot go on from their last run; and
`jobs rewrite`, for those whose tables are laid out otherwise."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._backfill import print_notes
from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_table,
    waiting,
)
from headwater.errors import UserError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import spelled

if TYPE_CHECKING:
    from headwater_streams.runtime.generations import Action

ReferencesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH_OR_MODULE[:job]...",
        help="Job modules, or jobs of them; one of ./jobs, or that was run, also by its name.",
        show_default=False,
    ),
]


def renew(
    references: ReferencesArgument,
    bootstrap: BootstrapOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Begin a new generation of jobs that keeps their tables' rows.

    It goes on where the last one ended. A row-by-row job passes over what is gone from a topic and names it; a topic
    that was made again is read from its beginning. A job with windows or a join first reads again what its state is
    made of, and writes nothing of that: so it takes another number of shuffle partitions, another state store or Spark,
    and gets over a checkpoint that is lost. Where that cannot give its state (sessions, count windows, aggregates
    without a window, as-of joins, joins that only count late rows), use `headwater jobs rebuild`.

    \b
    Examples:
      headwater jobs renew jobs/flights.py:clean_departures
      headwater jobs renew jobs/flights.py:delay_by_carrier --json
    """
    _begin("renew", references, bootstrap, home, json_output)


def rebuild(
    references: ReferencesArgument,
    ingest: Annotated[
        bool,
        typer.Option("--ingest", help="Also empty the tables that the jobs' topics are read into."),
    ] = False,
    bootstrap: BootstrapOption = None,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Begin a new generation of jobs with empty tables, which the next run fills from the beginning of their inputs.

    Jobs that read such a table are rebuilt with it; one of another module must be named, too. A job's ingest table is
    kept, with what the columns and checks of then let in, unless it cannot hold the topic's columns as they are
    declared now, or --ingest is given: its topic is then read again from the first record that it still has. Delta's
    time travel shows the old rows until they are vacuumed. Rows are late by the batches that were before theirs, which
    may be others than the first time.

    \b
    Examples:
      headwater jobs rebuild jobs/flights.py:delay_by_carrier
      headwater jobs rebuild delay_by_carrier
    """
    _begin("rebuild", references, bootstrap, home, json_output, ingest=ingest)


def rewrite(
    references: ReferencesArgument, home: HomeOption = DEFAULT_HOME, json_output: JsonOption = False
) -> None:
    """Write the rows of jobs' tables anew, as they are, in the partitions and the order that the jobs declare now.

    A table whose job declares another partition_by than it has is refused by `headwater jobs run`; this keeps its rows,
    its generation and its ledger. Each table takes one commit, which changes no row. What is in order is left alone.
    The jobs must not run meanwhile. A table that other jobs have read commit by commit is given another order only:
    these would not start again over a change of partitions, so it is built beside the live one, `headwater backfill
    plan JOB --rebuild`.

    \b
    Examples:
      headwater jobs rewrite jobs/shop.py:orders
      headwater jobs rewrite orders --json
    """
    from dataclasses import asdict

    from headwater.running.environment import find_jobs, open_environment
    from headwater_streams.base.errors import StreamsError
    from headwater_streams.runtime.rewriting import rewrite as rewrite_tables

    jobs = find_jobs(references, home)
    with waiting("starting Spark"):
        environment = open_environment(
            home, None, app_name="headwater jobs rewrite", needs_broker=False, is_brief=True
        )
    try:
        done = rewrite_tables(environment.context, jobs, environment.leases)
    except StreamsError as error:
        raise UserError(str(error)) from error
    finally:
        environment.context.spark.stop()
    if json_output:
        print_json([asdict(each) for each in done])
        return
    rows = [
        (each.job, each.table, ", ".join(each.before), ", ".join(each.now), each.rows, each.files)
        for each in done
    ]
    columns = ["job", "table", "partitioned by before", "partitioned by", "rows", "files"]
    print_table(columns, rows, empty="no table is laid out otherwise than its job declares")


def _begin(
    action: "Action",
    references: list[str],
    bootstrap: str | None,
    home: Path,
    json_output: bool,
    *,
    ingest: bool = False,
) -> None:
    from headwater.running.environment import find_jobs, open_environment
    from headwater_streams.base.errors import StreamsError
    from headwater_streams.runtime.renewal import begin_generations, gone_since_read, ingest_of_other_code
    from headwater_streams.runtime.warm_up import WarmUp

    jobs = find_jobs(references, home)
    with waiting("starting Spark"):
        environment = open_environment(
            home,
            bootstrap,
            app_name=f"headwater jobs {action}",
            needs_broker=action == "renew",
            jobs=jobs,
            is_brief=True,
        )
    try:
        gone = gone_since_read(environment.context, jobs) if action == "rebuild" else {}
        entries = begin_generations(environment.context, jobs, action, environment.leases, ingest=ingest)
        emptied = {entry.table for entry in entries}
        others = ingest_of_other_code(environment.context, jobs) if action == "rebuild" else []
        remaining = [name for name in others if name not in emptied]
    except StreamsError as error:
        raise UserError(str(error)) from error
    finally:
        environment.context.spark.stop()
    generations: list[dict[str, Any]] = [
        {
            "job": entry.job,
            "table": entry.table,
            "generation": entry.generation,
            "starts": Extra.STARTS.of(entry),
            "lost": Extra.LOST.of(entry),
            "warm_up": Extra.WARM_UP.get(entry),
            "not_made_again": gone.get(entry.table, []),
        }
        for entry in entries
    ]
    if json_output:
        print_json(generations)
        return
    rows = [
        (
            each["job"],
            each["table"],
            each["generation"],
            ", ".join(spelled(each["lost"])),
            str(WarmUp.of(entry) or ""),
        )
        for each, entry in zip(generations, entries, strict=True)
    ]
    columns = ["job", "table", "generation", "gone, and never read", "read again for the state"]
    print_table(columns, rows, empty="no job")
    print_notes(
        [
            f"{each['table']} had rows of {', '.join(each['not_made_again'])}: of these none is made again; Delta's "
            "time travel shows them until they are vacuumed"
            for each in generations
            if each["not_made_again"]
        ]
        + [
            f"{name} is kept, with rows from before the job's code, its topics' columns or its checks changed; "
            "--ingest empties it, too, and reads the topic again"
            for name in remaining
        ]
    )
