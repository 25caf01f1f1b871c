"""Rows that were written beside those that were recomputed, by their keys, every column.

A column that comes out otherwise when the same rows come in another order (a first value, a list, the time of day)
cannot be told to be wrong; it is found by recomputing once more, where something differs at all, and left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.json_values import exact_values
from headwater_streams.base.plural import quantity
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hashed import EXACT_JSON, hash_parts

Order = Literal["up", "down"]
"""Of the offsets."""
_TOLERANCE = {"double": 1e-9, "float": 1e-6}
"""By how much, of the greater one, two values may differ: the sum of some depends on their order."""
_NAMED = 3
_NUMBER = "_number"


@dataclass(frozen=True)
class Compared:
    """What a comparison found.

    Attributes:
        rows: How many rows were recomputed.
        missing: How many of them are not written.
        extra: How many are written and were not recomputed.
        differing: How many rows differ, by column; no column in which none does.
        unsteady: The columns that were left out.
        example: One row that differs, in words.
    """

    rows: int
    missing: int = 0
    extra: int = 0
    differing: tuple[tuple[str, int], ...] = ()
    unsteady: tuple[str, ...] = ()
    example: str = ""

    @property
    def written(self) -> int:
        """How many rows are written."""
        return self.rows - self.missing + self.extra

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.differing)

    def told(self) -> str:
        """What differs, in words."""
        parts = [f"{quantity(self.missing, 'recomputed row')} not written"] if self.missing else []
        parts += [f"{quantity(self.extra, 'written row')} not recomputed"] if self.extra else []
        named = ", ".join(f"{name} of {count:,}" for name, count in self.differing[:_NAMED])
        more = f" and {len(self.differing) - _NAMED} columns more" if len(self.differing) > _NAMED else ""
        parts += [f"rows differ: {named}{more}"] if self.differing else []
        return "; ".join([*parts, *([self.example] if self.example else [])])


def compare(
    made: Callable[[Order | None], DataFrame],
    written: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    by_hash: bool,
) -> Compared:
    """Compares rows by their keys; NULL equals NULL.

    Args:
        made: Recomputes the rows, from its input in that order.
        written: The rows that were written.
        keys: The columns that name a row.
        columns: The columns that are compared.
        by_hash: Whether sums of hashes are looked at first, and rows only where these differ: for many rows, of which
            none has a sum of fractions, and every value must be the same.
    """
    columns = [name for name in columns if name not in keys]
    named = [*keys, *columns]
    once = _as_written(made(None), written, named)
    if by_hash:
        rows, same = _same_sums(once, written, named)
        if same:
            return Compared(rows)
    found = _joined(once, written, keys, columns, exact=by_hash)
    if found.same:
        return found
    apart: Callable[[DataFrame], DataFrame] = _as_it_is
    if any(_share(rows, keys) for rows in (written, once)):
        apart = partial(_numbered, keys=keys, columns=columns)
        once, written, keys = apart(once), apart(written), (*keys, _NUMBER)
        found = _joined(once, written, keys, columns, exact=by_hash)
        if found.same:
            return found
    # A query has one time of day, so each order has a query of its own.
    up = apart(_as_written(made("up"), written, named)).localCheckpoint()
    again = _joined(up, apart(_as_written(made("down"), written, named)), keys, columns, exact=by_hash)
    if again.missing or again.extra:
        return Compared(found.rows, unsteady=("which rows there are",))
    unsteady = tuple(name for name, _ in again.differing)
    if not unsteady:
        return found
    steady = [name for name in columns if name not in unsteady]
    return replace(_joined(once, written, keys, steady, exact=by_hash), unsteady=unsteady)


def _share(rows: DataFrame, keys: Sequence[str]) -> bool:
    """Whether rows have the same key, as pairs of rows that are several to a record do."""
    return not rows.groupBy(*cols(keys)).count().filter(F.col("count") > 1).isEmpty()


def _numbered(rows: DataFrame, *, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Rows of one key told apart by the order of their values, so that each is compared with one of the other side."""
    values = F.to_json(F.struct(*cols(columns)), EXACT_JSON) if columns else F.lit("")
    of_key = Window.partitionBy(*cols(keys)).orderBy(values)
    return rows.withColumn(_NUMBER, F.row_number().over(of_key))


def _as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def _as_written(made: DataFrame, written: DataFrame, names: Sequence[str]) -> DataFrame:
    """The columns that are compared, in the table's types: a narrower value is written as the table has it."""
    types = {field.name: field.dataType for field in written.schema.fields}
    return made.select(*[col(name).cast(types[name]).alias(name) for name in names])


def _same_sums(made: DataFrame, written: DataFrame, names: Sequence[str]) -> tuple[int, bool]:
    """How many rows were made, and whether rows, and sums of the rows' hashes, whatever their order, are the same."""
    sides = []
    for rows, sign in ((made, 1), (written, -1)):
        parts = [part for name in names for part in hash_parts(rows.schema[name].dataType, col(name))]
        hashed = F.xxhash64(*parts)
        # Halves: the sum of so many never overflows.
        low, high = hashed.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(hashed, 32)
        named = {"sign": F.lit(1), "low": low, "high": high}
        sides.append(rows.select(*[(part * sign).alias(name) for name, part in named.items()]))
    both = sides[0].union(sides[1])
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in both.columns]
    found = both.agg(F.count_if(F.col("sign") > 0).alias("made"), *sums).first()
    assert found is not None
    return found["made"], not any(found[name] for name in both.columns)


def _joined(
    made: DataFrame, written: DataFrame, keys: Sequence[str], columns: Sequence[str], *, exact: bool
) -> Compared:
    sides = []
    for rows, side in ((made, "m"), (written, "w")):
        named = [col(key).alias(f"{side}_key_{n}") for n, key in enumerate(keys)]
        values = [col(name).alias(f"{side}_{n}") for n, name in enumerate(columns)]
        sides.append(rows.select(*named, *values, F.lit(True).alias(f"{side}_there")))
    on = [F.col(f"m_key_{n}").eqNullSafe(F.col(f"w_key_{n}")) for n in range(len(keys))]
    both = sides[0].join(sides[1], reduce(Column.__and__, on), "full")
    is_made, is_written = F.col("m_there").isNotNull(), F.col("w_there").isNotNull()
    kinds = [made.schema[name].dataType for name in columns]
    differs = [
        is_made & is_written & ~_equal(kind, F.col(f"m_{n}"), F.col(f"w_{n}"), exact=exact)
        for n, kind in enumerate(kinds)
    ]
    key = F.struct(*[F.coalesce(f"m_key_{n}", f"w_key_{n}").alias(name) for n, name in enumerate(keys)])
    shown = {"key": key} | {
        side: F.struct(
            *[F.when(one, F.col(f"{side}_{n}")).alias(columns[n]) for n, one in enumerate(differs)]
        )
        for side in ("m", "w")
        if columns
    }
    some = F.struct(*[F.to_json(value, EXACT_JSON).alias(name) for name, value in shown.items()])
    counts = both.agg(
        F.count_if(is_made).alias("rows"),
        F.count_if(~is_written).alias("missing"),
        F.count_if(~is_made).alias("extra"),
        *[F.count_if(one).alias(f"differs_{n}") for n, one in enumerate(differs)],
        F.min(F.when(reduce(Column.__or__, differs, ~is_made | ~is_written), some)).alias("example"),
    ).first()
    assert counts is not None
    by_column = [(name, int(counts[f"differs_{n}"])) for n, name in enumerate(columns)]
    return Compared(
        counts["rows"],
        counts["missing"],
        counts["extra"],
        tuple((name, count) for name, count in by_column if count),
        example="" if counts["example"] is None else _told(counts["example"].asDict(), made, written),
    )


def _told(one: dict[str, str], made: DataFrame, written: DataFrame) -> str:
    key = exact_values(one["key"], made.schema)
    place = ", ".join(f"{name}={value}" for name, value in key.items() if name != _NUMBER)
    ours, theirs = (
        exact_values(one.get("m", "{}"), made.schema),
        exact_values(one.get("w", "{}"), written.schema),
    )
    differing = [name for name in ours if ours[name] != theirs[name]][:_NAMED]
    values = ", ".join(f"{name} {theirs[name]} is written, {ours[name]} recomputed" for name in differing)
    return f"for example {place}" + (f": {values}" if values else "")


def _equal(kind: T.DataType, one: Column, other: Column, *, exact: bool) -> Column:
    tolerance = _TOLERANCE.get(kind.simpleString())
    if tolerance is not None and not exact:
        greater = F.greatest(F.abs(one), F.abs(other))
        # Of Spark's order: NaN is equal to itself, and greater than infinity.
        near = (F.abs(one - other) <= greater * tolerance) & (greater < F.lit(float("inf")))
        return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        one, other = (F.to_json(F.struct(value.alias("v")), EXACT_JSON) for value in (one, other))
    return one.eqNullSafe(other)
