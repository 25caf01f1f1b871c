"""`headwater late`: rows that came after their window had closed or their state was gone."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption
from headwater.cli._side import show_side

_SUFFIX = "__late"


def late(
    table: Annotated[str, typer.Argument(help="The table whose late rows are shown.")],
    limit: Annotated[int, typer.Option(min=1, help="The most rows to show, the newest first.")] = 20,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Show the rows of TABLE__late: they are whole, and a backfill of tumbling windows folds them in.

    Where windows overlap, `_missed` names those that lack the row; it is counted in its other windows.

    \b
    Example:
      headwater late gold.delay_by_carrier --limit 5
    """
    if not show_side(home, table, _SUFFIX, limit, "_batch DESC, _topic, _partition, _offset", json_output):
        _tell_counted(home, table.removesuffix(_SUFFIX))


def _tell_counted(home: Path, table: str) -> None:
    """Says how many rows were late, where the job only counts them."""
    from headwater_streams.ledger.audit import audit_table
    from headwater_streams.runtime.home import Home

    audit = audit_table(Home(home), table)
    count = sum(terms.get("late", 0) for terms in audit.totals.values()) if audit is not None else 0
    if count:
        print(f"late rows of {table}, whose job only counts them: {count:,}", file=sys.stderr)
