"""The page of the Python API: its docstrings, by mkdocstrings."""

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import headwater.audit
import headwater.backfill
import headwater.loads
import headwater.quality
import headwater.trace
import headwater_broker.testing
import headwater_client
import headwater_streams.quality.expect
import headwater_streams.testing
from docs_reference.markdown import docstring
from headwater_streams import api


def page() -> str:
    """The Markdown."""
    names = {name: getattr(api, name) for name in api.__all__}
    functions = {name: each for name, each in names.items() if inspect.isfunction(each)}
    classes = {name: each for name, each in names.items() if inspect.isclass(each)}
    return "\n".join(
        [
            "# Python",
            "",
            "`import headwater as hw` gives these names. `help(hw.join)` shows the same.",
            "",
            "## Declarations and operators",
            "",
            *(_entry(each, f"hw.{name}") for name, each in functions.items()),
            "## What they return",
            "",
            *(_entry(each, f"hw.{name}", members=False) for name, each in classes.items()),
            "## Ready-made checks",
            "",
            docstring(headwater_streams.quality.expect.__doc__),
            *_members(headwater_streams.quality.expect, "hw.expect."),
            "## Backfills",
            "",
            docstring(headwater.backfill.__doc__),
            *_members(headwater.backfill, "hw.backfill."),
            "## Audits",
            "",
            docstring(headwater.audit.__doc__),
            _entry(headwater.audit.counts, "hw.audit.counts"),
            "## Quality over time",
            "",
            docstring(headwater.quality.__doc__),
            *_members(headwater.quality, "hw.quality."),
            "## Traces",
            "",
            docstring(headwater.trace.__doc__),
            *_members(headwater.trace, "hw.trace."),
            "## Loads",
            "",
            docstring(headwater.loads.__doc__),
            _entry(headwater.loads.load, "hw.load"),
            _entry(headwater.loads.LoadReport, "LoadReport", members=False),
            "## Producers that count",
            "",
            docstring(headwater_client.__doc__),
            _entry(headwater_client.counted, "counted"),
            "## Tests of jobs",
            "",
            docstring(headwater_streams.testing.__doc__),
            *_members(headwater_streams.testing, ""),
            "## Tests of Kafka code",
            "",
            docstring(headwater_broker.testing.__doc__),
            *_members(headwater_broker.testing, ""),
        ]
    )


def _members(module: ModuleType, prefix: str) -> Iterator[str]:
    for name in module.__all__:
        each = getattr(module, name)
        if inspect.isfunction(each) or inspect.isclass(each):
            yield _entry(each, f"{prefix}{name}", members=not prefix)


def _entry(each: Any, heading: str, *, members: bool = True) -> str:
    """What mkdocstrings reads at the place where a name is defined."""
    options = {
        "heading": heading,
        "toc_label": heading,
        "heading_level": "3",
        "members": "null" if members else "false",
    }
    return "\n".join(
        [
            f"::: {each.__module__}.{each.__qualname__}",
            "    options:",
            *(f"      {name}: {value}" for name, value in options.items()),
            "",
        ]
    )
