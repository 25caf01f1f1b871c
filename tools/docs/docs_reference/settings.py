"""The page of settings: the comments of the shipped file, the types and limits of the code, a broker's properties."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from docs_reference.markdown import code, plain, table
from headwater.config import ClientSettings, Settings, known_keys, shipped_dir
from headwater.config.load import variable_of
from headwater_broker.log import CONFIG_KEYS
from headwater_broker.server.live import may_change
from headwater_broker.server.properties import IN_OTHER_UNITS, PLACES, PROPERTIES, WITHOUT_EFFECT
from headwater_broker.server.settings import BrokerSettings

_SHIPPED = "headwater.toml"
_KINDS: Mapping[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    SecretStr: "text, never printed",
}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def page() -> str:
    """The Markdown."""
    text = (shipped_dir("conf") / _SHIPPED).read_text(encoding="utf-8")
    head, *sections = re.split(r"^# -{10,}\n", text, flags=re.MULTILINE)
    parts = ["# Settings", "", *_prose(head.splitlines()), ""]
    for section in sections:
        parts += _section(section.splitlines())
    parts += _broker()
    return "\n".join(parts) + "\n"


def commented_keys() -> list[str]:
    """The keys and free tables that the page has, for a test."""
    return re.findall(r"^### `([\w.]+)`", page(), re.MULTILINE)


def _section(lines: list[str]) -> Iterator[str]:
    header = next(line for line in lines if line.startswith("["))
    name = header.strip("[]")
    at = lines.index(header)
    yield from (f"## [{name}]", "", *_prose(lines[:at]), "")
    comment: list[str] = []
    for line in lines[at + 1 :]:
        key = re.match(r"(\w+) = ", line)
        table_header = re.match(r"\[([\w.]+)\]", line)
        if line.startswith("#"):
            comment.append(line)
        elif key:
            yield from _setting(f"{name}.{key.group(1)}", comment)
            comment = []
        elif table_header:
            yield from _setting(table_header.group(1), comment)
            comment = []
        elif not line:
            comment = []
    if name in known_keys():
        yield from _setting(name, [])


def _setting(key: str, comment: list[str]) -> Iterator[str]:
    parts = key.split(".")
    model: Any = Settings
    for part in parts[:-1]:
        model = model.model_fields[part].annotation
    field = model.model_fields[parts[-1]]
    yield from (f"### `{key}`", "", *_prose(comment), "")
    facts = [f"Type: {_type(field)}"]
    if not isinstance(field.default, dict):
        facts.append(f"default: {code(_default_text(field.default)) or 'empty'}")
        facts.append(f"environment: {code(variable_of(key))}")
    yield from ("; ".join(facts) + ".", "")


def _type(field: FieldInfo) -> str:
    """A field's type and limits, in words."""
    annotation = field.annotation
    if ClientSettings in get_args(annotation):
        return f"a table for each cluster, with the keys of {code('[client]')}"
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(code(each) if each else "empty" for each in get_args(annotation))
    bounds = [
        f"{words} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, words in _BOUNDS.items()
        if getattr(limit, name, None) is not None
    ]
    patterns = [each.pattern for each in field.metadata if getattr(each, "pattern", None)]
    return ", ".join(
        [_KINDS.get(annotation, "table of texts"), *bounds, *(f"that matches {code(p)}" for p in patterns)]
    )


def _default_text(default: Any) -> str:
    if hasattr(default, "get_secret_value"):
        return str(default.get_secret_value())
    return str(default)


def _prose(lines: list[str]) -> Iterator[str]:
    """Comments as Markdown: indented lines are numbered items with their continuations, or code."""
    in_list = False
    for line in lines:
        text = line.removeprefix("#").removeprefix(" ")
        if re.match(r"  \d\. ", text):
            if not in_list:
                yield ""
            in_list = True
            yield plain(text.strip())
        elif text.startswith("  "):
            yield "    " + (plain(text.strip()) if in_list else text.strip())
        else:
            in_list = False
            yield plain(text)


def _broker() -> Iterator[str]:
    """What `[broker]`, `--set` and a properties file take, and what topics take."""
    defaults = {each.name: getattr(BrokerSettings(), each.name, None) for each in fields(BrokerSettings)}
    rows = [
        (
            code(name),
            each.kind,
            _limit(each.low, each.high),
            code(_default(defaults[each.field])),
            plain(each.doc),
            _live(name),
        )
        for name, each in PROPERTIES.items()
    ]
    heads = ("Property", "Type", "Limits", "Default", "What it is", "Changes while running")
    yield from ("## Broker properties", "", "By Kafka's names, of a broker:", "", table(heads, rows))
    yield from ("Those that say where things are, which have flags of their own:", "")
    yield from (", ".join(code(name) for name in sorted(PLACES)) + ".", "")
    yield from ("The same in other units:", "")
    yield table(
        ("Property", "Stands for"), [(code(name), code(of)) for name, (of, _) in IN_OTHER_UNITS.items()]
    )
    yield from ("Taken without effect, so that a file that was written for Kafka works:", "")
    yield from (", ".join(code(name) for name in sorted(WITHOUT_EFFECT)) + ".", "")
    topics = [
        (code(key.name), code(key.broker_name or ""), key.kind, code(_default(key.default)), plain(key.doc))
        for key in CONFIG_KEYS.values()
    ]
    yield from (
        "## Topic settings",
        "",
        "The broker's property of the second column is the default of all topics.",
        "",
    )
    yield table(("Setting of a topic", "Property of a broker", "Type", "Default", "What it is"), topics)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | set | frozenset):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _limit(low: float, high: float) -> str:
    if low == high:
        return ""
    return f"{low:g} or more" if high in (2**31 - 1, 2**63 - 1) or high > 1e300 else f"{low:g} to {high:g}"


def _live(name: str) -> str:
    return "yes" if may_change(name) else "no"
