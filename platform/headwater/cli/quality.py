"""`headwater quality`: suites over one version of a table, and their Data Docs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_table,
    report_damaged,
    waiting,
)
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.base.nearest import nearest, unknown_table
from headwater_streams.base.plural import quantity
from headwater_streams.storage.damage import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from headwater_streams.plan.job import Job
    from headwater_streams.quality import Check, SuiteResult
    from headwater_streams.quality.trend import Trend
    from headwater_streams.storage.home import Home

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

CheckOption = Annotated[
    list[str] | None,
    typer.Option("--check", metavar="NAME:CONDITION", help="SQL that each row must satisfy; repeats."),
]
BatchCheckOption = Annotated[
    list[str] | None,
    typer.Option("--batch-check", metavar="NAME:CONDITION", help="SQL over aggregates of all rows; repeats."),
]


@app.callback()
def _quality() -> None:
    """Judge tables by checks, and show how each check did over time.

    \b
    Example:
      headwater quality run silver.departures
    """


@app.command()
def run(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|JOB", help="schema.table, or PATH_OR_MODULE[:job] for the jobs' tables."
        ),
    ],
    version: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The Delta version; by default the newest.")
    ] = None,
    check: CheckOption = None,
    batch_check: BatchCheckOption = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="A column of the key of a row; repeats."),
    ] = None,
    expectations: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_MODULE:FUNCTION", help="A function that returns great-expectations expectations."
        ),
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A module with a list CHECKS, as `quality suggest` writes."),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Judge one version of a table by its job's checks and by those given here.

    A table's job is looked for in the modules of ./jobs, then in the shipped
    ones. The table may be written meanwhile. What is found is kept, in place of
    what was found of that version before. It rings no alarm and ends none: the
    exit status says what was found, 0: passed, 1: failed, 2: the question was
    wrong.

    \b
    Examples:
      headwater quality run silver.departures
      headwater quality run jobs/flights.py --json
      headwater quality run gold.flights --version 12 --check "landed: landed_at >= departed_at"
    """
    from headwater_streams.base.errors import StreamsError
    from headwater_streams.quality import stored_results

    try:
        added_checks = [*_parsed_checks(check or [], "row"), *_parsed_checks(batch_check or [], "batch")]
        added_checks += _suite_checks(suite) if suite is not None else []
        extra = _expectations_function(expectations) if expectations else None
        subjects = _subjects(subject, home)
        _warn_of_missing_jobs(home, subjects)
        before = {
            (each.table, each.version): each for table, _ in subjects for each in stored_results(home, table)
        }
        results = _judged(home, subjects, added_checks, key or [], version, extra)
    except DamagedFileError as error:
        raise UserError(str(error), EXIT_FAILED) from error
    except StreamsError as error:
        raise UsageError(str(error)) from error
    _keep_results(home, results)
    if json_output:
        print_json([result.to_json() for result in results] if len(results) > 1 else results[0].to_json())
    else:
        for result in results:
            _print_result(result)
            if (replaced := before.get((result.table, result.version))) is not None:
                print_line(f"in place of what was found at {_when(replaced)}: {_verdict(replaced)}")
    if not all(result.passed for result in results):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def show(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="Only this table's runs; its newest in full.", show_default=False
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show the stored results of suites and where their Data Docs are; of one table also what each check came to last.

    How a check did over time: headwater quality history.

    \b
    Examples:
      headwater quality show
      headwater quality show silver.departures
    """
    from headwater_streams.quality import stored_results
    from headwater_streams.quality.results import newest
    from headwater_streams.storage.home import Home

    damaged: list[DamagedFileError] = []
    results = stored_results(home, table, damaged.append)
    last = []
    if table and not json_output:
        last = [row for name in _with_parts(Home(home), table) if name for row in newest(Home(home), name)]
    if table and not (results or last or damaged):
        raise UsageError(f"there is no result of {table} yet: headwater quality run {table}")
    if json_output:
        print_json([result.to_json() for result in results])
        report_damaged(damaged)
        return
    print_table(
        ["table", "version", "verdict", "rows", "held", "ran at (UTC)"],
        [
            (
                result.table,
                result.version,
                _verdict(result),
                result.rows,
                f"{sum(each.passed for each in result.outcomes)} of {len(result.outcomes)}",
                _when(result),
            )
            for result in results
        ],
        empty=f"no suite of {table or 'any table'} has run yet: headwater quality run {table or 'TABLE'}",
    )
    if last:
        _print_newest(last, table)
    if table and results:
        _print_result(results[-1])
    elif results:
        print_line(f"Data Docs: {(home / 'quality' / 'index.html').resolve().as_uri()}")
    report_damaged(damaged)


@app.command()
def suggest(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.table.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the suite here; by default it is printed."),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Write a suite that the table's own rows suggest, to be read and edited.

    A million rows are looked at, without Spark. Each check only warns until you say otherwise. A file that is there is
    not overwritten.

    \b
    Examples:
      headwater quality suggest silver.departures --out departures_suite.py
      headwater quality run silver.departures --suite departures_suite.py
    """
    from headwater.sql.catalog import Catalog
    from headwater.sql.errors import UnknownTableError
    from headwater_streams.quality.profile import profiled
    from headwater_streams.quality.suggest import as_module, suggested
    from headwater_streams.storage.files import exists, write_text

    try:
        found_table = Catalog(home).table(table)
    except UnknownTableError as error:
        raise UsageError(str(error)) from error
    if out is not None and exists(out):
        raise UsageError(f"{out} is there already; give another --out, or remove it")
    job = _job_of(found_table.qualified_name, _job_folders())
    version, rows, profiles = profiled(found_table.path)
    found = suggested(profiles, job.target.keys if job is not None else ())
    if not found:
        raise UsageError(f"{table} has no rows that could suggest a check")
    if json_output:
        checks = [{"name": each.name, "rule": each.rule, "seen": each.seen} for each in found]
        print_json({"table": table, "version": version, "rows": rows, "checks": checks})
        return
    text = as_module(found_table.qualified_name, version, rows, found)
    if out is None:
        for line in text.splitlines():
            print_line(line)
        return
    write_text(out, text)
    print_line(
        f"{quantity(len(found), 'check')} of {table} in {out}: headwater quality run {table} --suite {out}"
    )


@app.command()
def history(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Only the checks of this table.", show_default=False),
    ] = None,
    check: Annotated[str | None, typer.Option("--check", metavar="NAME", help="Only this check.")] = None,
    days: Annotated[float, typer.Option(metavar="N", min=0, help="How far back.")] = 7,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a page with each check's drawing."),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Draw each check over time: of jobs' batches, of those that a check stopped, and of suites.

    A dot is a result that held, a bar has the share of rows that failed, and a cross is broken. Of a job that keeps
    state, checks of what comes in are judged of its ingest table, which is shown with its own. All results are rows of
    quality.results. Exit status 0: the newest result of each holds, 1: one is broken. What `quality run` found is
    drawn, too, but decides only of checks that nothing else judges.

    \b
    Examples:
      headwater quality history
      headwater quality history silver.departures --check has_carrier --days 365
      headwater quality history --html quality.html
    """
    from headwater_streams.quality.results import for_trends
    from headwater_streams.quality.results import history as read_history
    from headwater_streams.quality.trend import COLUMNS, page, spark_line, trends
    from headwater_streams.storage.files import write_text
    from headwater_streams.storage.home import Home

    since = _days_ago(days)
    names = _with_parts(Home(home), table)
    found = [
        each
        for name in names
        for each in trends(for_trends(Home(home), COLUMNS, table=name, check=check, since=since))
    ]
    if not found:
        _require_known(Home(home), table, check)
    if html is not None:
        write_text(html, page(found, f"Checks of {table or 'all tables'}, {days:g} days"))
    if json_output:
        kept = (read_history(Home(home), table=name, check=check, since=since) for name in names)
        rows = sorted((row for each in kept for row in each.to_pylist()), key=lambda row: row["at"])
        print_json([{**row, "at": row["at"].isoformat()} for row in rows])
    else:
        print_table(
            ["table", "check", "over time", "results", "broken", "last"],
            [
                (each.table, each.check, spark_line(each), each.results, each.broken, _last_of(each))
                for each in found
            ],
            empty=f"no check has a result of the last {days:g} days (--days); a job with checks writes them, and "
            "headwater quality run",
        )
        if html is not None:
            print_line(f"as a page: {html}")
    if any(each.since is not None for each in found):
        raise typer.Exit(EXIT_FAILED)


def _days_ago(days: float) -> "datetime | None":
    """So long ago; None for before all times."""
    from datetime import UTC, datetime, timedelta

    try:
        return datetime.now(UTC) - timedelta(days=days)
    except OverflowError:
        return None


def _with_parts(home: "Home", table: str | None) -> list[str | None]:
    """A table, and those that its rows come through, where checks of what comes in are judged; None for all tables."""
    from headwater_streams.base.target import is_part

    return [table] if table is None else [table, *(each for each in home.tables() if is_part(each, table))]


def _require_known(home: "Home", table: str | None, check: str | None) -> None:
    """Sees to it that a name is one that results can have: a script that has it wrong would be well for ever.

    Raises:
        UsageError: There is no such table, or no check of that name has ever had a result.
    """
    from headwater_streams.quality.results import history as read_history

    kept = [read_history(home, table=name, columns=["check"]) for name in _with_parts(home, table)]
    checks = {check for each in kept for check in each["check"].to_pylist()}
    if table is not None and not checks and table not in (existing := home.tables()):
        raise UsageError(unknown_table(table, existing))
    if check is not None and check not in checks:
        whose = f" of {table}" if table else ""
        there = nearest(check, sorted(checks)) or "none yet"
        raise UsageError(f"no check {check}{whose} has had a result; those that had one: {there}")


def _print_newest(rows: "Sequence[Mapping[str, Any]]", table: str | None) -> None:
    """What each check of a table, and of those before it, came to last, with some of the rows at fault."""
    from headwater_streams.quality.results import place_of

    marks = {"held": "✓", "within": "·", "broken": "✗"}
    print_table(
        ["", "check", "action", "judged", "failed", "observed", "rows at fault", "of", "at (UTC)"],
        [
            (
                marks[row["outcome"]],
                row["check"],
                row["action"],
                row["judged"],
                row["failed"],
                row["observed"] or None,
                ", ".join(row["sample"] or ()) or None,
                place_of(row) + ("" if row["table"] == table else f" of {row['table']}"),
                f"{row['at']:%Y-%m-%d %H:%M:%S}",
            )
            for row in rows
        ],
        empty="",
    )


def _last_of(trend: "Trend") -> str:
    since = "" if trend.since is None else f", broken since {trend.since:%Y-%m-%d %H:%M:%S}"
    return f"{trend.last.where}: {trend.last.observed}{since}"


def _verdict(result: "SuiteResult") -> str:
    return "passed" if result.passed else "failed"


def _when(result: "SuiteResult") -> str:
    return result.ran_at.partition("+")[0].replace("T", " ")


def _parsed_checks(texts: "Sequence[str]", level: str) -> "list[Check]":
    from headwater_streams.quality import Check, InvalidCheckError

    checks = []
    for text in texts:
        name, colon, condition = text.partition(":")
        if not colon:
            raise UsageError(f'check {text!r}: write NAME: CONDITION, such as "positive: delay > 0"')
        try:
            if level == "batch":
                checks.append(Check(name.strip(), condition, level="batch", action="fail"))
            else:
                checks.append(Check(name.strip(), condition, action="fail"))
        except InvalidCheckError as error:
            raise UsageError(str(error)) from error
    return checks


def _suite_checks(path: Path) -> "list[Check]":
    """The checks of a module that `quality suggest` wrote, or somebody else."""
    from runpy import run_path

    from headwater_streams.quality import Check

    try:
        checks = run_path(str(path)).get("CHECKS")
    except FileNotFoundError as error:
        raise UsageError(f"--suite {path}: there is no such file") from error
    except Exception as error:  # a person's own module may raise anything
        raise UsageError(f"--suite {path}: {type(error).__name__}: {error}") from error
    if not isinstance(checks, list | tuple) or not all(isinstance(check, Check) for check in checks):
        raise UsageError(f"--suite {path}: it has no list CHECKS of hw.Check(...)")
    return list(checks)


def _subjects(subject: str, home: Path) -> "list[tuple[str, Job | None]]":
    """The tables to judge, each with the job that writes it where one is known."""
    from headwater.sql.catalog import Catalog
    from headwater_streams.loader import load_jobs

    search = _job_folders()
    if subject.endswith((".py", ".sql")) or "/" in subject or ":" in subject:
        return [
            (job.target.name, job) for job in load_jobs([subject], search=[each.parent for each in search])
        ]
    try:
        table = Catalog(home).table(subject).qualified_name
    except UserError as error:
        raise UsageError(str(error)) from error
    return [(table, _job_of(table, search))]


def _warn_of_missing_jobs(home: Path, subjects: "Sequence[tuple[str, Job | None]]") -> None:
    """Warns of tables that are judged without their job's checks, as a pass then says less."""
    from headwater_streams.ledger.log import writer_of
    from headwater_streams.storage.home import Home

    for table, job in subjects:
        writer = writer_of(Home(home).table(table)) if job is None else None
        if writer is not None:
            print_line(
                f"headwater: the job {writer!r}, which writes {table}, is in no module of ./jobs, so its checks and "
                "keys are left out: headwater quality run PATH.py judges by them",
                file=sys.stderr,
            )


def _job_folders() -> list[Path]:
    from headwater.config.shipped import shipped_dir

    return [folder for folder in (Path("jobs"), shipped_dir("jobs")) if folder.is_dir()]


def _job_of(table: str, folders: "Sequence[Path]") -> "Job | None":
    from headwater.running.environment import job_files
    from headwater_streams.loader import load_each

    for module in (path for folder in folders for path in job_files(folder)):
        # A fault of another job is not this table's; `headwater jobs check` reports it.
        for job in load_each([str(module)]).jobs:
            if job.target.name == table:
                return job
    return None


def _expectations_function(reference: str) -> "Callable[[], Sequence[object]]":
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    where, _, name = reference.rpartition(":")
    try:
        if where.endswith(".py"):
            spec = spec_from_file_location(f"headwater_expectations_{Path(where).stem}", where)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = import_module(where)
    except FileNotFoundError as error:
        raise UsageError(
            f"--expectations {reference}: there is no file {where}; write PATH_OR_MODULE:FUNCTION"
        ) from error
    except Exception as error:  # a person's own module may raise anything
        message = f"{type(error).__name__}: {error}"
        raise UsageError(f"--expectations {reference}: {message}; write PATH_OR_MODULE:FUNCTION") from error
    function: Callable[[], Sequence[object]] | None = getattr(module, name, None)
    if function is None:
        raise UsageError(
            f"--expectations {reference}: {where} has no function {name!r}; write PATH_OR_MODULE:FUNCTION"
        )
    return function


def _judged(
    home: Path,
    subjects: "Sequence[tuple[str, Job | None]]",
    added_checks: "Sequence[Check]",
    keys: "Sequence[str]",
    version: int | None,
    extra: "Callable[[], Sequence[object]] | None",
) -> "list[SuiteResult]":
    from headwater.stack.session import spark_session
    from headwater_streams.quality.run import run_suite

    with waiting("starting Spark"):
        spark = spark_session(home, app_name="headwater quality")
    try:
        return [
            run_suite(
                spark,
                home,
                table,
                checks=[*(job.checks if job else ()), *added_checks],
                keys=keys or (job.target.keys if job else ()),
                version=version,
                extra=extra,
            )
            for table, job in subjects
        ]
    finally:
        spark.stop()


def _keep_results(home: Path, results: "Sequence[SuiteResult]") -> None:
    """Adds what suites found to `quality.results`."""
    from headwater_streams.quality.suite_rows import keep_result
    from headwater_streams.storage.home import Home

    for result in results:
        keep_result(Home(home), result, by_hand=True)


def _print_result(result: "SuiteResult") -> None:
    from headwater.cli._common import console

    print_table(
        ["", "expectation", "observed"],
        [
            (_mark(each.passed, each.severity), each.text, each.observed or each.error or "")
            for each in result.outcomes
        ],
        empty="nothing was expected",
    )
    for each in result.skipped:
        console().print(f"not judged: {each.name}: {each.reason}", style="dim", markup=False)
    verdict = "passed" if result.passed else f"failed ({', '.join(each.name for each in result.failed)})"
    warned = (
        f", with warnings ({', '.join(each.name for each in result.warnings)})" if result.warnings else ""
    )
    rows = quantity(result.rows, "row")
    print_line(f"{result.table} version {result.version}: {verdict}{warned}; {rows}, {result.seconds:.1f} s")
    print_line(f"Data Docs: {result.docs.resolve().as_uri()}")


def _mark(passed: bool, severity: str) -> str:
    if passed:
        return "✓"
    return "!" if severity == "warning" else "✗"
