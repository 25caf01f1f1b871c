"""`headwater jobs status --watch`: what running jobs do, drawn again each second."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli._common import console, print_json
from headwater.running.progress import ENDED_BADLY, progress_of
from headwater.running.signals import stop_requested
from headwater_broker.shown import escaped, escaped_text

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = {
    "job": "job",
    "state": "state",
    "batch": "batch",
    "at": "began at (UTC)",
    "rows": "rows",
    "duration_ms": "ms",
    "rows_per_busy_s": "rows/s",
    "behind": "behind",
    "watermark": "watermark",
    "state_rows": "state rows",
}
_EVERY_S = 1.0


def watch_jobs(home: Path, jobs: Sequence[str] | None, *, json_output: bool) -> None:
    """Shows the jobs until Ctrl-C: a table that is drawn again, or a line of JSON each second."""
    import pyarrow as pa
    from rich.live import Live

    # A signal in the middle of a scan would cancel it in C++, and end the process by an abort (pyarrow 26).
    pa.enable_signal_handlers(False)
    with stop_requested() as stopping:
        if json_output:
            while not stopping.is_set():
                print_json([each.row() for each in progress_of(home, jobs)])
                stopping.wait(_EVERY_S)
            return
        with Live(jobs_table(home, jobs), console=console(), auto_refresh=False) as live:
            while not stopping.wait(_EVERY_S):
                live.update(jobs_table(home, jobs), refresh=True)


def jobs_table(home: Path, jobs: Sequence[str] | None) -> "Table":
    """What is drawn: a line for each job."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in _COLUMNS.values():
        table.add_column(name)
    for each in progress_of(home, jobs):
        row = each.row()
        table.add_row(*(Text(escaped(_cell(row[name]))) for name in _COLUMNS))
        if row["message"] and row["state"] in (*ENDED_BADLY, "waiting", "running"):
            table.add_row("", Text(escaped_text(row["message"])))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:%Y-%m-%d %H:%M:%S}"
