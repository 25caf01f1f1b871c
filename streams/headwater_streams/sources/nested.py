"""Conditions on a value and on all that it contains: fields, elements of arrays, keys and values of maps."""

from collections.abc import Callable, Iterator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.names import named_twice
from headwater_streams.base.type_name import type_name

_BY_BYTES = T.StringType().collation
IsSo = Callable[[T.DataType, Column], Column | None]
"""A condition on a value of a type; None where the condition is not about values of that type."""


def somewhere(kind: T.DataType, value: Column, is_so: IsSo) -> Column | None:
    """Whether a condition holds for a value or for one within it, never NULL; None where it is about none of them."""
    conditions = [is_so(kind, value)]
    if isinstance(kind, T.StructType):
        conditions += [somewhere(field.dataType, value.getField(field.name), is_so) for field in kind.fields]
    elif isinstance(kind, T.ArrayType):
        conditions.append(_in_one_of(kind.elementType, value, is_so))
    elif isinstance(kind, T.MapType):
        conditions.append(_in_one_of(kind.keyType, F.map_keys(value), is_so))
        conditions.append(_in_one_of(kind.valueType, F.map_values(value), is_so))
    some = [F.coalesce(each, F.lit(False)) for each in conditions if each is not None]
    return reduce(Column.__or__, some) if some else None


def named_twice_in(kind: T.DataType) -> str | None:
    """The name of a field of a type, or of one within it, that to Spark another field has, too; None where none has."""
    if isinstance(kind, T.StructType):
        within = (named_twice_in(field.dataType) for field in kind.fields)
        return named_twice(kind.fieldNames()) or next(filter(None, within), None)
    if isinstance(kind, T.MapType):
        return named_twice_in(kind.keyType) or named_twice_in(kind.valueType)
    return named_twice_in(kind.elementType) if isinstance(kind, T.ArrayType) else None


def _in_one_of(kind: T.DataType, values: Column, is_so: IsSo) -> Column | None:
    if somewhere(kind, F.lit(None).cast(kind), is_so) is None:
        return None

    def is_so_inside(value: Column) -> Column:
        inside = somewhere(kind, value, is_so)
        assert inside is not None
        return inside

    return F.exists(values, is_so_inside)


def kinds_within(kind: T.DataType) -> Iterator[T.DataType]:
    """A type and all types within it."""
    yield kind
    inner: list[T.DataType] = []
    if isinstance(kind, T.StructType):
        inner = [field.dataType for field in kind.fields]
    elif isinstance(kind, T.ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, T.MapType):
        inner = [kind.keyType, kind.valueType]
    for each in inner:
        yield from kinds_within(each)


def odd_text(kind: T.DataType) -> str | None:
    """Why a table cannot have the texts within a type, as a predicate for a sentence about a column; None if it can."""
    for each in kinds_within(kind):
        if isinstance(each, T.CharType | T.VarcharType):
            return f"is {type_name(each)}, which Spark writes into no table; write STRING"
        if isinstance(each, T.StringType) and each.collation != _BY_BYTES:
            return (
                f"is {type_name(each)}, and neither Spark's state nor other readers of a table compare texts by a "
                "collation; write STRING, and lower(...) or rtrim(...) of it where texts are to be one"
            )
    return None
