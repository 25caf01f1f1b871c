"""What feeds what: topics, jobs and tables, from declarations alone. No Spark session is started."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.job import Job
from headwater_streams.sources.inputs import TopicInput

NodeKind = Literal["topic", "job", "table"]


@dataclass(frozen=True, order=True)
class Node:
    """A topic, a job or a table. A topic and a table may share a name, so the kind is part of what it is."""

    kind: NodeKind
    name: str


@dataclass(frozen=True)
class Graph:
    """Which node feeds which.

    Attributes:
        edges: Pairs of nodes, from and to, in the order of the jobs.
    """

    edges: tuple[tuple[Node, Node], ...]

    @cached_property
    def layers(self) -> list[list[Node]]:
        """The nodes from left to right: each stands behind everything that feeds it.

        Raises:
            JobDefinitionError: Jobs feed each other in a circle.
        """
        place: dict[Node, int] = {}
        waiting = list(dict.fromkeys(node for edge in self.edges for node in edge))
        while waiting:
            ready = [node for node in waiting if all(source in place for source in self.sources(node))]
            if not ready:
                names = ", ".join(node.name for node in waiting if node.kind == "job")
                raise JobDefinitionError(f"the jobs {names} read each other's tables in a circle")
            for node in ready:
                place[node] = max((place[source] + 1 for source in self.sources(node)), default=0)
            waiting = [node for node in waiting if node not in place]
        layers: list[list[Node]] = [[] for _ in range(max(place.values(), default=-1) + 1)]
        for node, layer in place.items():
            layers[layer].append(node)
        return layers

    def sources(self, node: Node) -> list[Node]:
        """What feeds a node."""
        return [source for source, target in self.edges if target == node]

    def targets(self, node: Node) -> list[Node]:
        """What a node feeds."""
        return [target for source, target in self.edges if source == node]


def graph_of(jobs: Sequence[Job]) -> Graph:
    """The graph of jobs: their inputs, and the tables that they write."""
    edges: list[tuple[Node, Node]] = []
    for job in jobs:
        here = Node("job", job.name)
        for declared in job.inputs.values():
            if isinstance(declared, TopicInput):
                edges += [(Node("topic", topic), here) for topic in declared.names]
            else:
                edges.append((Node("table", declared.name), here))
        edges += [(Node("table", lookup.name), here) for lookup in job.lookups.values()]
        edges += [(here, Node("table", target.name)) for target in job.targets]
    return Graph(tuple(dict.fromkeys(edges)))
