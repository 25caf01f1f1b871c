"""`headwater jobs`: list, check, test and run streaming jobs, and show how far they are."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
    print_line,
    print_remarks,
    print_table,
    progress_console,
    report_damaged,
    waiting,
)
from headwater.cli._generations import rebuild, renew, rewrite
from headwater.errors import EXIT_FAILED, UsageError, UserError
from headwater_streams.base.plural import quantity
from headwater_streams.base.target import declared_name
from headwater_streams.storage.damage import DamagedFileError

if TYPE_CHECKING:
    from headwater_streams.loader import LoadedJobs
    from headwater_streams.plan.job import Job
    from headwater_streams.runtime.compatibility import Difference
    from headwater_streams.runtime.runner import JobRunner, Outcome
    from headwater_streams.sources.inputs import Input

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
app.command()(renew)
app.command()(rebuild)
app.command()(rewrite)

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

    Exit status 0: all are shown, 2: a module or a job cannot be loaded; it is named, and the others are shown.

    \b
    Examples:
      headwater jobs list
      headwater jobs list jobs/flights.py --json
    """
    from headwater.running.environment import default_references, find_each

    loaded = find_each(references or default_references())
    described = [_described(job) for job in loaded.jobs]
    if json_output:
        print_json(described)
    elif described:
        rows = [
            (each["job"], ", ".join(each["inputs"].values()), each["target"], each["mode"])
            for each in described
        ]
        print_table(["job", "reads", "writes", "mode"], rows, empty="")
    _raise_for([str(each.error) for each in loaded.left_out], [])


@app.command()
def check(
    references: ReferencesArgument = None,
    bootstrap: BootstrapOption = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            "--schema",
            metavar="SUBJECT=FILE",
            help="Plan as if the file were the newest schema of a registry's subject; may be repeated.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Plan jobs without running them: kinds, columns, keys, checks. A stateful job that names a topic is two: its
    ingest table, from which every row can be read again, comes first. What differs from a job's last run in this home
    is shown with what can be done about it, and so are records that were lost before a job had read them, if the
    brokers answer. All that is wrong is said in one run, of every job and module; what reads a table of a job that is
    wrong is not planned.

    Exit status 0: all are well, 2: one is not.

    \b
    Examples:
      headwater jobs check jobs/flights.py
      headwater jobs check my_team.jobs:delays --json
      headwater jobs check jobs/orders.py --schema orders-value=order3.avsc
    """
    from headwater.running.candidates import read_candidates, refusals, with_candidates
    from headwater.running.checking import check_jobs
    from headwater.running.environment import absent_jobs, default_references, find_each, open_environment

    loaded = find_each(references or default_references(), home)
    problems = [str(each.error) for each in loaded.left_out]
    if not loaded.jobs:
        if json_output:
            print_json(_not_loaded(loaded))
        raise UsageError("\n".join(problems))
    candidates = read_candidates(schema or [], loaded.jobs)
    with waiting("starting Spark"):
        environment = open_environment(
            home, bootstrap, app_name="headwater jobs check", needs_broker=False, is_brief=True
        )
    try:
        problems += refusals(loaded.jobs, candidates)
        jobs = with_candidates(loaded.jobs, candidates)
        checked = check_jobs(environment.context, jobs, absent_jobs(home, loaded))
    finally:
        environment.context.spark.stop()
    described = [
        {
            **_described(each.job),
            "target": table,
            "kind": each.kind,
            "columns": {f.name: f.dataType.simpleString() for f in schema.fields}
            if schema is not None
            else {},
            "checks": [f"{c.name}: {c.expression}" for c in each.job.checks],
            "event_times": _event_times(each.job),
            "explodes": table in each.exploded,
            "layout": each.layouts.get(table, ""),
            "remedy": each.remedy,
            "differences": [asdict(difference) for difference in each.differences],
            "problems": list(each.problems),
        }
        for each in checked
        for table, schema in each.tables.items()
    ]
    if json_output:
        print_json([*described, *_not_loaded(loaded)])
    elif any(each["kind"] for each in described):
        changed = {each.job.name: each.differences for each in checked}
        _print_plans([each for each in described if each["kind"]], changed)
    problems += [problem for each in checked for problem in each.problems]
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))  # the parts of a job share some


def _not_loaded(loaded: "LoadedJobs") -> list[dict[str, Any]]:
    """What could not be loaded, as objects for machines: one for each job that is known, else one for a module."""
    return [
        {
            "job": job,
            "module": each.where,
            "target": ", ".join(tables),
            "kind": None,
            "problems": [str(each.error)],
        }
        for each in loaded.left_out
        for job, tables in each.jobs.items() or [(None, ())]
    ]


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
    remarks = [*_remarks(plans)]
    if remarks:
        console().print()
    for sentence in remarks:
        console().print(sentence, markup=False, highlight=False, soft_wrap=True)
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


def _remarks(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What of a job does not stand in its row, as sentences."""
    computed = {
        f"{name} of {p['job']} has the event time {time}"
        for p in plans
        for name, time in p["event_times"].items()
        if " AS " in time
    }
    yield from sorted(computed)
    for p in plans:
        if "_row" in p["columns"]:
            apart = ", and the ledger counts records and rows apart" if p["explodes"] else ""
            yield f"{p['target']}: a record may become several rows; _row is the place of each in its record{apart}"
    for p in plans:
        if p["layout"]:
            yield f"{p['target']} is {p['layout']}"


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

    Exit status 0: all are shown, 2: a module or a job cannot be loaded; it is named, and the others are shown.

    \b
    Examples:
      headwater jobs graph
      headwater jobs graph jobs/flights.py --svg flights.svg
    """
    from headwater.cli._graph import svg_of, tree_of
    from headwater.running.environment import default_references, find_each
    from headwater_streams.base.errors import JobDefinitionError
    from headwater_streams.plan.graph import graph_of

    loaded = find_each(references or default_references())
    not_loaded = [str(each.error) for each in loaded.left_out]
    if not loaded.jobs:
        raise UsageError("\n".join(not_loaded))
    job_graph = graph_of(loaded.jobs)
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
    else:
        for tree in tree_of(job_graph):
            console().print(tree, markup=False)
    _raise_for(not_loaded, [])


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
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End all jobs when one fails or is refused.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Run jobs until they are stopped (SIGINT or SIGTERM: at a batch boundary), or once over what is there.

    Jobs do not end each other. One that fails, by a check with action="fail" too, or that is refused, as it is wrong or
    not what its last run was (see `headwater jobs check`), stops those that read its tables, directly or by way of
    others; the rest goes on. A job that meets a fault that may pass, such as a broker that is away, is started again
    after growing pauses, see the settings jobs.restart; with --once it is not tried again. A module that cannot be
    loaded keeps its own jobs from running. What fills the tables in which a job that has never run looks things up
    reads first what is there.

    The command ends when no job is left to run. Exit status, then or when it is stopped, 0: all are well, 1: a job has
    failed, 2: none has, but one is wrong; standard error says which, and so does `headwater jobs status`.

    \b
    Examples:
      headwater jobs run jobs/flights.py
      headwater jobs run jobs/flights.py:clean_departures --once --bootstrap 127.0.0.1:9092
    """
    from headwater.running.environment import (
        absent_jobs,
        default_references,
        find_each,
        job_settings,
        open_environment,
        remember_modules,
        upkeep_settings,
    )
    from headwater.running.lineage import lineage_beside_jobs
    from headwater.running.quality_watch import quality_watch
    from headwater.running.signals import stop_requested
    from headwater.running.status import log_ends
    from headwater_streams.base.errors import JobDefinitionError
    from headwater_streams.ledger.known_columns import remember_columns
    from headwater_streams.runtime.query import explain
    from headwater_streams.runtime.restarts import BackOff, Restarts
    from headwater_streams.runtime.runner import JobRunner
    from headwater_streams.spark.spark_errors import AnyJvmError
    from headwater_streams.storage.home import Home

    loaded = find_each(references or default_references(), home)
    not_loaded = [str(each.error) for each in loaded.left_out]
    if not loaded.jobs or (fail_fast and not_loaded):
        raise UsageError("\n".join(not_loaded))
    jobs = loaded.jobs
    for message in not_loaded:
        print_line(f"headwater: {message}; the other jobs go on", file=sys.stderr, flush=True)
    settings = job_settings()
    telling = lineage_beside_jobs(home, bootstrap, lambda text: print_remarks([text]))
    with waiting("starting Spark"):
        environment = open_environment(
            home, bootstrap, app_name="headwater jobs run", master=master, jobs=jobs
        )
    remember_modules(home, jobs)
    runner: JobRunner | None = None
    watch = quality_watch(home, environment.context.spark, jobs)
    ends = log_ends(home)
    try:
        with stop_requested() as stopping, telling:
            runner = JobRunner(
                environment.context,
                jobs,
                lease=environment.leases,
                copy_every=settings.ledger_copy_every,
                restarts=Restarts(
                    BackOff(settings.restart_first_s, settings.restart_most_s),
                    settings.restart,
                    settings.restart_tries,
                ),
                progress_every_s=settings.progress_every_s,
                upkeep=upkeep_settings(),
                goes_on=not fail_fast,
                absent=absent_jobs(home, loaded),
            )
            remember_columns(Home(home), {t: of for plan in runner.plans for t, of in plan.made_of.items()})
            if once:
                runner.run_once(stopping=stopping.is_set)
            else:
                every_s = settings.trigger_interval_s if interval is None else interval
                with waiting("starting the jobs"):  # some first fill the tables that others look up in
                    runner.start(interval_s=every_s, stopping=stopping.is_set)
                if runner.queries:
                    names = ", ".join(runner.queries)
                    progress_console().print(f"running {names}; stop with Ctrl-C", markup=False)
                while not stopping.is_set() and not runner.is_over:
                    runner.watch(0.5)
                    watch.tick()
    except JobDefinitionError as error:
        raise UsageError(str(error)) from error
    except Exception as error:
        raise UserError(explain(error), EXIT_FAILED) from error
    finally:
        watch.finish()
        _report(runner, home, ends, json_output, loaded)
        with suppress(AnyJvmError, ConnectionError):  # where it has ended by itself
            environment.context.spark.stop()
    _raise_for(not_loaded, runner.outcomes)


def _raise_for(not_loaded: "Sequence[str]", outcomes: "Sequence[Outcome]") -> None:
    """Fails the command if a job failed, was refused, or could not be loaded: a line for each, and for each that is
    blocked by one of these.

    Raises:
        UserError: One did.
    """
    messages = dict.fromkeys([*not_loaded, *(each.message for each in outcomes)])
    if any(each.state == "failed" for each in outcomes):
        raise UserError("\n".join(messages), EXIT_FAILED)
    if messages:
        raise UsageError("\n".join(messages))


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

    A job that failed or was refused is named with the reason, and so is one that waits to be started again, and one
    that does not run because a job whose table it reads failed or was refused; with --json, by `state` and `message`.

    Exit status 0: all is well, 1: a job has failed, was refused or does not run for that, or a table's log is damaged;
    it is named, and the others are shown.

    \b
    Examples:
      headwater jobs status
      headwater jobs status jobs/flights.py --watch
    """
    from headwater.cli._accounts import describe_terms
    from headwater.running.behind import topic_asker
    from headwater.running.environment import absent_jobs, find_each
    from headwater.running.progress import is_of, progress_of, without_left_over
    from headwater.running.status import job_status, with_states

    names = None
    if references:
        loaded = find_each(references, home)
        not_loaded = [str(each.error) for each in loaded.left_out]
        names = [job.name for job in loaded.jobs] + [absent.name for absent in absent_jobs(home, loaded)]
        if not names:
            raise UsageError("\n".join(not_loaded))
        print_remarks(not_loaded)
    if watch:
        from headwater.cli._watch import watch_jobs

        watch_jobs(home, names, json_output=json_output)
        return
    damaged: list[DamagedFileError] = []
    ask = topic_asker(home, bootstrap)
    statuses = job_status(home, ask, damaged.append)
    print_remarks(ask.refusals)
    selected = [each for each in statuses if names is None or is_of(each["job"], names)]
    progress = []
    try:
        progress = without_left_over(progress_of(home, names))
    except DamagedFileError as error:
        damaged.append(error)
    ended_badly = any(each.is_ended_badly for each in progress)
    if json_output:
        print_json(with_states(selected, progress))
    else:
        fields = ("job", "target", "generation", "batch", "committed_at", "read", "lag")
        several = {each["beside"] for each in selected}
        rows = [
            (
                *(each[name] for name in fields),
                describe_terms(
                    each["totals"], several=each["beside"] is not None or each["target"] in several
                ),
            )
            for each in selected
        ]
        sentences = [
            each.sentence(has_committed=any(each.job == of["job"] for of in selected))
            for each in progress
            if each.is_ended_badly or each.state == "waiting"
        ]
        columns = ["job", "table", "generation", "batch", "committed at (UTC)", "read", "lag", "became"]
        if rows or not sentences:
            print_table(columns, rows, empty=f"no job has run in {home}: headwater jobs run")
        for sentence in sentences:
            console().print(sentence, markup=False)
    report_damaged(damaged)
    if ended_badly:
        raise typer.Exit(EXIT_FAILED)


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
    print_remarks(ask.refusals)
    if json_output:
        objects = [asdict(each) for each in explanations]
        print_json(objects if len(objects) > 1 else objects[0])
        return
    for each in explanations:
        console().print(f"{each.job}: {each.state}", markup=False)
        for sentence in each.sentences:
            console().print(f"  {sentence}", markup=False)


def _described(job: "Job") -> dict[str, Any]:
    return {
        "job": job.name,
        "inputs": {name: _topics_or_table(declared) for name, declared in job.inputs.items()}
        | {name: declared.name for name, declared in job.lookups.items()},
        "target": ", ".join(target.name for target in job.targets),
        "mode": job.target.mode,
        "keys": list(job.target.keys),
        "module": str(Path(job.code.co_filename)),
    }


def _event_times(job: "Job") -> dict[str, str]:
    """The event time of each input that has one; of what is computed `expression AS column`."""
    return {
        name: " AS ".join(filter(None, (getattr(declared, "computed", None), declared.event_time)))
        for name, declared in job.inputs.items()
        if declared.event_time is not None
    }


def _topics_or_table(declared: "Input") -> str:
    return ", ".join(getattr(declared, "names", (declared.name,)))


def _report(
    runner: "JobRunner | None", home: Path, ends: dict[str, int], json_output: bool, loaded: "LoadedJobs"
) -> None:
    from headwater.cli._accounts import account_of, describe_run
    from headwater.running.status import accounts_since

    if runner is None:
        return
    batches = runner.batches
    targets = {
        plan.job.name: [target.name for target in plan.job.targets]
        for plan in runner.plans
        if plan.job.name in batches
    }
    runner.stop()
    accounts = accounts_since(home, ends)
    tables = {
        name: {table: dict(accounts.get(name, {}).get(table, {})) for table in named}
        for name, named in targets.items()
    }
    if json_output:
        rows = {name: account_of(named, tables[name]) for name, named in targets.items()}
        ended = [
            {"job": job["job"], "state": "refused", "message": job["problems"][0]}
            for job in _not_loaded(loaded)
        ]
        ended += [asdict(each) for each in runner.outcomes]
        print_json({"batches": batches, "rows": rows, "tables": tables, "ended": ended})
        return
    for name, count in batches.items():
        for line in describe_run(name, count, targets[name], tables[name]):
            progress_console().print(line, markup=False, soft_wrap=True)
