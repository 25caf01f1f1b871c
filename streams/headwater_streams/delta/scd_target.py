"""Slowly changing dimensions: tables that change events are applied to, by key and in the order of a sequence.

Type 1 keeps the newest row of each key, type 2 every version of it with the interval in which it held. The names are
those of Databricks' AUTO CDC. Two things differ from it: tombstones are kept for ever, so that no event can come too
late, and an event with a NULL key or sequence goes to quarantine and does not fail the job.

The contents of the tables follow from the set of change events alone, whatever the order and the batches they came in:

    changed_at  op  city                      1   2   3   4   5   6   7   8
         1      c   Rome                      [Rome------)
         4      u   Oslo                                  [Oslo--)
         6      d                                                 (deleted)
         7      c   Oslo                                              [Oslo---
         2      u   Rome  (late, the same)    [Rome------)
         3      u   Bern  (late)              [Rome--)[Bern)
    type 2:  Rome [1, 3), Bern [3, 4), Oslo [4, 6), Oslo [7, NULL) is_current
    type 1:  Oslo, changed_at 7; after the delete at 6 the row is gone, and events before 6 do not bring it back

The table `<table>__changes` makes that possible. For type 1 it has the delete events (one row for each, the
tombstones), for type 2 all events, since any of them may begin a version once a late one comes between. It is only ever
appended to, is read by key, and has to exist as long as the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.arguments import require_list
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.layout import Layout, layout_of
from headwater_streams.base.target import CHANGES_SUFFIX, DeltaTarget
from headwater_streams.sources.coordinates import COMMIT_FIELDS, ROW_FIELDS
from headwater_streams.sources.nested import odd_text
from headwater_streams.sources.problems import Problem
from headwater_streams.spark.columns import col

_About = TypeVar("_About")
ScdType = Literal[1, 2]
DELETED, CHANGES = "_deleted", "_changes"
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"

_KEYS = (
    T.IntegralType, T.StringType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType,
    T.BinaryType,
)  # fmt: skip
_SEQUENCES = (T.NumericType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True)
class ScdTarget(DeltaTarget):
    """A Delta table of a slowly changing dimension; made by `scd1` and `scd2`.

    Attributes:
        stored_as_scd_type: 1 or 2.
        sequence_by: The column that orders the changes of a key.
        apply_as_deletes: SQL over the result's columns that is true for an event that deletes its key's row.
        except_columns: Columns of the result that are not the table's.
        track_history_columns: For type 2, the columns whose change begins a version; None: all but keys and sequence.
    """

    stored_as_scd_type: ScdType = 1
    sequence_by: str = ""
    apply_as_deletes: str | None = None
    except_columns: tuple[str, ...] = ()
    track_history_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sequence_by:
            raise JobDefinitionError(
                f"table {self.name!r}: sequence_by= is empty; name the column that orders the changes of a key"
            )

    @property
    def changes_table(self) -> str:
        """The table of change events."""
        return self.name + CHANGES_SUFFIX

    @property
    def order_description(self) -> str:
        """What the existing rows depend on, in a few words."""
        tracked = (
            "all columns" if self.track_history_columns is None else ", ".join(self.track_history_columns)
        )
        history = f", history of {tracked}" if self.stored_as_scd_type == 2 else ""
        return f"type {self.stored_as_scd_type} by {self.sequence_by}{history}"

    def value_columns(self, names: Sequence[str]) -> list[str]:
        """The columns of the function's result that are neither key nor sequence nor left out."""
        out = {*self.keys, *self.except_columns, self.sequence_by}
        return [name for name in names if name not in out]

    def tracked(self, names: Sequence[str]) -> list[str]:
        """The columns whose change begins a version."""
        return list(self.track_history_columns or self.value_columns(names))

    def table_schema(self, result: T.StructType) -> T.StructType:
        """The table's columns, by those of the function's result."""
        fields = [f for f in result.fields if f.name not in self.except_columns]
        if self.stored_as_scd_type == 2:
            kind = result[self.sequence_by].dataType
            fields = [f for f in fields if f.name != self.sequence_by]
            fields += [T.StructField(VALID_FROM, kind), T.StructField(VALID_TO, kind)]
            fields.append(T.StructField(IS_CURRENT, T.BooleanType()))
        return T.StructType([*fields, *ROW_FIELDS, T.StructField(CHANGES, T.LongType()), *COMMIT_FIELDS])

    def of_columns(self, result: Mapping[str, _About]) -> dict[str, _About]:
        """What is known of the function's columns, of the table's: `valid_from` and `valid_to` are of the sequence."""
        about = {name: known for name, known in result.items() if name not in self.except_columns}
        if self.stored_as_scd_type == 2 and self.sequence_by in about:
            of_sequence = about.pop(self.sequence_by)
            about |= {VALID_FROM: of_sequence, VALID_TO: of_sequence}
        return about

    def changes_schema(self, result: T.StructType) -> T.StructType:
        """The columns of `changes_table`."""
        fields = [f for f in result.fields if f.name not in self.except_columns]
        return T.StructType([*fields, T.StructField(DELETED, T.BooleanType()), *ROW_FIELDS, *COMMIT_FIELDS])

    @property
    def deletes(self) -> Column:
        """True for an event that deletes its key's row; never NULL."""
        return F.coalesce(F.expr(self.apply_as_deletes or "false"), F.lit(False))

    @property
    def missing(self) -> list[Problem]:
        """The problems by which an event cannot be applied."""
        keys = [Problem(name, col(name).isNull(), f"the key {name} is missing") for name in self.keys]
        why = f"{self.sequence_by}, which orders the changes, is missing"
        return [*keys, Problem(self.sequence_by, col(self.sequence_by).isNull(), why)]

    def problems(self, result: T.StructType) -> Iterator[str]:
        """Why the target and the function's columns do not fit together, a sentence for each problem."""
        names = result.fieldNames()
        columns_of_result = f"; the result has {', '.join(names)}"
        for what, columns in (
            ("sequence_by", (self.sequence_by,)),
            ("except_columns", self.except_columns),
            ("track_history_columns", self.track_history_columns or ()),
        ):
            missing = [name for name in columns if name not in names]
            if missing:
                yield f"{what} names {missing[0]!r}, which is not a column{columns_of_result}"
        if self.sequence_by in self.keys:
            yield f"sequence_by is the key {self.sequence_by!r}; it orders the changes of a key, so it is none"
        needed = [name for name in self.except_columns if name in (*self.keys, self.sequence_by)]
        if needed:
            yield f"except_columns names {needed[0]!r}, which the table cannot do without"
        for name in self.track_history_columns or ():
            if name in (*self.keys, *self.except_columns, self.sequence_by):
                yield f"track_history_columns names {name!r}, which is a key, the sequence or left out"
        yield from self._problems_of_types(result)
        if self.stored_as_scd_type == 2:
            for name in (VALID_FROM, VALID_TO, IS_CURRENT):
                free = name in self.except_columns or name == self.sequence_by == VALID_FROM
                if name in names and not free:
                    yield f"the result has a column {name!r}, which the table adds itself; give it another name"

    def _problems_of_types(self, result: T.StructType) -> Iterator[str]:
        kinds = {f.name: f.dataType for f in result.fields}
        for name in self.keys:
            if name in kinds and not isinstance(kinds[name], _KEYS):
                yield f"the key {name!r} is {kinds[name].simpleString()}, which cannot name a row"
            elif name in kinds and (odd := odd_text(kinds[name])) is not None:
                yield f"the key {name!r} {odd}"
        kind = kinds.get(self.sequence_by)
        if kind is not None and not isinstance(kind, _SEQUENCES):
            kind_text = kind.simpleString()
            yield f"the sequence {self.sequence_by!r} is {kind_text}, which has no order; use a time or a number"
        if self.stored_as_scd_type == 2:
            for name in self.tracked(result.fieldNames()):
                if name in kinds and "map<" in kinds[name].simpleString():
                    yield f"the column {name!r} has a map, and maps cannot be compared; leave it out of the history"


def scd1(
    name: str,
    *,
    keys: Sequence[str],
    sequence_by: str,
    apply_as_deletes: str | None = None,
    except_columns: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
    comments: Mapping[str, str] | None = None,
) -> ScdTarget:
    """Declares a table that has the newest row of each key (type 1), from change events.

    Args:
        name: `"schema.table"`.
        keys: The columns that name a row.
        sequence_by: The column that orders the changes of a key: a number or a time; texts are in alphabetical order,
            "10" before "9". Of two events of one key with the same sequence the one with the greater coordinates
            (origin or topic, partition, offset) counts.
        apply_as_deletes: SQL over the result's columns, as `"op = 'd'"`, that is true for an event that deletes.
        except_columns: Columns of the result that are not the table's, as `["op"]`.
        partition_by: The columns of the table whose values have folders of their own, see `delta`.
        cluster_by: Up to four columns by which the rows of its files are sorted, see `delta`.
        properties: The table's properties, see `delta`.
        comment: What the table is, for people.
        comments: What columns of it are, by their names.

    Example:
        The change events of Debezium, whose `after` is NULL for a delete (`tombstones.on.delete` should be false)::

            envelopes = hw.topic("db.customers", schema="op STRING, ts_ms BIGINT, before STRUCT<id: BIGINT>, "
                                                        "after STRUCT<id: BIGINT, city: STRING>")

            @hw.job(target=hw.scd1("dim.customers", keys=["id"], sequence_by="ts_ms",
                                   apply_as_deletes="op = 'd'", except_columns=["op"]))
            def dim_customers(envelopes: DataFrame) -> DataFrame:
                row = F.coalesce("after.id", "before.id").alias("id")
                return envelopes.select(row, "after.city", "op", "ts_ms")

    Events may come in any order and more than once: the table depends on their set alone. A delete is kept in
    `<table>__changes` as long as that table exists, so an older event never brings the row back. Rows whose key or
    sequence is NULL go to quarantine.
    """
    layout = _layout(name, partition_by, cluster_by, properties, comment, comments)
    return _scd(1, name, keys, sequence_by, apply_as_deletes, except_columns, None, layout)


def scd2(
    name: str,
    *,
    keys: Sequence[str],
    sequence_by: str,
    apply_as_deletes: str | None = None,
    except_columns: Sequence[str] = (),
    track_history_columns: Sequence[str] | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
    comments: Mapping[str, str] | None = None,
) -> ScdTarget:
    """Declares a table that has every version of each key's row (type 2), from change events.

    A version holds in `[valid_from, valid_to)`, both of the sequence's type; `valid_to` is NULL and `is_current` true
    for the one that still holds. A late event is put where it belongs: it splits a version, or makes the first one
    begin earlier. Successive versions with the same tracked columns are one, whose other columns are those of its
    newest event. Between a delete and the next event the key has no version.

    Args:
        name: `"schema.table"`.
        keys: The columns that name a row.
        sequence_by: The column that orders the changes of a key, see `scd1`; the table has it as `valid_from`.
        apply_as_deletes: SQL over the result's columns that is true for an event that deletes.
        except_columns: Columns of the result that are not the table's.
        track_history_columns: The columns whose change begins a version; by default all but keys and sequence.
        partition_by: The columns of the table whose values have folders of their own, as `["is_current"]`; see `delta`.
        cluster_by: Up to four columns by which the rows of its files are sorted, see `delta`.
        properties: The table's properties, see `delta`.
        comment: What the table is, for people.
        comments: What columns of it are, by their names.

    Example:
        With `track_history_columns=["city"]` the events of a customer on the left are the rows on the right::

            changed_at  city   phone           city   phone   valid_from  valid_to  is_current
            1           Rome   1               Rome   2       1           4         false
            2           Rome   2               Oslo   2       4           NULL      true
            4           Oslo   2

        and an event of 3, Bern, that comes after them makes Rome end at 3 and puts Bern, [3, 4), between.

    Cost: a batch reads the events of its keys in `<table>__changes`, and rewrites the files of the table that hold one
    of its keys.
    """
    layout = _layout(name, partition_by, cluster_by, properties, comment, comments)
    return _scd(2, name, keys, sequence_by, apply_as_deletes, except_columns, track_history_columns, layout)


def _layout(
    name: str,
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    properties: Mapping[str, object] | None,
    comment: str | None,
    comments: Mapping[str, str] | None,
) -> Layout:
    layout = layout_of(
        name,
        partition_by=partition_by,
        cluster_by=cluster_by,
        properties=properties,
        comment=comment,
        comments=comments,
        replaces_rows=True,
    )
    if layout.computed:
        raise JobDefinitionError(
            f"table {name!r}: partition_by={str(layout.computed[0])!r}: the columns of a slowly changing dimension are "
            "those of its events; compute the column in the function, and name it"
        )
    return layout


def _scd(
    stored_as: ScdType,
    name: str,
    keys: Sequence[str],
    sequence_by: str,
    apply_as_deletes: str | None,
    except_columns: Sequence[str],
    track: Sequence[str] | None,
    layout: Layout,
) -> ScdTarget:
    for what, listed in (
        ("keys", keys),
        ("except_columns", except_columns),
        ("track_history_columns", track),
    ):
        require_list(f"table {name!r}", what, listed)
    if track is not None and not track:
        raise JobDefinitionError(
            f"table {name!r}: track_history_columns is empty, and nothing would begin a version; use hw.scd1"
        )
    return ScdTarget(
        name,
        tuple(keys),
        "update",
        layout=layout,
        stored_as_scd_type=stored_as,
        sequence_by=sequence_by,
        apply_as_deletes=apply_as_deletes,
        except_columns=tuple(except_columns),
        track_history_columns=None if track is None else tuple(track),
    )
