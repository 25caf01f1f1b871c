"""How the rows of each input come into a function's result, and whether the ledger can account for that."""

from collections import Counter
from collections.abc import Mapping

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.dedup import ByKey, BySequence
from headwater_streams.operators.recording import Place
from headwater_streams.plan.job import Job
from headwater_streams.spark.plan_shape import PlanNode

_MARK = "_leaf_of_"


def marked(name: str) -> str:
    """A column by which the frame of an input is known in a plan, wherever it stands."""
    return f"{_MARK}{name}"


def check_inputs(job: Job) -> None:
    """Checks that the inputs of a job with several do not share what identifies their rows.

    Raises:
        JobDefinitionError: They do.
    """
    if len(job.inputs) == 1:
        return
    for kind, names in (("topic", job.topic_names), ("table", [table.name for table in job.tables])):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise JobDefinitionError(
                f"job {job.name!r}: two of its inputs read the {kind} {twice[0]}; read it once"
            )
    if isinstance(job.dedup, ByKey):
        raise JobDefinitionError(
            f"job {job.name!r}: by_key over several inputs: one of them may be far behind the others, where their keys "
            "are forgotten; write the union to a table, and remove duplicates in a job that reads it"
        )
    if isinstance(job.dedup, BySequence) and job.tables:
        raise JobDefinitionError(
            f"job {job.name!r}: by_sequence reads the headers of records, and the rows of "
            f"{job.tables[0].name} have none; put it on the jobs that read the topics"
        )


def check_union(job: Job, result: PlanNode, *, is_target: bool) -> None:
    """Checks what a row-by-row function makes of its inputs.

    Args:
        job: The job.
        result: The plan of what it made of empty frames.
        is_target: Whether it is the job's first table, by which the batch is accounted for.

    Raises:
        JobDefinitionError: Rows of an input are joined with others, stand there twice, or none of them can.
    """
    for node in result.walk():
        if node.kind == "Join" and all(inputs_under(side) for side in node.children):
            raise JobDefinitionError(
                f"job {job.name!r}: a row-by-row function cannot join its inputs; use hw.join(...) or hw.as_of(...)"
            )
    ways = inputs_under(result)
    for name in job.inputs:
        if ways[name] > 1:
            raise JobDefinitionError(
                f"job {job.name!r}: rows of {name!r} come to the result by {ways[name]} ways, and one that takes two "
                "would be doubled; tell them apart in columns, F.when(...), or write targets={...}"
            )
        if is_target and not ways[name]:
            raise JobDefinitionError(
                f"job {job.name!r}: the result has no rows of the input {name!r}; leave it out"
            )


def joined_inputs(job: Job, result: PlanNode) -> tuple[str, str]:
    """The inputs on the left and the right side of a job's join, whatever the function called their columns.

    Args:
        job: The job.
        result: The plan of what it made of empty frames.

    Raises:
        JobDefinitionError: A side is not made of one input.
    """
    join = next(node for node in result.walk() if node.kind == "Join")
    left, right = ([*inputs_under(side)] for side in join.children)
    if len(left) != 1 or len(right) != 1 or left == right:
        names = ", ".join([*left, *right]) or "none"
        raise JobDefinitionError(
            f"job {job.name!r}: a join takes one input on its left side and the other on its right; here are {names}"
        )
    return left[0], right[0]


def inputs_under(plan: PlanNode) -> Counter[str]:
    """The inputs by whose marks a plan's leaves are known, and how many leaves each has there."""
    return Counter(name for leaf in plan.leaves if (name := input_of(leaf)) is not None)


def input_of(leaf: PlanNode) -> str | None:
    """The input by whose mark a leaf of a plan is known; None for any other leaf."""
    marks = (column.name for column in leaf.columns if column.name.startswith(_MARK))
    return next((name.removeprefix(_MARK) for name in marks), None)


def origin_of(plan: PlanNode, column: str, name: str) -> str | None:
    """What a column of a frame is called in the input whose rows it is of; None where it is computed on the way.

    Args:
        plan: The plan of a frame made of the input's.
        column: The column.
        name: The input, by whose mark it is known.
    """
    column_id = next(each.id for each in plan.columns if each.name == column)
    while plan.children:
        below = next(child for child in plan.children if inputs_under(child)[name])
        place = next((place for place, each in enumerate(plan.columns) if each.id == column_id), None)
        if plan.kind == "Union":
            assert place is not None, "a union gives all columns that are asked of it"
            column_id = below.columns[place].id
        elif plan.kind == "Project":
            passed = None if place is None else plan.columns[place].passes
            if passed is None:  # it is computed here, or a node above has made it, as explode does
                return None
            column_id = passed
        plan = below
    return next((each.name for each in plan.columns if each.id == column_id), None)


def foreign_time(
    job: Job, sides: Mapping[Place, str], times: Mapping[Place, str], handed: Mapping[Place, PlanNode]
) -> str | None:
    """A time of a join that is no event time of its side, by whatever name; None where both are.

    Args:
        job: The job.
        sides: The inputs by their sides, `left` and `right`.
        times: The columns that are the sides' times, likewise.
        handed: The plans of what the join was handed, likewise.
    """
    own = {side: origin_of(handed[side], times[side], name) for side, name in sides.items()}
    return next(
        (times[side] for side, name in sides.items() if own[side] != job.inputs[name].event_time), None
    )
