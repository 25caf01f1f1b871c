"""What the columns of a job's result are made of, by the shapes of plans that tests/spark keeps."""

import pytest

from headwater_streams.plan.column_lineage import column_sources
from headwater_streams.plan.unions import marked
from headwater_streams.spark.plan_shape import PlanColumn, PlanNode, PlanShape
from plan_shapes import stored_shapes

SHAPES = stored_shapes()


def node(
    kind: str, columns: list[PlanColumn], *children: PlanNode, named: set[int] | None = None
) -> PlanNode:
    return PlanNode(kind=kind, columns=tuple(columns), named=frozenset(named or ()), children=children)


def column(name: str, number: int, *of: int) -> PlanColumn:
    return PlanColumn(name=name, id=number, of=frozenset(of))


def leaf(name: str, *columns: PlanColumn) -> PlanNode:
    return node(
        "LocalRelation", [*columns, column("_offset", 90 + len(name)), column(marked(name), 100 + len(name))]
    )


FLIGHTS = leaf("flights", column("carrier", 0), column("at", 1), column("delay", 2))


def sources(root: PlanNode) -> dict[str, tuple[tuple[str, str], ...]]:
    return dict(column_sources(PlanShape(root=root)))


def test_columns_of_a_projection_are_made_of_what_their_expressions_name() -> None:
    project = node("Project", [column("carrier", 0, 0), column("late", 9, 2, 1)], FLIGHTS, named={0, 1, 2})
    filtered = node("Filter", [column("carrier", 0), column("late", 9)], project, named={0})
    assert sources(filtered) == {
        "carrier": (("flights", "carrier"),),
        "late": (("flights", "at"), ("flights", "delay")),
    }, "the filter's condition makes no column"


def test_columns_of_an_aggregate_are_made_of_what_it_names_but_its_groups() -> None:
    aggregate = node("Aggregate", [column("carrier", 0), column("average", 9)], FLIGHTS, named={0, 2})
    assert sources(aggregate) == {"carrier": (("flights", "carrier"),), "average": (("flights", "delay"),)}


def test_columns_of_a_union_are_made_of_those_in_their_place() -> None:
    union = node("Union", [column("carrier", 0)], FLIGHTS, leaf("arrivals", column("airline", 10)))
    assert sources(union) == {"carrier": (("arrivals", "airline"), ("flights", "carrier"))}


def test_columns_of_an_unknown_frame_and_of_constants_are_not_named() -> None:
    other = node("LocalRelation", [column("elsewhere", 10)])
    assert sources(node("Project", [column("one", 11), column("elsewhere", 10, 10)], other)) == {}


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("rows: story", {"who": [("clicks", "who")], "at": [("clicks", "at")], "n": [("clicks", "n")]}),
        ("union: story", {"who": [("buys", "who"), ("clicks", "who")], "cents": [("buys", "cents")]}),
        ("history: story", {"who": [("clicks", "who")]}),
        ("tumbling: story", {"who": []}),
        ("look-up: story", {"who": [("clicks", "who")]}),
    ],
)
def test_columns_of_each_kind_of_job_are_found_in_its_plan(
    name: str, of: dict[str, list[tuple[str, str]]]
) -> None:
    found = column_sources(SHAPES[name])
    assert {column: list(found.get(column, ())) for column in of} == of


@pytest.mark.parametrize("name", SHAPES)
def test_columns_of_any_plan_are_made_of_its_inputs_own_columns(name: str) -> None:
    for column_name, of in column_sources(SHAPES[name]).items():
        assert column_name in SHAPES[name].names
        assert of
        assert not any(each.startswith("_") for _, each in of)
