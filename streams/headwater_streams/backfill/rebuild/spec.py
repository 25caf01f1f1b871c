"""What a rebuild is about, and the home that its shadow has."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headwater_streams.backfill.whole import WholePlan
from headwater_streams.storage.home import Home


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(WholePlan):
    """A rebuild: the table made anew, from the beginning of its inputs, by the generation that takes it over.

    Attributes:
        behind: The other rebuilds, not swapped in yet, whose tables it reads.
    """

    mode: ClassVar[str] = "rebuild"

    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShadowHome(Home):
    """A home in which some tables are those of shadows, and all checkpoints those of one; the others are the real ones.

    Attributes:
        places: The tables that are elsewhere, each with its folder.
        folder: Where the checkpoints are, laid out as a home; None: where they really are.
    """

    places: tuple[tuple[str, Path], ...]
    folder: Path | None = None

    def table(self, name: str) -> Path:
        """The folder of a table, the shadow's if it has it."""
        return dict(self.places).get(name) or super().table(name)

    def checkpoint(self, job: str, generation: int) -> Path:
        """The checkpoint of the shadow."""
        return (
            super().checkpoint(job, generation)
            if self.folder is None
            else Home(self.folder).checkpoint(job, generation)
        )
