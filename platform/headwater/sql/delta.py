"""Opens Delta tables at a version, without a JVM."""

import importlib.abc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.sql.catalog import TableRef
from headwater.sql.errors import NoVersionError, SqlError
from headwater_broker.numbers import is_natural

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    import pyarrow.dataset as pads
    from deltalake import DeltaTable

At = int | datetime | None


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table pinned at one version: later commits are not read."""

    ref: TableRef
    version: int
    delta: "DeltaTable"

    def dataset(self) -> "pads.Dataset":
        """The rows as an Arrow dataset, which takes column choices and filters down to the files.

        Raises:
            SqlError: deltalake cannot read the table.
        """
        with _without_pandas():
            from headwater_streams.storage.delta_rows import dataset_of
        with _errors_as(
            f"cannot read {self.ref.qualified_name} without Spark ({{}}): use --engine spark", self.ref
        ):
            rows = dataset_of(self.ref.path, self.delta)
            return self._with_variants(rows) if "variant" in self.delta.schema().to_json() else rows

    def _with_variants(self, rows: "pads.Dataset") -> "pads.Dataset":
        import pyarrow as pa

        from headwater.sql.variant import declared

        kinds = {field.name: field.type for field in self.delta.schema().fields}
        return rows.replace_schema(pa.schema([declared(field, kinds[field.name]) for field in rows.schema]))

    def row_counts(self) -> "list[int | None]":
        """The rows of each file according to Delta's log; None where it has no number.

        Raises:
            SqlError: The log cannot be read that far.
        """
        with _errors_as(f"cannot read the log of {self.ref.qualified_name}: {{}}", self.ref):
            counts = self.delta.get_add_actions(flatten=True).column("num_records")
            return list(counts.to_pylist())


def parse_at(text: str) -> int | datetime:
    """A version number or an ISO timestamp (UTC if it names no zone).

    Raises:
        ValueError: It is neither.
    """
    if is_natural(text):
        return int(text)
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def open_table(ref: TableRef, at: At = None) -> OpenTable:
    """Reads the table's log and pins the newest version, or the one that `at` asks for.

    Raises:
        SqlError: The log cannot be read, or has no such version, or none that old.
    """
    from deltalake import DeltaTable

    from headwater_streams.storage.delta_log import require_readable

    if at is None:
        with _errors_as(f"cannot open table {ref.qualified_name}: {{}}", ref):
            require_readable(ref.path)
            newest = DeltaTable(str(ref.path))
        return OpenTable(ref, newest.version(), newest)
    try:
        with _errors_as("{}", ref):
            delta = DeltaTable(str(ref.path), version=at if isinstance(at, int) else None)
            if isinstance(at, datetime):
                delta.load_as_version(at)
    except SqlError as error:
        raise NoVersionError(
            f"table {ref.qualified_name} has no version at {at}: {_available(ref)}"
        ) from error
    if isinstance(at, datetime):
        _require_committed(ref, delta.version(), at)
    return OpenTable(ref, delta.version(), delta)


def _require_committed(ref: TableRef, version: int, at: datetime) -> None:
    """delta-rs goes by the files' times, as Delta does, and takes the oldest version for what is before it."""
    commit = ref.path / "_delta_log" / f"{version:020}.json"
    if not commit.exists():  # the log was cut behind a checkpoint
        return
    committed = datetime.fromtimestamp(commit.stat().st_mtime, UTC)
    if committed.replace(microsecond=committed.microsecond // 1000 * 1000) > at:  # it compares milliseconds
        raise NoVersionError(
            f"table {ref.qualified_name} has no version at {at}: its oldest is version {version}, "
            f"of {committed.isoformat(timespec='seconds')}"
        )


def _available(ref: TableRef) -> str:
    newest = open_table(ref)
    return f"its newest is version {newest.version}, of {_commit_time(newest.delta)}"


def _commit_time(delta: "DeltaTable") -> str:
    return datetime.fromtimestamp(delta.history(1)[0]["timestamp"] / 1000, UTC).isoformat(timespec="seconds")


def damage_of(ref: TableRef) -> SqlError | None:
    """The damage of a table that could not be read, as an error; None if it has none."""
    from headwater_streams.storage.delta_files import table_damage

    damaged = table_damage(ref.path)
    return None if damaged is None else SqlError(str(damaged))


@contextmanager
def _errors_as(sentence: str, ref: TableRef) -> Iterator[None]:
    """Raises whatever deltalake raises as a SqlError of this sentence; a panic in Rust is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise (damage_of(ref) or SqlError(sentence.format(lines[0]))) from error


class _RefusePandas(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("left out: see _without_pandas", name=fullname)
        return None


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keeps `import pyarrow.dataset` from importing pandas, which it does only to ask whether a literal is a Series.

    Measured: 0.17 s of the half second that `headwater sql` may take. pyarrow imports pandas again where it really
    needs it, so `to_pandas()` works afterwards.
    """
    if "pandas" in sys.modules or "pyarrow.dataset" in sys.modules:
        yield
        return
    finder = _RefusePandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
