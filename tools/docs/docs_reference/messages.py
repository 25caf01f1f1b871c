"""The page of error messages that name a remedy: read from the places in the code that raise them.

A message counts where it names a command, an option or an argument. What differs from case to case stands in
guillemets.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import headwater
import headwater_broker
import headwater_client
import headwater_streams
from docs_reference.markdown import plain
from headwater.cli.verbs import VERBS

_REMEDY = re.compile(
    rf"headwater (?:{'|'.join(VERBS)})\b|pip install|(?<![\w-])--[a-z]{{2,}}|\bhw\.\w+|\b[a-z_]+="
)


@dataclass(frozen=True)
class Message:
    """An error message.

    Attributes:
        error: The name of the class that carries it.
        text: The message; what differs from case to case stands in guillemets.
    """

    error: str
    text: str


def page() -> str:
    """The Markdown."""
    by_error: dict[str, set[str]] = {}
    for message in messages():
        by_error.setdefault(message.error, set()).add(message.text)
    parts = [
        "# Messages",
        "",
        "Error messages that name a command, an option or an argument as the remedy. What differs from case to case",
        "stands in guillemets, ‹so›. They are sorted by the class of the error, which a program can catch.",
        "",
    ]
    for error, texts in sorted(by_error.items()):
        parts += [f"## {error}", "", plain(_classes().get(error, "")), ""]
        parts += [*(f"- {_line(text)}" for text in sorted(texts, key=str.lower)), ""]
    return "\n".join(parts)


def _line(text: str) -> str:
    return plain(" ".join(text.split()))


@cache
def messages() -> tuple[Message, ...]:
    """All messages that name a remedy."""
    all_messages = (
        message for path in _modules() for message in messages_in(ast.parse(path.read_text(encoding="utf-8")))
    )
    return tuple(dict.fromkeys(message for message in all_messages if _REMEDY.search(message.text)))


def _modules() -> Iterable[Path]:
    for package in (headwater, headwater_broker, headwater_client, headwater_streams):
        yield from sorted(Path(inspect.getfile(package)).parent.rglob("*.py"))


@cache
def _classes() -> dict[str, str]:
    """The first paragraph of each error class's docstring."""
    docstrings = {}
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                docstrings[node.name] = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return docstrings


def messages_in(tree: ast.AST) -> Iterator[Message]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield from _of_call(node.exc)
        elif isinstance(node, ast.Call) and node.args and _name(node.func) == "fail":
            yield from _of_call(node)  # of a place in a SQL file


def _of_call(call: ast.Call) -> Iterator[Message]:
    name = _name(call.func)
    error = "JobDefinitionError" if name == "fail" else name
    text = _text(call.args[0])
    if error.endswith("Error") and text is not None:
        yield Message(error, text)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr) -> str | None:
    """A text that is written in the code, with names for the values in it; None for another expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"‹{_placeholder(part)}›"
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None and right is None else f"{left or '…'}{right or '…'}"
    return None


def _placeholder(value: ast.expr) -> str:
    """A word for a value in a message: its name in the code."""
    inner: ast.expr | None = None
    if isinstance(value, ast.Name | ast.Attribute):
        return _name(value).strip("_").replace("_", " ")
    if isinstance(value, ast.Subscript):
        if isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, str):
            return value.slice.value.replace("_", " ")
        inner = value.value
    elif isinstance(value, ast.Call):
        inner = value.args[0] if value.args else value.func
    elif isinstance(value, ast.GeneratorExp | ast.ListComp):
        inner = value.elt
    elif isinstance(value, ast.BinOp):
        inner = value.left
    elif isinstance(value, ast.IfExp):
        inner = value.body
    elif isinstance(value, ast.FormattedValue | ast.Starred):
        inner = value.value
    return "…" if inner is None else _placeholder(inner)
