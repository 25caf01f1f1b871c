"""`headwater lineage`: what jobs read and wrote, as events of OpenLineage."""

import os
from typing import Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_remarks,
)
from headwater.errors import EXIT_FAILED, UsageError
from headwater_streams.base.nearest import unknown_table
from headwater_streams.base.plural import quantity


def lineage(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...", help="Tables; by default all that jobs write.", show_default=False
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE|URL",
            help="Where events go; by default lineage.to of the settings.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
) -> None:
    """Send what jobs read and wrote to a catalogue, as events of OpenLineage.

    Sends what was committed since that file or receiver was told last, and
    starts no Spark. With lineage.to in the settings, jobs do so while they
    run. Each event has the offsets and versions that were read, the version
    that was written, the account of the rows, and whether any were rejected.

    \b
    Examples:
      headwater lineage --to lineage.jsonl
      headwater lineage gold.delays --to http://127.0.0.1:5000
    """
    from headwater.config import load_settings
    from headwater.running.lineage import LineageSender, brokers_of
    from headwater_streams.storage.home import Home

    if not home.is_dir():
        raise UsageError(f"there is no folder {home}; --home names the one that holds the tables")
    existing = Home(home).tables()
    for table in tables or ():
        if table not in existing:
            raise UsageError(unknown_table(table, existing))
    settings = load_settings(os.environ, {"lineage.to": to}).settings.lineage
    if not settings.to:
        raise UsageError(
            "--to names no file and no address, and the settings have no lineage.to: give one of them"
        )
    sender = LineageSender(home, settings, brokers_of(home, bootstrap))
    count = sender.send(tables or None, finished=False)
    print_remarks(sender.refused)
    if json_output:
        print_json({"to": settings.to, "runs": count})
    else:
        print_line(f"told {settings.to} of {quantity(count, 'run')}" if count else f"{settings.to} knows all")
    if sender.refused:
        raise typer.Exit(EXIT_FAILED)
