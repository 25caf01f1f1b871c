"""Fractions as keys: Arrow compares their bits, and to Python no NaN equals another.

To Spark's groupings, joins and windows NaN is one key, whatever its bits, and -0.0 is 0.0. A value that a function
computes from a group's key may have other bits again: infinity minus infinity is another NaN than that of a text.
"""

import math

import pyarrow as pa
import pyarrow.compute as pc

_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def comparable(keys: pa.Table) -> pa.Table:
    """The keys with fractions as integers, which are equal where the fractions are equal to Spark."""
    for place, field in enumerate(keys.schema):
        if field.type in _BITS:
            keys = keys.set_column(place, field.name, _bits(keys.column(place).combine_chunks()))
    return keys


def _bits(values: pa.Array) -> pa.Array:
    nothing, nan = (pa.scalar(value, values.type) for value in (0.0, math.nan))
    plain = pc.if_else(pc.is_nan(values), nan, pc.add(values, nothing))  # -0.0 + 0.0 is 0.0
    return plain.view(_BITS[values.type])
