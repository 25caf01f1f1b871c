"""What the columns of a table are made of, in the words of OpenLineage; `plan.column_lineage` finds it in a plan."""

from collections.abc import Mapping

HOWS = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
"""How a column may come into another one, the least change first."""
MadeOf = Mapping[str, tuple[tuple[str, str, str], ...]]
"""What each column is made of: an input or a look-up, its column, and one of `HOWS`; and what chose the rows."""
CHOSEN = ""
"""No column has this name: under it stands what chose the rows, as `("clicks", "page", "GROUP_BY")`."""
CHOOSING = {"Filter": "FILTER", "Join": "JOIN", "Sort": "SORT", "Window": "WINDOW", "Aggregate": "GROUP_BY"}
"""How rows are chosen, by Catalyst's name of the node that does."""
