"""What the columns of a home's tables are made of, as it was when their jobs were started last: `columns.json`.

    {"tables": {"gold.delays": {"carrier": [["flights", "carrier", "IDENTITY"]]}}}

A plan says so (see `plan.column_lineage`), and to plan takes Spark. Who tells lineage has none: a command beside the
jobs, or another process than the one that runs a table's job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater_streams.base.record import Record
from headwater_streams.ledger.openlineage import Columns
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import exists, locked
from headwater_streams.storage.home import Home
from headwater_streams.storage.records import read_record, write_record

_FILE, _LOCK = "columns.json", "columns.lock"


@dataclass(frozen=True, kw_only=True)
class KnownColumns(Record):
    """See the module."""

    WHAT = "what columns are made of"

    tables: Mapping[str, Columns] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """It as it is stored."""
        tables = {
            table: {name: [list(each) for each in of] for name, of in columns.items()}
            for table, columns in self.tables.items()
        }
        return self.version_key() | {"tables": tables}

    @classmethod
    def from_json(cls, value: Any) -> "KnownColumns":
        """It as it was stored."""
        tables = {
            table: {
                name: tuple((data, column, how) for data, column, how in of) for name, of in columns.items()
            }
            for table, columns in cls.checked(value)["tables"].items()
        }
        return cls(tables=tables)


def known_columns(home: Home) -> Mapping[str, Columns]:
    """What the columns of tables are made of, by the names of the tables.

    Raises:
        DamagedFileError: The file is not what was written.
    """
    path = home.root / _FILE
    try:
        return read_record(path, KnownColumns).tables if exists(path) else {}
    except DamagedFileError as error:
        raise error.with_remedy("remove it: it is written when jobs start") from error


def remember_columns(home: Home, columns: Mapping[str, Columns]) -> None:
    """Stores what the columns of some tables are made of; the others stay as they are known."""
    with locked(home.root / _LOCK):  # other processes run jobs of this home, too
        try:
            known = known_columns(home)
        except DamagedFileError:
            known = {}
        all_of_them = {**known, **columns}
        if all_of_them != known:
            write_record(home.root / _FILE, KnownColumns(tables=all_of_them))
