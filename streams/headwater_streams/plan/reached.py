"""What a job's function reaches of its own code: the helpers that it calls, and the constants that it names.

A job is more than its function's text. With `RATE` or `net` changed, what comes of the rows is another thing, too:

    RATE = Decimal("0.2")

    def net(price: Column) -> Column:
        return price / (1 + RATE)

    @hw.job(target=hw.delta("silver.orders"))
    def orders(sold: DataFrame) -> DataFrame:
        return sold.withColumn("net", net(F.col("price")))

It follows names of the function's module, what the function closes over, and modules, functions and classes of its own
project: those outside Python's library and the installed packages, and those of its own package.
"""

import ast
import dataclasses
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from pathlib import Path, PurePath
from threading import Lock
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta, tzinfo, re.Pattern,
    PurePath, Enum,
)  # fmt: skip
_OURS = ("headwater", "headwater_streams", "headwater_broker")
_DEEPEST, _MOST = 8, 100_000
_PARSING = Lock()
"""Two threads of Python 3.11 that parse at once may fail each other (CPython's issue 106905)."""


@cache
def tree_of(definition: Any) -> str:
    """A function's, or a class's, syntax tree, read once: its file may be edited while the job runs.

    Raises:
        JobDefinitionError: Its source is not kept, as that of what was typed at Python's prompt.
    """
    try:
        source = inspect.getsource(definition)
    except OSError as error:
        name = getattr(definition, "__qualname__", repr(definition))
        raise JobDefinitionError(
            f"the source of {name} cannot be read, and a job is known again by its source: write it into a file, or "
            "into a cell of a notebook"
        ) from error
    with _PARSING:
        return ast.dump(ast.parse(textwrap.dedent(source)))


@cache
def reached(function: Callable[..., Any], *more: Callable[..., Any]) -> str:
    """A text that changes when what a function reaches of its own code does; empty where it reaches nothing.

    It is the same in each process that loads the same code; a constant that is not, such as the time of the import,
    makes another job of it each time. An object that is neither a plain value nor of the project's own classes counts
    by its type alone.

    Args:
        function: The function; its own text is not in the result.
        more: Further functions that are used, such as a parser's; their texts are.
    """
    walk = _Walk(function)
    for place, other in enumerate(more):
        walk.follow(f"function {place}", other)
    return "\n".join(walk.parts)


def functions_of(declared: object) -> list[Callable[..., Any]]:
    """The functions that stand in a declaration, as a parser's does in an input's format."""
    if not dataclasses.is_dataclass(declared):
        return []
    values = [getattr(declared, field.name, None) for field in dataclasses.fields(declared)]
    return [value for value in values if isinstance(value, FunctionType)]


class _Walk:
    def __init__(self, function: Callable[..., Any]) -> None:
        root = inspect.unwrap(function)
        self.parts: list[str] = []
        self._met: set[int] = {id(root)}
        self._package = root.__module__.partition(".")[0]
        if isinstance(root, FunctionType):
            self._names_of(root)

    def _names_of(self, function: FunctionType) -> None:
        """Follows what a function names and closes over."""
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                self.follow(name, function.__globals__[name], names)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.follow(name, cell.cell_contents, names)
            except ValueError:  # not bound yet
                continue
        for name, value in sorted((function.__kwdefaults__ or {}).items()):
            self.follow(name, value, names)
        for place, value in enumerate(function.__defaults__ or ()):
            self.follow(f"default {place}", value, names)

    def follow(self, name: str, value: object, names: Sequence[str] = ()) -> None:
        """Describes a value under its name. Of a module it follows the attributes that `names` has."""
        if isinstance(value, ModuleType):
            if self._is_own(getattr(value, "__file__", None), value.__name__):
                for attribute in names:
                    if attribute in vars(value):
                        self.follow(f"{name}.{attribute}", vars(value)[attribute], names)
            return
        try:
            description = self._description(value, 0)
        except Exception:  # an object that does not let itself be looked at
            description = type(value).__qualname__
        if description:
            self.parts.append(f"{name} = {description}")

    def _description(self, value: object, depth: int) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, T.DataType):
            return str(value.json())
        if isinstance(value, type):
            return self._of_class(value)
        if callable(value) and isinstance(function := _function_in(value), FunctionType):
            return self._of_function(function)
        if depth > _DEEPEST or (isinstance(value, Collection) and len(value) > _MOST):
            return type(value).__qualname__
        if isinstance(value, Mapping):
            each = (
                f"{self._description(k, depth + 1)}: {self._description(v, depth + 1)}"
                for k, v in value.items()
            )
            return "{" + ", ".join(each) + "}"
        if isinstance(value, Set):
            return "{" + ", ".join(sorted(self._description(item, depth + 1) for item in value)) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self._description(item, depth + 1) for item in value) + "]"
        if isinstance(value, partial):
            return f"partial {self._description((value.func, value.args, value.keywords), depth + 1)}"
        if isinstance(value, MethodType):
            return self._description((value.__self__, value.__func__), depth + 1)
        return self._of_object(value, depth)

    def _of_function(self, function: FunctionType) -> str:
        if id(function) in self._met or not self._is_own(function.__code__.co_filename, function.__module__):
            return ""
        self._met.add(id(function))
        self._names_of(function)
        return _tree_or_code(function)

    def _of_class(self, class_: type) -> str:
        module = sys.modules.get(class_.__module__)
        if id(class_) in self._met or not self._is_own(getattr(module, "__file__", None), class_.__module__):
            return ""
        self._met.add(id(class_))
        for base in class_.__bases__:
            self.follow(base.__qualname__, base, ())
        for value in vars(class_).values():
            inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if isinstance(inner, property):
                inner = inner.fget
            if isinstance(inner, FunctionType):
                self._names_of(inner)
        return _tree_or_code(class_)

    def _of_object(self, value: object, depth: int) -> str:
        kind = type(value)
        description, fields = self._of_class(kind) or kind.__qualname__, None
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        elif self._is_own(getattr(sys.modules.get(kind.__module__), "__file__", None), kind.__module__):
            fields = dict(sorted(getattr(value, "__dict__", {}).items()))
        return description if fields is None else f"{description} {self._description(fields, depth + 1)}"

    def _is_own(self, file: str | None, module: str) -> bool:
        package = module.partition(".")[0]
        if file is None or package in _OURS:
            return False
        return package == self._package or not any(Path(file).is_relative_to(folder) for folder in _INSTALLED)


def _function_in(value: Any) -> object:
    """The function behind what wraps one, as Spark's user-defined functions and `functools.cache` do."""
    inner = getattr(value, "func", None)
    return inspect.unwrap(inner if isinstance(inner, FunctionType) else value)


def _installed() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({path for name in names if (path := sysconfig.get_path(name))})


_INSTALLED = _installed()


def _names(code: CodeType) -> Iterator[str]:
    """The names that code, and what is defined in it, uses of its module, and those of attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _tree_or_code(definition: Any) -> str:
    """The syntax tree, which has no comments and blanks; the code of what was not written in a file."""
    try:
        return tree_of(definition)
    except (JobDefinitionError, OSError, TypeError, SyntaxError):
        code = getattr(definition, "__code__", None)
        return f"{definition.__qualname__} {code.co_code.hex() if code else ''}"
