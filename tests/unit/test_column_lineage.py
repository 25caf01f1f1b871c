"""What the columns of a job's result are made of, by the shapes of plans that tests/spark keeps."""

from headwater_streams.plan.column_lineage import column_sources, leaves_of
from headwater_streams.spark.plan_shape import PlanColumn, PlanNode, PlanShape
from plan_shapes import stored_shapes


def node(
    kind: str, columns: list[PlanColumn], *children: PlanNode, named: set[int] | None = None
) -> PlanNode:
    return PlanNode(kind=kind, columns=tuple(columns), named=frozenset(named or ()), children=children)


def column(name: str, number: int, *of: int) -> PlanColumn:
    return PlanColumn(name=name, id=number, of=frozenset(of))


FLIGHTS = node(
    "LocalRelation", [column("carrier", 0), column("at", 1), column("delay", 2), column("_offset", 3)]
)


def sources(root: PlanNode) -> dict[str, list[tuple[str, str]]]:
    shape = PlanShape(root=root, hidden=())
    return column_sources(shape, leaves_of(shape, {"flights": ["carrier", "at", "delay"]}))


def test_columns_of_a_projection_are_made_of_what_their_expressions_name() -> None:
    project = node("Project", [column("carrier", 0, 0), column("late", 9, 2, 1)], FLIGHTS, named={0, 1, 2})
    filtered = node("Filter", [column("carrier", 0), column("late", 9)], project, named={0})
    assert sources(filtered) == {
        "carrier": [("flights", "carrier")],
        "late": [("flights", "at"), ("flights", "delay")],
    }, "the filter's condition makes no column"


def test_columns_of_an_aggregate_are_made_of_what_it_names_but_its_groups() -> None:
    aggregate = node("Aggregate", [column("carrier", 0), column("average", 9)], FLIGHTS, named={0, 2})
    assert sources(aggregate) == {"carrier": [("flights", "carrier")], "average": [("flights", "delay")]}


def test_columns_of_a_union_are_made_of_its_first_input_only_where_the_others_have_other_columns() -> None:
    other = node("LocalRelation", [column("carrier", 10)])
    union = node("Union", [column("carrier", 0)], FLIGHTS, other)
    assert sources(union) == {"carrier": [("flights", "carrier")]}


def test_columns_of_an_unknown_input_are_made_of_nothing_that_is_known() -> None:
    other = node("LocalRelation", [column("elsewhere", 10)])
    assert sources(other) == {"elsewhere": []}


def test_columns_of_a_job_of_rows_are_found_in_its_plan() -> None:
    shape = stored_shapes()["rows: story"]
    names = [column.name for leaf in shape.root.leaves for column in leaf.columns]
    found = column_sources(shape, leaves_of(shape, {"clicks": names}))
    assert found == {"who": [("clicks", "who")], "at": [("clicks", "at")], "n": [("clicks", "n")]}
