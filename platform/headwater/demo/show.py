"""Shows people how the demo goes: steps, a progress bar, tables."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headwater.demo.producer import ReplayProgress
from headwater_broker.shown import escaped, escaped_text

_SAY_EVERY_S = 5.0  # where no bar can be drawn


class Show:
    """Writes to one console; what it writes is for eyes, never for scripts."""

    def __init__(self, console: Console) -> None:
        """Write to `console`."""
        self.console = console
        self._started_s = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the demo began."""
        return time.monotonic() - self._started_s

    def step(self, text: str) -> None:
        """A new part begins."""
        line = Text.assemble((f"[{self.seconds:5.1f} s] ", "dim"), (escaped_text(text), "bold"))
        self.console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        """A remark within the part."""
        self.console.print(Text(f"          {escaped_text(text)}"), soft_wrap=True)

    def table(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Rows of equal keys, numbers to the right."""
        self.say(title)
        grid = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name, value in (rows[0] if rows else {}).items():
            grid.add_column(Text(name), justify="right" if isinstance(value, int | float) else "left")
        for row in rows:
            grid.add_row(*(Text("" if value is None else escaped(str(value))) for value in row.values()))
        self.console.print(Padding(grid, (0, 0, 0, 10), expand=False))

    @contextmanager
    def replay(self, of_slices: int, done: int) -> Iterator["Pulse"]:
        """Shows how far the events and the jobs are, as long as the block lasts."""
        columns = (
            TextColumn("          {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("replaying", total=of_slices, completed=done)

            def draw(slices: int, text: str) -> None:
                bar.update(task, completed=slices, description=text)

            def say(_slices: int, text: str) -> None:
                self.say(f"[{self.seconds:5.1f} s] {text}")

            if self.console.is_terminal:
                yield Pulse(draw, done)
            else:
                yield Pulse(say, done, every_s=_SAY_EVERY_S)


class Pulse:
    """How far the events and the jobs are: a bar at a terminal, elsewhere a line every few seconds."""

    def __init__(
        self,
        show: Callable[[int, str], None],
        slices: int,
        *,
        every_s: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is shown yet.

        Args:
            show: Called with the slices that are delivered and a text.
            slices: How many are.
            every_s: The least time between two calls.
            monotonic: The clock.
        """
        self._show = show
        self._slices = slices
        self._every_s = every_s
        self._monotonic = monotonic
        self._last_s = monotonic()
        self._until = ""

    def beat(self, sent: int, read: int, progress: ReplayProgress | None = None) -> None:
        """Takes how many records are in the topics and how many the jobs have read, and the slice just delivered."""
        if progress is not None:
            self._slices = progress.slices
            self._until = f" until {time.strftime('%d %b %Y', time.gmtime(progress.clock_ms / 1000))}"
        now_s = self._monotonic()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._show(self._slices, f"events{self._until}: {sent:,} sent, {read:,} read by the jobs")
