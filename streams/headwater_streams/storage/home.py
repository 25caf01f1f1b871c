"""Where a home keeps what jobs make: tables, checkpoints, generations."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from headwater_streams.base.errors import UnknownNameError
from headwater_streams.base.names import is_file_name
from headwater_streams.storage.delta_log import has_versions


@dataclass(frozen=True)
class Home:
    """Paths below a home folder; every name follows from a table's or a job's name and generation.

    Names may come from a command line or from a file: one that would lead out of its folder is refused with
    `UnknownNameError`.
    """

    root: Path

    def table(self, name: str) -> Path:
        """The folder of the Delta table `schema.name`."""
        schema, _, table = name.partition(".")
        return _inside(self.root / "tables", schema, table)

    def tables(self) -> list[str]:
        """The names of the tables that exist."""
        folders = [
            log.parent for log in (self.root / "tables").glob("*/*/_delta_log") if has_versions(log.parent)
        ]
        return sorted(f"{table.parent.name}.{table.name}" for table in folders)

    def set_aside(self, name: str) -> Path:
        """Where a damaged table is moved to, out of the way of the new one; the folder does not exist yet."""
        folder = self.root / "damaged"
        return next(path for n in count(1) if not (path := _inside(folder, f"{name}.{n}")).exists())

    def job(self, name: str) -> Path:
        """The folder of a job: its checkpoints, by generation, and the file that says who runs it."""
        return _inside(self.root / "checkpoints", name)

    def checkpoint(self, job: str, generation: int) -> Path:
        """The checkpoint folder of a job's generation."""
        return self.job(job) / str(generation)

    def module(self, job: str) -> Path:
        """The file that says which file the job was in when it was last run."""
        return self.job(job) / "module"

    def last_generation(self, job: str) -> int:
        """The last generation of a job that has a checkpoint; 0 where none has."""
        folders = self.job(job).glob("*")
        return max((int(each.name) for each in folders if each.name.isdecimal()), default=0)


def _inside(folder: Path, *names: str) -> Path:
    if not all(map(is_file_name, filter(None, names))):
        raise UnknownNameError(f"nothing in {folder} can be called {'.'.join(names)!r}")
    return folder.joinpath(*names)
