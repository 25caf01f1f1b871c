"""Numbers of the command line: the same ones that settings take."""

from collections.abc import Callable
from functools import partial
from typing import Any

from typer import BadParameter

from headwater_broker.numbers import parse_decimal, parse_integer

_PARSERS: dict[str, Callable[[str], float]] = {
    "int": parse_integer,
    "integer": parse_integer,
    "float": parse_decimal,
}


def read_strictly(command: Any) -> Any:
    """Makes a command, and those below it, take numbers in the digits 0 to 9 alone; returns it.

    Typer itself takes `1_000`, `inf` and `nan`, and before 0.16, as Python's `int` does, digits of other scripts.
    """
    for parameter in command.params:
        parse = _PARSERS.get(_kind_of(parameter))
        if parse is not None:
            parameter.process_value = partial(_process, parse, parameter.process_value, parameter)
    for each in getattr(command, "commands", {}).values():
        read_strictly(each)
    return command


def _kind_of(parameter: Any) -> str:
    """The kind of a parameter, as Typer calls it, or click, on which it was built before."""
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is not None:
        return str(getattr(descriptor.annotation, "__name__", ""))
    return str(parameter.type.name.partition(" ")[0])


def _process(
    parse: Callable[[str], float],
    process: Callable[[Any, Any], Any],
    parameter: Any,
    context: Any,
    value: Any,
) -> Any:
    if isinstance(value, str):
        try:
            value = parse(value)
        except ValueError as error:
            raise BadParameter(f"{value!r} is {error}", ctx=context, param=parameter) from None
    return process(context, value)
