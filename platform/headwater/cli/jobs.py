"""`headwater jobs`: list, check, test and run streaming jobs, and show how far they are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    console,
    print_json,
    print_table,
    progress_console,
    report_damaged,
    waiting,
)
from headwater.cli._generations import rebuild, renew
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.base.plural import quantity
from headwater_streams.base.target import declared_name
from headwater_streams.storage.damage import DamagedFileError

if TYPE_CHECKING:
    from headwater_streams.plan.job import Job
    from headwater_streams.runtime.compatibility import Difference
    from headwater_streams.runtime.runner import JobRunner
    from headwater_streams.sources.inputs import Input

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
app.command()(renew)
app.command()(rebuild)

ReferencesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH_OR_MODULE[:job]]...",
        help="Job modules, by default ./jobs, else the shipped ones; one job of these, or that was run, by its name.",
        show_default=False,
    ),
]


@app.callback()
def _jobs_group() -> None:
    """List, check, test and run streaming jobs, and show how far they are.

    \b
    Example:
      headwater jobs run jobs/flights.py
    """


@app.command("list")
def list_jobs(references: ReferencesArgument = None, json_output: JsonOption = False) -> None:
    """Show the jobs of modules: what each reads and writes. No Spark session is started.

    \b
    Examples:
      headwater jobs list
      headwater jobs list jobs/flights.py --json
    """
    described = [_described(job) for job in _jobs(references)]
    if json_output:
        print_json(described)
        return
    rows = [
        (each["job"], ", ".join(each["inputs"].values()), each["target"], each["mode"]) for each in described
    ]
    print_table(
        ["job", "reads", "writes", "mode"], rows, empty="no job; decorate a function with @hw.job(target=...)"
    )


@app.command()
def check(
    references: ReferencesArgument = None, json_output: JsonOption = False, home: HomeOption = DEFAULT_HOME
) -> None:
    """Plan jobs without running them: kinds, columns, keys, checks. A stateful job that names a topic is two: its
    ingest table, from which every row can be read again, comes first. What differs from a job's last run in this home
    is shown with what can be done about it, and so are records that were lost before a job had read them. Exit status
    0: all are well, 2: one is not.

    \b
    Examples:
      headwater jobs check jobs/flights.py
      headwater jobs check my_team.jobs:delays --json
    """
    from headwater.running.environment import open_environment
    from headwater_streams.base.errors import StreamsError
    from headwater_streams.runtime.compatibility import remedy_of, require_compatible, since_last_run
    from headwater_streams.runtime.generations import current_generation
    from headwater_streams.runtime.planning import plan_jobs
    from headwater_streams.runtime.positions import records_gone
    from headwater_streams.runtime.tables import table_problems

    jobs = _jobs(references, home)
    with waiting("starting Spark"):
        environment = open_environment(
            home, None, app_name="headwater jobs check", needs_broker=False, is_brief=True
        )
    try:
        plans = plan_jobs(environment.context, jobs)
        changed = {plan.job.name: since_last_run(environment.context, plan) for plan in plans}
        problems = [problem for plan in plans for problem in table_problems(environment.context, plan)]
        for job in (plan.job for plan in plans if not changed[plan.job.name]):
            gone = records_gone(environment.context, job, current_generation(environment.context, job))
            problems += [] if gone is None else [gone]
    except StreamsError as error:
        raise UsageError(str(error)) from error
    finally:
        environment.context.spark.stop()
    described = [
        {
            **_described(plan.job),
            "target": table,
            "kind": plan.kind,
            "columns": {f.name: f.dataType.simpleString() for f in schema.fields},
            "checks": [f"{c.name}: {c.expression}" for c in plan.job.checks],
            "remedy": remedy_of(changed[plan.job.name]),
            "differences": [asdict(each) for each in changed[plan.job.name]],
        }
        for plan in plans
        for table, schema in plan.schemas.items()
    ]
    if json_output:
        print_json(described)
    else:
        _print_plans(described, changed)
    for name, differences in changed.items():
        try:
            require_compatible(name, differences)
        except StreamsError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))  # the parts of a job share some


def _print_plans(plans: list[dict[str, Any]], changed: "Mapping[str, Sequence[Difference]]") -> None:
    rows = [
        (
            p["job"],
            p["kind"],
            ", ".join(p["inputs"].values()),
            p["target"],
            ", ".join(p["keys"]),
            ", ".join(name for name in p["columns"] if not name.startswith("_")),
            ", ".join(name.partition(":")[0] for name in p["checks"]),
        )
        for p in plans
    ]
    print_table(["job", "kind", "reads", "writes", "keys", "columns", "checks"], rows, empty="no job")
    targets = {p["job"]: p["target"] for p in plans}
    changes = [
        (job, each.what, each.before, each.now, each.why, _can_be_done(each, job, targets.get(job, "")))
        for job, differences in changed.items()
        for each in differences
    ]
    if changes:
        console().print()
        columns = ["job", "since its last run", "was", "is", "which means", "can be done"]
        print_table(columns, changes, empty="")


def _can_be_done(difference: "Difference", job: str, table: str) -> str:
    if difference.remedy != "keep":
        return difference.remedy  # a sentence about it follows
    if difference.what != "function or declaration":
        return "go on as it is"
    declared = declared_name(job)
    plan = "headwater backfill plan"
    return f"go on as it is; for rows before: {plan}" + (
        f" {declared} --rebuild --table {table}" if declared != job else ""
    )


@app.command()
def graph(
    references: ReferencesArgument = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture, too.", show_default=False)
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show which topics feed which jobs, and which tables they write. No Spark session is started.

    \b
    Examples:
      headwater jobs graph
      headwater jobs graph jobs/flights.py --svg flights.svg
    """
    from headwater.cli._graph import svg_of, tree_of
    from headwater_streams.base.errors import JobDefinitionError
    from headwater_streams.plan.graph import graph_of

    job_graph = graph_of(_jobs(references))
    try:
        layers = job_graph.layers
    except JobDefinitionError as error:
        raise UsageError(str(error)) from error
    if svg is not None:
        try:
            svg.write_text(svg_of(job_graph), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{svg} cannot be written: {error.strerror}") from error
    if json_output:
        nodes = [{"kind": node.kind, "name": node.name} for layer in layers for node in layer]
        edges = [{"from": source.name, "to": target.name} for source, target in job_graph.edges]
        print_json({"nodes": nodes, "edges": edges})
        return
    for tree in tree_of(job_graph):
        console().print(tree, markup=False)


@app.command()
def run(
    references: ReferencesArgument = None,
    bootstrap: BootstrapOption = None,
    home: HomeOption = DEFAULT_HOME,
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then end.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0,
            help="From the start of one batch to that of the next; by default the setting jobs.trigger_interval_s.",
            show_default=False,
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="A cluster to run on: spark://HOST:PORT, yarn, k8s://URL; its workers must see the home's folder.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Run jobs until they are stopped (SIGINT or SIGTERM: at a batch boundary), or once over what is there.

    What fills the tables in which a job that has never run looks things up reads first what is there. A job that meets
    a fault that passes, such as a broker that is away, is started again after a pause; with --once it fails. A job
    whose input is gone, or that is not what its last run was, is refused: see `headwater jobs check`. A job that fails,
    by a check with action="fail" too, ends the others of the command: run those apart that are to go on without it.

    Exit status 0: done or stopped, 1: a job failed, 2: a job is wrong.

    \b
    Examples:
      headwater jobs run jobs/flights.py
      headwater jobs run jobs/flights.py:clean_departures --once --bootstrap 127.0.0.1:9092
    """
    from headwater.running.environment import job_settings, open_environment, remember_modules
    from headwater.running.signals import stop_requested
    from headwater.running.status import log_ends
    from headwater_streams.base.errors import JobDefinitionError
    from headwater_streams.runtime.faults import BackOff
    from headwater_streams.runtime.query import explain
    from headwater_streams.runtime.runner import JobRunner
    from headwater_streams.runtime.upkeep import Upkeep

    jobs = _jobs(references, home)
    settings = job_settings()
    with waiting("starting Spark"):
        environment = open_environment(
            home, bootstrap, app_name="headwater jobs run", master=master, jobs=jobs
        )
    remember_modules(home, jobs)
    runner: JobRunner | None = None
    ends = log_ends(home)
    try:
        with stop_requested() as stopping:
            runner = JobRunner(
                environment.context,
                jobs,
                lease=environment.leases,
                copy_every=settings.ledger_copy_every,
                back_off=BackOff(settings.restart_first_s, settings.restart_most_s),
                progress_every_s=settings.progress_every_s,
                upkeep=Upkeep(settings.compact_every, settings.files_kept_h, settings.log_kept_days),
            )
            if once:
                runner.run_once(stopping=stopping.is_set)
            else:
                every_s = settings.trigger_interval_s if interval is None else interval
                with waiting("starting the jobs"):  # some first fill the tables that others look up in
                    runner.start(interval_s=every_s, stopping=stopping.is_set)
                names = ", ".join(runner.queries)
                progress_console().print(f"running {names}; stop with Ctrl-C", markup=False)
                while not stopping.is_set():
                    runner.watch(0.5)
    except JobDefinitionError as error:
        raise UsageError(str(error)) from error
    except Exception as error:
        raise UserError(explain(error), EXIT_FAILED) from error
    finally:
        _report(runner, home, ends, json_output)
        environment.context.spark.stop()


@app.command("test")
def run_tests_of_jobs(
    references: Annotated[
        list[str],
        typer.Argument(metavar="PATH_OR_MODULE...", help="Job modules, or test files.", show_default=False),
    ],
    chosen: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="EXPRESSION",
            help="Only tests whose names match, as for pytest.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Run the tests of jobs: `test_<module>.py` beside a module, or in a folder `tests` beside it, on Spark and Delta
    tables, without a broker. The fixtures `spark` and `drive` are given; see `headwater_streams.testing`.

    Exit status 0: all passed, 1: one failed, 2: there is no test.

    \b
    Examples:
      headwater jobs test delays.py
      headwater jobs test delays.py -k late
    """
    from headwater.config.shipped import shipped_dir
    from headwater.running.job_tests import find_tests, run_tests

    files = find_tests(references, [shipped_dir("jobs").parent])
    results = run_tests(files, chosen=chosen, quiet=json_output)
    if json_output:
        print_json([{"test": name, "outcome": outcome} for name, outcome in results.outcomes.items()])
    if results.exit_code in (4, 5):  # pytest's codes for a wrong command line, and for no test at all
        raise UsageError(
            f"no test of {', '.join(references)} matches {chosen!r}" if chosen else "no test was found"
        )
    if results.exit_code:
        raise UserError(
            f"{results.count('failed')} of {quantity(len(results.outcomes), 'test')} failed", EXIT_FAILED
        )


@app.command()
def status(
    references: ReferencesArgument = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show what running jobs do, once a second, until Ctrl-C.")
    ] = False,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show each job's last batch, what became of its rows, and how far it is behind its topics.

    What was read, and what became of it, is counted since the job's generation began: a renewal, a rebuild and the
    rollback of one begin another. A job with several tables has a line for each, and all of them read the same rows.
    With --watch it is what the jobs do now, from the table headwater.progress; with --json a line each second.

    Exit status 1: a table's log is damaged; it is named, and the others are shown.

    \b
    Examples:
      headwater jobs status
      headwater jobs status jobs/flights.py --watch
    """
    from headwater.cli._accounts import describe_terms
    from headwater.running.behind import topic_asker
    from headwater.running.progress import is_of, progress_of
    from headwater.running.status import job_status

    names = [job.name for job in _jobs(references, home)] if references else None
    if watch:
        from headwater.cli._watch import watch_jobs

        watch_jobs(home, names, json_output=json_output)
        return
    damaged: list[DamagedFileError] = []
    statuses = job_status(home, topic_asker(home, bootstrap), damaged.append)
    selected = [each for each in statuses if names is None or is_of(each["job"], names)]
    if json_output:
        print_json(selected)
        report_damaged(damaged)
        return
    fields = ("job", "target", "generation", "batch", "committed_at", "read", "lag")
    several = {each["beside"] for each in selected}
    rows = [
        (
            *(each[name] for name in fields),
            describe_terms(each["totals"], several=each["beside"] is not None or each["target"] in several),
        )
        for each in selected
    ]
    columns = ["job", "table", "generation", "batch", "committed at (UTC)", "read", "lag", "became"]
    failed = []
    try:
        failed = [each for each in progress_of(home, names) if each.state == "failed"]
    except DamagedFileError as error:
        damaged.append(error)
    without = [each for each in failed if not any(is_of(of["job"], [each.job]) for of in selected)]
    if rows or not without:
        print_table(columns, rows, empty=f"no job has run in {home}: headwater jobs run")
    for each in without:
        console().print(f"{each.job} failed before it had committed anything: {each.message}", markup=False)
    report_damaged(damaged)


@app.command()
def explain(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Jobs by their names, as jobs status shows them.")
    ],
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Tell why a job is where it is: the input it waits for or lags behind, the step and the operator that take the
    time, the watermark in effect and the input that holds it back. With --json one job is an object, several are an
    array.

    \b
    Examples:
      headwater jobs explain delay_by_carrier
      headwater jobs explain departures delay_by_carrier --json
    """
    from headwater.running.behind import topic_asker
    from headwater.running.explaining import explain_job

    ask = topic_asker(home, bootstrap)
    explanations = [explain_job(home, job, ask) for job in jobs]
    if json_output:
        objects = [asdict(each) for each in explanations]
        print_json(objects if len(objects) > 1 else objects[0])
        return
    for each in explanations:
        console().print(f"{each.job}: {each.state}", markup=False)
        for sentence in each.sentences:
            console().print(f"  {sentence}", markup=False)


def _jobs(references: list[str] | None, home: Path | None = None) -> "list[Job]":
    from headwater.running.environment import default_references, find_jobs

    return find_jobs(references or default_references(), home)


def _described(job: "Job") -> dict[str, Any]:
    return {
        "job": job.name,
        "inputs": {name: _topics_or_table(declared) for name, declared in job.inputs.items()}
        | {name: declared.name for name, declared in job.lookups.items()},
        "target": ", ".join(target.name for target in job.targets),
        "mode": job.target.mode,
        "keys": list(job.target.keys),
        "module": str(Path(job.function.__code__.co_filename)),
    }


def _topics_or_table(declared: "Input") -> str:
    return ", ".join(getattr(declared, "names", (declared.name,)))


def _report(runner: "JobRunner | None", home: Path, ends: dict[str, int], json_output: bool) -> None:
    from headwater.cli._accounts import account_of, describe_run
    from headwater.running.status import accounts_since

    if runner is None:
        return
    batches = runner.batches
    targets = {name: [target.name for target in query.job.targets] for name, query in runner.queries.items()}
    runner.stop()
    accounts = accounts_since(home, ends)
    tables = {
        name: {table: dict(accounts.get(name, {}).get(table, {})) for table in named}
        for name, named in targets.items()
    }
    if json_output:
        rows = {name: account_of(named, tables[name]) for name, named in targets.items()}
        print_json({"batches": batches, "rows": rows, "tables": tables})
        return
    for name, count in batches.items():
        for line in describe_run(name, count, targets[name], tables[name]):
            progress_console().print(line, markup=False, soft_wrap=True)
