"""What the columns of a job's result are made of, by the shapes of plans: of some that tests/spark keeps, and of others
that no Spark makes. What real windows and joins are made of is seen in `tests/spark/jobs/test_trace_kinds.py`."""

import random
import time

import pytest

from headwater_streams.base.made_of import CHOSEN, HOWS
from headwater_streams.plan.column_lineage import column_sources, through_sides
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


def renamed(name: str, number: int, below: int) -> PlanColumn:
    return PlanColumn(name=name, id=number, passes=below, of=frozenset({below}))


def leaf(name: str, *columns: PlanColumn) -> PlanNode:
    return node(
        "LocalRelation", [*columns, column("_offset", 90 + len(name)), column(marked(name), 100 + len(name))]
    )


FLIGHTS = leaf("flights", column("carrier", 0), column("at", 1), column("delay", 2))


def sources(root: PlanNode) -> dict[str, tuple[tuple[str, str, str], ...]]:
    return {name: of for name, of in column_sources(PlanShape(root=root)).items() if name != CHOSEN}


def chosen(root: PlanNode) -> list[str]:
    return [" ".join(each) for each in column_sources(PlanShape(root=root)).get(CHOSEN, ())]


def test_columns_of_a_projection_are_made_of_what_their_expressions_name() -> None:
    columns = [column("carrier", 0, 0), column("late", 9, 2, 1), renamed("day", 10, 1)]
    project = node("Project", columns, FLIGHTS, named={0, 1, 2})
    filtered = node(
        "Filter", [column("carrier", 0), column("late", 9), column("day", 10)], project, named={0}
    )
    assert sources(filtered) == {
        "carrier": (("flights", "carrier", "IDENTITY"),),
        "late": (("flights", "at", "TRANSFORMATION"), ("flights", "delay", "TRANSFORMATION")),
        "day": (("flights", "at", "IDENTITY"),),
    }, "the filter's condition makes no column"
    assert chosen(filtered) == ["flights carrier FILTER"], "but chooses rows"
    late = node("Filter", columns, filtered, named={9})
    assert chosen(late) == [
        "flights at FILTER",
        "flights carrier FILTER",
        "flights delay FILTER",
    ], "by what a column is made of"


def test_columns_of_an_aggregate_are_made_of_what_each_one_folds() -> None:
    twice = node("Project", [column("carrier", 0, 0), column("twice", 8, 2)], FLIGHTS, named={0, 2})
    columns = [column("carrier", 0, 0), column("sum", 9, 8), column("count", 10), renamed("group", 11, 0)]
    aggregate = node("Aggregate", columns, twice, named={0, 8})
    half = node(
        "Project", [*columns[:1], column("half", 12, 9), column("count", 10, 10)], aggregate, named={9}
    )
    assert sources(half) == {
        "carrier": (("flights", "carrier", "IDENTITY"),),
        "half": (("flights", "delay", "AGGREGATION"),),
    }, "a count is made of no column"
    assert sources(aggregate)["group"] == (("flights", "carrier", "IDENTITY"),)
    assert chosen(half) == ["flights carrier GROUP_BY"], "by what it groups, and not by what it folds"
    by_time = node("Aggregate", [column("sum", 9, 2)], FLIGHTS, named={1, 2})
    assert chosen(by_time) == ["flights at GROUP_BY"], "though the key is no column of it"


def test_columns_of_a_union_are_made_of_those_in_their_place() -> None:
    union = node("Union", [column("carrier", 0)], FLIGHTS, leaf("arrivals", column("airline", 10)))
    assert sources(union) == {
        "carrier": (("arrivals", "airline", "IDENTITY"), ("flights", "carrier", "IDENTITY"))
    }


def test_columns_of_any_other_node_are_made_of_all_that_it_names() -> None:
    below = [column("carrier", 0), column("at", 1), column("delay", 2)]
    exploded = node("Generate", [*below, column("mark", 9)], FLIGHTS, named={1})
    assert sources(exploded)["mark"] == (("flights", "at", "TRANSFORMATION"),)


def test_columns_of_a_look_up_are_made_of_its_own() -> None:
    airports = PlanShape(root=node("LocalRelation", [column("code", 20), column("name", 21)]))
    joined = node("Join", [column("carrier", 0), column("name", 21)], FLIGHTS, airports.root, named={0, 20})
    found = column_sources(PlanShape(root=joined), {"airports": airports})
    assert dict(found) == {
        "carrier": (("flights", "carrier", "IDENTITY"),),
        "name": (("airports", "name", "IDENTITY"),),
        CHOSEN: (("airports", "code", "JOIN"), ("flights", "carrier", "JOIN")),
    }


def test_columns_of_rows_that_were_one_column_are_those_of_their_side() -> None:
    weather = leaf("weather", column("at", 20), column("wind", 21))
    left = node("Project", [column("_l", 30, 0, 1, 2)], FLIGHTS, named={0, 1, 2})
    right = node("Project", [column("_found", 31, 20, 21)], weather, named={20, 21})
    joined = node("Join", [column("_l", 30), column("_found", 31)], left, right, named={30, 31})
    columns = [column("carrier", 40, 30), column("at", 41, 30), column("wind", 42, 31)]
    result = PlanShape(root=node("Project", columns, joined, named={30, 31}))
    assert len(column_sources(result)["carrier"]) == 3, "all of its side"
    through = through_sides(result, PlanShape(root=FLIGHTS), PlanShape(root=weather))
    found = column_sources(result, through=through)
    assert {name: of for name, of in found.items() if name != CHOSEN} == {
        "carrier": (("flights", "carrier", "IDENTITY"),),
        "at": (("flights", "at", "IDENTITY"),),
        "wind": (("weather", "wind", "IDENTITY"),),
    }


def test_columns_of_an_unknown_frame_and_of_constants_are_not_named() -> None:
    other = node("LocalRelation", [column("elsewhere", 10)])
    assert sources(node("Project", [column("one", 11), column("elsewhere", 10, 10)], other)) == {}


@pytest.mark.parametrize("seed", range(200))
def test_columns_of_a_plan_of_any_nodes_are_found_and_stop_no_job(seed: int) -> None:
    """Nodes that Spark does not have, with columns from nowhere, unions of parts of different width, and circles."""
    rng = random.Random(seed)

    def some(most: int) -> set[int]:
        return {rng.randrange(40) for _ in range(rng.randint(0, most))}

    def any_node(depth: int) -> PlanNode:
        children = [any_node(depth - 1) for _ in range(rng.randint(0, 3) if depth else 0)]
        columns = [
            PlanColumn(name=f"c{n}", id=n, passes=rng.choice([None, n]), of=frozenset(some(4)))
            for n in some(6)
        ]
        if not children and rng.random() < 0.7:
            return leaf("flights", *columns)
        kind = rng.choice(["Project", "Aggregate", "Union", "Join", "Window", "Unheard"])
        return node(kind, columns, *children, named=some(5))

    root = any_node(5)
    names = [each.name for each in root.columns]
    for name, of in sources(root).items():
        assert name in names
        assert {each for each, _, _ in of} == {"flights"}
        assert {how for _, _, how in of} <= {*HOWS}


def test_columns_of_a_wide_plan_of_many_steps_are_found_in_no_time() -> None:
    wide = 1_000
    root = leaf("flights", *(column(f"c{n}", 1_000_000 + n) for n in range(wide)))
    for step in range(1, 21):
        columns = [column(f"c{n}", step * wide + n, (step - 1) * wide + n) for n in range(wide)]
        first = [column(f"c{n}", wide + n, 1_000_000 + n) for n in range(wide)]
        root = node("Project", first if step == 1 else columns, root)
    began = time.perf_counter()
    assert len(sources(root)) == wide
    assert time.perf_counter() - began < 5, "a bound for machines under load; it takes some 30 ms"


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("rows: story", {"who": [("clicks", "who")], "at": [("clicks", "at")], "n": [("clicks", "n")]}),
        ("union: story", {"who": [("buys", "who"), ("clicks", "who")], "cents": [("buys", "cents")]}),
        ("history: story", {"who": [("clicks", "who")]}),
        ("look-up: story", {"who": [("clicks", "who")]}),
    ],
)
def test_columns_of_jobs_without_state_are_found_in_their_plans(
    name: str, of: dict[str, list[tuple[str, str]]]
) -> None:
    found = column_sources(SHAPES[name])
    assert {column: [each[:2] for each in found.get(column, ())] for column in of} == of


@pytest.mark.parametrize("name", SHAPES)
def test_columns_of_any_plan_are_made_of_its_inputs_own_columns(name: str) -> None:
    for column_name, of in column_sources(SHAPES[name]).items():
        assert column_name in (*SHAPES[name].names, CHOSEN)
        assert of
        assert not any(each.startswith("_") for _, each, _ in of)
