"""A frame's analysed plan, read from the JVM once; the rules about a job's function decide by it.

A plan is a tree of nodes, each with the columns that it gives. A column has an id, which stays the same through all
nodes that pass the column on, whatever its name. The texts of several columns are read in one call: each call to the
JVM takes as long as a page of Python.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

from headwater_streams.spark.gateway import scala_object, to_list

_BETWEEN = "\x1f"
_COLUMN = re.compile(r"(.*)#(\d+)L?(?:-T\d+ms)?", re.DOTALL)
_MOST_PASSES = 20
_EXPRESSIONS = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
"""The nodes that have an expression for each of their columns, and what Catalyst calls these."""


@dataclass(frozen=True, kw_only=True)
class PlanColumn:
    """A column that a node gives.

    Attributes:
        name: Its name.
        id: Its id.
        passes: The id of the column below that it passes on unchanged, under whatever name; None where it is computed.
            Only columns of a `Project` and an `Aggregate` have it; it is None for other nodes'.
        of: The ids of the columns below that it is computed from; likewise.
    """

    name: str
    id: int
    passes: int | None = None
    of: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PlanNode:
    """A node of a plan.

    Attributes:
        kind: Catalyst's name of it, `"Project"`, `"Join"`.
        columns: What it gives, in order.
        named: The ids of the columns that its expressions name.
        label: The name of an observation (`CollectMetrics`), Catalyst's name of a generator (`Generate`), as
            `"Explode"`; empty for other nodes.
        children: The nodes whose rows it reads.
    """

    kind: str
    columns: tuple[PlanColumn, ...]
    named: frozenset[int] = frozenset()
    label: str = ""
    children: tuple["PlanNode", ...] = ()

    def walk(self) -> Iterator["PlanNode"]:
        """The node and all below it, outermost first, of several children the last one's side first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children

    @property
    def leaves(self) -> Iterator["PlanNode"]:
        """The nodes without children, the first child's first."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves

    @property
    def kinds(self) -> list[str]:
        """The kinds of all nodes, in the order of `walk`."""
        return [node.kind for node in self.walk()]

    def above(self, kind: str) -> set[str]:
        """The kinds of the nodes that come before the first of a kind in the order of `walk`."""
        kinds = self.kinds
        return set(kinds[: kinds.index(kind)])


@dataclass(frozen=True, kw_only=True)
class PlanShape:
    """A plan.

    Attributes:
        root: The node that gives the frame's rows.
        hidden: The columns that `select("*")` leaves out and that can be selected by name.
    """

    root: PlanNode
    hidden: tuple[PlanColumn, ...] = ()

    @property
    def names(self) -> list[str]:
        """The frame's columns."""
        return [column.name for column in self.root.columns]

    def can_reveal(self, name: str) -> bool:
        """Whether the frame has a column of that name, visible or hidden."""
        return name in self.names or [column.name for column in self.hidden].count(name) == 1

    def to_json(self) -> dict[str, Any]:
        """The shape with ids from 0 in the order of their appearance: equal plans have equal shapes."""
        ids: dict[int, int] = {}

        def number(column_id: int | None) -> int | None:
            return None if column_id is None else ids.setdefault(column_id, len(ids))

        def columns(listed: tuple[PlanColumn, ...]) -> list[Any]:
            return [
                [c.name, number(c.id)]
                if c.passes is None and not c.of
                else [c.name, number(c.id), number(c.passes), sorted(map(number, sorted(c.of)))]
                for c in listed
            ]

        def node(shape: PlanNode) -> dict[str, Any]:
            value: dict[str, Any] = {"kind": shape.kind, "columns": columns(shape.columns)}
            if shape.label:
                value["label"] = shape.label
            if shape.named:
                value["named"] = sorted(map(number, sorted(shape.named)))
            if shape.children:
                value["children"] = [node(child) for child in shape.children]
            return value

        return {"root": node(self.root), "hidden": columns(self.hidden)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "PlanShape":
        """What `to_json` gave."""

        def columns(stored: Sequence[Any]) -> tuple[PlanColumn, ...]:
            return tuple(
                PlanColumn(name=name, id=number, passes=more[0], of=frozenset(more[1]))
                if more
                else PlanColumn(name=name, id=number)
                for name, number, *more in stored
            )

        def node(stored: Mapping[str, Any]) -> PlanNode:
            return PlanNode(
                kind=stored["kind"],
                columns=columns(stored["columns"]),
                named=frozenset(stored.get("named", ())),
                label=stored.get("label", ""),
                children=tuple(node(child) for child in stored.get("children", ())),
            )

        return cls(root=node(value["root"]), hidden=columns(value["hidden"]))


_shapes: WeakKeyDictionary[DataFrame, PlanShape] = WeakKeyDictionary()


def plan_shape(frame: DataFrame) -> PlanShape:
    """The shape of a frame's analysed plan; read once, as a frame's plan stays as it is."""
    if frame not in _shapes:
        plan = _analysed(frame)
        _shapes[frame] = PlanShape(root=_node(plan), hidden=_columns(plan.metadataOutput()))
    return _shapes[frame]


def pruned_plan(frame: DataFrame) -> PlanNode:
    """A frame's analysed plan, in which each node reads only what the nodes above it need."""
    pruning = scala_object(frame.sparkSession, "org.apache.spark.sql.catalyst.optimizer.ColumnPruning")
    plan = _analysed(frame)
    for _ in range(_MOST_PASSES):
        before, plan = plan, pruning.apply(plan)
        if plan.fastEquals(before):
            break
    return _node(plan)


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans have no public door


def _node(plan: Any) -> PlanNode:
    kind = str(plan.nodeName())
    return PlanNode(
        kind=kind,
        columns=_computed(plan, getattr(plan, _EXPRESSIONS[kind])())
        if kind in _EXPRESSIONS
        else _columns(plan.output()),
        named=_ids(plan.references()),
        label=_label(plan, kind),
        children=tuple(_node(child) for child in to_list(plan.children())),
    )


def _label(plan: Any, kind: str) -> str:
    if kind == "Generate":
        return str(plan.generator().nodeName())
    return str(plan.name()) if kind == "CollectMetrics" else ""


def _computed(plan: Any, items: Any) -> tuple[PlanColumn, ...]:
    """The columns of a node, each with what its expression is computed from."""
    texts, columns = str(items.mkString(_BETWEEN)).split(_BETWEEN), []
    for place, column in enumerate(_columns(plan.output())):
        text = texts[place] if len(texts) == items.size() else ""
        match = _COLUMN.fullmatch(text)
        if (
            match is not None and match[1] == column.name
        ):  # as it came; ` AS ` stands in the text of any other
            passes: int | None = column.id
            of = frozenset((column.id,))
        else:
            item = items.apply(place)
            of = _ids(item.references())
            below = item.child() if str(item.nodeName()) == "Alias" else item
            passes = int(below.exprId().id()) if str(below.nodeName()) == "AttributeReference" else None
        columns.append(PlanColumn(name=column.name, id=column.id, passes=passes, of=of))
    return tuple(columns)


def _ids(references: Any) -> frozenset[int]:
    """The ids of a set of columns, `AttributeSet`."""
    return frozenset(column.id for column in _columns(references.toSeq()))


def _columns(attributes: Any) -> tuple[PlanColumn, ...]:
    text = str(attributes.mkString(_BETWEEN))
    if not text:
        return ()
    matches = [_COLUMN.fullmatch(each) for each in text.split(_BETWEEN)]
    if None not in matches and len(matches) == attributes.size():
        return tuple(PlanColumn(name=each[1], id=int(each[2])) for each in matches if each is not None)
    return tuple(
        PlanColumn(name=str(each.name()), id=int(each.exprId().id())) for each in to_list(attributes)
    )
