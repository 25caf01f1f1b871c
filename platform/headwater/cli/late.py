"""`headwater late`: rows that came after their window had closed or their state was gone."""

from typing import Annotated

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption
from headwater.cli._side import show_side


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
    show_side(home, table, "__late", limit, "_batch DESC, _topic, _partition, _offset", json_output)
