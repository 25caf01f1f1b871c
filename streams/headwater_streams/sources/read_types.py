"""Fields that a format's parser reads as another type than the declared one, since of that type it would make other
values: it brings 200 for a TINYINT to -56, and rounds 1.239 for a DECIMAL of two places.

A rule says for each type whether it takes such a detour. A schema that needs none costs nothing more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.nested import somewhere
from headwater_streams.sources.parsers.parser import let
from headwater_streams.sources.wrong_fields import wrong_fields

_READ, _TYPED = "_read", "_typed_"
_MOST_COMPILED = 6


@dataclass(frozen=True)
class Detour:
    """How values of a type are read.

    Attributes:
        read_as: The type that the parser is asked for.
        typed: Makes the declared type of it; NULL where that would be another value.
    """

    read_as: T.DataType
    typed: Callable[[Column], Column]


Rule = Callable[[T.DataType, bool], Detour | None]
"""The detour of a type that is no list, map or struct, and whether it is within one; None for a type that the parser
reads as it is. Keys of maps are read as what they are."""


def read_fields(fields: Sequence[T.StructField], rule: Rule) -> list[T.StructField]:
    """The fields that the parser is asked for."""
    return [
        T.StructField(field.name, _read_type(field.dataType, rule))
        if _detours(field.dataType, rule)
        else field
        for field in fields
    ]


def any_detour(fields: Sequence[T.StructField], rule: Rule) -> bool:
    """Whether one of the fields is read as another type."""
    return any(_detours(field.dataType, rule) for field in fields)


def misread(field: T.StructField, read: Column, rule: Rule) -> tuple[Column, Column]:
    """A field's value of what was read, and whether that is no value of its type."""
    if not _detours(field.dataType, rule):
        return read, F.lit(False)
    typed = _typed(field.dataType, read, rule)
    return typed, _is_misread(field.dataType, read, typed, rule)


def typed_fields(
    records: DataFrame,
    name: str,
    fields: Sequence[T.StructField],
    also: Sequence[str],
    rule: Rule,
    unread: str,
    told: str | None = None,
) -> DataFrame:
    """Brings what was read to the declared types.

    Args:
        records: They have the struct that was read.
        name: The column of that struct; it becomes one of the declared types.
        fields: Its fields as they were declared.
        also: More of its fields, which stay.
        rule: What the parser was asked for.
        unread: A BOOLEAN column of the records; it becomes true for those that have a value which is none of its type.
        told: A field more of the struct: what is wrong with such a value, where the bytes do not say it.
    """
    detours = {place: field for place, field in enumerate(fields) if _detours(field.dataType, rule)}
    if not detours:
        return records
    kept = [F.col(column) for column in records.columns if column not in (name, unread)]
    value = F.col(name)
    # Each in a column of its own: it is then worked out once, however often it is looked at.
    typed = [
        _of_few(len(detours), value.getField(field.name), field.dataType, rule).alias(f"{_TYPED}{place}")
        for place, field in detours.items()
    ]
    records = records.select(*kept, F.col(unread), value.alias(_READ), *typed)
    read = F.col(_READ)
    wrong = [
        _is_misread(field.dataType, read.getField(field.name), F.col(f"{_TYPED}{place}"), rule)
        for place, field in detours.items()
    ]
    columns = [
        (F.col(f"{_TYPED}{place}") if place in detours else read.getField(field.name)).alias(field.name)
        for place, field in enumerate(fields)
    ]
    columns += [read.getField(more).alias(more) for more in also]
    some = reduce(Column.__or__, wrong, F.col(unread))
    if told is not None:
        texts = [read.getField(field.name).cast("string") for field in detours.values()]
        sentences = wrong_fields(list(zip(detours.values(), wrong, texts, strict=True)))
        columns.append(F.when(some, sentences).alias(told))
    return records.select(*kept, F.when(read.isNotNull(), F.struct(*columns)).alias(name), some.alias(unread))


def _of_few(columns: int, value: Column, kind: T.DataType, rule: Rule) -> Column:
    # Java compiles no method of more than 8,000 bytes of code, and Spark makes one of all columns; of a lambda it has
    # a call alone.
    if columns <= _MOST_COMPILED:
        return _typed(kind, value, rule)
    return let(value, lambda known: _typed(kind, known, rule))


def _detours(kind: T.DataType, rule: Rule, within: bool = False) -> bool:
    if isinstance(kind, T.StructType):
        return any(_detours(field.dataType, rule, True) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _detours(kind.elementType, rule, True)
    if isinstance(kind, T.MapType):
        return _detours(kind.valueType, rule, True)
    return rule(kind, within) is not None


def _read_type(kind: T.DataType, rule: Rule, within: bool = False) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _read_type(f.dataType, rule, True)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_read_type(kind.elementType, rule, True))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _read_type(kind.valueType, rule, True))
    detour = rule(kind, within)
    return kind if detour is None else detour.read_as


def _typed(kind: T.DataType, value: Column, rule: Rule, within: bool = False) -> Column:
    if not _detours(kind, rule, within):
        return value
    if isinstance(kind, T.StructType):
        fields = [_typed(f.dataType, value.getField(f.name), rule, True).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda each: _typed(kind.elementType, each, rule, True))
    if isinstance(kind, T.MapType):
        return F.transform_values(value, lambda _key, each: _typed(kind.valueType, each, rule, True))
    detour = rule(kind, within)
    assert detour is not None
    return detour.typed(value)


def _is_misread(kind: T.DataType, read: Column, typed: Column, rule: Rule) -> Column:
    """Whether something was read that is no value of its type."""
    whole = rule(kind, False)
    if whole is not None:
        return _is_something(whole, read) & typed.isNull()

    def is_none(leaf: T.DataType, value: Column) -> Column | None:
        detour = rule(leaf, True)
        return None if detour is None else _is_something(detour, value) & detour.typed(value).isNull()

    found = somewhere(kind, read, is_none)
    assert found is not None
    return found


def _is_something(detour: Detour, read: Column) -> Column:
    """Whether it is no NULL; a VARIANT has one of its own, which JSON's null is."""
    is_null = F.is_variant_null(read) if isinstance(detour.read_as, T.VariantType) else F.lit(False)
    return read.isNotNull() & ~is_null
