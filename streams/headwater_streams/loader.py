"""Finds jobs: `path/to/module.py`, `path/to/file.sql`, `package.module`, each with `:job` behind it.

No Spark session is started.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import folded
from headwater_streams.plan.job import Job, bind, declared, declared_as, is_job
from headwater_streams.storage.files import is_file
from headwater_streams.streaming_sql import load_each_sql


class NoModuleError(JobDefinitionError):
    """A reference names nothing that could be a module of jobs."""


@dataclass(frozen=True)
class NotLoaded:
    """A module that cannot be loaded, or jobs of one.

    Attributes:
        where: The module, as it was named.
        error: What is wrong.
        jobs: The jobs that this is about, each with the tables that it writes, as far as they are known.
        file: The module's file, where it may have jobs of which nothing is known; empty otherwise.
        is_whole: Whether it may have such jobs.
    """

    where: str
    error: JobDefinitionError
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_whole: bool = False
    file: str = ""


@dataclass(frozen=True)
class LoadedJobs:
    """The jobs of several references, and what of these cannot be loaded."""

    jobs: list[Job]
    left_out: list[NotLoaded]


def load_jobs(references: Sequence[str], *, search: Sequence[Path] = ()) -> list[Job]:
    """Loads the jobs of several references; a job named twice by different references is loaded once.

    Args:
        references: Each `PATH_OR_MODULE[:job]`.
        search: Folders in which a relative path is looked for after the current one.

    Raises:
        JobDefinitionError: A module cannot be loaded, has no such job, or two jobs share a name or a table.
    """
    loaded = load_each(references, search=search)
    for each in loaded.left_out:
        raise each.error
    return loaded.jobs


def load_each(references: Sequence[str], *, search: Sequence[Path] = ()) -> LoadedJobs:
    """Loads those of the jobs that can be loaded, as `load_jobs` does.

    Raises:
        JobDefinitionError: A reference names nothing: there is no such module, or it has no such job.
    """
    jobs: dict[str, Job] = {}
    left_out: dict[str, NotLoaded] = {}
    clashing: set[str] = set()

    def clash(where: str, error: JobDefinitionError, *of: Job) -> None:
        named = {job.name: tuple(target.name for target in job.targets) for job in of}
        left_out.setdefault(str(error), NotLoaded(where, error, named))
        clashing.update(named)

    for reference in references:
        where, _ = _parts_of(reference)
        found, wrong = _load(reference, search)
        left_out |= {str(each.error): each for each in wrong if str(each.error) not in left_out}
        for job in found:
            earlier = jobs.setdefault(job.name, job)
            if _place(earlier) != _place(job):
                clash(where, _of_one_name(earlier, job), earlier, job)
    by_table: dict[str, tuple[Job, str]] = {}
    by_name: dict[str, Job] = {}
    for job in jobs.values():
        where = job.code.co_filename
        for target in job.targets:
            other, table = by_table.setdefault(folded(target.name), (job, target.name))
            if table != target.name:
                clash(
                    where,
                    JobDefinitionError(
                        f"the jobs {other.name!r} and {job.name!r} write {table} and {target.name}, which are one name "
                        "in SQL; call one otherwise"
                    ),
                    other,
                    job,
                )
            elif other is not job:
                clash(
                    where,
                    JobDefinitionError(
                        f"the jobs {other.name!r} and {job.name!r} both write {target.name}; a table has one writer"
                    ),
                    other,
                    job,
                )
        alike = by_name.setdefault(folded(job.name), job)
        if alike is not job:
            clash(
                where,
                JobDefinitionError(
                    f"two jobs are named {job.name!r}, if small letters and capitals are the same, as they are on some "
                    "disks; call one otherwise"
                ),
                alike,
                job,
            )
    return LoadedJobs([job for job in jobs.values() if job.name not in clashing], [*left_out.values()])


def _parts_of(reference: str) -> tuple[str, str]:
    """The module of a reference, and the job, if it names one."""
    where, separator, name = reference.rpartition(":")
    return (where, name) if separator else (reference, "")


def _load(reference: str, search: Sequence[Path]) -> tuple[list[Job], list[NotLoaded]]:
    where, name = _parts_of(reference)
    found, left_out = _load_sql(where, search) if where.endswith(".sql") else _load_module(where, search)
    about = [each for each in left_out if not name or each.is_whole or name in each.jobs]
    jobs: dict[str, Job] = {}
    twice: set[str] = set()
    for job in found:
        other = jobs.setdefault(job.name, job)
        if other is not job and name in ("", job.name):
            tables = tuple(target.name for each in (other, job) for target in each.targets)
            about.append(NotLoaded(where, _of_one_name(other, job), {job.name: tables}))
            twice.add(job.name)
    if name and name not in jobs:
        about = left_out if where.endswith(".sql") else about  # one of these statements may give it
        if not about:
            names = ", ".join([*jobs, *(job for each in left_out for job in each.jobs)])
            raise JobDefinitionError(f"{where}: no job {name!r}; its jobs are {names}")
    return [job for job in jobs.values() if name in ("", job.name) and job.name not in twice], about


def _load_sql(where: str, search: Sequence[Path]) -> tuple[list[Job], list[NotLoaded]]:
    path = _find(where, search)
    try:
        jobs, wrong = load_each_sql(path)
    except JobDefinitionError as error:
        return [], [NotLoaded(where, error, is_whole=True, file=str(path))]
    return jobs, [
        NotLoaded(where, each.error, {each.table.rpartition(".")[2]: (each.table,)})
        if each.table
        else NotLoaded(where, each.error, is_whole=True, file=str(path))
        for each in wrong
    ]


def _of_one_name(one: Job, other: Job) -> JobDefinitionError:
    """Two jobs that share a name: in SQL that is the table's, where none is given."""
    shared = {target.name for target in one.targets} & {target.name for target in other.targets}
    if shared:
        remedy = f"both write {min(shared)}, and a table has one writer"
    else:
        remedy = f"give one another name{' WITH (name = ...)' if other.text else '='}"
    return JobDefinitionError(
        f"two jobs are named {other.name!r}: {_place(one)} and {_place(other)}; {remedy}"
    )


def _load_module(where: str, search: Sequence[Path]) -> tuple[list[Job], list[NotLoaded]]:
    path = _find(where, search) if where.endswith(".py") or "/" in where else None
    token = declared.set([])
    try:
        module = _import(where, path)
    except NoModuleError:
        raise
    except JobDefinitionError as error:
        before = dict(map(declared_as, declared.get() or []))
        return [], [NotLoaded(where, error, before, is_whole=True, file="" if path is None else str(path))]
    else:
        met = declared.get() or []
    finally:
        declared.reset(token)
    functions = met or [value for value in vars(module).values() if is_job(value)]
    if not functions:
        no_job = JobDefinitionError(f"{where}: no job in it; decorate a function with @hw.job(target=...)")
        return [], [NotLoaded(where, no_job, is_whole=True)]
    jobs, left_out = list[Job](), list[NotLoaded]()
    for function in functions:
        try:
            jobs.append(bind(function))
        except JobDefinitionError as error:
            left_out.append(NotLoaded(where, error, dict([declared_as(function)])))
    return jobs, left_out


def _import(where: str, path: Path | None) -> ModuleType:
    try:
        if path is not None:
            return _import_file(path)
        sys.modules.pop(where, None)
        return importlib.import_module(where)
    except (JobDefinitionError, InvalidCheckError) as error:
        raise JobDefinitionError(f"{where}{_line_in(where, error)}: {error}") from error
    except SyntaxError as error:
        raise JobDefinitionError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        if error.name == where:
            raise NoModuleError(_no_module(where)) from error
        raise JobDefinitionError(f"{where}: it imports {error.name!r}, which is not installed") from error
    except (Exception, SystemExit) as error:  # one module that gives up is not to end the others' command
        line = _line_in(where, error)
        raise JobDefinitionError(f"{where}{line}: {type(error).__name__}: {error}") from error


def _find(where: str, search: Sequence[Path]) -> Path:
    for folder in (Path(), *search):
        candidate = folder / where
        if is_file(candidate):
            return candidate.resolve()
    raise NoModuleError(_no_module(where))


def _no_module(where: str) -> str:
    return f"no job module {where!r}; give a path ending in .py or .sql, or an importable module"


def _import_file(path: Path) -> ModuleType:
    name = f"headwater_jobs_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # A worker cannot import it: the name is ours.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    sys.path.insert(0, str(path.parent))  # a job module may import its neighbours, as a script may
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _place(job: Job) -> str:
    code = job.code
    return f"{code.co_filename}, line {code.co_firstlineno}"


def _line_in(where: str, error: BaseException) -> str:
    traceback, line = error.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.endswith(where.removeprefix("./")):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f", line {line}" if line else ""
