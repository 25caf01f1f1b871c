"""A console that shows text as it is: names and data are not markup, and cannot control the terminal."""

from typing import Any

from rich.console import Console

from headwater_broker.shown import escaped_text


class PlainConsole(Console):
    """Strings are escaped, and brackets in them are brackets."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """As `Console.print`; a `Text` or a table is printed as it was made."""
        super().print(*(escaped_text(each) if isinstance(each, str) else each for each in objects), **options)
