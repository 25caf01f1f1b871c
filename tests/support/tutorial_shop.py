"""The programs of docs/tutorial-shop.md, as a reader copies them, and the page as it is for another broker."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from doc_pages import DOCS, Block, blocks_of

PAGE = DOCS / "tutorial-shop.md"
ADDRESS = "127.0.0.1:9093"
"""Where the page has its broker."""
_OF_THE_BROKER = ("openssl ", "broker.pem", "-m headwater_broker", "kill %1")
"""What the blocks have that make the page's own broker, start it and end it."""


def file_of(title: str) -> str:
    """The text of the first file of a name in the page."""
    return next(block.text for block in _blocks() if block.title == title)


def make_files(folder: Path) -> None:
    """Writes the tutorial's records into a folder, as a reader does."""
    (folder / "make_shop.py").write_text(file_of("make_shop.py"), encoding="utf-8")
    subprocess.run([sys.executable, "make_shop.py"], cwd=folder, check=True, timeout=120)


def load_oracle(folder: Path) -> Any:
    """The page's oracle, as a module."""
    path = folder / "oracle.py"
    path.write_text(file_of("oracle.py"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("oracle_of_the_tutorial", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def broker_properties() -> dict[str, str]:
    """The properties that the page gives its broker."""
    lines = file_of("broker.properties").splitlines()
    return dict(line.split("=", 1) for line in lines if line)


def page_for(bootstrap: str, ca: Path) -> str:
    """The page for a broker that runs already: without the blocks that make one, by its address and its authority."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for block in _blocks():
        if any(text in block.text for text in _OF_THE_BROKER):
            end = block.line + block.text.count("\n") + 1
            lines[block.line - 1 : end] = [""] * (end - block.line + 1)
    text = "".join(f"{line}\n" for line in lines)
    return text.replace(ADDRESS, bootstrap).replace('"ca.pem"', f'"{ca}"')


def _blocks() -> list[Block]:
    return blocks_of(PAGE.read_text(encoding="utf-8"))
