"""Which columns of a job's inputs each column of its result is made of, by the shape of its plan.

A `Project` says of each column what it is computed from. Of another node, such as an aggregate, the shape knows what
all its expressions name together: a column that such a node computes counts as made of all of these, but those that it
passes on under their own names, which are what it groups by. Conditions of filters and joins make no column.
"""

from collections.abc import Mapping, Sequence

from headwater_streams.base.names import is_reserved
from headwater_streams.spark.plan_shape import PlanNode, PlanShape


def column_sources(
    shape: PlanShape, leaves: Mapping[int, tuple[str, str]]
) -> dict[str, list[tuple[str, str]]]:
    """What each column of a frame is made of.

    Args:
        shape: The shape of the frame's plan.
        leaves: The columns of the inputs by their ids: an input, and the name of its column.
    """
    made_of: dict[int, frozenset[int]] = {}
    for node in reversed([*shape.root.walk()]):  # a node comes behind all below it
        _add(node, made_of)
    result: dict[str, list[tuple[str, str]]] = {}
    for column in shape.root.columns:
        if not is_reserved(column.name):
            found = _down_to(column.id, made_of, leaves, set())
            result[column.name] = sorted({leaves[each] for each in found})
    return result


def leaves_of(shape: PlanShape, inputs: Mapping[str, Sequence[str]]) -> dict[int, tuple[str, str]]:
    """The columns of a plan's leaves by their ids, where the names of an input's columns are those of one leaf.

    Args:
        shape: The shape of a plan.
        inputs: The columns of each input.
    """
    leaves: dict[int, tuple[str, str]] = {}
    for node in shape.root.leaves:
        names = {column.name for column in node.columns if not is_reserved(column.name)}
        alike = [name for name, columns in inputs.items() if names <= set(columns)]
        if len(alike) == 1:
            leaves |= {c.id: (alike[0], c.name) for c in node.columns if not is_reserved(c.name)}
    return leaves


def _add(node: PlanNode, made_of: dict[int, frozenset[int]]) -> None:
    below = {column.id for child in node.children for column in child.columns}
    own = {column.id for column in node.columns}
    for column in node.columns:
        if column.id in below or not node.children:
            continue  # it is passed on
        of = column.of if node.kind == "Project" else node.named - own
        made_of[column.id] = made_of.get(column.id, frozenset()) | of


def _down_to(
    column: int,
    made_of: Mapping[int, frozenset[int]],
    leaves: Mapping[int, tuple[str, str]],
    seen: set[int],
) -> set[int]:
    if column in seen:
        return set()
    seen.add(column)
    if column in leaves:
        return {column}
    return {leaf for each in made_of.get(column, ()) for leaf in _down_to(each, made_of, leaves, seen)}
