"""What a rebuild is about, as it is stored."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwater_streams.backfill.spec import FORMAT
from headwater_streams.runtime.home import Home


@dataclass(frozen=True)
class RebuildPlan:
    """A rebuild, decided and never changed.

    Attributes:
        id: Its name.
        job: The job.
        reference: Where the job was loaded from, for the command line; empty from Python.
        kind: The kind of stage.
        target: The table that is made anew.
        sides: The tables of the job's rejected and its late rows; jobs that feed it may write there, too.
        further: The job's other tables, where it writes several.
        keys: The columns that name a row of the target.
        columns: The columns that are compared.
        fingerprint: The digest of the code that will run.
        base_generation: The live job's generation.
        base_version: The target's version when it was planned.
        rows: How many rows the live generation had read then.
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
    rows: int
    notes: tuple[str, ...] = ()
    created_at: str = ""

    mode = "rebuild"

    @property
    def asked(self) -> Mapping[str, Any]:
        """What was asked for: everything."""
        return {"rebuild": True}

    @property
    def generation(self) -> int:
        """The generation that the shadow is."""
        return self.base_generation + 1

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that a swap changes, in its order; the target is the last."""
        return (*self.sides, *self.further, self.target)

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored and printed."""
        return {"format": FORMAT, "mode": self.mode, "asked": dict(self.asked), **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "RebuildPlan":
        """The plan as it was stored."""
        known: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found
            for name, found in value.items()
            if name not in ("format", "mode", "asked")
        }
        return cls(**known)


@dataclass(frozen=True)
class ShadowHome(Home):
    """A home in which some tables, and all checkpoints, are those of a shadow; the others are the real ones."""

    folder: Path
    names: tuple[str, ...]

    def table(self, name: str) -> Path:
        """The folder of a table, in the shadow's if it is one of its."""
        return Home(self.folder).table(name) if name in self.names else super().table(name)

    def checkpoint(self, job: str, generation: int) -> Path:
        """The checkpoint of the shadow."""
        return Home(self.folder).checkpoint(job, generation)
