"""`headwater late`: rows that came after their window had closed or their state was gone."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption, RawOption, print_line
from headwater.cli._side import show_side

_SUFFIX = "__late"


def late(
    table: Annotated[str, typer.Argument(help="The table whose late rows are shown.")],
    limit: Annotated[
        int, typer.Option(min=1, help="The most rows to show, those of the newest batch first.")
    ] = 20,
    json_output: JsonOption = False,
    raw: RawOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show the rows of TABLE__late: they are whole.

    A backfill folds those of windows in (`backfill plan JOB --late`). Where
    windows overlap, `_missed` names those that lack the row; it is counted in
    its other windows.

    \b
    Example:
      headwater late gold.delay_by_carrier --limit 5
    """
    order = "_batch DESC, _topic, _partition, _offset"
    owner, rows = show_side(home, table, _SUFFIX, limit, order, json_output=json_output, raw=raw)
    if not rows:
        _report_late_count(home, owner)


def _report_late_count(home: Path, table: str) -> None:
    """Prints how many rows were late, if the job only counts them."""
    from headwater_streams.base.extra import Extra
    from headwater_streams.ledger.log import lineage, since_rebuilt
    from headwater_streams.storage.home import Home

    entries = [c.entry for c in since_rebuilt(lineage(Home(home).table(table))) if c.entry is not None]
    count = sum(e.totals["late"] for e in entries if e.is_batch and Extra.LATE.get(e) == "count")
    if count:
        print_line(f"late rows of {table}, whose job only counts them: {count:,}", file=sys.stderr)
