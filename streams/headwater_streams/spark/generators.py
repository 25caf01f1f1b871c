"""At what place of its array or map a row stood that explode and its kin made of it.

Catalyst has a node for them, `Generate`, and only posexplode gives the place. So the plan of a function's result is
built once more, with PosExplode in the place of Explode and Inline, and the places as further columns of what stands
above. A place depends on the value alone: a retry, another order of the rows, a shuffle behind it and a filter do not
change it.

    Project [line.sku, _topic, _offset]                Project [line.sku, _topic, _offset, _at_0]
      Generate Explode(lines) [line]          ->         Generate PosExplode(lines) [_at_0, line]
        Project [lines, _topic, _offset]                   Project [lines, _topic, _offset]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater_streams.spark.gateway import jvm_class, scala_object, to_list, to_seq
from headwater_streams.spark.plain_ways import or_plainly
from headwater_streams.spark.plan_shape import PlanNode, plan_shape

NUMBERED = frozenset({"Explode", "PosExplode", "Inline"})
"""The generators whose rows have a place; with `outer` also those of explode_outer and the like."""
ONE_ROW = frozenset({"JsonTuple"})
"""Generators that give one row."""
_CATALYST = "org.apache.spark.sql.catalyst"
_EXPRESSIONS, _LOGICAL = f"{_CATALYST}.expressions", f"{_CATALYST}.plans.logical"


@dataclass(frozen=True)
class Way:
    """The nodes that the rows with a column come through, from the root of a plan down to a union or a leaf.

    Attributes:
        children: Of each node but the last, which of its children is next.
        generators: Catalyst's names of the generators among them, the lowest first.
    """

    children: tuple[int, ...] = ()
    generators: tuple[str, ...] = ()

    @property
    def levels(self) -> int:
        """How many of the generators make several rows of one."""
        return sum(name not in ONE_ROW for name in self.generators)


def way_to(root: PlanNode, name: str, until: str | None = None) -> Way:
    """The way of the rows that have a column, by whatever id it goes below; what is joined to them lies beside it.

    Args:
        root: The plan.
        name: The column.
        until: Another column. The way ends where it is computed: what lies below it knows already.
    """
    column_id, until_id = (
        next((column.id for column in root.columns if column.name == each), None) for each in (name, until)
    )
    node, children, generators = root, list[int](), list[str]()
    while node.kind != "Union":
        if node.kind == "Project":
            column_id = next((c.passes for c in node.columns if c.id == column_id), None)
            if until_id is not None:
                until_id = next((c.passes for c in node.columns if c.id == until_id), None)
                if until_id is None:
                    break
        below = [
            place for place, child in enumerate(node.children) if column_id in {c.id for c in child.columns}
        ]
        if column_id is None or not below:
            break
        if node.kind == "Generate":
            generators.append(node.label)
        children.append(below[0])
        node = node.children[below[0]]
    return Way(tuple(children), tuple(reversed(generators)))


def _in_shape(frame: DataFrame) -> bool:
    return "Generate" in plan_shape(frame).root.kinds


@or_plainly(_in_shape)
def has_generator(frame: DataFrame) -> bool:
    """Whether a generator is in a frame's plan; one call, where a shape takes dozens."""
    patterns = scala_object(frame.sparkSession, f"{_CATALYST}.trees.TreePattern")
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans have no public door
    return bool(plan.containsPattern(patterns.GENERATE()))


def with_positions(frame: DataFrame, through: str, until: str | None = None) -> tuple[DataFrame, list[str]]:
    """A frame with a column for each generator that its rows came through: the place in the array or map, from 0 on.

    Args:
        frame: The rows.
        through: The column by which the rows' way is known. Those of a union have their places already.
        until: A column of places in which those below are counted already, see `way_to`.

    Returns:
        The frame, and the new columns' names, of the lowest generator first. A place is NULL where `outer` made a row
        of nothing.
    """
    way = way_to(plan_shape(frame).root, through, until)
    if not way.levels:
        return frame, []
    spark, jdf = frame.sparkSession, frame._jdf  # noqa: SLF001 - plans have no public door
    nodes = [jdf.queryExecution().analyzed()]
    for place in way.children:
        nodes.append(to_list(nodes[-1].children())[place])
    below, positions = nodes.pop(), list[Any]()
    for node, place in reversed([*zip(nodes, way.children, strict=True)]):
        children = to_list(node.children())
        if str(node.nodeName()) == "Generate" and str(node.generator().nodeName()) in NUMBERED:
            below, position = _numbered(spark, node, below, f"_at_{len(positions)}")
            positions.append(position)
        elif not positions:
            below = node
        else:
            children[place] = below
            below = _passing_on(spark, node, children, positions)
    dataset = jvm_class(spark, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(jdf.sparkSession(), below), spark), [
        str(position.name()) for position in positions
    ]


def _passing_on(spark: SparkSession, node: Any, children: list[Any], positions: Sequence[Any]) -> Any:
    """A node over other children, that gives the places, too."""
    if str(node.nodeName()) != "Project":
        return node.withNewChildren(to_seq(spark, children))
    (child,) = children
    return _project(spark, [*to_list(node.projectList()), *positions], child)


def _numbered(spark: SparkSession, node: Any, child: Any, name: str) -> tuple[Any, Any]:
    """A `Generate` over another child, with the place among its columns; and that column."""
    generator, own = node.generator(), to_list(node.generatorOutput())
    kind = str(generator.nodeName())
    if kind == "PosExplode":  # has it, by a name that the function gave it
        alias = _alias(spark, own[0], name)
        over = node.withNewChildren(to_seq(spark, [child]))
        return _project(spark, [*to_list(over.output()), alias], over), alias.toAttribute()
    position = _attribute(spark, name, jvm_class(spark, "org.apache.spark.sql.types.DataTypes").IntegerType)
    elements = own
    if kind == "Inline":
        elements = [_attribute(spark, f"{name}_element", generator.child().dataType().elementType())]
    by_place = jvm_class(spark, f"{_EXPRESSIONS}.PosExplode")(generator.child())
    over = node.copy(
        by_place,
        node.unrequiredChildIndex(),
        node.outer(),
        node.qualifier(),
        to_seq(spark, [position, *elements]),
        child,
    )
    if kind == "Inline":
        of_struct = jvm_class(spark, f"{_EXPRESSIONS}.GetStructField")
        some = jvm_class(spark, "scala.Some")
        fields = [
            _alias(spark, of_struct(elements[0], place, some(column.name())), str(column.name()), column)
            for place, column in enumerate(own)
        ]
        over = _project(spark, [*to_list(child.output()), *fields, position], over)
    return over, position


def _project(spark: SparkSession, columns: list[Any], child: Any) -> Any:
    return jvm_class(spark, f"{_LOGICAL}.Project")(to_seq(spark, columns), child)


def _attribute(spark: SparkSession, name: str, kind: Any) -> Any:
    """A column of a node, with an id of its own."""
    nothing = jvm_class(spark, "org.apache.spark.sql.types.Metadata").empty()
    return jvm_class(spark, f"{_EXPRESSIONS}.AttributeReference")(
        name, kind, True, nothing, _new_id(spark), to_seq(spark, [])
    )


def _alias(spark: SparkSession, value: Any, name: str, like: Any = None) -> Any:
    """A named value of a projection: with an id of its own, or that of a column which others refer to already."""
    column_id = _new_id(spark) if like is None else like.exprId()
    qualifier = to_seq(spark, []) if like is None else like.qualifier()
    none = scala_object(spark, "scala.None")
    return jvm_class(spark, f"{_EXPRESSIONS}.Alias")(
        value, name, column_id, qualifier, none, to_seq(spark, [])
    )


def _new_id(spark: SparkSession) -> Any:
    return scala_object(spark, f"{_EXPRESSIONS}.NamedExpression").newExprId()
