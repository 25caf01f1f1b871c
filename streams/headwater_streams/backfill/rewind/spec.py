"""What a rewind is about, as it is stored."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater_streams.backfill.spec import FORMAT, ranges_from_json, ranges_to_json
from headwater_streams.ledger.entry import Ranges


@dataclass(frozen=True)
class RewindPlan:
    """A rewind, decided and never changed.

    Attributes:
        id: Its name.
        job: The job.
        reference: Where the job was loaded from, for the command line; empty from Python.
        kind: The kind of stage.
        target: The table that is put back.
        sides: The tables of the job's rejected and its late rows.
        further: The job's other tables, where it writes several.
        keys: The columns that name a row of the target.
        columns: The columns that are compared.
        fingerprint: The digest of the job's code.
        base_generation: The job's generation.
        base_version: The target's version when it was planned.
        version: The version that it is put back to.
        batch: The last batch that the table has then.
        ranges: What the job will read again.
        rows: How many rows it had read of them.
        notes: What a person should know, each a sentence.
        created_at: When it was made.
    """

    id: str
    job: str
    reference: str
    kind: str
    target: str
    sides: tuple[str, ...]
    further: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    fingerprint: str
    base_generation: int
    base_version: int
    version: int
    batch: int
    ranges: Ranges
    rows: int
    notes: tuple[str, ...] = ()
    created_at: str = ""

    mode = "rewind"

    @property
    def asked(self) -> Mapping[str, Any]:
        """What was asked for: the version."""
        return {"rewind": self.version}

    @property
    def generation(self) -> int:
        """The generation that goes on from there."""
        return self.base_generation + 1

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that a swap changes, in its order; the target is the last."""
        return (*self.sides, *self.further, self.target)

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored and printed."""
        ranges = ranges_to_json(self.ranges)
        return {
            "format": FORMAT,
            "mode": self.mode,
            "asked": dict(self.asked),
            **asdict(self),
            "ranges": ranges,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "RewindPlan":
        """The plan as it was stored."""
        known: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found
            for name, found in value.items()
            if name not in ("format", "mode", "asked")
        }
        return cls(**{**known, "ranges": ranges_from_json(value["ranges"])})
