"""What a rebuild is about, and the home that its shadow has."""

from dataclasses import dataclass
from pathlib import Path

from headwater_streams.backfill.whole import WholePlan
from headwater_streams.runtime.home import Home


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(WholePlan):
    """A rebuild: the table made anew, from the beginning of its inputs, by the generation that takes it over."""

    mode = "rebuild"


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
