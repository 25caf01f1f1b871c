"""Finds jobs: `path/to/module.py`, `path/to/file.sql`, `package.module`, each with `:job` behind it.

No Spark session is started.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import folded, named_twice
from headwater_streams.plan.job import Job, bind, declared, is_job
from headwater_streams.storage.files import is_file
from headwater_streams.streaming_sql import load_sql


def load_jobs(references: Sequence[str], *, search: Sequence[Path] = ()) -> list[Job]:
    """Loads the jobs of several references; a job named twice by different references is loaded once.

    Args:
        references: Each `PATH_OR_MODULE[:job]`.
        search: Folders in which a relative path is looked for after the current one.

    Raises:
        JobDefinitionError: A module cannot be loaded, has no such job, or two jobs share a name or a table.
    """
    jobs: dict[str, Job] = {}
    for reference in references:
        for job in _load(reference, search):
            earlier = jobs.setdefault(job.name, job)
            if _place(earlier) != _place(job):
                raise _of_one_name(earlier, job)
    by_table: dict[str, tuple[Job, str]] = {}
    for job in jobs.values():
        for target in job.targets:
            other, table = by_table.setdefault(folded(target.name), (job, target.name))
            if table != target.name:
                raise JobDefinitionError(
                    f"the jobs {other.name!r} and {job.name!r} write {table} and {target.name}, which are one name in "
                    "SQL; call one otherwise"
                )
            if other is not job:
                raise JobDefinitionError(
                    f"the jobs {other.name!r} and {job.name!r} both write {target.name}; a table has one writer"
                )
    alike = named_twice(jobs)
    if alike is not None:
        raise JobDefinitionError(
            f"two jobs are named {alike!r}, if small letters and capitals are the same, as they are on some disks; "
            "call one otherwise"
        )
    return list(jobs.values())


def _load(reference: str, search: Sequence[Path]) -> list[Job]:
    where, separator, name = reference.rpartition(":")
    if not separator:
        where, name = reference, ""
    jobs = load_sql(_find(where, search)) if where.endswith(".sql") else _load_module(where, search)
    named: dict[str, Job] = {}
    for job in jobs:
        if named.setdefault(job.name, job) is not job:
            raise _of_one_name(named[job.name], job)
    if name:
        jobs = [job for job in jobs if job.name == name]
        if not jobs:
            raise JobDefinitionError(f"{where}: no job {name!r}; its jobs are {', '.join(named)}")
    return jobs


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


def _load_module(where: str, search: Sequence[Path]) -> list[Job]:
    token = declared.set([])
    try:
        module = _import(where, search)
        met = declared.get() or []
    finally:
        declared.reset(token)
    functions = met or [value for value in vars(module).values() if is_job(value)]
    if not functions:
        raise JobDefinitionError(f"{where}: no job in it; decorate a function with @hw.job(target=...)")
    return [bind(function) for function in functions]


def _import(where: str, search: Sequence[Path]) -> ModuleType:
    path = _find(where, search) if where.endswith(".py") or "/" in where else None
    try:
        if path is not None:
            return _import_file(path)
        sys.modules.pop(where, None)
        return importlib.import_module(where)
    except JobDefinitionError as error:
        raise JobDefinitionError(f"{where}{_line_in(where, error)}: {error}") from error
    except SyntaxError as error:
        raise JobDefinitionError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        if error.name == where:
            raise JobDefinitionError(_no_module(where)) from error
        raise JobDefinitionError(f"{where}: it imports {error.name!r}, which is not installed") from error
    except Exception as error:
        line = _line_in(where, error)
        raise JobDefinitionError(f"{where}{line}: {type(error).__name__}: {error}") from error


def _find(where: str, search: Sequence[Path]) -> Path:
    for folder in (Path(), *search):
        candidate = folder / where
        if is_file(candidate):
            return candidate.resolve()
    raise JobDefinitionError(_no_module(where))


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
    code = job.function.__code__
    return f"{code.co_filename}, line {code.co_firstlineno}"


def _line_in(where: str, error: BaseException) -> str:
    traceback, line = error.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.endswith(where.removeprefix("./")):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f", line {line}" if line else ""
