"""What a verb that runs jobs needs: the session, the record source, the leases, the job modules."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config import JobSettings, load_settings
from headwater.config.shipped import shipped_dir
from headwater.errors import UsageError
from headwater.registry.client import login_of
from headwater.running.clusters import Clusters, all_need_default
from headwater.running.leases import lease_factory
from headwater.stack.local import data_dir, known_registry
from headwater.stack.packages import modules_beside
from headwater.stack.session import spark_session
from headwater.stack.state import running_state
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.nearest import nearest
from headwater_streams.base.target import declared_name
from headwater_streams.ledger.log import writer_of
from headwater_streams.loader import LoadedJobs, load_each, load_jobs
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.ownership import LeaseFactory
from headwater_streams.runtime.planning import AbsentJob
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.reader import KafkaSources
from headwater_streams.sources.registered import KnownRegistry, use_registry
from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class JobEnvironment:
    """A session, and what jobs reach from it.

    Attributes:
        context: The context of stages.
        leases: Makes a job's lease.
        bootstrap: The brokers; empty where no stack runs and none was named.
    """

    context: StageContext
    leases: LeaseFactory
    bootstrap: str


def open_environment(
    home: Path,
    bootstrap: str | None,
    *,
    app_name: str,
    needs_broker: bool = True,
    master: str | None = None,
    jobs: Sequence[Job] = (),
    is_brief: bool = False,
) -> JobEnvironment:
    """Starts the Spark session and finds the brokers.

    Args:
        home: The home.
        bootstrap: The brokers, or a cluster of the settings; by default those of `client.bootstrap`, or of the home's
            running stack.
        app_name: What the session calls itself.
        needs_broker: Whether it is an error when there are none, or their settings are wrong: of the jobs that read
            them, once they are planned, and at once where no other job is to run.
        master: Where the session runs; by default the setting `spark.master`.
        jobs: The jobs that it will run, whose neighbouring modules a cluster is sent.
        is_brief: Whether it is for a command of some seconds, whatever the size of the tables.

    Raises:
        UserError: No broker is named and no stack runs, or `client` is wrong; Java or a jar is missing.
    """
    clusters, named = _reached(home, bootstrap, jobs, needs_broker=needs_broker)
    try:
        address = clusters.default.bootstrap
    except UsageError:  # the job that needs it gets the error
        address = ""
    state = running_state(data_dir(home))
    zookeeper = state.zookeeper if state is not None and state.bootstrap == address else ""
    beside = modules_beside(Path(job.code.co_filename) for job in jobs)
    spark = spark_session(home, app_name=app_name, master=master, modules=beside, is_brief=is_brief)
    context = StageContext(spark, Home(home.resolve()), record_source(named, home, spark))
    return JobEnvironment(context, lease_factory(home, zookeeper, clusters.of), address)


def program_context(
    home: Path, bootstrap: str | None, *, app_name: str, needs_broker: bool, jobs: Sequence[Job] = ()
) -> StageContext:
    """The context of a call from Python: of the program's own session; without one it starts one and leaves it open.

    The program's session is not the active one. PySpark makes active, in all threads, the session in which a frame was
    last made. A frame made in a batch makes the query's session active: a copy with the query's own settings, which
    would leave the last windows open. For the arguments and errors see `open_environment`.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        return open_environment(
            home, bootstrap, app_name=app_name, needs_broker=needs_broker, jobs=jobs
        ).context
    _, named = _reached(home, bootstrap, jobs, needs_broker=needs_broker)
    spark = SparkSession.builder.getOrCreate()
    return StageContext(spark, Home(home.resolve()), record_source(named, home, spark))


def _reached(
    home: Path, bootstrap: str | None, jobs: Sequence[Job], *, needs_broker: bool
) -> tuple[Clusters, Callable[[str], KafkaCluster]]:
    """The clusters, and by what a job gets one of them; the registry is named to jobs that ask it."""
    _name_registry(home)
    clusters = Clusters(home, bootstrap)
    if needs_broker and all_need_default(jobs):
        clusters.require_default()
    return clusters, clusters.with_brokers if needs_broker else clusters.of


def _name_registry(home: Path) -> None:
    """Names the registry to inputs with `registry=True`: that of the settings, or of the stack. What it answers is kept
    in the home."""
    settings = load_settings(os.environ).settings.registry
    use_registry(
        KnownRegistry(
            url=settings.url or known_registry(home),
            login=login_of(settings),
            memory=home.resolve() / "registry",
        )
    )


def record_source(named: Callable[[str], KafkaCluster], home: Path, spark: "SparkSession") -> KafkaSources:
    """Where jobs read their records, in a session: of clusters by their names."""
    # Workers of a cluster see the home under the same path; what is in this machine's memory they do not see.
    is_here = str(spark.sparkContext.master).startswith("local")
    return KafkaSources(named, folder=None if is_here else home.resolve())


def find_jobs(references: Sequence[str], home: Path | None = None) -> list[Job]:
    """Loads jobs; a relative path is looked for in the current folder, then among the shipped ones.

    A name alone, as messages print it, is that of a job of the default modules, else a module's, else that of a job
    which was run over the home.

    Raises:
        UsageError: A module or a job is wrong.
    """
    try:
        return load_jobs([_with_file(each, home) for each in references], search=[shipped_dir("jobs").parent])
    except JobDefinitionError as error:
        raise UsageError(str(error)) from error


def find_each(references: Sequence[str], home: Path | None = None) -> LoadedJobs:
    """Loads those of the jobs that can be loaded, as `find_jobs` does.

    Raises:
        UsageError: A reference names nothing.
    """
    try:
        return load_each([_with_file(each, home) for each in references], search=[shipped_dir("jobs").parent])
    except JobDefinitionError as error:
        raise UsageError(str(error)) from error


def absent_jobs(home: Path, loaded: LoadedJobs) -> list[AbsentJob]:
    """The jobs that could not be loaded: those whose declarations were read, and those that the home knows of their
    modules from an earlier run."""
    absent = {
        name: AbsentJob(name, tables, str(each.error))
        for each in loaded.left_out
        for name, tables in each.jobs.items()
    }
    errors = {each.file: str(each.error) for each in loaded.left_out if each.file}
    if errors:
        others = {job.name for job in loaded.jobs} | absent.keys()
        for table in Home(home).tables():
            with suppress(DamagedFileError):  # whoever reads it gets the error
                writer = declared_name(writer_of(Home(home).table(table)) or "")
                module = _module_of_last_run(home, writer) if writer else None
                if module in errors and writer not in others:
                    before = absent[writer].tables if writer in absent else ()
                    absent[writer] = AbsentJob(writer, (*before, table), errors[module])
    return [*absent.values()]


def remember_modules(home: Path, jobs: Sequence[Job]) -> None:
    """Notes in which files jobs are, so that their names alone will do for `find_jobs`."""
    for job in jobs:
        note = Home(home).module(job.name)
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(note) as file:
            file.write(str(Path(job.code.co_filename).resolve()).encode())


def one_job(reference: str, home: Path | None = None) -> tuple[Job, str]:
    """The job that a person names, and a reference to it that holds in any folder.

    Raises:
        UsageError: There is none, or there are several.
    """
    reference = _with_file(reference, home)
    jobs = find_jobs([reference])
    if len(jobs) != 1:
        names = ", ".join(job.name for job in jobs)
        raise UsageError(f"{reference} has several jobs: write {reference}:NAME with one of {names}")
    # The job may be loaded again from another folder.
    module = reference.rpartition(":")[0] or reference
    where = str(Path(module).resolve()) if Path(module).is_file() else module
    return jobs[0], f"{where}:{jobs[0].name}"


def _with_file(reference: str, home: Path | None) -> str:
    """The file and the name of a job that is named alone; any other reference as it is.

    Raises:
        UsageError: Several of the default modules have such a job, or none has and it is no module.
    """
    if ":" in reference or "/" in reference or reference.endswith((".py", ".sql")):
        return reference
    # No job's name has a dot, and those of ./jobs need not be loaded.
    if "." in reference and _is_module(reference):
        return reference
    name, matching = declared_name(reference), list[str]()
    names, broken = list[str](), list[str]()
    for module in default_references():
        loaded = load_each([module])
        broken += [str(each.error) for each in loaded.left_out]  # perhaps not the module of this job
        in_module = [job.name for job in loaded.jobs]
        in_module += [job for each in loaded.left_out for job in each.jobs if not each.is_whole]
        names += in_module
        matching += [f"{module}:{name}"] if name in in_module else []
    if len(matching) > 1:
        raise UsageError(f"several jobs are named {name!r}: write {' or '.join(matching)}")
    if matching:
        return matching[0]
    if _is_module(reference):
        return reference
    last = _module_of_last_run(home, name)
    if last is not None:
        return f"{last}:{name}"
    where = (
        "jobs/ has" if Path("jobs").is_dir() else "there is no folder jobs/ here, and the shipped jobs are"
    )
    has = nearest(reference, names) or "none"
    others = f"; what could not be loaded: {'; '.join(broken)}" if broken else ""
    raise UsageError(
        f"no job or module {reference!r}: {where} {has}{others}; a job of another file is named with it, "
        f"FILE.py:{reference}"
    )


def _module_of_last_run(home: Path | None, job: str) -> str | None:
    note = Home(home).module(job) if home is not None else None
    try:
        module = note.read_text(encoding="utf-8") if note is not None and note.is_file() else ""
        return module if module and Path(module).is_file() else None
    except (ValueError, OSError):  # it is damaged: no text, or no path
        return None


def _is_module(name: str) -> bool:
    try:
        return find_spec(name.partition(".")[0]) is not None
    except ValueError:  # of an empty name, and of __main__
        return False


def default_references() -> list[str]:
    """The job modules and SQL files of the current folder's jobs/, or the shipped ones."""
    return [str(path) for path in job_files(Path("jobs") if Path("jobs").is_dir() else shipped_dir("jobs"))]


def job_files(folder: Path) -> list[Path]:
    """The job modules and SQL files of a folder."""
    tests = ("test_", "conftest.")
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".sql"))
    return [path for path in paths if not path.name.startswith(tests)]


def job_settings() -> JobSettings:
    """The settings of running jobs."""
    return load_settings(os.environ).settings.jobs


def upkeep_settings() -> Upkeep:
    """When the tables of running jobs are looked after, and the library's own."""
    settings = load_settings(os.environ).settings
    jobs = settings.jobs
    return Upkeep(
        every=jobs.compact_every,
        files_kept_h=jobs.files_kept_h,
        log_kept_days=jobs.log_kept_days,
        results_kept_days=settings.quality.kept_days,
    )
