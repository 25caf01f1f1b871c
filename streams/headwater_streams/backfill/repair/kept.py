"""Rows of a table that stand in one file with rows that a repair replaces: copied aside before the swap, and proved, so
that the swap writes no row, however large the files are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater_streams.backfill.diff import content_of
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.backfill.values import FolderRecord
from headwater_streams.backfill.verdict import Finding
from headwater_streams.base.layout import partitioned_by
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import read_files
from headwater_streams.delta.file_swap import CopiedRows, FileSwap, live_files
from headwater_streams.runtime.context import StageContext
from headwater_streams.storage.delta_files import data_file, partition_columns
from headwater_streams.storage.files import remove_tree


@dataclass(frozen=True, kw_only=True)
class KeptFiles(FolderRecord):
    """What was copied aside for a repair, as it is stored beside the copies.

    Attributes:
        files: The files of the target of which all rows to keep were copied.
        counts, proved: See `Kept`.
    """

    WHAT = "the list of the rows to keep"
    FILE = "kept"

    files: tuple[str, ...]
    counts: Mapping[str, tuple[int, int]]
    proved: bool

    def to_json(self) -> dict[str, Any]:
        """The list as it is stored."""
        counts = {name: list(rows) for name, rows in self.counts.items()}
        return self.version_key() | {"files": list(self.files), "counts": counts, "proved": self.proved}

    @classmethod
    def from_json(cls, value: Any) -> "KeptFiles":
        """The list as it was stored."""
        known = cls.checked(value)
        counts = {name: (gone, total) for name, (gone, total) in known["counts"].items()}
        return cls(files=tuple(known["files"]), counts=counts, proved=known["proved"])


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What was copied aside for a repair.

    Attributes:
        rows: The copies.
        counts: By file of the target, how many affected rows it has and how many in all.
        proved: Whether the copies were held against the files.
    """

    rows: CopiedRows
    counts: Mapping[str, tuple[int, int]]
    proved: bool


def keep_aside(context: StageContext, folder: BackfillFolder, planned: BackfillPlan) -> Kept:
    """Copies the rows that the swap will keep of the files that it will take away; done already, nothing is copied.

    The live job may make other files of these meanwhile, whose rows the swap copies itself then.
    """
    affected = planned.affected.condition()
    transaction = FileSwap(context.spark, context.home.table(planned.target))
    known = kept_aside(folder)
    counts = dict(known.counts) if known is not None else {}
    transaction.count_affected(affected, counts)
    mixed = frozenset(name for name, (gone, total) in counts.items() if 0 < gone < total)
    if known is not None and known.rows.files == mixed:
        return _noted(folder, replace(known, counts=counts))
    folder.remove(KeptFiles)
    remove_tree(folder.kept)
    if mixed:
        layout = partitioned_by(partition_columns(context.home.table(planned.target), transaction.version))
        ensure_table(context.spark, folder.kept, "the rows to keep", transaction.schema, layout)
        copies = context.transaction(folder.kept)
        copies.commit(planned.app_id, 0, "", copies.write(transaction.rest(affected, mixed)))
    return _noted(folder, Kept(rows=CopiedRows(folder.kept, mixed), counts=counts, proved=False))


def prove_kept(context: StageContext, folder: BackfillFolder, planned: BackfillPlan) -> Finding:
    """Whether the rows outside of the range will be what they are: their files stay, or their copies are the same."""
    kept = keep_aside(context, folder, planned)
    stay = sum(1 for gone, _ in kept.counts.values() if not gone)
    told = f"files of {planned.target} that stay: {stay}"
    if not kept.rows.files:
        _noted(folder, replace(kept, proved=True))
        return Finding(
            name="rows outside the range", ok=True, detail=f"{told}; no other file has rows to keep"
        )
    table, affected = context.home.table(planned.target), planned.affected.condition()
    schema = FileSwap(context.spark, table).schema
    files = [data_file(table, name) for name in sorted(kept.rows.files)]
    copies = [data_file(folder.kept, add["path"]) for add in live_files(folder.kept)]
    _, wanted = content_of(read_files(context.spark, schema, files), affected)
    _, found = content_of(read_files(context.spark, schema, copies), affected)
    same = wanted == found
    _noted(folder, replace(kept, proved=same))
    return Finding(
        name="rows outside the range",
        ok=same,
        detail=f"{told}; rows to keep of others: {wanted.rows}, copied aside: {found.rows}, "
        + ("the same" if same else "and they are not the same"),
    )


def kept_aside(folder: BackfillFolder) -> Kept | None:
    """What was copied aside, None before that."""
    stored = folder.read(KeptFiles)
    if stored is None:
        return None
    rows = CopiedRows(folder.kept, frozenset(stored.files))
    return Kept(rows=rows, counts=stored.counts, proved=stored.proved)


def _noted(folder: BackfillFolder, kept: Kept) -> Kept:
    folder.write(KeptFiles(files=tuple(sorted(kept.rows.files)), counts=kept.counts, proved=kept.proved))
    return kept
