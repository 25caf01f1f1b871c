"""Draws the graph of topics, jobs and tables: as trees of text, and as an SVG that needs nothing beside it."""

from html import escape
from typing import TYPE_CHECKING

from rich.tree import Tree

if TYPE_CHECKING:
    from headwater_streams.plan.graph import Graph, Node

_FILL = {"topic": "#fde9c8", "job": "#ffffff", "table": "#d8e8f7"}
_COLUMN_GAP, _ROW, _BOX, _MARGIN, _LETTER = 60, 52, 32, 16, 7.4


def tree_of(graph: "Graph") -> list[Tree]:
    """One tree for each source; a node that was drawn before is only named again, with `(above)`."""
    drawn: set[Node] = set()

    def grow(tree: Tree, node: "Node") -> None:
        for target in graph.targets(node):
            others = [source.name for source in graph.sources(target) if source != node]
            beside = f"  (with {', '.join(others)})" if others and target not in drawn else ""
            if target in drawn:
                tree.add(f"{_label(target)}  (above)")
                continue
            drawn.add(target)
            grow(tree.add(f"{_label(target)}{beside}"), target)

    trees = []
    for source in (node for layer in graph.layers for node in layer if not graph.sources(node)):
        trees.append(Tree(_label(source)))
        grow(trees[-1], source)
    return trees


def _label(node: "Node") -> str:
    return {"topic": f"{node.name} (topic)", "job": f"{node.name}()", "table": node.name}[node.kind]


def svg_of(graph: "Graph") -> str:
    """The graph as a picture: topics and tables as boxes, jobs between them, from left to right."""
    widths = [max(len(_label(node)) for node in layer) * _LETTER + 24 for layer in graph.layers]
    lefts = [_MARGIN + sum(widths[:i]) + i * _COLUMN_GAP for i in range(len(widths))]
    places = {
        node: (lefts[column], _MARGIN + row * _ROW, widths[column])
        for column, layer in enumerate(graph.layers)
        for row, node in enumerate(layer)
    }
    width = round(max((left + wide for left, _, wide in places.values()), default=0) + _MARGIN)
    height = round(max((top + _BOX for _, top, _ in places.values()), default=0) + _MARGIN)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        "<title>Topics, jobs and tables</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for source, target in graph.edges:
        left, top, wide = places[source]
        x, y, right, down = left + wide, top + _BOX / 2, places[target][0], places[target][1] + _BOX / 2
        bend = (x + right) / 2
        parts.append(
            f'<path d="M{x:.0f} {y:.0f} C{bend:.0f} {y:.0f} {bend:.0f} {down:.0f} {right:.0f} {down:.0f}" '
            'fill="none" stroke="#667788"/>'
        )
    for node, (left, top, wide) in places.items():
        round_by = 16 if node.kind == "job" else 3
        parts.append(
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{wide:.0f}" height="{_BOX}" rx="{round_by}" '
            f'fill="{_FILL[node.kind]}" stroke="#334455"/>'
            f'<text x="{left + wide / 2:.0f}" y="{top + 21:.0f}" text-anchor="middle">{escape(_label(node))}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
