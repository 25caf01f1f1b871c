"""The look-ups of a job, pinned: each batch reads one version of each table, and its ledger entry says which."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater_streams.base.errors import DataLossError, IncompatibleTableError, LookupKeyError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.record import Part
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import next_commit
from headwater_streams.operators.joins.enrich import trusting
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.spark.columns import col
from headwater_streams.spark.spark_errors import JvmError
from headwater_streams.storage.delta_rows import table_id
from headwater_streams.storage.files import exists


@dataclass(frozen=True, kw_only=True)
class LookupVersion(Part):
    """A version of a table; the id distinguishes it from another table that was made under the same name."""

    WHAT = "the version of a look-up"

    version: int
    table_id: str

    def to_json(self) -> dict[str, Any]:
        """The version as a plan has it."""
        return {"version": self.version, "table_id": self.table_id}

    @classmethod
    def from_json(cls, value: Any) -> "LookupVersion":
        """The version that stands in a plan."""
        return cls(**cls.checked(value))


Versions = Mapping[str, LookupVersion]
"""The version of each look-up, by its name in the job's function."""


@dataclass(frozen=True)
class PinnedLookups:
    """The look-ups as one batch reads them.

    Attributes:
        versions: Their versions.
        frames: Their rows, for the job's function.
    """

    versions: Versions
    frames: Mapping[str, DataFrame]


class Lookups:
    """Pins the look-ups of a job."""

    def __init__(self, context: StageContext, plan: JobPlan) -> None:
        self._context, self._job, self._schemas = context, plan.job, plan.lookups
        self._pinned = PinnedLookups({}, {})
        self._trusted: Versions | None = None

    def newest(self) -> PinnedLookups:
        """The look-ups at their newest versions.

        Raises:
            DataLossError: A table is gone.
            IncompatibleTableError: A table lost a column, or has it in another type, since the job was planned.
        """
        return self.at({name: self._newest(name) for name in self._schemas})

    def at(self, versions: Versions) -> PinnedLookups:
        """The look-ups at these versions; versions that were read before cost nothing.

        Raises:
            DataLossError: A version is gone.
            IncompatibleTableError: It does not have the columns that the job was planned with.
        """
        if self._pinned.versions != versions:
            frames = {name: self._load(name, version) for name, version in versions.items()}
            self._pinned = PinnedLookups(dict(versions), frames)
        return self._pinned

    def require(self, versions: Versions) -> None:
        """Checks that versions can still be read.

        Raises:
            DataLossError: A version's log or one of its files is gone.
        """
        for name, frame in self.at(versions).frames.items():
            for file in frame.inputFiles():
                if not exists(Path(unquote(urlparse(file).path))):
                    raise self._gone(name, versions[name].version, "its files were vacuumed")

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Checks keys while the block calls the function, once for each set of versions.

        Raises:
            LookupKeyError: One has several rows for a key.
        """
        versions = self._pinned.versions
        with trusting(self._trusted == versions):
            try:
                yield
            except LookupKeyError as error:
                tables = ", ".join(declared.name for declared in self._job.lookups.values())
                raise LookupKeyError(f"job {self._job.name!r}, which looks up {tables}: {error}") from error
        self._trusted = versions

    def _newest(self, name: str) -> LookupVersion:
        version = next_commit(self._path(name)) - 1
        if version < 0:
            raise self._gone(name, version, "there is no such table")
        pinned = self._pinned.versions.get(name)
        return (
            pinned
            if pinned and pinned.version == version
            else LookupVersion(version=version, table_id=self._id(name))
        )

    def _id(self, name: str) -> str:
        return table_id(self._path(name))

    def _load(self, name: str, pinned: LookupVersion) -> DataFrame:
        path, declared, version = self._path(name), self._job.lookups[name], pinned.version
        if next_commit(path) == 0:
            raise self._gone(name, version, "there is no such table any more")
        if pinned.table_id != self._id(name):
            raise self._gone(name, version, "the table was made anew since")
        try:
            frame = read_version(self._context.spark, path, version)
        except (PySparkException, JvmError) as error:
            raise self._gone(name, version, "its log was cleaned up") from error
        columns = {f.name: f.dataType for f in frame.schema.fields}
        for field in self._schemas[name].fields:
            if columns.get(field.name) != field.dataType:
                has = columns[field.name].simpleString() if field.name in columns else "no such column"
                raise IncompatibleTableError(
                    f"job {self._job.name!r}: the look-up {declared.name} had {field.name} "
                    f"{field.dataType.simpleString()} when the job was planned, and has {has} at version {version}"
                )
        return frame.select(*[col(column) for column in self._schemas[name].fieldNames()])

    def _gone(self, name: str, version: int, why: str) -> DataLossError:
        table = self._job.lookups[name].name
        what = table if version < 0 else f"version {version} of {table}"
        return DataLossError(f"job {self._job.name!r}: the look-up {what} cannot be read: {why}")

    def _path(self, name: str) -> Path:
        return self._context.home.table(self._job.lookups[name].name)


def fillers_of(plans: Sequence[JobPlan], *, begins: Callable[[Job], bool]) -> set[str]:
    """The names of the jobs that write the tables in which a new job looks things up, and of the jobs that feed these.

    Args:
        plans: The jobs in the order of their tables.
        begins: Whether a job has read nothing yet.
    """
    tables: set[str] = set()
    fillers = set()
    for job in (plan.job for plan in reversed(plans)):
        if job.lookups and begins(job):
            tables |= {declared.name for declared in job.lookups.values()}
        if not tables.isdisjoint(target.name for target in job.targets):
            fillers.add(job.name)
            tables |= job.table_names
    return fillers


def lookups_extra(plan: JobPlan, pinned: PinnedLookups) -> ExtraValues:
    """What a ledger entry says of a batch's look-ups."""
    versions = {
        name: {"table": plan.job.lookups[name].name, "version": version.version, "id": version.table_id}
        for name, version in pinned.versions.items()
    }
    return {Extra.LOOKUPS: versions} if versions else {}


def versions_of(entry: LedgerEntry) -> dict[str, LookupVersion]:
    """The versions that a batch read."""
    versions = Extra.LOOKUPS.get(entry, {})
    return {
        name: LookupVersion(version=version["version"], table_id=version["id"])
        for name, version in versions.items()
    }
