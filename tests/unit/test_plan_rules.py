"""The rules about a job's function, decided by the shape of its plan alone."""

from collections.abc import Mapping
from typing import Any

import pytest

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.job import Job, bind
from headwater_streams.plan.requirements import may_multiply, require_row_by_row
from headwater_streams.plan.unions import check_union, inputs_under, joined_inputs, marked, origin_of
from headwater_streams.spark.plan_shape import PlanColumn, PlanNode
from plan_shapes import stored_shapes

east = hw.topic("east", schema="who STRING")
west = hw.topic("west", schema="who STRING")


@hw.job(name="both", target=hw.delta("silver.both"))
def both(east: Any, west: Any) -> Any:
    return hw.union(east, west)


def _leaf(name: str, first: int) -> PlanNode:
    columns = PlanColumn(name="who", id=first), PlanColumn(name=marked(name), id=first + 1)
    return PlanNode(kind="LocalRelation", columns=columns)


def _union(*sides: PlanNode) -> PlanNode:
    return PlanNode(kind="Union", columns=(PlanColumn(name="who", id=100),), children=sides)


def _project(below: PlanNode, *columns: PlanColumn) -> PlanNode:
    return PlanNode(kind="Project", columns=columns, children=(below,))


@pytest.fixture
def job() -> Job:
    return bind(both)


def test_union_of_each_input_once_is_taken(job: Job) -> None:
    check_union(job, _union(_leaf("east", 0), _leaf("west", 2)), is_target=True)


@pytest.mark.parametrize(
    ("sides", "reason"),
    [
        (("east", "east", "west"), "rows of 'east' come to the result by 2 ways"),
        (("west",), "the result has no rows of the input 'east'"),
    ],
)
def test_union_that_doubles_or_leaves_out_an_input_is_refused(
    job: Job, sides: tuple[str, ...], reason: str
) -> None:
    plan = _union(*(_leaf(name, 2 * place) for place, name in enumerate(sides)))
    with pytest.raises(JobDefinitionError, match=reason):
        check_union(job, plan, is_target=True)


def test_join_of_inputs_in_a_function_of_rows_is_refused(job: Job) -> None:
    plan = PlanNode(kind="Join", columns=(), children=(_leaf("east", 0), _leaf("west", 2)))
    with pytest.raises(JobDefinitionError, match="cannot join its inputs"):
        check_union(job, plan, is_target=True)
    assert joined_inputs(job, plan) == ("east", "west")


def test_time_of_a_column_is_followed_through_projections_and_unions() -> None:
    renamed = _project(_leaf("east", 0), PlanColumn(name="person", id=10, passes=0, of=frozenset({0})))
    assert origin_of(renamed, "person", "east") == "who"
    union = _union(renamed, _leaf("west", 2))
    above = _project(union, PlanColumn(name="who", id=100, passes=100, of=frozenset({100})))
    assert (origin_of(above, "who", "east"), origin_of(above, "who", "west")) == ("who", "who")
    computed = _project(_leaf("east", 0), PlanColumn(name="person", id=10, of=frozenset({0})))
    assert origin_of(computed, "person", "east") is None


_OF_KINDS: Mapping[str, tuple[dict[str, int], bool]] = {
    "rows: story": ({"clicks": 1}, False),
    "union: story": ({"clicks": 1, "buys": 1}, False),
    "look-up: story": ({"clicks": 1}, True),
}


@pytest.mark.parametrize("name", _OF_KINDS)
def test_kept_shape_tells_its_inputs_and_whether_rows_may_be_doubled(name: str) -> None:
    inputs, multiplies = _OF_KINDS[name]
    plan = stored_shapes()[name].root
    assert (dict(inputs_under(plan)), may_multiply(plan)) == (inputs, multiplies)


def test_grouping_in_a_function_of_rows_is_refused(job: Job) -> None:
    plan = PlanNode(kind="Aggregate", columns=(), children=(_leaf("east", 0),))
    with pytest.raises(JobDefinitionError, match="a grouping; use a window"):
        require_row_by_row(job, plan)
