"""`headwater setup`: the jars, fetched once, and the classes that a session starts with."""

import os
import sys

from headwater.cli._common import JsonOption, print_json, print_line, progress_console, waiting
from headwater.stack.classes import class_archive, ensure_class_archive
from headwater.stack.jars import ensure_jars, locked_jars
from headwater.stack.java import find_java
from headwater.stack.places import jars_dir
from headwater_streams.plural import counted


def setup(json_output: JsonOption = False) -> None:
    """Fetch the jars that Spark needs, once, and check them.

    They go below this Python environment, or to HEADWATER_JARS. When they
    are there and right, the network is not needed; one that is missing, half
    fetched or damaged is fetched again.

    Then a session of Spark does a little work, once, half a minute long: what
    its Java has loaded is archived beside the jars (200 MB), and each session
    from then on starts in two thirds of the CPU time. Remove the archive at will.

    \b
    Example:
      headwater setup
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("fetching the jars"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, console=progress_console(), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("jars", total=None, visible=False)
        fetched = ensure_jars(
            os.environ,
            lambda done_bytes, total_bytes: bar.update(
                task, completed=done_bytes, total=total_bytes, visible=True
            ),
        )
    jars, folder, java = locked_jars(), jars_dir(os.environ), find_java(os.environ)
    if fetched and not json_output:
        size_mb = sum(jar.size_bytes for jar in jars) / 1e6
        print_line(f"fetched {counted(len(jars), 'jar')} ({size_mb:.0f} MB) into {folder}", flush=True)
    with waiting("archiving the classes of a session, once"):
        problem = ensure_class_archive(os.environ, java)
    if problem:
        print_line(
            f"sessions start without an archive of classes, some seconds later: {problem}", file=sys.stderr
        )
    if json_output:
        told = {"fetched": fetched, "folder": str(folder), "jars": [jar.name for jar in jars]}
        print_json(told | {"classes": None if problem else str(class_archive(os.environ, java))})
