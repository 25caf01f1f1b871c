"""Which results of a row-by-row function have several rows to a record, and whether the ledger can account for them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.exploding import LEVEL
from headwater_streams.plan.job import Job
from headwater_streams.plan.unions import inputs_under
from headwater_streams.sources.coordinates import ROW
from headwater_streams.spark.generators import NUMBERED, ONE_ROW
from headwater_streams.spark.plan_shape import PlanNode

_INSTEAD = {
    "Stack": "stack, whose rows have no place in their record; write explode(array(...)) or inline(array(struct(...)))",
    "VariantExplode": "variant_explode; cast the value to an array, and explode that",
}


@dataclass(frozen=True)
class Exploding:
    """How a table's rows are made of records.

    Attributes:
        levels: How many generators are on the way of its rows.
        below: By what the place of a record among those of its own record was multiplied, where the records are rows
            of a table that are several to one; else 0.
    """

    levels: int
    below: int = 0


def exploding_of(job: Job, result: PlanNode, *, has_row: bool) -> Exploding | None:
    """How a row-by-row function makes several rows of a record; None where it makes one at most.

    Args:
        job: The job.
        result: The plan of what it made of empty frames.
        has_row: Whether the rows of the table that it reads have places in their records.

    Raises:
        JobDefinitionError: Rows that a generator makes have no place, or their records could not be counted.
    """
    generators = [node.label for node in result.walk() if node.kind == "Generate" and inputs_under(node)]
    for name in generators:
        if name not in NUMBERED | ONE_ROW:
            instead = _INSTEAD.get(name, f"{name}, whose rows have no place in their record")
            raise JobDefinitionError(f"job {job.name!r}: a row-by-row function cannot use {instead}")
    levels = sum(name in NUMBERED for name in generators)
    if not levels:
        return None
    if len(job.inputs) > 1 and job.tables:
        raise JobDefinitionError(
            f"job {job.name!r}: it unites {job.tables[0].name} with other inputs and explodes rows, and of which input "
            "a record was is not known of each row; explode in a row-by-row job that reads one input, and unite its "
            "table"
        )
    is_of_rows = has_row and len(job.inputs) == 1
    return Exploding(levels, LEVEL**levels if is_of_rows else 0)


def require_apart(job: Job, exploding: Mapping[str, Exploding], shared: str | None) -> None:
    """Checks that the rows which a function explodes are told apart by their coordinates.

    Args:
        job: The job.
        exploding: How it makes the rows of its tables.
        shared: A table that it reads, if rows of that are made of several records.

    Raises:
        JobDefinitionError: They are not.
    """
    if exploding and shared is not None:
        raise JobDefinitionError(
            f"job {job.name!r}: rows of {shared} are made of several records and share their coordinates, so of which "
            f"of them a row of {next(iter(exploding))} is could not be told; explode before, in a row-by-row job that "
            "reads what feeds it"
        )


def require_places_unnamed(job: Job, places: Mapping[str, int], plans: Sequence[PlanNode]) -> None:
    """Checks that a function with a window or a join does not name the places of a table's rows in their records: what
    comes to these has the coordinates alone.

    Args:
        job: The job.
        places: The ids of the places, by the inputs whose rows have some.
        plans: The plans of what it handed to its operators, and of its result, all made of empty frames.

    Raises:
        JobDefinitionError: It names them.
    """
    named = {column_id for plan in plans for column_id in _named(plan)}
    for name, column_id in places.items():
        if column_id in named:
            raise JobDefinitionError(
                f"job {job.name!r}: {ROW}, the place of a row of {job.inputs[name].name} in its record, is not on hand "
                "on the way to a window or a join; give it another name in a row-by-row job, and let this one read its "
                "table"
            )


def _named(plan: PlanNode) -> Iterator[int]:
    """The ids of the columns that a plan shows or computes with. Where one hidden column is named, Spark has the
    projections below pass on all of them."""
    yield from (column.id for column in plan.columns)
    for node in plan.walk():
        if node.kind != "Project":
            yield from node.named
            continue
        for column in node.columns:
            if column.passes != column.id:
                yield from column.of
