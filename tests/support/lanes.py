"""Which tests a lane runs, `--lane check|test|all`; docs/contributing/testing.md says what each is for.

One thing decides a test's lane: its folder, if that is in `CHECK` or `TEST`, and otherwise its mark `story`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amount import LANE

ROOT = Path(__file__).resolve().parents[1]
CHECK = ("unit", "property", "docs")
"""Folders of `make check`: no Spark session."""
TEST = (*CHECK, "clients")
"""Folders that `make test` runs whole; of the others it runs what is marked `story`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane",
        choices=("check", "test", "all"),
        default="all",
        help="which tests run; all of them by default",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets, before test modules are imported, how much their random tests try."""
    os.environ[LANE] = config.getoption("--lane")


def folder_of(item: pytest.Item) -> str:
    """The folder below tests/ that a test is in; empty for one that is elsewhere."""
    return item.path.relative_to(ROOT).parts[0] if ROOT in item.path.parents else ""


def runs_in(lane: str, folder: str, *, is_story: bool) -> bool:
    """Whether a lane runs a test of that folder."""
    if lane == "check":
        return folder in CHECK
    return lane == "all" or folder in TEST or is_story


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lane = config.getoption("--lane")
    in_lane: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        is_story = item.get_closest_marker("story") is not None
        if is_story and folder_of(item) in TEST:
            raise pytest.UsageError(f"{item.nodeid}: its folder decides its lane; take the mark `story` away")
        in_lane[runs_in(lane, folder_of(item), is_story=is_story)].append(item)
    if in_lane[False]:
        config.hook.pytest_deselected(items=in_lane[False])
        items[:] = in_lane[True]
