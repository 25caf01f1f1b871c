"""The schema by which Avro's values are read: it has wider numbers than the one that they were written with.

Spark's reader takes the lowest 32 bits of an int and the lowest 64 of a DECIMAL of up to 18 digits: 2147483648 of a
producer whose field has become a long would be read as 0. So these are read as a long, or as a DECIMAL of 38 digits.
`avro_detour` casts the value to its own type, or finds that it does not fit.
"""

import json
from typing import Any

from pyspark.sql import types as T

from headwater_streams.sources.read_types import Detour

_MOST_DIGITS, _DIGITS_OF_A_LONG = 38, 18


def avro_detour(kind: T.DataType, _within: bool) -> Detour | None:
    """The type that a column has in the wider schema."""
    if isinstance(kind, T.IntegerType):
        return Detour(T.LongType(), lambda value: value.try_cast(kind))
    if isinstance(kind, T.DecimalType) and kind.precision <= _DIGITS_OF_A_LONG:
        return Detour(T.DecimalType(_MOST_DIGITS, kind.scale), lambda value: value.try_cast(kind))
    return None


def wider(schema: str, *, ints: bool) -> str:
    """A schema with wider numbers.

    Args:
        schema: A record's, as JSON.
        ints: Whether its ints are longs.
    """
    return json.dumps(_wider(json.loads(schema), ints))


def tells_ints_from_longs(schema: str) -> bool:
    """Whether a union in the schema has both an int and a long."""
    return _has_both(json.loads(schema))


def _wider(node: Any, ints: bool) -> Any:
    if isinstance(node, list):
        return [_wider(each, ints) for each in node]
    if not isinstance(node, dict):
        return "long" if node == "int" and ints else node
    widened = {key: _wider(node[key], ints) if key in ("items", "values") else node[key] for key in node}
    kind = node.get("type")
    if isinstance(kind, dict | list) or (kind == "int" and "logicalType" not in node):
        widened["type"] = _wider(kind, ints)
    if "fields" in node:
        widened["fields"] = [{**each, "type": _wider(each["type"], ints)} for each in node["fields"]]
    if node.get("logicalType") == "decimal" and node.get("precision", 0) <= _DIGITS_OF_A_LONG:
        widened["precision"] = max(node.get("precision", 0), most_digits(node))
    return widened


def most_digits(node: dict[str, Any]) -> int:
    """Of a DECIMAL in the wider schema."""
    if node["type"] != "fixed":
        return _MOST_DIGITS
    return min(_MOST_DIGITS, len(str(2 ** (8 * node["size"] - 1) - 1)) - 1)


def _has_both(node: Any) -> bool:
    if isinstance(node, list):
        plain = {each.get("type") if isinstance(each, dict) else each for each in node if _is_plain(each)}
        return {"int", "long"} <= plain or any(_has_both(each) for each in node)
    if not isinstance(node, dict):
        return False
    parts = [node.get("items"), node.get("values"), *[each["type"] for each in node.get("fields", ())]]
    parts += [node["type"]] if isinstance(node.get("type"), dict | list) else []
    return any(_has_both(each) for each in parts)


def _is_plain(node: Any) -> bool:
    return isinstance(node, str) or (isinstance(node, dict) and isinstance(node.get("type"), str))
