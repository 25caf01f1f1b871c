"""What a swap and its way back did, as it is stored beside the plan and printed; the targets' logs are the truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headwater_streams.backfill.values import (
    FolderRecord,
    Span,
    micros,
    ranges_from_json,
    ranges_to_json,
)
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.moments import iso
from headwater_streams.base.record import Part


@dataclass(frozen=True, kw_only=True)
class TableSwap(Part):
    """What a repair's swap did to another table of its job.

    Attributes:
        version: The version that it made.
        replaced_version: The version before.
        accounting: The terms of its entry.
        proof: What was looked at afterwards, see `repair.unmoved.proof_of`.
    """

    WHAT = "the swap of a table"

    version: int
    replaced_version: int
    accounting: Mapping[str, int]
    proof: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The same as it is stored."""
        return {
            "version": self.version,
            "replaced_version": self.replaced_version,
            "accounting": dict(self.accounting),
            "proof": dict(self.proof),
        }

    @classmethod
    def from_json(cls, value: Any) -> "TableSwap":
        """The same as it was stored."""
        return cls(**cls.checked(value))


@dataclass(frozen=True, kw_only=True)
class SwapResult(FolderRecord):
    """What a swap did.

    Attributes:
        backfill: The backfill's id.
        target: The table.
        version: The version that it made.
        replaced_version: The version before.
        generation: Of a rebuild or a rewind, the generation that took the table over.
        accounting: Of a repair, the terms of its entry.
        proof: What was looked at afterwards; of a rewind nothing, nor of a way back.
        ranges: Of a repair, the offsets that it read again.
        feeds: The jobs that read the table, see the plans.
        open: Of a repair, which windows were not closed yet, see its plan.
        beside: Of a repair, what it did to the other tables, where the job writes several.
        held_s: Of a rebuild or a rewind, for how many seconds the live job was held; None where the process that
            swapped died before it could tell.
    """

    WHAT = "the result of a swap"
    FILE = "swap"
    MORE_KEYS = frozenset(("removed_rows", "added_rows", "kept_rows"))
    """Of results before there was an account; nothing reads them any more."""

    backfill: str
    target: str
    version: int
    replaced_version: int
    generation: int | None = None
    accounting: Mapping[str, int] | None = None
    proof: Mapping[str, Any] | None = None
    ranges: Ranges | None = None
    feeds: tuple[str, ...] | None = None
    open: Span | None = None
    beside: Mapping[str, TableSwap] | None = None
    held_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as it is stored and printed; what does not belong to it is not named."""
        value: dict[str, Any] = self.version_key() | {
            "backfill": self.backfill,
            "target": self.target,
            "version": self.version,
            "replaced_version": self.replaced_version,
        }
        more = {
            "generation": self.generation,
            "accounting": None if self.accounting is None else dict(self.accounting),
            "proof": None if self.proof is None else dict(self.proof),
            "ranges": None if self.ranges is None else ranges_to_json(self.ranges),
            "feeds": None if self.feeds is None else list(self.feeds),
            "open": None if self.open is None else [iso(at) for at in self.open],
            "beside": None
            if self.beside is None
            else {name: table.to_json() for name, table in self.beside.items()},
        }
        value |= {name: found for name, found in more.items() if found is not None}
        return value if self.generation is None else value | self._held()

    def _held(self) -> dict[str, float | None]:
        return {"held_s": self.held_s}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The result as it was stored."""
        known = cls.checked(value)
        ranges, feeds, beside = known.get("ranges"), known.get("feeds"), known.get("beside")
        return cls(
            backfill=known["backfill"],
            target=known["target"],
            version=known["version"],
            replaced_version=known["replaced_version"],
            generation=known.get("generation"),
            accounting=known.get("accounting"),
            proof=known.get("proof"),
            ranges=None if ranges is None else ranges_from_json(ranges),
            feeds=None if feeds is None else tuple(feeds),
            open=(micros(known["open"][0]), micros(known["open"][1])) if "open" in known else None,
            beside=None
            if beside is None
            else {name: TableSwap.from_json(table) for name, table in beside.items()},
            held_s=known.get("held_s"),
        )


@dataclass(frozen=True, kw_only=True)
class RollbackResult(SwapResult):
    """What the way back did."""

    WHAT = "the result of a rollback"
    FILE = "rollback"

    def _held(self) -> dict[str, float | None]:
        return {}
