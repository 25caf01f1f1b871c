"""What the verbs share: the options that all of them take, JSON for machines, tables for people."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from headwater.errors import EXIT_FAILED
from headwater.piped import widen_for
from headwater_broker.shown import escaped, escaped_json, escaped_text

if TYPE_CHECKING:
    from rich.console import Console

    from headwater_streams.storage.damage import DamagedFileError

DEFAULT_HOME = Path(".headwater")

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="HEADWATER_HOME",
        metavar="DIR",
        help="The folder of tables, checkpoints and the stack's data.",
        file_okay=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output and nothing else.")]
RawOption = Annotated[
    bool,
    typer.Option("--raw", help="Print control characters of the data as they are, not escaped: for pipes."),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar="HEADWATER_BOOTSTRAP",
        metavar="HOST:PORT",
        help="The brokers to speak to, or the name of a [cluster.NAME] of the settings; by default those of "
        "client.bootstrap, or the running stack of --home.",
    ),
]


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    print(escaped_json(json.dumps(value, ensure_ascii=False, default=str)), flush=True)


def print_line(text: str, *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print a sentence, with control characters in its names escaped; by default on standard output."""
    print(escaped_text(text), file=file, flush=flush)


def print_remarks(sentences: Iterable[str]) -> None:
    """Prints what a person is to know beside the result, on standard error."""
    for each in sentences:
        print_line(f"headwater: {each}", file=sys.stderr)


def report_damaged(damaged: "Sequence[DamagedFileError]") -> None:
    """Names the damaged files, whose entries a list lacks, and fails the command if there are any."""
    for each in damaged:
        print_line(f"headwater: {each}", file=sys.stderr)
    if damaged:
        raise typer.Exit(EXIT_FAILED)


def console() -> "Console":
    """Where tables for people go: standard output."""
    from headwater.cli._console import PlainConsole

    # A pipe has no width: whoever searches it or copies from it needs names whole.
    return PlainConsole(width=10_000 if _is_pipe() else None)


def _is_pipe() -> bool:
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


def progress_console() -> "Console":
    """Where progress and remarks go: standard error, so that standard output stays the result."""
    from headwater.cli._console import PlainConsole

    return PlainConsole(stderr=True)


def duration_text(seconds: float) -> str:
    """A number of seconds for a person: `3 min 20 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def waiting(for_what: str, *, lines_every_s: float | None = None) -> Iterator[None]:
    """Shows at a terminal what the command waits for while the block runs; the line is removed afterwards.

    Args:
        for_what: What the command waits for.
        lines_every_s: Without a terminal, print it in a line at once, and a line again whenever so many seconds have
            passed; by default nothing is printed there.
    """
    if sys.stderr.isatty():
        with progress_console().status(for_what):
            yield
        return
    if lines_every_s is None:
        yield
        return
    done = threading.Event()
    printer = threading.Thread(target=_print_until, args=(done, for_what, lines_every_s), daemon=True)
    printer.start()
    try:
        yield
    finally:
        done.set()
        printer.join()


def _print_until(done: threading.Event, for_what: str, every_s: float) -> None:
    started_s = time.monotonic()
    print_line(for_what, file=sys.stderr, flush=True)
    while not done.wait(every_s):
        print_line(f"  [{time.monotonic() - started_s:3.0f} s] still at it", file=sys.stderr, flush=True)


def value_text(value: object) -> str:
    """A value of a sample, which was JSON, for a person: a text as it is, NULL by that name, all else as JSON."""
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table for people; numbers are set to the right.

    Args:
        columns: The headings.
        rows: Their cells, None for an empty one.
        empty: What to print, on standard error, if there are no rows.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    if not cells:
        print_line(empty, file=sys.stderr)
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) or row[index] is None for row in cells)
        table.add_column(
            Text(name), justify="right" if numeric else "left", overflow="fold", min_width=len(name)
        )
    texts = [["" if cell is None else escaped(str(cell)) for cell in row] for row in cells]
    for row in texts:
        table.add_row(*map(Text, row))
    out = console()
    if _is_pipe():
        widen_for(out, table, (*columns, *(cell for row in texts for cell in row)))
    out.print(table)
