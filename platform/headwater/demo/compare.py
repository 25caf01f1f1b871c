"""Names where a Delta table differs from the oracle's answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from headwater.demo.oracle import EXPECTATIONS, Oracle, WindowKeys, expected_view

_TOLERANCE = 1e-9
_SAMPLES = 3
_WINDOWS = "gold.delay_by_carrier"

Key = tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One table against the CSV: keys that are missing, not expected, doubled, or have other values.

    `schema` is a sentence if the columns or their types are not the expected ones.
    """

    table: str
    rows: int
    expected: int
    schema: str = ""
    missing: tuple[Key, ...] = ()
    unexpected: tuple[Key, ...] = ()
    doubled: tuple[Key, ...] = ()
    changed: tuple[Key, ...] = ()

    @property
    def differing(self) -> frozenset[Key]:
        """Every key at which the table is not what the CSV says."""
        return frozenset(self.missing + self.unexpected + self.doubled + self.changed)

    @property
    def equal(self) -> bool:
        """Whether there is no difference at all."""
        return not self.schema and not self.differing

    def explain(self) -> str:
        """One sentence that names what differs, with the first keys of each kind."""
        kinds = {
            "missing": self.missing,
            "not in the CSV": self.unexpected,
            "more than once": self.doubled,
            "with other values": self.changed,
        }
        parts = [self.schema] if self.schema else []
        for what, keys in kinds.items():
            if keys:
                some = ", ".join("/".join(key) for key in keys[:_SAMPLES])
                parts.append(f"{len(keys)} {what} ({some}{', ...' if len(keys) > _SAMPLES else ''})")
        return f"{self.table}: " + ("; ".join(parts) or f"{self.rows} rows, all as in the CSV")


def compare(oracle: Oracle, table: str, path: Path, version: int | None = None) -> Comparison:
    """Compare the Delta table at `path` with what the CSV says that `table` holds.

    Args:
        oracle: The answers.
        table: One of `EXPECTATIONS`.
        path: The table's folder.
        version: Its Delta version; the newest if None.

    Returns:
        The comparison; doubles are equal within 1e-9, everything else exactly.
    """
    expectation = EXPECTATIONS[table]
    columns = expectation.columns
    types = _load(oracle, path, version)
    own = dict(list(types.items())[: len(columns)])
    expected = oracle.connection.execute(f"select count(*) from {expected_view(table)}").fetchall()[0][0]
    if own != columns or list(own) != list(columns):
        expected_columns = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        own_columns = ", ".join(f"{name} {kind}" for name, kind in own.items())
        return Comparison(
            table, _count(oracle), expected, schema=f"its columns are {own_columns}, not {expected_columns}"
        )
    values = [name for name in columns if name not in expectation.keys]
    on = " and ".join(f"a.{key} is not distinct from e.{key}" for key in expectation.keys)
    differs = " or ".join(
        f"(a.{v} is null) <> (e.{v} is null) or abs(a.{v} - e.{v}) > {_TOLERANCE}"
        if columns[v] == "DOUBLE"
        else f"a.{v} is distinct from e.{v}"
        for v in values
    )
    names = ", ".join(f"{{side}}.{key}::varchar" for key in expectation.keys)
    actual_keys, expected_keys = names.format(side="a"), names.format(side="e")
    view = expected_view(table)
    return Comparison(
        table,
        _count(oracle),
        expected,
        missing=_keys(oracle, f"select {expected_keys} from {view} e anti join actual a on {on}"),
        unexpected=_keys(oracle, f"select {actual_keys} from actual a anti join {view} e on {on}"),
        doubled=_keys(oracle, f"select {actual_keys} from actual a group by all having count(*) > 1"),
        changed=_keys(
            oracle, f"select distinct {expected_keys} from {view} e join actual a on {on} where {differs}"
        ),
    )


@dataclass(frozen=True)
class WindowSums:
    """Windows whose rows plus late rows do not make the CSV's count, and the windows that have late rows."""

    wrong: tuple[Key, ...]
    late_windows: WindowKeys
    late_rows: int


def add_up_windows(
    oracle: Oracle, live: Path, late: Path, version: int | None = None, late_version: int | None = None
) -> WindowSums:
    """Check that in every window rows folded and rows late together make the CSV's number of departures.

    Args:
        oracle: The answers.
        live: The folder of gold.delay_by_carrier.
        late: The folder of its late table.
        version: The version of the live table; the newest if None.
        late_version: The version of its late table; the newest if None.

    Returns:
        The windows that do not add up, and those that have late rows.
    """
    _load(oracle, late, late_version)
    oracle.connection.execute(
        "create or replace temp table late as"
        " select carrier, date_trunc('hour', departed_at) as window_start, count(*) as departures"
        " from actual group by all"
    )
    _load(oracle, live, version)
    key = "coalesce(e.carrier, p.carrier), coalesce(e.window_start, p.window_start)::varchar"
    wrong = _keys(
        oracle,
        f"""
        with parts as (select carrier, window_start, departures from actual union all from late),
        p as (select carrier, window_start, sum(departures) as departures from parts group by all)
        select {key} from {expected_view(_WINDOWS)} e full join p using (carrier, window_start)
        where e.departures is distinct from p.departures""",
    )
    late_windows = _keys(oracle, "select carrier, window_start::varchar from late")
    rows = oracle.connection.execute("select coalesce(sum(departures), 0)::bigint from late").fetchall()[0][0]
    return WindowSums(wrong, frozenset((carrier, start) for carrier, start in late_windows), rows)


def quarantined_flights(oracle: Oracle, path: Path) -> Comparison:
    """Compare the quarantine of departures with the flights that, by the CSV, never left.

    Args:
        oracle: The answers.
        path: The folder of silver.departures__quarantine.
    """
    _load(oracle, path, None)
    raw_rows = oracle.connection.execute("select decode(_raw)::json->>'flight_id' from actual").fetchall()
    rows = [flight_id for (flight_id,) in raw_rows]
    expected = oracle.flights_that_never_left()
    return Comparison(
        "silver.departures__quarantine",
        len(rows),
        len(expected),
        missing=tuple((key,) for key in sorted(expected - set(rows))),
        unexpected=tuple((key,) for key in sorted(set(rows) - expected)),
        doubled=tuple((key,) for key in sorted({key for key in rows if rows.count(key) > 1})),
    )


def _load(oracle: Oracle, path: Path, version: int | None) -> dict[str, str]:
    """Materialise the table as `actual`, its times as UTC; its columns' types as Delta has them."""
    dataset = DeltaTable(path, version=version).to_pyarrow_dataset()
    oracle.connection.register("raw_actual", dataset)
    try:
        described = oracle.connection.execute("describe raw_actual").fetchall()
        types = {name: kind for name, kind, *_ in described}
        # The oracle's own times are UTC without a zone.
        selected = [
            f'"{name}"::timestamp as "{name}"' if kind == "TIMESTAMP WITH TIME ZONE" else f'"{name}"'
            for name, kind in types.items()
        ]
        oracle.connection.execute(
            f"create or replace temp table actual as select {', '.join(selected)} from raw_actual"
        )
    finally:
        oracle.connection.unregister("raw_actual")
    return types


def _count(oracle: Oracle) -> int:
    rows: int = oracle.connection.execute("select count(*) from actual").fetchall()[0][0]
    return rows


def _keys(oracle: Oracle, query: str) -> tuple[Key, ...]:
    rows: Sequence[Key] = oracle.connection.execute(f"{query} order by all").fetchall()
    return tuple(rows)
