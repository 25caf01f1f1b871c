"""Fields that a format's parser reads as another type than the declared one, as it would change values of that type: it
makes -56 of 200 for a TINYINT, and rounds 1.239 for a DECIMAL of two places.

A rule says for each type whether it takes such a detour. A schema without detours costs nothing more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.nested import somewhere
from headwater_streams.sources.parsers.parser import let

_READ, _TYPED = "_read", "_typed_"
_MOST_COMPILED = 6


@dataclass(frozen=True)
class Detour:
    """How values of a type are read.

    Attributes:
        read_as: The type that the parser reads.
        typed: Casts it to the declared type; NULL where that would change the value, or as `differs` says.
        differs: Whether the value of the declared type, the second argument, differs from the one that was read. Used
            only outside of lists, maps and structs.
    """

    read_as: T.DataType
    typed: Callable[[Column], Column]
    differs: Callable[[Column, Column], Column] = lambda _read, typed: typed.isNull()


Rule = Callable[[T.DataType, bool], Detour | None]
"""The detour of a type that is no list, map or struct; the second argument is whether it is within one. None for a type
that the parser reads as declared. Keys of maps take no detour."""


def read_fields(fields: Sequence[T.StructField], rule: Rule) -> list[T.StructField]:
    """The fields that the parser reads."""
    return [
        T.StructField(field.name, _read_type(field.dataType, rule))
        if _detours(field.dataType, rule)
        else field
        for field in fields
    ]


def misread(field: T.StructField, read: Column, rule: Rule) -> tuple[Column, Column]:
    """A field's value, cast from what was read, and whether it does not fit its type."""
    if not _detours(field.dataType, rule):
        return read, F.lit(False)
    typed = _typed(field.dataType, read, rule)
    return typed, _is_misread(field.dataType, read, typed, rule)


@dataclass(frozen=True)
class Typing:
    """Casts the fields of a parsed struct to the declared types, each into a column of its own beside the struct.

    There is a struct of them, too, which is computed only where it is used: it costs a row and a copy of each field.

    Attributes:
        fields: The fields as they were declared.
        rule: The rule by which the parser read them.
        value: The struct's column; after `of` it has the declared types.
        unread: A BOOLEAN column of the records.
        also: More fields of the struct.
    """

    fields: Sequence[T.StructField]
    rule: Rule
    value: str
    unread: str
    also: Sequence[str] = ()

    @cached_property
    def _detours(self) -> dict[str, T.StructField]:
        """The fields that are read as another type, by the columns that they become."""
        return {
            f"{_TYPED}{place}": field
            for place, field in enumerate(self.fields)
            if _detours(field.dataType, self.rule)
        }

    @property
    def names(self) -> list[str]:
        """The columns that `of` adds."""
        return [_READ, *self._detours] if self._detours else []

    @property
    def read(self) -> Column:
        """The parsed struct, in the records that `of` gives."""
        return F.col(_READ if self._detours else self.value)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Each field with its declared type, in the records that `of` gives."""
        as_read = {field.name: self.read.getField(field.name) for field in self.fields}
        return as_read | {field.name: F.col(name) for name, field in self._detours.items()}

    @cached_property
    def wrong(self) -> list[tuple[T.StructField, Column, Column]]:
        """The fields whose values may not fit their types: each with whether it does not fit, and its text."""
        return [
            (
                field,
                _is_misread(field.dataType, self.read.getField(field.name), F.col(name), self.rule),
                self.read.getField(field.name).cast("string"),
            )
            for name, field in self._detours.items()
        ]

    def of(self, records: DataFrame) -> DataFrame:
        """The records with `names`; `unread` becomes true where a value does not fit its type."""
        if not self._detours:
            return records
        others = [F.col(column) for column in records.columns if column not in (self.value, self.unread)]
        struct = F.col(self.value)
        # Each in a column of its own: it is then computed once, however often it is used.
        few = len(self._detours) <= _MOST_COMPILED
        typed = [
            _of_few(few, struct.getField(field.name), field.dataType, self.rule).alias(name)
            for name, field in self._detours.items()
        ]
        records = records.select(*others, self.unread, struct.alias(_READ), *typed)
        some = reduce(Column.__or__, [wrong for _, wrong, _ in self.wrong], F.col(self.unread))
        fields = [self.columns[field.name].alias(field.name) for field in self.fields]
        fields += [self.read.getField(name).alias(name) for name in self.also]
        whole = F.when(self.read.isNotNull(), F.struct(*fields))
        return records.select(*others, whole.alias(self.value), *self.names, some.alias(self.unread))


def _of_few(few: bool, value: Column, kind: T.DataType, rule: Rule) -> Column:
    # Java does not compile a method of more than 8,000 bytes of code, and Spark makes one method of all columns. A
    # lambda adds only a call to it.
    if few:
        return _typed(kind, value, rule)
    return let(value, lambda bound: _typed(kind, bound, rule))


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
    """Whether a value was read that does not fit its type."""
    whole = rule(kind, False)
    if whole is not None:
        return _is_something(whole, read) & whole.differs(read, typed)

    def is_none(leaf: T.DataType, value: Column) -> Column | None:
        detour = rule(leaf, True)
        return None if detour is None else _is_something(detour, value) & detour.typed(value).isNull()

    is_misread = somewhere(kind, read, is_none)
    assert is_misread is not None
    return is_misread


def _is_something(detour: Detour, read: Column) -> Column:
    """Whether a value is not NULL; a VARIANT has a null of its own, JSON's."""
    is_null = F.is_variant_null(read) if isinstance(detour.read_as, T.VariantType) else F.lit(False)
    return read.isNotNull() & ~is_null
