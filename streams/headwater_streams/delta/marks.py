"""The transaction marks of tables, without Spark.

Delta answers `txnVersion` by rebuilding the state of the table's newest version, with Spark jobs of its own: 0.4 s of
a batch's 0.6 s. deltalake reads it from the log. What a process has read up to a version can be changed only by later
commits, which are small files.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import opened_table
from headwater_streams.storage.files import read_text


@dataclass(frozen=True)
class _Mark:
    version: int
    batch: int


class Marks:
    """The last batch of each `(table, application id)` that was requested."""

    def __init__(self) -> None:
        self._marks: dict[tuple[Path, str], _Mark] = {}

    def last_batch(self, table: Path, app_id: str, version: int) -> int:
        """The last batch committed under `app_id` up to a version of the table, -1 before the first.

        Args:
            table: The table's folder.
            app_id: The mark's application id.
            version: The version.
        """
        earlier = self._marks.get((table, app_id))
        batch = None
        if earlier is not None and earlier.version <= version:
            batch = _last_of(table, app_id, earlier, version)
        mark = _Mark(version, last_batch(table, app_id, version) if batch is None else batch)
        self._marks[table, app_id] = mark
        return mark.batch


def last_batch(table: Path, app_id: str, version: int | None = None) -> int:
    """The last batch committed to a table under an application id, -1 before the first.

    Args:
        table: The table's folder.
        app_id: The mark's application id.
        version: The version; the newest one by default.
    """
    batch = opened_table(table, version).transaction_version(app_id)
    return -1 if batch is None else batch


def generation_id(job: str) -> str:
    """The application id of the mark that holds a job's generation."""
    return f"{job}/generation"


def _last_of(table: Path, app_id: str, earlier: _Mark, version: int) -> int | None:
    batch = earlier.batch
    for number in range(earlier.version + 1, version + 1):
        path = table / "_delta_log" / f"{number:020d}.json"
        try:
            for line in read_text(path).splitlines():
                if '"txn"' in line and (txn := json.loads(line).get("txn")) and txn["appId"] == app_id:
                    batch = int(txn["version"])
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError) as error:
            raise DamagedFileError(path, f"is no commit of a Delta log ({error})") from error
    return batch
