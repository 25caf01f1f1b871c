"""`headwater setup`: the jars, fetched once."""

import os
import sys

from headwater.cli._common import JsonOption, print_json, progress_console
from headwater.stack.jars import ensure_jars, locked_jars
from headwater.stack.places import jars_dir
from headwater_streams.plural import counted


def setup(json_output: JsonOption = False) -> None:
    """Fetch the jars that Spark needs, once, and check them.

    They go below this Python environment, or to HEADWATER_JARS. When they
    are there and right, neither the network nor Java is needed; one that is
    missing, half fetched or damaged is fetched again.

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
    jars, folder = locked_jars(), jars_dir(os.environ)
    if json_output:
        print_json({"fetched": fetched, "folder": str(folder), "jars": [jar.name for jar in jars]})
    elif fetched:
        size_mb = sum(jar.size_bytes for jar in jars) / 1e6
        print(f"fetched {counted(len(jars), 'jar')} ({size_mb:.0f} MB) into {folder}")
