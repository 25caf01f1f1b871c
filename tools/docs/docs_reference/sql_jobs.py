"""The page of SQL jobs: the language's documentation, which stands with the code, and its tables of words."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from docs_reference.markdown import code, docstring, plain, table
from headwater_streams import streaming_sql
from headwater_streams.streaming_sql import calls, select, statement


def page() -> str:
    """The Markdown."""
    functions = [
        (code(_call(name, each)), plain(_summary(each))) for name, each in sorted(calls.FUNCTIONS.items())
    ]
    joins = [
        (code(" ".join(words)), code(f"hw.join(..., how={how!r})")) for words, how in select.JOINS.items()
    ]
    windows = [(code(name), code(shape)) for name, shape in select.WINDOW_SHAPES.items()]
    refused = [(code(word), plain(why)) for word, why in select.REFUSED.items()]
    return "\n".join(
        [
            "# SQL jobs",
            "",
            docstring(streaming_sql.__doc__),
            "## Inputs, formats and deduplication",
            "",
            "Arguments are given in order or by name, `name => value`.",
            "",
            table(("Function", "What it is"), functions),
            "## Windows",
            "",
            table(("Word", "How it is written in GROUP BY"), windows),
            "## Joins",
            "",
            table(("Words", "The operator in Python"), joins),
            "## Options of WITH",
            "",
            ", ".join(code(name) for name in statement.OPTIONS) + ".",
            "",
            "## Actions of ON VIOLATION",
            "",
            ", ".join(code(name) for name in statement.ACTIONS) + ".",
            "",
            "## What is refused, and why",
            "",
            table(("Words", "Why"), refused),
        ]
    )


def _call(name: str, function: Callable[..., Any]) -> str:
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    return f"{name}({', '.join(_parameter(each) for each in parameters.values())})"


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"{parameter.name}, ..."
    return (
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name} => {_sql(parameter.default)}"
    )


def _sql(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"'{value}'" if isinstance(value, str) else str(value)


def _summary(function: Callable[..., Any]) -> str:
    return " ".join(inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].split())
