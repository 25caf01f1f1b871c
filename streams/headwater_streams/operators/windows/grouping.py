"""Rows grouped by window, and their aggregates: the same for every kind of window."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.arguments import require_frame, require_list
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import folded, hidden_hint, named_twice, twins
from headwater_streams.operators.recording import observed, operator_result, record
from headwater_streams.operators.windows.spec import BOUNDS, SINCE, WINDOW, WINDOW_KEY, FoldedWindow
from headwater_streams.sources.coordinates import ROWS
from headwater_streams.sources.nested import odd_text
from headwater_streams.spark.columns import cols
from headwater_streams.spark.hidden_columns import has_hidden, hide, reveal


@dataclass(frozen=True)
class Windowed:
    """Rows grouped by window and keys, waiting for their aggregates."""

    df: DataFrame
    spec: FoldedWindow

    def agg(self, *aggregates: Column) -> DataFrame:
        """One row for each window and key: the `by` columns, `window_start`, `window_end`, the aggregates.

        The number of rows in each window travels along as the hidden column `_rows`, its name as `_window_key`.
        """
        instead = record(self.spec)
        if instead is not None:
            return instead
        by = self.spec.by
        rows, window = self.spec.grouping(observed(self.df, "window"))
        counts, traces = [F.count(F.lit(1)).alias(ROWS)], [ROWS]
        if has_hidden(rows, SINCE):
            rows, traces = reveal(rows, [SINCE]), [ROWS, SINCE]
            counts.append(F.min(SINCE).alias(SINCE))
        windows = [] if window is None else [window.alias(WINDOW)]
        grouped = rows.groupBy(*cols(by), *windows).agg(*aggregates, *counts)
        names = grouped.columns[len(by) + len(windows) : -len(counts)]
        require_apart(by, (WINDOW, *BOUNDS) if windows else (), names)
        bounds = [F.col(f"{WINDOW}.{bound.removeprefix('window_')}").alias(bound) for bound in BOUNDS]
        flat = grouped.select(
            *cols(by),
            *(bounds if windows else []),
            *cols(tuple(names)),
            *traces,
            self.spec.key().alias(WINDOW_KEY),
        )
        return operator_result(hide(flat, [*traces, WINDOW_KEY]), window=self.df)

    def count(self) -> DataFrame:
        """`agg` of the number of rows, as `count BIGINT`, as Spark's own grouped rows have it."""
        return self.agg(F.count("*").alias("count"))


def require_apart(by: Sequence[str], gives: Sequence[str], aggregates: Sequence[str]) -> None:
    """Checks that each column of the windows' result has a name of its own.

    Args:
        by: The columns by which the rows are grouped.
        gives: Those that the windows add.
        aggregates: The names of the aggregates.

    Raises:
        JobDefinitionError: Two have one.
    """
    twice = named_twice([*by, *gives, *aggregates])
    if twice is None:
        return
    if folded(twice) in map(folded, by):
        other = "by= names a column of that name"
    elif folded(twice) in map(folded, gives):
        other = "the windows add a column of that name"
    else:
        other = "so is another one"
    raise JobDefinitionError(
        f"agg: an aggregate is called {twice!r}, and {other}; give it another name: .alias(...)"
    )


def require_columns(
    operator: str, df: DataFrame, by: Sequence[str], *others: str, gives: Collection[str] = ()
) -> None:
    """Checks that the columns an operator names, those of `by` and others, exist and can be compared.

    Args:
        operator: Its name.
        df: Its input.
        by: The columns that its result has.
        others: The others that it names.
        gives: The columns that it adds to these.

    Raises:
        JobDefinitionError: One is missing or cannot be compared, `by` is one text or names a column twice, or `df` is
            no DataFrame.
    """
    require_frame(f"{operator}: it was handed", df)
    require_list(operator, "by", by)
    names = (*others, *by)
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise JobDefinitionError(
            f"{operator}: no column {missing[0]!r}; there are {', '.join(df.columns)}{hidden_hint(missing[0])}"
        )
    twice = named_twice(by)
    if twice is not None:
        raise JobDefinitionError(f"{operator}: by= names {twice!r} twice")
    clash = next((name for name, _ in twins(by, gives)), None) or next((n for n in by if n in gives), None)
    if clash is not None:
        raise JobDefinitionError(
            f"{operator}: by= names {clash!r}, and a column that the windows add is called so; rename it before"
        )
    maps = [name for name in names if "map<" in df.schema[name].dataType.simpleString()]
    if maps:
        raise JobDefinitionError(
            f"{operator}: {maps[0]!r} holds a map, and maps cannot be compared; leave it out"
        )
    for name in by:
        odd = odd_text(df.schema[name].dataType)
        if odd is not None:
            raise JobDefinitionError(f"{operator}: {name!r} {odd}")
