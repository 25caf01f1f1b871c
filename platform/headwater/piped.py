"""Tables that go into a pipe, which has no width: nothing is cut or folded there."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def widen_for(console: "Console", table: "Table", texts: Iterable[str]) -> None:
    """Makes a console as wide as a table is by itself.

    Args:
        console: What is widened; it is never made narrower.
        table: The table.
        texts: All that stands in it: by its length rich's measure is bounded.
    """
    bound = sum(2 * len(text) + 8 for text in texts)  # a character takes two columns at most
    natural = console.measure(table, options=console.options.update(max_width=max(bound, 1))).maximum
    console.width = max(console.width, natural)
