"""The answer to a statement: named columns and plain rows, the same whichever engine gave it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Result:
    """Columns in order, each name once, over an Arrow table.

    Attributes:
        columns: Unique names; the second `a` is called `a_1`.
        table: The values as Arrow; its own column names may repeat.
        is_whole: Whether everything that was requested could be read; if not, the table has what could be.
    """

    columns: tuple[str, ...]
    table: "pa.Table"
    is_whole: bool = True

    @classmethod
    def from_arrow(cls, table: "pa.Table", *, is_whole: bool = True) -> "Result":
        """Wraps an engine's Arrow table."""
        return cls(unique_names(table.column_names), table, is_whole)

    @classmethod
    def from_rows(cls, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> "Result":
        """A small result made here, such as the list of tables."""
        import pyarrow as pa

        arrays = [pa.array([row[index] for row in rows]) for index in range(len(columns))]
        return cls.from_arrow(pa.Table.from_arrays(arrays, names=list(columns)))

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers, which are aligned."""
        import pyarrow.types as types

        def is_number(kind: Any) -> bool:
            return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))

        return tuple(
            is_number(field.type) or getattr(field.type, "type_name", "") in ("hugeint", "uhugeint")
            for field in self.table.schema
        )

    def rows(self, *, readable_bytes: bool = False) -> Iterator[tuple[Any, ...]]:
        """The rows as plain values: None, bool, int, float, str, list, dict; see `values.plain_values`."""
        from headwater.sql.values import plain_values

        for batch in self.table.to_batches(max_chunksize=8192):
            columns = [plain_values(column, readable_bytes=readable_bytes) for column in batch.columns]
            yield from zip(*columns, strict=True)

    def objects(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts with the columns in order."""
        for row in self.rows():
            yield dict(zip(self.columns, row, strict=True))


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Gives a repeated column name a number, as DuckDB does in a sub-query: `a`, `a_1`, `a_2`.

    Example:
        >>> unique_names(["a", "a", "a_1"])
        ('a', 'a_2', 'a_1')
    """
    reserved = set(names)
    used: set[str] = set()
    unique = []
    for name in names:
        candidate, number = name, 0
        while candidate in used or (number > 0 and candidate in reserved):
            number += 1
            candidate = f"{name}_{number}"
        used.add(candidate)
        unique.append(candidate)
    return tuple(unique)
