"""Which columns of a job's inputs each column of its result is made of, by the shape of its plan.

A `Project` says of each column what it is computed from, and a union's column is that of each part in its place. Of
another node, such as an aggregate, the shape knows what all its expressions name together: a column that such a node
computes counts as made of all of these, but those that it passes on under their own names, which are what it groups by.
Conditions of filters and joins make no column.

An input is known by its mark, as in `unions`. While a job is analysed, windows and joins give frames of their own: the
way to the inputs ends there, and their columns are made of nothing that is known.
"""

from collections.abc import Mapping

from headwater_streams.base.names import is_reserved
from headwater_streams.plan.unions import input_of, marked
from headwater_streams.spark.plan_shape import PlanNode, PlanShape

MadeOf = Mapping[str, tuple[tuple[str, str], ...]]
"""What each column is made of: pairs of an input and its column."""


def column_sources(shape: PlanShape) -> MadeOf:
    """What each column of a frame is made of; a column that is made of no input's is not named.

    Args:
        shape: The shape of the frame's plan.
    """
    leaves: dict[int, tuple[str, str]] = {}
    made_of: dict[int, set[int]] = {}
    for node in shape.root.walk():
        name = None if node.children else input_of(node)
        if name is not None:
            own = (c for c in node.columns if not is_reserved(c.name) and c.name != marked(name))
            leaves |= {c.id: (name, c.name) for c in own}
        _add(node, made_of)
    result: dict[str, tuple[tuple[str, str], ...]] = {}
    for column in shape.root.columns:
        found = {leaves[each] for each in _reached(column.id, made_of, leaves) if each in leaves}
        if found and not is_reserved(column.name):
            result[column.name] = tuple(sorted(found))
    return result


def _add(node: PlanNode, made_of: dict[int, set[int]]) -> None:
    """Adds what the columns of a node are made of that it computes."""
    below = {column.id for child in node.children for column in child.columns}
    own = {column.id for column in node.columns}
    for place, column in enumerate(node.columns):
        if node.kind == "Union":
            parts = {child.columns[place].id for child in node.children if place < len(child.columns)}
            made_of.setdefault(column.id, set()).update(parts - {column.id})
        elif column.id not in below and node.children:
            of = column.of if node.kind == "Project" else node.named - own
            made_of.setdefault(column.id, set()).update(of)


def _reached(column: int, made_of: Mapping[int, set[int]], leaves: Mapping[int, tuple[str, str]]) -> set[int]:
    """The column, and all that it is made of, down to the inputs."""
    reached, waiting = set[int](), [column]
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            # A union's column may have the id of its first part's, which is an input's: the others count, too.
            waiting += made_of.get(each, ())
    return reached
