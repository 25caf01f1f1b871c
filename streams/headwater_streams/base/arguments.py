"""Checks of arguments that people easily get wrong in a declaration."""

from collections.abc import Mapping, Sequence

from headwater_streams.base.errors import JobDefinitionError


def require_list(what: str, argument: str, names: object) -> None:
    """Checks that several names come as a list: one text would be taken for a list of its letters.

    Raises:
        JobDefinitionError: It is one text, or columns.
    """
    from pyspark.sql import Column  # the command line reads names of tables without Spark's packages

    columns = isinstance(names, Column) or (
        isinstance(names, Sequence | Mapping) and any(isinstance(each, Column) for each in names)
    )
    if columns:
        raise JobDefinitionError(f'{what}: {argument}= takes names, not columns; write ["name", ...]')
    if isinstance(names, str):
        raise JobDefinitionError(f"{what}: {argument}={names!r} is not a list; write [{names!r}]")


def require_frame(where: str, value: object) -> None:
    """Checks that an operator was handed a DataFrame; `where` says which, as "join: its left side is".

    Raises:
        JobDefinitionError: It is something else.
    """
    if not hasattr(value, "columns"):
        raise JobDefinitionError(
            f"{where} {type(value).__name__}, not a DataFrame; of windows call .agg(...) first"
        )
