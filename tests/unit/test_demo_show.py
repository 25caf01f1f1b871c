"""What the demo tells where nobody looks: a pipe's console is as wide as need be, and its lines are not."""

import io

from rich.console import Console

from headwater.demo.show import Show


def test_show_table_in_a_wide_console_has_no_trailing_room() -> None:
    written = io.StringIO()
    Show(Console(file=written, width=10_000)).table("Who?", [{"carrier": "UA", "departures": 12}])
    lines = written.getvalue().splitlines()
    assert [line.split() for line in lines[:3]] == [["Who?"], ["carrier", "departures"], ["UA", "12"]]
    assert max(map(len, lines)) < 80
