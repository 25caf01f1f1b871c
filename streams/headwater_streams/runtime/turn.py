"""Who may write to a job's table: a batch, or a swap, which waits for the batch that is running.

<home>/checkpoints/<job>/turn       locked by the process that has its turn, and free again when it dies
<home>/checkpoints/<job>/repair     the same between two repairs
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from headwater_streams.storage.files import locked
from headwater_streams.storage.home import Home


class Turn:
    """A lock between the batches of a job, which may go on beside each other, and a swap, which goes alone."""

    def __init__(self, home: Home, job: str) -> None:
        """Args: the home whose table is meant, the job that writes it."""
        self._folder: Path = home.job(job)
        self.held_s = 0.0

    @contextmanager
    def of_batch(self) -> Iterator[None]:
        """Keeps a swap waiting while the block runs; waits itself for one that is going on."""
        with locked(self._folder / "turn", shared=True):
            yield

    @contextmanager
    def of_swap(self) -> Iterator[Self]:
        """Keeps the job waiting at the end of its batch while the block runs; `held_s` has the seconds afterwards."""
        with locked(self._folder / "turn"):
            started = time.monotonic()
            yield self
            self.held_s = round(time.monotonic() - started, 3)

    @contextmanager
    def of_repair(self) -> Iterator[None]:
        """Keeps other repairs of the job waiting while the block runs, but not the job."""
        with locked(self._folder / "repair"):
            yield
