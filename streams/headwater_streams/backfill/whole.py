"""What backfills of whole tables have in common: a rebuild and a rewind, each a new generation of its job."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from headwater_streams.backfill.values import PLAN_FORMAT, FolderRecord


@dataclass(frozen=True, kw_only=True)
class WholePlan(FolderRecord):
    """A backfill of a whole table, decided and never changed.

    Attributes:
        id: Its name.
        job: The job.
        reference: Where the job was loaded from, for the command line; empty from Python.
        kind: The kind of stage.
        target: The table.
        sides: The tables of the job's rejected and its late rows; jobs that feed it may write there, too.
        further: The job's other tables, where it writes several.
        keys: The columns that name a row of the target.
        columns: The columns that are compared.
        fingerprint: The digest of the code that is meant.
        base_generation: The job's generation when it was planned.
        base_version: The target's version then.
        topic_ids: The topics that the job reads, or that fill the tables which it reads, each with its id.
        rows: How many rows the job had read that will be read again.
        feeds: The jobs that read its tables, and those that read theirs, each behind all that feed it. One that has
            read rows which are replaced stops at the swap, until its table is made anew, too.
        notes: What a person should know, each a sentence.
        created_at: When it was made.
    """

    WHAT = "a plan"
    FILE = "plan"
    FORMAT = PLAN_FORMAT
    MORE_KEYS = frozenset(("mode", "asked"))
    mode: ClassVar[str]

    id: str = ""
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
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    created_at: str = ""

    @property
    def asked(self) -> Mapping[str, Any]:
        """What was asked for."""
        return {self.mode: True}

    @property
    def generation(self) -> int:
        """The generation that takes the table over."""
        return self.base_generation + 1

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that a swap changes, in its order; the target is the last."""
        return (*self.sides, *self.further, self.target)

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored and printed."""
        return {**self.version_key(), "mode": self.mode, "asked": dict(self.asked), **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The plan as it was stored."""
        known: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found
            for name, found in cls.checked(value).items()
            if name not in (cls.FORMAT_KEY, *cls.MORE_KEYS)
        }
        return cls(**known)
