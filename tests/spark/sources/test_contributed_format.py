"""The parser that the contributors' how-to writes, `docs/contributing/add-a-format.md`, as the page has it."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import headwater as hw

PAGE = Path(__file__).resolve().parents[3] / "docs" / "contributing" / "add-a-format.md"
_BLOCK = re.compile(r'^```python title="rooms\.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_parser_of_the_page_reads_its_lines_and_refuses_others(
    decode: Callable[..., list[tuple[object, object]]], tmp_path: Path
) -> None:
    found = _BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    module = tmp_path / "rooms.py"
    module.write_text(found[1], encoding="utf-8")
    rooms = hw.topic("rooms", format=runpy.run_path(str(module))["TEMPERATURES"])
    warm, cold, wrong = decode(rooms, [b"kitchen 21.5C\n", b"cellar -3C", b"kitchen hot"])
    assert warm == (("kitchen", 21.5), None)
    assert cold == (("cellar", -3.0), None)
    assert wrong[0] is None
    assert wrong[1]
