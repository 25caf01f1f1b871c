"""Arrow columns to plain Python values, by rules that hold for every engine.

Whole columns are turned at once: row by row, `to_pylist` makes a datetime object for each timestamp, which
costs ten times as much as the text that we want.

- integers of every width, HUGEINT included: int; decimals: str without an exponent
- timestamps (with or without a zone): `2013-01-01T10:00:00Z`, microseconds only where they are not 0
- dates `2013-01-01`, times `10:00:00`, intervals ISO 8601 durations (`P1DT2H`), infinite ones None
- structs and maps: dict; arrays: list; bytes: base64 text; UUIDs: text
- VARIANT: what it holds, as JSON has it
"""

import base64
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.sql.variant import is_variant, variant_values

if TYPE_CHECKING:
    import pyarrow as pa

_MICROS_PER_SECOND = 1_000_000
_MICROS_PER_DAY = 86_400 * _MICROS_PER_SECOND
_INFINITE_DAYS = {2**31 - 1, -(2**31) + 1}
_INFINITE_TICKS = {2**63 - 1, -(2**63) + 1}


def plain_values(array: "pa.Array", *, readable_bytes: bool = False) -> list[Any]:
    """The values of an Arrow array as None, bool, int, float, str, list or dict.

    Args:
        array: One array, not a chunked one.
        readable_bytes: Shows bytes as text with escapes, for people, instead of base64.
    """
    import pyarrow.types as types

    kind = array.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind):
        values: list[Any] = array.to_pylist()
        return values
    for matches, convert in (
        (types.is_timestamp, _timestamps),
        (types.is_decimal, _decimals),
        (types.is_date, _dates),
        (types.is_time, _times),
        (types.is_duration, _durations),
        (types.is_interval, _intervals),
    ):
        if matches(kind):
            return convert(array)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _strings(array)
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return _each(array, _readable if readable_bytes else _base64)
    return _nested_values(array, readable_bytes)


def _nested_values(array: "pa.Array", readable_bytes: bool) -> list[Any]:
    import pyarrow as pa
    import pyarrow.types as types

    kind = array.type
    if is_variant(kind):
        return variant_values(array.field(0).to_pylist())
    if types.is_struct(kind):
        columns = [plain_values(child, readable_bytes=readable_bytes) for child in array.flatten()]
        names = [kind.field(index).name for index in range(kind.num_fields)]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
        present = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if valid else None
            for row, valid in zip(rows, present, strict=True)
        ]
    if types.is_map(kind):
        used, spans = _spans(array)
        keys = plain_values(array.keys[used], readable_bytes=readable_bytes)
        items = plain_values(array.items[used], readable_bytes=readable_bytes)
        pairs = [
            (key if isinstance(key, str) else str(key), item) for key, item in zip(keys, items, strict=True)
        ]
        return [None if span is None else dict(pairs[span]) for span in spans]
    if types.is_list(kind) or types.is_large_list(kind):
        used, spans = _spans(array)
        items = plain_values(array.values[used], readable_bytes=readable_bytes)
        return [None if span is None else items[span] for span in spans]
    if types.is_fixed_size_list(kind):
        return plain_values(array.cast(pa.list_(kind.value_field)), readable_bytes=readable_bytes)
    if types.is_dictionary(kind):
        return plain_values(array.dictionary_decode(), readable_bytes=readable_bytes)
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_values(array, readable_bytes)
    return _each(array, str)


def _extension_values(array: "pa.Array", readable_bytes: bool) -> list[Any]:
    """What Arrow has no type of its own for: DuckDB's 128-bit integers, one-byte booleans, UUIDs, JSON."""
    kind = array.type
    if kind.extension_name == "arrow.opaque" and kind.type_name in ("hugeint", "uhugeint"):
        signed = kind.type_name == "hugeint"
        return _each(array.storage, lambda raw: int.from_bytes(raw, "little", signed=signed))
    if kind.extension_name == "arrow.bool8":
        return _each(array.storage, bool)
    if kind.extension_name == "arrow.uuid":
        return _each(array, str)
    return plain_values(array.storage, readable_bytes=readable_bytes)


def _each(array: "pa.Array", convert: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _spans(array: "pa.Array") -> tuple[slice, list[slice | None]]:
    """The children that the array (a slice, often) uses, and where in them each list lies (None: null)."""
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    spans = [
        slice(offsets[index] - first, offsets[index + 1] - first) if valid else None
        for index, valid in enumerate(array.is_valid().to_pylist())
    ]
    return slice(first, offsets[-1]), spans


def _timestamps(array: "pa.Array") -> list[str | None]:
    import numpy as np
    import pyarrow as pa

    ticks = array.cast(pa.int64())
    per_unit = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[array.type.unit]
    values = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    if per_unit > _MICROS_PER_SECOND:
        micros = values // (per_unit // _MICROS_PER_SECOND)
    else:
        micros = values * (_MICROS_PER_SECOND // per_unit)
    texts = np.datetime_as_string(micros.astype("datetime64[us]"), unit="us").tolist()
    return [
        None if tick is None or tick in _INFINITE_TICKS else text.removesuffix(".000000") + "Z"
        for tick, text in zip(ticks.to_pylist(), texts, strict=True)
    ]


def _dates(array: "pa.Array") -> list[str | None]:
    import numpy as np
    import pyarrow as pa

    days = array.cast(pa.date32()).cast(pa.int32())
    texts = np.datetime_as_string(
        days.fill_null(0).to_numpy(zero_copy_only=False).astype("datetime64[D]")
    ).tolist()
    return [
        None if day is None or day in _INFINITE_DAYS else text
        for day, text in zip(days.to_pylist(), texts, strict=True)
    ]


def _decimals(array: "pa.Array") -> list[str | None]:
    return _each(array, lambda value: format(value, "f"))


def _times(array: "pa.Array") -> list[str | None]:
    return _each(array, lambda value: value.isoformat())


def _strings(array: "pa.Array") -> list[str | None]:
    import pyarrow as pa

    try:
        values: list[str | None] = array.to_pylist()
    except UnicodeDecodeError:
        # Spark lets bytes that are no text pass as STRING: CAST(_raw AS STRING) of a rejected event.
        return _each(array.cast(pa.large_binary()), lambda raw: raw.decode("utf-8", "replace"))
    return values


def _durations(array: "pa.Array") -> list[str | None]:
    import pyarrow as pa

    per_unit = {"s": _MICROS_PER_SECOND, "ms": 1_000, "us": 1, "ns": 0.001}[array.type.unit]

    def text(ticks: int) -> str:
        micros = int(ticks * per_unit)
        days = int(math.copysign(abs(micros) // _MICROS_PER_DAY, micros))
        return iso_duration(months=0, days=days, micros=micros - days * _MICROS_PER_DAY)

    return _each(array.cast(pa.int64()), text)


def _intervals(array: "pa.Array") -> list[str | None]:
    return _each(
        array,
        lambda value: iso_duration(
            months=value.months, days=value.days, micros=_whole(value.nanoseconds, 1_000)
        ),
    )


def iso_duration(*, months: int, days: int, micros: int) -> str:
    """An interval as ISO 8601 has it; a part of its own sign, since months, days and time do not mix.

    Example:
        >>> iso_duration(months=0, days=1, micros=7_200_000_000)
        'P1DT2H'
    """
    years, months = _whole(months, 12), int(math.fmod(months, 12))
    seconds, fraction = _whole(micros, _MICROS_PER_SECOND), int(math.fmod(micros, _MICROS_PER_SECOND))
    hours, minutes = _whole(seconds, 3600), _whole(int(math.fmod(seconds, 3600)), 60)
    date_part = "".join(
        f"{number}{unit}" for number, unit in ((years, "Y"), (months, "M"), (days, "D")) if number
    )
    time_part = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    seconds = int(math.fmod(seconds, 60))
    if seconds or fraction:
        sign = "-" if seconds < 0 or fraction < 0 else ""
        digits = f".{abs(fraction):06d}".rstrip("0") if fraction else ""
        time_part += f"{sign}{abs(seconds)}{digits}S"
    if not date_part and not time_part:
        return "PT0S"
    return f"P{date_part}" + (f"T{time_part}" if time_part else "")


def _whole(number: int, divisor: int) -> int:
    """Division towards zero: parts of a negative interval are all negative."""
    return -(-number // divisor) if number < 0 else number // divisor


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
