"""VARIANT, which neither engine gives to Arrow as a value: it goes there as JSON in a struct of one field of ours.

In a table's files it is a struct of two binaries, which DuckDB takes for a VARIANT only if Arrow's field is marked.
"""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

_EXTENSION = {b"ARROW:extension:name": b"arrow.parquet.variant", b"ARROW:extension:metadata": b""}
JSON_FIELD = "headwater.variant.json"
"""The one field of the struct that stands for a VARIANT, or for a value that holds some."""


def is_variant(kind: Any) -> bool:
    """Whether an Arrow type is that struct."""
    import pyarrow.types as types

    return bool(types.is_struct(kind) and kind.num_fields == 1 and kind.field(0).name == JSON_FIELD)


def variant_values(texts: Iterable[str | None]) -> list[Any]:
    """The values that the JSON stands for; a number that no float holds exactly stays a text.

    Example:
        >>> variant_values(['{"a": [1, 2.5]}', None, "0.12345678901234567890123"])
        [{'a': [1, 2.5]}, None, '0.12345678901234567890123']
    """
    return [None if text is None else json.loads(text, parse_float=_exact) for text in texts]


def declared(field: Any, kind: Any) -> Any:
    """An Arrow field in which each VARIANT is marked as one, by the field's type in Delta."""
    import pyarrow as pa
    from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

    if isinstance(kind, StructType):
        inner = {each.name: each.type for each in kind.fields}
        return field.with_type(pa.struct([declared(each, inner[each.name]) for each in field.type]))
    if isinstance(kind, ArrayType):
        return field.with_type(pa.list_(declared(field.type.value_field, kind.element_type)))
    if isinstance(kind, MapType):
        return field.with_type(pa.map_(field.type.key_type, declared(field.type.item_field, kind.value_type)))
    return field if isinstance(kind, PrimitiveType) else field.with_metadata(_EXTENSION)


def _exact(text: str) -> float | str:
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text
