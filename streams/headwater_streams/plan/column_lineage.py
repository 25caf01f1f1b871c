"""Which columns of a job's inputs each column of its result is made of, by the shape of its plan.

A column's value comes to it as it is (`IDENTITY`), through an aggregate that folds many rows into one (`AGGREGATION`),
or by any other computation (`TRANSFORMATION`): these are OpenLineage's words. Conditions of filters and joins, and what
rows are grouped by, make no column: they choose rows, and stand under a name of their own, `CHOSEN`.

`Project` and `Aggregate` say of each column what it is computed from, and a union's column is that of each part in its
place. Of another node the shape knows what all its expressions name together: a column that such a node computes counts
as made of all of these.

An input is known by its mark, as in `unions`, and a look-up by the ids of its columns. A static frame that a function
made is neither: a column that is made of nothing else is not named.

On its way through an as-of join, or `hw.latest`, a row is one column: the sides of such a result are known by their
columns' names (`through_sides`). What rows of an as-of join are chosen by counts as all columns of both sides.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headwater_streams.base.made_of import CHOOSING, CHOSEN, HOWS, MadeOf
from headwater_streams.base.names import is_reserved
from headwater_streams.plan.unions import input_of, marked
from headwater_streams.spark.plan_shape import PlanNode, PlanShape

_IDENTITY, _TRANSFORMATION, _AGGREGATION = range(len(HOWS))
_Steps = dict[int, dict[int, int]]
"""The columns that a column is made of, by id, each with the place of its how in `HOWS`."""


def column_sources(
    shape: PlanShape,
    lookups: Mapping[str, PlanShape] = MappingProxyType({}),
    through: Mapping[int, int] = MappingProxyType({}),
) -> MadeOf:
    """What each column of a frame is made of; a column that is made of no input's is not named.

    Args:
        shape: The shape of the frame's plan.
        lookups: Those of the look-ups.
        through: Columns, by id, that are another one as it is, whatever the plan says.
    """
    leaves = {c.id: (name, c.name) for name, looked_up in lookups.items() for c in looked_up.root.columns}
    steps: _Steps = {}
    choosing: set[tuple[int, str]] = set()
    for node in shape.root.walk():
        name = None if node.children else input_of(node)
        if name is not None:
            own = (c for c in node.columns if not is_reserved(c.name) and c.name != marked(name))
            leaves |= {c.id: (name, c.name) for c in own}
        _add(node, steps)
        choosing |= _choosing(node)
    steps |= {column: {of: _IDENTITY} for column, of in through.items()}
    result: dict[str, tuple[tuple[str, str, str], ...]] = {}
    for column in shape.root.columns:
        found = {
            (*leaves[each], HOWS[how]) for each, how in _reached(column.id, steps).items() if each in leaves
        }
        if found and not is_reserved(column.name):
            result[column.name] = tuple(sorted(found))
    chosen = {
        (*leaves[each], how) for column, how in choosing for each in _reached(column, steps) if each in leaves
    }
    return result | ({CHOSEN: tuple(sorted(chosen))} if chosen else {})


def through_sides(result: PlanShape, *sides: PlanShape) -> dict[int, int]:
    """The columns of an operator's result that are of its sides as they are, by their names.

    Args:
        result: The result.
        sides: The rows that it was handed; of a name that several have, the first one's is meant.
    """
    columns = {column.name: column.id for side in reversed(sides) for column in side.root.columns}
    return {column.id: columns[column.name] for column in result.root.columns if column.name in columns}


def _add(node: PlanNode, steps: _Steps) -> None:
    """Adds what the columns of a node are made of that it computes."""
    below = {column.id for child in node.children for column in child.columns}
    for place, column in enumerate(node.columns):
        of: dict[int, int] = {}
        if node.kind == "Union":
            parts = (child.columns[place].id for child in node.children if place < len(child.columns))
            of = dict.fromkeys(parts, _IDENTITY)
        elif column.id in below or not node.children:
            continue
        elif node.kind == "Project":
            of = dict.fromkeys(column.of, _TRANSFORMATION if column.passes is None else _IDENTITY)
        elif node.kind == "Aggregate":
            of = dict.fromkeys(column.of, _IDENTITY if column.passes is not None else _AGGREGATION)
        else:
            of = dict.fromkeys(node.named, _TRANSFORMATION)
        steps.setdefault(column.id, {}).update(of)


def _choosing(node: PlanNode) -> set[tuple[int, str]]:
    """The columns by which a node chooses rows, each with how."""
    if node.kind == "Aggregate":
        folded = {each for column in node.columns if column.passes is None for each in column.of}
        keys = {column.passes for column in node.columns if column.passes is not None}
        return {(each, CHOOSING[node.kind]) for each in keys | (node.named - folded)}
    return {(each, CHOOSING[node.kind]) for each in node.named} if node.kind in CHOOSING else set()


def _reached(column: int, steps: _Steps) -> dict[int, int]:
    """The column, and all that it is made of down to the inputs, each with the greatest change on its way."""
    reached, waiting = dict[int, int](), [(column, _IDENTITY)]
    while waiting:
        each, how = waiting.pop()
        if reached.get(each, -1) < how:
            reached[each] = how
            # A union's column may have the id of its first part's, which is an input's: the others count, too.
            waiting += [(of, max(how, step)) for of, step in steps.get(each, {}).items()]
    return reached
