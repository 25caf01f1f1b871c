"""What every stage of a running job is given: the session, the home, the broker's address, the clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headwater_streams.delta.delta_table import DeltaTransaction
from headwater_streams.delta.marks import Marks
from headwater_streams.sources.reader import RecordSource
from headwater_streams.storage.home import Home


def _no_step(job: str, step: str, batch: int) -> None:
    pass


@dataclass(frozen=True)
class StageContext:
    """What a stage needs from outside.

    Attributes:
        spark: The session.
        home: Where tables and checkpoints are.
        source: Where records come from: a broker, or the test driver's record log.
        step: Called at each named step of a batch; the tests crash there.
        now_ms: The wall clock.
        marks: The transaction marks that the stages have seen.
        is_live: Whether its batches are those of live jobs, and not of a rebuild beside them, which makes old rows.
    """

    spark: SparkSession
    home: Home
    source: RecordSource
    step: Callable[[str, str, int], None] = _no_step
    now_ms: Callable[[], int] = field(default=lambda: int(time.time() * 1000))
    marks: Marks = field(default_factory=Marks)
    is_live: bool = True

    def transaction(self, table: Path) -> DeltaTransaction:
        """Begins a commit to a table."""
        return DeltaTransaction(self.spark, table, self.marks)
