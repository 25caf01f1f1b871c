"""Whether a Delta table is as its log says: the error where it cannot be read, and the data files that it needs.

The error about a data file that is gone or has another length names the version that added it. Whether a byte of a
file has changed is known by the checksum that Hadoop writes beside Spark's files; deltalake, which compacts, writes
none.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.record import NewerRecordError
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_log import (
    actions_of,
    has_versions,
    log_damage,
    log_files,
    require_readable,
)
from headwater_streams.storage.stored_files import require_checksum


def opened_table(table: Path, version: int | None = None) -> DeltaTable:
    """A table at a version, the newest by default.

    Raises:
        DamagedFileError: A file of its log is damaged.
    """
    with reading(table):
        require_readable(table)
        return DeltaTable(str(table), version=version)


def partition_columns(table: Path, version: int | None = None) -> tuple[str, ...]:
    """The columns that a table is partitioned by at a version, the newest by default."""
    return tuple(opened_table(table, version).metadata().partition_columns)


def properties_of(table: Path) -> dict[str, str]:
    """A table's properties, by their names."""
    return dict(opened_table(table).metadata().configuration)


@contextmanager
def reading(table: Path) -> Iterator[None]:
    """Reads a table in the block: an error that comes of damage is raised as that.

    Raises:
        DamagedFileError: A file of the table is damaged.
    """
    try:
        yield
    except DamagedFileError:
        raise
    except BaseException as error:
        if not _is_of_reading(error):
            raise
        damage = table_damage(table)
        if damage is None:
            raise
        raise damage from error


def _is_of_reading(error: BaseException) -> bool:
    """A panic in Rust is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def table_damage(table: Path, *, with_contents: bool = True) -> DamagedFileError | None:
    """The first damaged file of a table: of its log, or a data file of its newest version.

    It is the log's folder where each file of the log is sound by itself but deltalake cannot read them, as after
    another tool has given the table features that deltalake lacks.

    Args:
        table: The table's folder.
        with_contents: Whether to read every data file, for a byte that has changed; else only the sizes are compared.
    """
    if not has_versions(table):
        return None
    damaged = log_damage(table)
    if damaged is not None:
        return damaged
    try:
        actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    except BaseException as error:
        if not _is_of_reading(error):
            raise
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return DamagedFileError(table / "_delta_log", f"cannot be read ({why[:300]})")
    for action in actions:
        path = _in_folder(table, action["path"])
        what = _wrong_with(path, int(action["size_bytes"]), with_contents=with_contents)
        if what is not None:
            return DamagedFileError(path, f"{what}{added_by(table, action['path'])}")
    return None


def data_file(table: Path, name: str) -> Path:
    """The path of a data file by its name in the log, which is part of a URI: the folder `city=Rome%2FOstia` is
    `city=Rome%252FOstia` there."""
    return table / (unquote(name) if "%" in name else name)


def data_paths(table: Path, opened: DeltaTable) -> list[Path]:
    """The data files of a table at the version that it was opened at.

    deltalake quotes the folder of a table in the names that it gives, and nothing behind it.
    """
    root = opened.table_uri.removeprefix("file://")
    names = (uri.removeprefix("file://").removeprefix(root).lstrip("/") for uri in opened.file_uris())
    return [table / name for name in names]


def _in_folder(table: Path, name: str) -> Path:
    """The same; other tools may not have quoted the name."""
    plain = table / name
    return plain if plain.exists() else data_file(table, name)


def _wrong_with(path: Path, size_bytes: int, *, with_contents: bool) -> str | None:
    try:
        actual_bytes = path.stat().st_size
    except OSError:
        return "is gone"
    if actual_bytes != size_bytes:
        return f"has {actual_bytes:,} bytes where {size_bytes:,} were written"
    if not with_contents:
        return None
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            require_checksum(path, data)
        pq.read_metadata(path)
    except DamagedFileError as error:
        return error.what
    except Exception as error:  # Arrow has many for what is no Parquet
        return f"is no Parquet any more ({(str(error).splitlines() or [''])[0]})"
    return None


def added_by(table: Path, name: str) -> str:
    """Which commit added a data file, as the end of a sentence; nothing where its log was cut.

    Args:
        table: The table's folder.
        name: The file's path in it, or its name, which is its own whatever partition it is in.
    """
    last = PurePath(name).name
    for version, path in reversed(log_files(table)):
        entry, adds = None, False
        for action in actions_of(path):
            if "commitInfo" in action:
                with suppress(NewerRecordError):
                    entry = LedgerEntry.from_json(action["commitInfo"].get("userMetadata"))
            adds |= "add" in action and PurePath(action["add"]["path"]).name == last
        if adds:
            whose = f" (batch {entry.batch} of job {entry.job!r})" if entry and entry.is_batch else ""
            return f", a data file that version {version}{whose} added"
    return ", a data file of its newest version"
