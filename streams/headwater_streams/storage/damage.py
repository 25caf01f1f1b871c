"""The error about a file of a home that is gone or is not what was written: its owner, and the verb that mends it.

`docs/reference/home.md` lists the files. Code that reads one raises `DamagedFileError` with its path; the owner and the
remedy follow from where the file is:

    <home>/checkpoints/<job>/<generation>/...     a job's checkpoint: renew, or rebuild
    <home>/tables/<schema>/<table>/...            a table, its log or a data file: rebuild of the job that writes it
    <home>/backfills/<id>/...                     a backfill: the step that makes the file
    <home>/quality/<table>/v<version>/...         what a suite found: another run
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwater_streams.base.errors import StreamsError
from headwater_streams.base.target import CHANGES_SUFFIX, LATE_SUFFIX, QUARANTINE_SUFFIX, declared_name

FACTS_FILE = "headwater.json"
"""In a checkpoint, what it was made with; see `spark.run_facts`."""
_COPY = "put it back from a copy"
_STORED = ("plan", "progress", "verdict", "swap", "rollback", "kept", "rejected")
_FOLDERS = ("shadow", "quarantine", "kept", "further", "rebuilt")
OF_BACKFILLS = frozenset((*(f"{name}.json" for name in _STORED), *_FOLDERS))
"""What a backfill's folder holds, except flags and locks."""
_LIBRARY_TABLES = {
    "headwater.ledger": "the next run copies what the tables' own logs have",
    "headwater.progress": "the next run begins it anew; what jobs did before is then not shown any more",
}


@dataclass(frozen=True)
class Place:
    """The owner of a file.

    Attributes:
        kind: The part of the home.
        name: The job, the table or the backfill.
        root: The home.
        below: The file's path below that job's, table's or backfill's folder.
    """

    kind: Literal["checkpoint", "table", "backfill", "quality", "other"]
    name: str
    root: Path
    below: tuple[str, ...]

    def __str__(self) -> str:
        owners = {"checkpoint": f"job {self.name!r}", "backfill": f"the backfill {self.name!r}"}
        return owners.get(self.kind, self.name)


class DamagedFileError(StreamsError):
    """A file of a home is gone or is not what was written; the message names its owner, the file and the remedy."""

    def __init__(self, path: Path, what: str, remedy: str | None = None) -> None:
        """Args: the file; what is wrong with it, as a predicate; what mends it, by default that of its place."""
        self.path, self.what = path, what
        self.place = place_of(path)
        self.remedy = remedy_of(self.place) if remedy is None else remedy
        super().__init__(f"{self.place}: {path} {what}; {self.remedy}")

    def with_remedy(self, remedy: str) -> "DamagedFileError":
        """The same error with another remedy, for a caller that knows a better one."""
        return DamagedFileError(self.path, self.what, remedy)


class NewerFileError(DamagedFileError):
    """A newer Headwater wrote a file of a home, and this one does not know all that it says; the file must not be
    mended or replaced."""

    def __init__(self, path: Path, what: str) -> None:
        """Args: the file; what is not known, as a predicate."""
        super().__init__(path, what, "a newer Headwater wrote it: update this one")

    def with_remedy(self, remedy: str) -> "DamagedFileError":
        """The same: the remedy is known."""
        return self


def place_of(path: Path) -> Place:
    """The owner of a file, by its path alone."""
    parts = path.parts
    for at in _all(parts, "backfills"):
        if len(parts) > at + 2 and parts[at + 2] in OF_BACKFILLS:
            return Place("backfill", parts[at + 1], Path(*parts[:at]), parts[at + 2 :])
    for at in reversed([*_all(parts, "checkpoints")]):
        if len(parts) > at + 1:
            return Place("checkpoint", parts[at + 1], Path(*parts[:at]), parts[at + 2 :])
    for at in reversed([*_all(parts, "tables")]):
        if len(parts) > at + 2:
            name = f"{parts[at + 1]}.{parts[at + 2]}"
            return Place("table", name, Path(*parts[:at]), parts[at + 3 :])
    for at in reversed([*_all(parts, "quality")]):
        if len(parts) > at + 3:
            return Place("quality", parts[at + 1], Path(*parts[:at]), parts[at + 2 :])
    return Place("other", path.parent.name, path.parent, (path.name,))


def remedy_of(place: Place) -> str:
    """What mends a file, as far as its place alone says."""
    if place.kind == "checkpoint":
        job = declared_name(place.name)
        if place.below[1:] == (FACTS_FILE,):
            return (
                f"{_COPY}, or begin a generation that keeps the table's rows: headwater jobs renew {job}; if nothing "
                "of the job was changed since its last run, it may be removed as well"
            )
        return (
            f"{_COPY}, or begin a generation that keeps the table's rows: headwater jobs renew {job}, which says so "
            "where only a rebuild can mend it"
        )
    if place.kind == "table":
        return _of_table(place)
    if place.kind == "backfill":
        return _of_backfill(place)
    if place.kind == "quality":
        version = place.below[0].removeprefix("v")
        return f"it is written again by headwater quality run {place.name} --version {version}"
    return _COPY


def _of_table(place: Place) -> str:
    if place.name in _LIBRARY_TABLES:
        folder = place.root.joinpath("tables", *place.name.split("."))
        return f"{_COPY}, or move the folder {folder} away: {_LIBRARY_TABLES[place.name]}"
    if place.name == "headwater.seen":
        return (
            f"{_COPY}, or make the tables of the jobs again that stop for want of it: headwater jobs rebuild"
        )
    writer = writer_of(place.root, place.name)
    if writer is None:
        return f"{_COPY}; no job of this home writes the table"
    ingest = " --ingest" if "__ingest_" in writer else ""
    return f"{_COPY}, or make the table again: headwater jobs rebuild {declared_name(writer)}{ingest}"


def _of_backfill(place: Place) -> str:
    verbs = {
        "progress.json": f"it is written again by headwater backfill run {place.name}",
        "verdict.json": f"it is written again by headwater backfill verify {place.name}",
        "rejected.json": f"it is written again by headwater backfill verify {place.name}",
        "swap.json": f"it is written again by headwater backfill swap {place.name}",
        "rollback.json": f"it is written again by headwater backfill rollback {place.name}",
    }
    again = f"give the backfill up, headwater backfill abort {place.name}, and plan it again"
    if place.below[0] == "plan.json":
        folder = place.root / "backfills" / place.name
        again = f"if it was not swapped in, remove the folder {folder} and plan it again"
    return verbs.get(place.below[0], f"{_COPY}, or {again}")


def writer_of(root: Path, table: str) -> str | None:
    """The job that writes a table or a side table, by what the checkpoints say: the table's log may be unreadable."""
    base = table
    for suffix in (LATE_SUFFIX, QUARANTINE_SUFFIX, CHANGES_SUFFIX):
        base = base.removesuffix(suffix)
    writers = [job for job, targets in _targets(root) if base in targets]
    if table.endswith(QUARANTINE_SUFFIX):  # a job's ingest parts write its quarantine, too
        ingests = [job for job, _ in _targets(root) if writers and job.startswith(f"{writers[0]}__ingest_")]
        writers = [*ingests, *writers]
    return next(iter(writers), None)


def _targets(root: Path) -> Iterator[tuple[str, set[str]]]:
    for facts in sorted((root / "checkpoints").glob(f"*/[0-9]*/{FACTS_FILE}")):
        value: Any = None
        with suppress(OSError, ValueError):
            value = json.loads(facts.read_bytes())
        targets = value.get("targets") if isinstance(value, dict) else None
        if isinstance(targets, dict):
            yield facts.parent.parent.name, set(targets)


def _all(parts: tuple[str, ...], name: str) -> Iterator[int]:
    return (at for at, part in enumerate(parts) if part == name)
