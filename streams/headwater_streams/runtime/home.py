"""Where a home keeps what jobs make: tables, checkpoints, generations."""

import json
from dataclasses import dataclass
from pathlib import Path

from headwater_streams.atomic_file import atomic_file


@dataclass(frozen=True)
class Home:
    """Paths below a home folder; every name follows from a table's or a job's name and generation."""

    root: Path

    def table(self, name: str) -> Path:
        """The folder of the Delta table `schema.name`."""
        schema, _, table = name.partition(".")
        return self.root / "tables" / schema / table

    def tables(self) -> list[str]:
        """The names of the tables that exist."""
        found = (self.root / "tables").glob("*/*/_delta_log")
        return sorted(f"{log.parent.parent.name}.{log.parent.name}" for log in found)

    def checkpoint(self, job: str, generation: int) -> Path:
        """The checkpoint folder of a job's generation."""
        return self.root / "checkpoints" / job / str(generation)

    def module(self, job: str) -> Path:
        """The file that says in which file a job was when it was last run."""
        return self.root / "checkpoints" / job / "module"

    def last_generation(self, job: str) -> int:
        """The last generation of a job that has a checkpoint; 0 where none has."""
        found = (self.root / "checkpoints" / job).glob("*")
        return max((int(each.name) for each in found if each.name.isdecimal()), default=0)


def write_atomically(path: Path, value: object) -> None:
    """Writes JSON so that a reader, or a crash, sees the old file or the new one."""
    with atomic_file(path) as file:
        file.write(json.dumps(value).encode())
