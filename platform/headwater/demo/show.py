"""Tells people how the demo goes: steps, a progress bar, tables."""

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

_TELL_EVERY_S = 15.0  # where no bar can be drawn


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
        told = Text.assemble((f"[{self.seconds:5.1f} s] ", "dim"), (escaped_text(text), "bold"))
        self.console.print(told, soft_wrap=True)

    def say(self, text: str) -> None:
        """A remark within the part."""
        self.console.print(Text(f"          {escaped_text(text)}"), soft_wrap=True)

    def table(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """Rows of equal keys, numbers to the right."""
        self.say(title)
        shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name, value in (rows[0] if rows else {}).items():
            shown.add_column(Text(name), justify="right" if isinstance(value, int | float) else "left")
        for row in rows:
            shown.add_row(*(Text("" if value is None else escaped(str(value))) for value in row.values()))
        self.console.print(Padding(shown, (0, 0, 0, 10), expand=False))

    @contextmanager
    def replay(self, of_slices: int, done: int) -> Iterator[Callable[[ReplayProgress], None]]:
        """A bar for the replay; gives the function that moves it."""
        columns = (
            TextColumn("          {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("replaying", total=of_slices, completed=done)
            told_s = self.seconds

            def move(progress: ReplayProgress) -> None:
                nonlocal told_s
                day = time.strftime("%d %b %Y", time.gmtime(progress.clock_ms / 1000))
                bar.update(task, completed=progress.slices, description=f"replaying {day}")
                if not self.console.is_terminal and self.seconds - told_s >= _TELL_EVERY_S:
                    told_s = self.seconds
                    self.say(
                        f"[{told_s:5.1f} s] replayed until {day}, {progress.slices:,} of {of_slices:,} slices"
                    )

            yield move
