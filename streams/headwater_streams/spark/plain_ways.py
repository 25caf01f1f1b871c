"""The plain way, which does the same and takes longer, where Spark no longer has one of its private names."""

import logging
import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger(__name__)
_ATTRIBUTE = re.compile(r"\b_(?:gateway|j[a-z]\w*)\b")
_NO_CLASS = "'JavaPackage' object is not callable"


def or_plainly(plain: Callable[..., R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a function fall back to a plain way where a private name that it uses is missing; one warning says so.

    Args:
        plain: Does the same with public names alone, and takes the same arguments, by position.
    """

    def decorate(private: Callable[P, R]) -> Callable[P, R]:
        warned: set[str] = set()

        @wraps(private)
        def function(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return private(*args, **kwargs)
            except Exception as error:
                if not is_missing(error):
                    raise
                if private.__name__ not in warned:
                    warned.add(private.__name__)
                    _log.warning(
                        f"{private.__name__}: this Spark lacks a private name ({_first_line(error)}); the plain way "
                        "takes longer"
                    )
            return plain(*args, **kwargs)

        return function

    return decorate


def is_missing(error: Exception) -> bool:
    """Whether an error says that PySpark has no such attribute, or its JVM no such class or method."""
    if isinstance(error, AttributeError):
        return _ATTRIBUTE.search(str(error)) is not None
    if isinstance(error, TypeError):  # py4j takes a class that does not exist for a package
        return _NO_CLASS in str(error)
    from py4j.protocol import Py4JError  # a module of the door may be read where PySpark is not installed

    return type(error) is Py4JError and "does not exist" in str(error)  # others are about what was called


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if "does not exist" in line), str(error))
