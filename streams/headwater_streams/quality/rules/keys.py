"""Rules on keys: unique ones, and those that another table has. They are judged over Arrow tables of the columns."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.rule import Judgement, KeysRule

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_SAMPLE = 10


@dataclass(frozen=True, slots=True)
class Unique(KeysRule):
    """No two rows have one key. A key with a NULL is none, as in SQL."""

    at_most: AtMost | None = None

    @property
    def is_of_batches(self) -> bool:
        """Where a key may come again in another batch."""
        return self.other is None

    def judge(self, rows: "pa.Table", others: "pa.Table | None") -> Judgement:
        """Counts the rows beyond the first of each key, and those that the table has already."""
        import pyarrow.compute as pc

        names = list(self.columns)
        keyed = _comparable(rows.select(names).drop_null())
        counted = keyed.group_by(names).aggregate([([], "count_all")])
        repeated = counted.filter(pc.greater(counted["count_all"], 1))
        failed = keyed.num_rows - counted.num_rows
        sample = _texts(repeated.select(names))
        if others is not None:
            known = _comparable(others.rename_columns(names)).cast(counted.select(names).schema)
            there = counted.select(names).join(known, names, join_type="left semi")
            failed, sample = failed + there.num_rows, (*sample, *_texts(there))[:_SAMPLE]
        allowed = not failed if self.at_most is None else self.at_most.allows(failed, rows.num_rows)
        where = "" if others is None else ", or in the table already"
        return Judgement(
            allowed, f"{failed:,} of {rows.num_rows:,} rows with a key twice{where}", failed, sample
        )


@dataclass(frozen=True, slots=True)
class References(KeysRule):
    """Each row's key is one of the other table. A key with a NULL refers to nothing, as in SQL."""

    def judge(self, rows: "pa.Table", others: "pa.Table | None") -> Judgement:
        """Counts the rows whose key the other table lacks."""
        names = list(self.columns)
        keyed = _comparable(rows.select(names).drop_null())
        known = keyed.slice(0, 0)
        if others is not None:
            known = _comparable(others.rename_columns(names))
            keyed = _of_scales(keyed, known)
            known = known.cast(keyed.schema)
        unknown = keyed.join(known, names, join_type="left anti")
        sample = _texts(unknown.group_by(names).aggregate([]))
        failed = unknown.num_rows
        observed = f"{failed:,} of {rows.num_rows:,} rows with a key that {self.other} lacks"
        if failed and others is None:
            observed += f", as there is no table {self.other}"
        return Judgement(not failed, observed, failed, sample)


def judged_keys(
    rule: KeysRule, keys: "pa.Table", others: "Callable[[KeysRule, pa.Table], pa.Table | None]"
) -> Judgement:
    """What a rule says of keys. Keys that cannot be compared break it: those of two types, those with a structure, a
    column that the other table lacks.

    Args:
        rule: The rule.
        keys: The keys.
        others: Gives those that a rule compares them with; None where there are none.
    """
    import pyarrow as pa

    try:
        return rule.judge(keys, others(rule, keys))
    except (pa.ArrowException, KeyError) as error:
        why = str(error).partition("\n")[0]
        return Judgement(False, f"the keys cannot be compared: {why}")


def unique(*columns: str, within: str = "batch", at_most: str | float | None = None) -> Unique:
    """No two rows have the same values of these columns.

    Args:
        columns: The columns of the key.
        within: `"batch"`, the rows of one batch; `"table"`, also those that the table has already.
        at_most: The share of duplicates that is allowed, such as `"1 %"`.

    Raises:
        InvalidCheckError: There are no columns, or an argument is none of the allowed ones.

    Example:
        >>> unique("flight_id", at_most="1 %").text
        'flight_id is unique in the batch, but for 1 %'
    """
    if not columns:
        raise InvalidCheckError("unique: give the columns of the key")
    if within not in ("batch", "table"):
        raise InvalidCheckError(f"unique: within={within!r} is not one of 'batch', 'table'")
    try:
        bound = None if at_most is None else AtMost.of(at_most)
    except ValueError as error:
        raise InvalidCheckError(f"unique: {error}") from error
    text = f"{', '.join(columns)} is unique in the {within}" + ("" if bound is None else f", but for {bound}")
    other, of_other = ("", columns) if within == "table" else (None, ())
    return Unique(text, columns, other, of_other, bound)


def references(
    columns: str | tuple[str, ...], table: str, key: str | tuple[str, ...] | None = None
) -> References:
    """Each row's values of these columns stand in another table.

    Args:
        columns: The column, or several.
        table: The other table, `schema.name`.
        key: Its column or columns; by default those of the same names.

    Example:
        >>> references("carrier", "dim.airlines").text
        'carrier is one of dim.airlines'
    """
    mine = (columns,) if isinstance(columns, str) else tuple(columns)
    theirs = mine if key is None else (key,) if isinstance(key, str) else tuple(key)
    if not mine or len(mine) != len(theirs):
        raise InvalidCheckError(f"references: {len(mine)} columns refer to {len(theirs)} of {table}")
    if "." not in table:
        raise InvalidCheckError(f"references: {table!r} is no table; write schema.name")
    return References(f"{', '.join(mine)} is one of {table}", mine, table, theirs)


def _comparable(keys: "pa.Table") -> "pa.Table":
    """Keys as Arrow compares them by their values: whole numbers of any length as the longest, as an INT may refer to a
    BIGINT, and of zeros and of NaNs one each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(keys.schema):
        values = keys[place]
        if pa.types.is_integer(field.type):
            values = values.cast(pa.int64())
        elif pa.types.is_floating(field.type):
            # -0.0 and 0.0 make 0.0.
            values = pc.if_else(pc.is_nan(values), float("nan"), pc.add(values.cast(pa.float64()), 0.0))
        keys = keys.set_column(place, field.name, values)
    return keys


def _of_scales(keys: "pa.Table", others: "pa.Table") -> "pa.Table":
    """Keys whose DECIMALs have as many places as those that they are compared with, if these have more."""
    import pyarrow as pa

    for place, (mine, other) in enumerate(zip(keys.schema, others.schema, strict=True)):
        if (
            pa.types.is_decimal(mine.type)
            and pa.types.is_decimal(other.type)
            and other.type.scale > mine.type.scale
        ):
            keys = keys.set_column(place, mine.name, keys[place].cast(pa.decimal128(38, other.type.scale)))
    return keys


def _texts(keys: "pa.Table") -> tuple[str, ...]:
    rows = keys.slice(0, _SAMPLE).to_pylist()
    return tuple(", ".join(f"{name}={value}" for name, value in row.items()) for row in rows)
