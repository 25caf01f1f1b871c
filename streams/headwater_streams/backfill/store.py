"""A backfill's folder, `<home>/backfills/<id>/`: plan, progress, verdict and swap as JSON, the shadow as Delta tables.

plan.json       written once
progress.json   after each chunk; the shadow's own log is the truth, this is for people and `status`
verdict.json    the last verification
swap.json       what the swap did, rollback.json what the rollback did; the target's log is the truth
pause, aborted  flags
lock            held by the process that works on the backfill; it ends with the process
shadow/         the new rows; quarantine/ the rows that the run rejected
rejected.json   of windows and joins, which rows of the job's quarantine table they replace
kept/           rows of the target beside those that are replaced, copied aside; kept.json says of which files
further/<table>/  shadow/ and kept/ of each other table, where the job writes several
rebuilt/        the tables and the checkpoint of a rebuild; its tables' logs are the ledger of what was swapped in
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.values import PLAN_FORMAT
from headwater_streams.base.errors import StreamsError
from headwater_streams.base.extra import Extra
from headwater_streams.base.names import is_file_name
from headwater_streams.base.nearest import nearest
from headwater_streams.base.record import NewerRecordError
from headwater_streams.ledger.log import commits
from headwater_streams.storage.damage import OF_BACKFILLS, DamagedFileError, NewerFileError
from headwater_streams.storage.files import changed_ns, exists, is_folder, locked, matching, remove, touch
from headwater_streams.storage.home import Home
from headwater_streams.storage.records import Stored, naming_file, read_record, write_record
from headwater_streams.storage.stored_files import read_json

AnyPlan = BackfillPlan | RebuildPlan | RewindPlan
Plan = TypeVar("Plan", BackfillPlan, RebuildPlan, RewindPlan)
R = TypeVar("R", bound="FolderStored")
_MODES: dict[str, type[AnyPlan]] = {plan.mode: plan for plan in (BackfillPlan, RebuildPlan, RewindPlan)}


class FolderStored(Stored, Protocol):
    """A `FolderRecord`, as it is read and written."""

    FILE: ClassVar[str]


class BackfillError(StreamsError):
    """A step of a backfill is refused; the message says why and what to do."""


class NothingToRepairError(BackfillError):
    """No row is late, or in quarantine, that a repair could mend: there is nothing to do."""


class UnknownBackfillError(BackfillError):
    """There is no backfill of that name."""


class BackfillFolder:
    """One backfill's folder."""

    def __init__(self, home: Home, backfill: str) -> None:
        if not is_file_name(backfill):
            raise UnknownBackfillError(
                f"there is no backfill {backfill!r}; headwater backfill list has those that there are"
            )
        self.path = home.root / "backfills" / backfill
        self.id = backfill

    @property
    def shadow(self) -> Path:
        """The table of the new rows."""
        return self.path / "shadow"

    @property
    def quarantine(self) -> Path:
        """The table of the rows that the run rejected."""
        return self.path / "quarantine"

    @property
    def kept(self) -> Path:
        """The table of the target's rows that stand in one file with rows that are replaced."""
        return self.path / "kept"

    @property
    def further(self) -> Path:
        """The folder of the job's other tables, see `of_table`."""
        return self.path / "further"

    def of_table(self, planned: BackfillPlan, table: str) -> "BackfillFolder":
        """The folder that has a repair's shadow of one of the job's tables; the target's is this one."""
        if table == planned.target:
            return self
        found = copy(self)
        found.path = self.further / table
        return found

    @property
    def rebuilt(self) -> Path:
        """The folder of a rebuild's tables and checkpoint, laid out as a home."""
        return self.path / "rebuilt"

    def plan(self) -> AnyPlan:
        """The plan.

        Raises:
            UnknownBackfillError: There is no such backfill.
            DamagedFileError: The plan is not what was written.
            NewerFileError: A newer Headwater wrote it.
        """
        path = self.path / "plan.json"
        if not exists(path) and self.is_begun:
            raise DamagedFileError(path, "is gone")
        if not exists(path):
            there = sorted(p.parent.name for p in matching(self.path.parent, "*/plan.json"))
            raise UnknownBackfillError(
                f"there is no backfill {self.id!r}; there are {nearest(self.id, there) or 'none'} (make one with plan)"
            )
        value = read_json(path)
        with naming_file(path, BackfillPlan.WHAT):
            if value["mode"] not in _MODES:
                raise NewerRecordError(f"is a plan to {value['mode']}, which this Headwater does not know")
            return _MODES[value["mode"]].from_json(value)

    @property
    def is_begun(self) -> bool:
        """Whether anything is there of a backfill but its plan."""
        return any(exists(self.path / name) for name in OF_BACKFILLS - {"plan.json"})

    def read(self, record: type[R]) -> R | None:
        """A stored record, or None if it was not written yet.

        Raises:
            DamagedFileError: It is not what was written.
            NewerFileError: A newer Headwater wrote it.
        """
        path = self._path_of(record)
        return read_record(path, record) if exists(path) else None

    def known(self, record: type[R]) -> R | None:
        """The same, for who would write it again: None as well where it is not what was written.

        Raises:
            NewerFileError: A newer Headwater wrote it.
        """
        try:
            return self.read(record)
        except NewerFileError:
            raise
        except DamagedFileError:
            return None

    def write(self, record: FolderStored) -> None:
        """Stores a record; a reader sees the old one or the new one."""
        write_record(self._path_of(type(record)), record)

    def remove(self, record: type[FolderStored]) -> None:
        """Removes a stored record."""
        remove(self._path_of(record))

    def _path_of(self, record: type[FolderStored]) -> Path:
        return self.path / f"{record.FILE}.json"

    def has_flag(self, name: str) -> bool:
        """Whether a flag is set."""
        return exists(self.path / name)

    def set_flag(self, name: str) -> None:
        """Sets a flag."""
        touch(self.path / name)

    def clear_flag(self, name: str) -> None:
        """Takes a flag away."""
        remove(self.path / name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the backfill while the block runs.

        Raises:
            BackfillError: Another process works on it.
        """
        self.plan()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path / "lock", waits=False))
            except BlockingIOError as error:
                raise BackfillError(
                    f"another process works on the backfill {self.id!r}; wait for it, or pause it"
                ) from error
            yield

    def require_open(self) -> None:
        """Checks that the backfill was not aborted.

        Raises:
            BackfillError: It was.
        """
        if self.has_flag("aborted"):
            raise BackfillError(f"the backfill {self.id!r} was aborted; plan again")


def stored(home: Home, made: Plan, now_ms: int) -> Plan:
    """Names a plan by its contents and writes it, unless it stands there already.

    Raises:
        BackfillError: It was aborted too often.
    """
    content = {
        key: value for key, value in made.to_json().items() if key not in ("id", "created_at", "reference")
    }
    digest = hashlib.sha256(
        json.dumps({**content, "format": PLAN_FORMAT}, sort_keys=True).encode()
    ).hexdigest()
    for attempt in range(1, 1000):
        name = f"{made.job}-{digest[:8]}" + (f"-{attempt}" if attempt > 1 else "")
        folder = BackfillFolder(home, name)
        is_new = not exists(folder.path / "plan.json")
        if folder.has_flag("aborted") or (not is_new and _is_taken_back(home, made, name)):
            continue
        if is_new:
            folder.write(replace(made, id=name, created_at=utc_text(now_ms)))
        found = folder.plan()
        assert isinstance(found, type(made)), "the mode is part of the content"
        if made.reference and found.reference != made.reference:  # the job's file was moved
            found = replace(found, reference=made.reference)
            folder.write(found)
        return found
    raise BackfillError(
        f"the same backfill of {made.target} was aborted a thousand times; remove some folders"
    )


def _is_taken_back(home: Home, made: AnyPlan, backfill: str) -> bool:
    """Whether a backfill of whole tables was rolled back; half way, the target is as it was planned on."""
    if isinstance(made, BackfillPlan):
        return False
    entries = (commit.entry for name in made.tables for commit in commits(home.table(name)))
    made_by = (entry for entry in entries if entry is not None and Extra.BACKFILL.get(entry) == backfill)
    return any(Extra.ACTION.of(entry) == "restore" for entry in made_by)


def utc_text(now_ms: int) -> str:
    """A moment as it is stored: ISO 8601 in UTC, to the second."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def backfill_ids(home: Home) -> list[str]:
    """The backfills of a home, the oldest first; one that has lost its plan is among them, the last."""
    folders = [path for path in matching(home.root / "backfills") if is_folder(path)]
    planned = [path / "plan.json" for path in folders if exists(path / "plan.json")]
    found = sorted(planned, key=lambda path: (changed_ns(path), path))
    lost = [path.name for path in sorted(folders) if BackfillFolder(home, path.name).is_begun]
    return list(dict.fromkeys([*(path.parent.name for path in found), *lost]))
