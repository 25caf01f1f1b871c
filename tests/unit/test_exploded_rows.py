"""Records that become several rows: how a plan tells it, what the ledger counts, and what an audit finds. No Spark.

orders        offset 0: lines a, b     1: none     2: c     3: no JSON
silver.lines  (0, 0) (0, 1)                        (2, 0)
ledger        read 4 = 2 exploded + 1 filtered + 1 quarantined, 3 written
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import headwater as hw
from amount import drawn_seed
from headwater.cli._accounts import describe_terms
from headwater.cli.audit import _identity, _terms
from headwater_streams.base.errors import JobDefinitionError, LookupKeyError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, identity_terms, with_records
from headwater_streams.base.record import NewerRecordError
from headwater_streams.ledger.audit import audit_table
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.repeats import more_than_once, records_in
from headwater_streams.ledger.shared import has_places, shares_coordinates, written_as
from headwater_streams.operators.exploding import LEVEL
from headwater_streams.plan.exploding import Exploding, exploding_of, require_apart, require_places_unnamed
from headwater_streams.plan.job import Job, bind
from headwater_streams.plan.unions import marked
from headwater_streams.runtime.stages.once import places_in, require_once
from headwater_streams.spark.generators import Way, way_to
from headwater_streams.spark.plan_shape import PlanColumn, PlanNode
from headwater_streams.storage.home import Home

SEED = drawn_seed()
orders = hw.topic("orders", schema="id STRING, lines ARRAY<STRING>")
returns = hw.topic("returns", schema="id STRING, lines ARRAY<STRING>")
bought = hw.table("silver.orders")


@hw.job(target=hw.delta("silver.lines"))
def lines(orders: Any) -> Any:
    return orders


@hw.job(target=hw.delta("silver.lines"))
def all_lines(orders: Any, bought: Any) -> Any:
    return orders


LINES: Job = bind(lines)

# Plans: an input's frame has `lines` (1), `_offset` (2) and its mark (9).


def leaf(name: str = "orders", offset: int = 2) -> PlanNode:
    columns = [("lines", offset - 1), ("_offset", offset), (marked(name), offset + 7)]
    return PlanNode(kind="LocalRelation", columns=tuple(PlanColumn(name=n, id=i) for n, i in columns))


def project(below: PlanNode, *columns: tuple[str, int, int | None]) -> PlanNode:
    return PlanNode(
        kind="Project",
        columns=tuple(
            PlanColumn(name=name, id=i, passes=passes, of=frozenset(() if passes is None else {passes}))
            for name, i, passes in columns
        ),
        children=(below,),
    )


def generate(below: PlanNode, generator: str = "Explode", made: int = 3) -> PlanNode:
    return PlanNode(
        kind="Generate",
        columns=(*below.columns, PlanColumn(name="line", id=made)),
        label=generator,
        children=(below,),
    )


def above(below: PlanNode, kind: str) -> PlanNode:
    return PlanNode(kind=kind, columns=below.columns, children=(below,))


REVEALED = [("line", 3, 3), ("_offset", 20, 2)]
"""The columns of a result whose coordinates are revealed: `_offset` has an id of its own there."""


def test_way_of_rows_goes_by_ids_from_the_result_to_the_input() -> None:
    plan = project(above(generate(leaf()), "Filter"), *REVEALED)
    assert way_to(plan, "_offset") == Way((0, 0, 0), ("Explode",))
    assert way_to(plan, "nothing") == Way()
    assert way_to(project(leaf(), ("_offset", 20, 2)), "_offset") == Way((0,), ())


def test_generators_on_a_way_are_in_the_order_in_which_they_are_applied() -> None:
    inner = generate(leaf(), "PosExplode")
    outer = generate(project(inner, ("line", 3, 3), ("_offset", 21, 2)), "Inline", made=4)
    way = way_to(project(outer, ("_offset", 20, 21)), "_offset")
    assert (way.generators, way.levels) == (("PosExplode", "Inline"), 2)


def test_generator_that_gives_one_row_is_no_level() -> None:
    assert way_to(project(generate(leaf(), "JsonTuple"), *REVEALED), "_offset").levels == 0


def test_generator_in_a_look_up_is_not_on_the_way() -> None:
    looked_up = generate(PlanNode(kind="LocalRelation", columns=(PlanColumn(name="codes", id=30),)), made=31)
    left = leaf()
    join = PlanNode(kind="Join", columns=(*left.columns, *looked_up.columns), children=(left, looked_up))
    plan = project(join, ("_offset", 20, 2))
    assert way_to(plan, "_offset") == Way((0, 0), ())
    assert exploding_of(LINES, plan, has_row=False) is None


def test_way_ends_where_the_places_below_are_counted_already() -> None:
    counted = project(generate(leaf()), ("line", 3, 3), ("_offset", 21, 2), ("_row", 22, None))
    behind = generate(project(counted, ("line", 3, 3), ("_offset", 23, 21), ("_row", 24, 22)), made=4)
    plan = project(behind, ("_offset", 25, 23), ("_row", 26, 24))
    assert way_to(plan, "_offset", "_row") == Way((0, 0, 0), ("Explode",))
    assert way_to(plan, "_offset").levels == 2
    # Nothing was exploded since.
    plan = project(counted, ("_offset", 25, 21), ("_row", 26, 22))
    assert way_to(plan, "_offset", "_row") == Way((0,), ())


def test_way_ends_at_a_union_whose_sides_have_their_places_already() -> None:
    sides = (generate(leaf()), generate(leaf("returns", offset=50), made=51))
    union = PlanNode(kind="Union", columns=sides[0].columns, children=sides)
    assert way_to(project(union, *REVEALED), "_offset") == Way((0,), ())


@pytest.mark.parametrize("generator", ["Explode", "PosExplode", "Inline"])
def test_function_that_explodes_is_told(generator: str) -> None:
    plan = project(generate(leaf(), generator), *REVEALED)
    assert exploding_of(LINES, plan, has_row=False) == Exploding(1, 0)
    # Of a table whose rows are several to a record, the records are its rows.
    assert exploding_of(LINES, plan, has_row=True) == Exploding(1, LEVEL)


def test_function_that_computes_and_filters_does_not_explode() -> None:
    plan = project(above(leaf(), "Filter"), ("_offset", 20, 2))
    assert exploding_of(LINES, plan, has_row=True) is None
    plan = project(generate(leaf(), "JsonTuple"), *REVEALED)
    assert exploding_of(LINES, plan, has_row=False) is None


@pytest.mark.parametrize(
    ("generator", "instead"),
    [
        ("Stack", "write explode"),
        ("VariantExplode", "cast"),
        ("PythonUDTF", "PythonUDTF, whose rows have no place"),
    ],
)
def test_generator_without_places_is_refused(generator: str, instead: str) -> None:
    plan = project(generate(leaf(), generator), *REVEALED)
    with pytest.raises(JobDefinitionError, match=f"job 'lines': .*{instead}"):
        exploding_of(LINES, plan, has_row=False)


def test_union_of_topics_may_explode_one_side_and_a_union_with_a_table_may_not() -> None:
    sides = (generate(leaf()), leaf("bought", offset=50))
    plan = project(PlanNode(kind="Union", columns=leaf().columns, children=sides), ("_offset", 20, 2))
    with pytest.raises(JobDefinitionError, match=r"it unites silver\.orders with other inputs"):
        exploding_of(bind(all_lines), plan, has_row=False)

    @hw.job(target=hw.delta("silver.lines"))
    def of_topics(orders: Any, returns: Any) -> Any:
        return orders

    assert exploding_of(bind(of_topics), plan, has_row=False) == Exploding(1, 0)


def test_rows_of_several_records_are_not_exploded() -> None:
    require_apart(LINES, {}, "gold.pairs")
    require_apart(LINES, {"silver.lines": Exploding(1)}, None)
    with pytest.raises(JobDefinitionError, match=r"rows of gold\.pairs are made of several records"):
        require_apart(LINES, {"silver.lines": Exploding(1)}, "gold.pairs")


@pytest.mark.parametrize(
    "way",
    [
        PlanNode(kind="Filter", columns=leaf().columns, named=frozenset({5}), children=(leaf(),)),
        PlanNode(kind="Aggregate", columns=(), named=frozenset({5}), children=(leaf(),)),
        project(project(leaf(), ("place", 6, 5)), ("line", 7, None)),
        project(leaf(), ("_row", 5, 5)),
    ],
    ids=["filtered", "aggregated", "called otherwise", "shown"],
)
def test_place_of_a_row_is_not_named_on_the_way_to_a_window(way: PlanNode) -> None:
    require_places_unnamed(LINES, {}, [way])
    require_places_unnamed(LINES, {"orders": 4}, [way])
    with pytest.raises(
        JobDefinitionError, match=r"job 'lines': _row, the place of a row of orders in its record"
    ):
        require_places_unnamed(LINES, {"orders": 5}, [leaf(), way])


def test_place_that_is_passed_on_with_other_hidden_columns_is_not_named() -> None:
    """As where a join takes the coordinates."""
    below = project(leaf(), ("lines", 1, 1), ("_offset", 2, 2), ("_row", 5, 5))
    require_places_unnamed(LINES, {"orders": 5}, [project(below, ("lines", 1, 1), ("_offset", 20, 2))])


# The ledger.

TERMS = {"read": 4, "exploded": 2, "written": 3, "filtered": 1, "duplicate": 0, "quarantined": 1}


def entry(terms: dict[str, int], batch: int = 0) -> LedgerEntry:
    source = SourceRange(input="orders", ranges={"orders": {0: (batch * 4, batch * 4 + 4)}}, topic="orders")
    return LedgerEntry(
        job="lines",
        generation=1,
        batch=batch,
        table="silver.lines",
        kind="row",
        sources=(source,),
        accounting={"orders": terms},
        partitions={"orders": {0: terms}},
    )


def test_books_count_records_and_rows_apart() -> None:
    assert identity_terms("row", TERMS) == {"exploded": 2, "filtered": 1, "duplicate": 0, "quarantined": 1}
    assert entry(TERMS).imbalances() == []
    assert entry(TERMS | {"exploded": 3}).imbalances() == [
        "silver.lines batch 0, input orders: read 4 is not 3 exploded + 1 filtered + 0 duplicate + 1 quarantined"
    ]
    # Where a record becomes one row, as ever.
    ordinary = {name: value for name, value in TERMS.items() if name != "exploded"}
    assert entry(ordinary | {"written": 2}).imbalances() == []
    assert with_records(ordinary)["exploded"] == 3
    assert with_records(TERMS) == TERMS
    assert with_records({"quarantined": 2}) == {"quarantined": 2}


def test_entry_that_explodes_is_of_the_second_version_and_others_of_the_first() -> None:
    assert '{"headwater":2,' in entry(TERMS).to_json()
    assert '{"headwater":1,' in entry({"read": 4, "written": 4}).to_json()
    assert LedgerEntry.from_json(entry(TERMS).to_json()) == entry(TERMS)
    with pytest.raises(NewerRecordError, match="versions 1 to 2"):
        LedgerEntry.from_json(entry(TERMS).to_json().replace('"headwater":2', '"headwater":3'))


def test_account_is_told_in_records_and_rows() -> None:
    became = {name: value for name, value in TERMS.items() if name != "read"}
    assert describe_terms(became) == "2 exploded, 3 rows written, 1 filtered, 1 quarantined"
    assert _terms(TERMS) == "4 = 2 exploded into 3 rows + 1 filtered + 1 quarantined"
    of_table = TableAudit("silver.lines", "lines", "row")
    assert _terms(_identity(of_table, TERMS)) == "4 = 2 exploded into 3 rows + 1 filtered + 1 quarantined"


# What is counted of the files.

Place = tuple[int, str, int, int, int | None]
SCHEMA = pa.schema(
    [
        ("_generation", pa.int32()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_row", pa.int64()),
    ]
)


def table(places: Sequence[Place]) -> pa.Table:
    return pa.table([list(column) for column in zip(*places, strict=True)] or [[]] * 5, schema=SCHEMA)


def test_records_are_counted_as_counting_one_by_one_does() -> None:
    rng = random.Random(SEED)
    for _ in range(50):
        rows = [
            (
                rng.randrange(1, 3),
                rng.choice("ab"),
                rng.randrange(2),
                rng.randrange(9),
                rng.randrange(3) * LEVEL + i,
            )
            for i in range(rng.randrange(40))
        ]
        records = {row[:4] for row in rows}
        assert records_in(table(rows)) == Counter((topic, partition) for _, topic, partition, _ in records), (
            SEED
        )
        of_rows = {(*row[:4], (row[4] or 0) // LEVEL) for row in rows}
        expected = Counter((topic, partition) for _, topic, partition, _, _ in of_rows)
        assert records_in(table(rows), below=LEVEL) == expected, SEED


def test_place_in_the_record_is_one_of_the_coordinates() -> None:
    assert more_than_once(table([(1, "a", 0, 5, 0), (1, "a", 0, 5, 1), (1, "a", 0, 6, None)])).num_rows == 0
    twice = more_than_once(table([(1, "a", 0, 5, 1), (1, "a", 0, 5, 1), (1, "a", 0, 5, 0)]))
    assert twice.to_pylist() == [
        {"_generation": 1, "_topic": "a", "_partition": 0, "_offset": 5, "_row": 1, "count_all": 2}
    ]


def test_place_that_two_rows_have_stops_the_batch() -> None:
    require_once("silver.lines", table([(1, "a", 0, 5, 0), (1, "a", 0, 5, 1)]), None)
    doubled = table([(1, "a", 0, 5, 0), (1, "a", 0, 5, 1), (1, "a", 0, 5, 1)])
    with pytest.raises(LookupKeyError, match=r"of one row of a record \(a 0 offset 5 row 1: 2\): it joined"):
        require_once("silver.lines", doubled, None)

    def read() -> pa.Table:
        columns = {"_topic": ["a"], "_partition": [0], "_offset": [5], "_row": [1], "_copies_read": [2]}
        return pa.table(columns)

    require_once("silver.lines", doubled, read)


def test_files_without_places_are_read_as_having_none(tmp_path: Path) -> None:
    assert places_in(tmp_path, [], has_rows=True).column_names[-1] == "_row"
    assert "_row" not in places_in(tmp_path, []).column_names


# The audit.


def write(home: Home, terms: dict[str, int], places: Sequence[tuple[int, int]], batch: int = 0) -> None:
    """A batch of `silver.lines` that wrote rows of some offsets and places."""
    rows = len(places)
    columns = {
        "line": pa.array([f"{offset}.{row}" for offset, row in places], pa.string()),
        "_topic": pa.array(["orders"] * rows, pa.string()),
        "_partition": pa.array([0] * rows, pa.int32()),
        "_offset": pa.array([offset for offset, _ in places], pa.int64()),
        "_row": pa.array([row for _, row in places], pa.int64()),
        "_batch": pa.array([batch] * rows, pa.int64()),
        "_generation": pa.array([1] * rows, pa.int32()),
    }
    written = {name: value for name, value in columns.items() if name != "_row" or "exploded" in terms}
    write_deltalake(
        str(home.table("silver.lines")),
        pa.table(written),
        mode="append",
        schema_mode="merge",
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": entry(terms, batch).to_json()},
            app_transactions=[Transaction("lines/1", batch)],
        ),
    )


def audited(home: Home) -> TableAudit:
    audit = audit_table(home, "silver.lines")
    assert audit is not None
    return audit


GOOD = TERMS | {"read": 3, "quarantined": 0}
"""Without the record that was rejected, for there is no quarantine here."""


def span(terms: dict[str, int]) -> dict[str, int]:
    """Of four offsets the last one holds no record any more."""
    return terms | {"read": 4, "filtered": terms["filtered"] + 1}


def test_audit_knows_rows_by_their_places_and_counts_their_records(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home, span(GOOD), [(0, 0), (0, 1), (2, 0)])
    audit = audited(home)
    assert audit.findings == []
    assert audit.partitions[0].terms == span(GOOD)
    assert has_places(home, "silver.lines")
    assert not shares_coordinates(home, "silver.lines")
    assert written_as(home, "silver.lines").several


def test_audit_names_a_row_that_stands_there_twice_by_its_place(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home, span(GOOD), [(0, 0), (0, 0), (2, 0)])
    assert audited(home).findings == ["silver.lines: 1 row stands there twice: orders 0 offset 0 row 0"]


def test_audit_finds_records_that_are_counted_wrong(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home, span(GOOD) | {"exploded": 3, "filtered": 1}, [(0, 0), (0, 1), (2, 0)])
    assert audited(home).findings == ["silver.lines batch 0: its rows are of 2 records, and 3 became rows"]


def test_audit_sums_batches_of_before_the_function_exploded_and_after(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home, {"read": 4, "written": 3, "filtered": 1}, [(0, 0), (1, 0), (2, 0)])
    write(home, span(GOOD), [(4, 0), (4, 1), (6, 0)], batch=1)
    audit = audited(home)
    assert audit.findings == []
    assert audit.totals["orders"] == {
        "read": 8, "exploded": 5, "written": 6, "filtered": 3, "duplicate": 0, "quarantined": 0
    }  # fmt: skip
    assert audit.partitions[0].ok


def test_audit_expects_a_row_that_has_expired_to_be_gone_and_not_its_record(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home, span(GOOD), [(0, 0), (0, 1), (2, 0)])
    table = DeltaTable(str(home.table("silver.lines")))
    before = 1_357_084_800_000_000
    gone: ExtraValues = {
        Extra.EXPIRED_BEFORE_US: before,
        Extra.EXPIRED_BY: "at",
        Extra.EXPIRED: [[1, 0, 1]],
    }
    expiry = replace(entry({}, -1), kind="expiry", accounting={"silver.lines": {"expired": 1}}, extra=gone)
    rows = table.to_pyarrow_table()
    write_deltalake(
        table,
        rows.filter(pc.invert(pc.equal(rows["line"], "0.0"))),
        mode="overwrite",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": expiry.to_json()}),
    )
    audit = audited(home)
    assert audit.findings == []
    assert audit.notes == ["silver.lines: 1 row whose at is before 2013-01-02T00:00:00Z has expired"]
