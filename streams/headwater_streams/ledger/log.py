"""Reads ledger entries back: from a table's Delta log, and from `headwater.ledger` where the log is gone."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import EXPIRY, LedgerEntry, SourceRange
from headwater_streams.base.record import NewerRecordError
from headwater_streams.storage.damage import DamagedFileError, NewerFileError
from headwater_streams.storage.delta_log import actions_of, has_versions, log_files
from headwater_streams.storage.records import naming_file

LEDGER_TABLE = "headwater.ledger"
_BESIDE = ("backfill", EXPIRY)
"""Kinds of commits of a generation that are none of the batches that it goes on with."""


@dataclass(frozen=True)
class Commit:
    """One version of a table.

    Attributes:
        version: The Delta version.
        timestamp_ms: When it was committed.
        operation: Delta's name of the operation, "STREAMING UPDATE", "MERGE", "OPTIMIZE".
        rows_added: Rows in the files that the commit added, from their statistics.
        rows_removed: Rows in the files that it removed, where the log says how many.
        data_changed: False when the commit only moved rows between files.
        entry: The ledger entry, when a job made the commit.
        added_paths: The files it added, relative to the table.
        removed_files: How many files it took away.
        partitions: The table's partition columns from then on, where the commit says them.
    """

    version: int
    timestamp_ms: int
    operation: str
    rows_added: int
    rows_removed: int
    data_changed: bool
    entry: LedgerEntry | None
    added_paths: tuple[str, ...] = ()
    removed_files: int = 0
    partitions: tuple[str, ...] | None = None

    @property
    def is_append(self) -> bool:
        """Whether a stream over the table reads the commit's rows: it added some and took none away."""
        return self.data_changed and not self.removed_files and bool(self.added_paths)


def commits(table: Path, *, since: int = 0, until: int | None = None) -> Iterator[Commit]:
    """The commits of a table, oldest first, versions in `[since, until)`.

    Where log files were cleaned away, the jobs' commits come from `headwater.ledger`; which files they added and
    removed is not known any more, and the commits of others are missing.
    """
    files = log_files(table)
    if files and since < files[0][0]:
        yield from _copied(table, since, min(files[0][0], until or files[0][0]))
    for version, path in files:
        if version >= since and (until is None or version < until):
            yield _read(version, path)


def since_rebuilt(history: Sequence[Commit]) -> list[Commit]:
    """The commits of a table since it was last emptied to be built again; rows of earlier ones are gone."""
    rebuilt = [
        i for i, c in enumerate(history) if c.entry is not None and Extra.ACTION.get(c.entry) == "rebuild"
    ]
    return list(history[rebuilt[-1] :] if rebuilt else history)


def lineage(table: Path, *, until: int | None = None) -> list[Commit]:
    """The commits that the table's rows come from, oldest first. Where a rebuild replaced the rows, these are the
    commits of its shadow, with the version that swapped it in. Where a version was restored, those in between are left
    out."""
    return _lineage(table, [*commits(table, until=until)])


def _lineage(table: Path, history: Sequence[Commit]) -> list[Commit]:
    result: list[Commit] = []
    for place in reversed(range(len(history))):
        if (restored := _restored(history[place])) is not None:
            result = _lineage(table, [earlier for earlier in history[:place] if earlier.version <= restored])
            history = history[place:]
            break
    for commit in history:
        result += [commit, *_of_shadow(table, commit)]
    return result


def replacements(history: Iterable[Commit]) -> list[Commit]:
    """The commits that replaced all rows of a table and are still in effect; one that a later one took back is left
    out. `history` has the table's commits up to the newest, oldest first."""
    in_effect: list[Commit] = []
    for commit in history:
        restored = _restored(commit)
        if restored is not None:
            in_effect = [each for each in in_effect if each.version <= restored]
        if restored is not None or _shadow(commit) is not None:
            in_effect.append(commit)
    return in_effect


def first_version(table: Path) -> int:
    """The oldest version whose log file exists; 0 without a log."""
    files = log_files(table)
    return files[0][0] if files else 0


def next_commit(table: Path) -> int:
    """The version that the table's next commit will be; no log file is read."""
    files = log_files(table)
    return files[-1][0] + 1 if files else 0


def commits_backwards(table: Path) -> Iterator[Commit]:
    """The same, newest first."""
    files = log_files(table)
    for version, path in reversed(files):
        yield _read(version, path)
    if files and files[0][0]:
        yield from reversed([*_copied(table, 0, files[0][0])])


def last_entry(table: Path, job: str, generation: int) -> LedgerEntry | None:
    """The newest entry of a job's generation; newer commits by others are skipped."""
    for commit in _lineage_backwards(table):
        entry = commit.entry
        if (
            entry is not None
            and (entry.job, entry.generation) == (job, generation)
            and entry.kind not in _BESIDE
        ):
            return entry
    return None


def writer_of(table: Path) -> str | None:
    """The job that wrote a table last, or began to write it anew; None where no job has."""
    entries = (commit.entry for commit in commits_backwards(table))
    wrote = (e.job for e in entries if e is not None and (e.is_batch or e.kind == "generation"))
    return next(wrote, None)


def last_batch(table: Path) -> LedgerEntry | None:
    """The newest entry of a batch, whichever job wrote it."""
    entries = (commit.entry for commit in _lineage_backwards(table))
    return next((entry for entry in entries if entry is not None and entry.is_batch), None)


def seen_of(
    table: Path, job: str, generation: int, *, until: int | None = None
) -> dict[str, list[tuple[int, int]]] | None:
    """The offsets that a job's generation had seen before a version, or has seen by now, least recently touched first;
    None where it removes no duplicates. They are its newest whole account with the changes since."""
    changes: list[Mapping[str, list[tuple[int, int]]]] = []
    for commit in _lineage_backwards(table):
        entry = commit.entry
        if entry is None or (entry.job, entry.generation) != (job, generation) or entry.kind in _BESIDE:
            continue
        if until is not None and commit.version >= until:
            continue
        if entry.seen_changed is not None:
            changes.append(entry.seen_changed)
            continue
        if entry.seen is None and not changes:
            return None
        seen = dict(entry.seen or {})
        for changed in reversed(changes):
            for key in changed:
                seen.pop(key, None)
            seen.update(changed)
        return seen
    return None


def _lineage_backwards(table: Path) -> Iterator[Commit]:
    for commit in commits_backwards(table):
        yield from reversed([*_of_shadow(table, commit)])
        yield commit


def _of_shadow(table: Path, swapped: Commit) -> Iterator[Commit]:
    shadow = _shadow(swapped)
    if shadow is None:
        return
    assert swapped.entry is not None
    behind = Extra.BEHIND.get(swapped.entry, {})
    for commit in commits(table.parent.parent.parent / shadow):
        if commit.entry is not None and commit.entry.kind != "generation":
            sources = tuple(_in_live(source, behind) for source in commit.entry.sources)
            yield replace(commit, version=swapped.version, entry=replace(commit.entry, sources=sources))


def _in_live(source: SourceRange, behind: Mapping[str, int]) -> SourceRange:
    """What a shadow read of another shadow, as versions of the live table, to which all of it came with one version."""
    if source.table is None or source.table not in behind or source.versions is None:
        return source
    end = behind[source.table] + 1
    return replace(source, versions=(end if source.versions[0] else 0, end))


def _shadow(commit: Commit) -> str | None:
    return Extra.SHADOW.get(commit.entry) if commit.entry is not None else None


def _restored(commit: Commit) -> int | None:
    return Extra.RESTORED_VERSION.get(commit.entry) if commit.entry is not None else None


def _copied(table: Path, since: int, until: int) -> Iterator[Commit]:
    copy = table.parent.parent.joinpath(*LEDGER_TABLE.split("."))
    if not has_versions(copy):
        return
    import pyarrow.compute as pc

    from headwater_streams.storage.delta_files import reading
    from headwater_streams.storage.delta_rows import dataset_of

    name = f"{table.parent.name}.{table.name}"
    version = pc.field("version")
    condition = (pc.field("table") == name) & (version >= since) & (version < until)
    with reading(copy):
        rows = dataset_of(copy).to_table(filter=condition).sort_by("version")
    for row in rows.to_pylist():
        with naming_file(copy, LedgerEntry.WHAT):
            entry = LedgerEntry.from_json(row["entry"])
        yield Commit(
            row["version"],
            int(row["committed_at"].timestamp() * 1000),
            "",
            row["rows_added"],
            0,
            bool(row["rows_added"]),
            entry,
        )


def _read(version: int, path: Path) -> Commit:
    timestamp_ms, operation, entry = 0, "", None
    rows_added = rows_removed = removed_files = 0
    changed, partitions = False, None
    added: list[str] = []
    try:
        for action in actions_of(path):
            if "commitInfo" in action:
                info = action["commitInfo"]
                timestamp_ms, operation = info.get("timestamp", 0), info.get("operation", "")
                entry = LedgerEntry.from_json(info.get("userMetadata"))
            elif "add" in action:
                added.append(action["add"]["path"])
                rows_added += _records(action["add"])
                changed |= bool(action["add"]["dataChange"])
            elif "remove" in action:
                removed_files += 1
                rows_removed += _records(action["remove"])
                changed |= bool(action["remove"]["dataChange"])
            elif "metaData" in action:
                partitions = tuple(action["metaData"].get("partitionColumns") or ())
    except NewerRecordError as error:
        raise NewerFileError(path, str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(
            path, f"is no commit of a Delta log ({type(error).__name__}: {error})"
        ) from error
    return Commit(
        version,
        timestamp_ms,
        operation,
        rows_added,
        rows_removed,
        changed,
        entry,
        tuple(added),
        removed_files,
        partitions,
    )


def _records(action: dict[str, str]) -> int:
    stats = action.get("stats")
    return int(json.loads(stats)["numRecords"]) if stats else 0
