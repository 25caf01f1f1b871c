"""The examples in docstrings do what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = {
    "headwater": "platform",
    "headwater_broker": "broker",
    "headwater_client": "broker",
    "headwater_streams": "streams",
}


def _modules_with_examples() -> list[str]:
    names = []
    for package, folder in _SOURCES.items():
        root = ROOT / folder
        for path in sorted((root / package).rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(root).with_suffix("").parts
                names.append(".".join(part for part in parts if part != "__init__"))
    return names


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
