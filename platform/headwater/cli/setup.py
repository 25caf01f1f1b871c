"""`headwater setup`: the jars, fetched once, and the classes that a session starts with."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.cli._common import JsonOption, print_json, print_line, progress_console, waiting
from headwater.stack.classes import class_archive, ensure_class_archive
from headwater.stack.jars import Progress, ensure_jars, locked_jars
from headwater.stack.java import find_java
from headwater.stack.places import jars_dir
from headwater_streams.base.plural import quantity

_LINES_EVERY_S = 5.0  # where no bar can be drawn


def setup(json_output: JsonOption = False) -> None:
    """Fetch the jars that Spark needs, once, and check them.

    They go below this Python environment, or to HEADWATER_JARS. When they
    are there and right, the network is not needed; one that is missing, half
    fetched or damaged is fetched again.

    Then a session of Spark does a little work, once, for 25 to 90 seconds: what
    its Java has loaded is archived beside the jars (200 MB), and each session
    from then on starts in two thirds of the CPU time. Remove the archive at will.

    \b
    Example:
      headwater setup
    """
    with _fetching() as progress:
        fetched = ensure_jars(os.environ, progress)
    jars, folder, java = locked_jars(), jars_dir(os.environ), find_java(os.environ)
    if fetched and not json_output:
        size_mb = sum(jar.size_bytes for jar in jars) / 1e6
        print_line(f"fetched {quantity(len(jars), 'jar')} ({size_mb:.0f} MB) into {folder}", flush=True)
    archived = class_archive(os.environ, java).exists()
    with waiting(
        "archiving what a session's Java loads, once (25 to 90 s)",
        lines_every_s=None if archived else _LINES_EVERY_S,
    ):
        problem = ensure_class_archive(os.environ, java)
    if problem:
        print_line(
            f"sessions start without an archive of classes, some seconds later: {problem}", file=sys.stderr
        )
    if json_output:
        result = {"fetched": fetched, "folder": str(folder), "jars": [jar.name for jar in jars]}
        print_json(result | {"classes": None if problem else str(class_archive(os.environ, java))})


@contextmanager
def _fetching() -> Iterator[Progress]:
    """Shows how much of the jars is fetched: a bar at a terminal, elsewhere a line every few seconds."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("fetching the jars"), BarColumn(), DownloadColumn())
    with Bar(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("jars", total=None, visible=False)
        yield lambda done_bytes, total_bytes: bar.update(
            task, completed=done_bytes, total=total_bytes, visible=True
        )


def _lines() -> Progress:
    printed_s = float("-inf")

    def say(done_bytes: int, total_bytes: int) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= _LINES_EVERY_S:
            printed_s = time.monotonic()
            text = f"fetching the jars: {done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB"
            print_line(text, file=sys.stderr, flush=True)

    return say
