"""`headwater quarantine`: the records that a job rejected, and why."""

from typing import Annotated

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption, RawOption
from headwater.cli._side import show_side


def quarantine(
    table: Annotated[str, typer.Argument(help="The table whose rejected records are shown.")],
    limit: Annotated[
        int, typer.Option(min=1, help="The most records to show, those of the newest batch first.")
    ] = 20,
    json_output: JsonOption = False,
    raw: RawOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show the records of TABLE__quarantine: every reason, the raw bytes, the coordinates.

    Once the job was mended, `backfill plan JOB --quarantined` reads them again.

    \b
    Example:
      headwater quarantine silver.departures --limit 5
    """
    show_side(
        home,
        table,
        "__quarantine",
        limit,
        "_batch DESC, _topic, _partition, _offset",
        json_output=json_output,
        raw=raw,
    )
