"""By which way the rows of each input come into a function's result, and whether that can be accounted for."""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.dedup import ByKey, BySequence
from headwater_streams.operators.recording import Place
from headwater_streams.plan.job import Job
from headwater_streams.spark.analysed_plan import analysed_nodes
from headwater_streams.spark.gateway import to_list

_MARK = "_leaf_of_"


def marked(name: str) -> str:
    """A column by which the frame of an input is known in a plan, wherever it stands."""
    return f"{_MARK}{name}"


def check_inputs(job: Job) -> None:
    """Checks that the inputs of a job with several do not share what tells their rows apart.

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


def check_union(job: Job, result: DataFrame, *, is_target: bool) -> None:
    """Checks what a row-by-row function makes of its inputs.

    Args:
        job: The job.
        result: What it made of empty frames.
        is_target: Whether it is the job's first table, by which the batch is accounted for.

    Raises:
        JobDefinitionError: Rows of an input are joined with others, stand there twice, or none of them can.
    """
    for node in analysed_nodes(result):
        if str(node.nodeName()) == "Join" and all(inputs_under(side) for side in to_list(node.children())):
            raise JobDefinitionError(
                f"job {job.name!r}: a row-by-row function cannot join its inputs; use hw.join(...) or hw.as_of(...)"
            )
    found = inputs_under(next(analysed_nodes(result)))
    for name in job.inputs:
        if found[name] > 1:
            raise JobDefinitionError(
                f"job {job.name!r}: rows of {name!r} come to the result by {found[name]} ways, and one that takes two "
                "would be doubled; tell them apart in columns, F.when(...), or write targets={...}"
            )
        if is_target and not found[name]:
            raise JobDefinitionError(
                f"job {job.name!r}: the result has no rows of the input {name!r}; leave it out"
            )


def joined_inputs(job: Job, result: DataFrame) -> tuple[str, str]:
    """The inputs on the left and the right side of a job's join, whatever the function called their columns.

    Args:
        job: The job.
        result: What it made of empty frames.

    Raises:
        JobDefinitionError: A side is not made of one input.
    """
    (join,) = itertools.islice((n for n in analysed_nodes(result) if str(n.nodeName()) == "Join"), 1)
    left, right = ([*inputs_under(side)] for side in to_list(join.children()))
    if len(left) != 1 or len(right) != 1 or left == right:
        told = ", ".join([*left, *right]) or "none"
        raise JobDefinitionError(
            f"job {job.name!r}: a join takes one input on its left side and the other on its right; here are {told}"
        )
    return left[0], right[0]


def inputs_under(plan: Any) -> Counter[str]:
    """The inputs by whose marks a plan's leaves are known, and how many leaves each has there."""
    return Counter(name for leaf in to_list(plan.collectLeaves()) if (name := input_of(leaf)) is not None)


def input_of(leaf: Any) -> str | None:
    """The input by whose mark a leaf of a plan is known; None for any other leaf."""
    columns = (str(column.name()) for column in to_list(leaf.output()))
    return next((name.removeprefix(_MARK) for name in columns if name.startswith(_MARK)), None)


def origin_of(frame: DataFrame, column: str, name: str) -> str | None:
    """What a column of a frame is called in the input whose rows it is of; None where it is computed on the way.

    Args:
        frame: A frame made of the input's.
        column: The column.
        name: The input, by whose mark it is known.
    """
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans have no public door
    wanted = next(each.exprId() for each in to_list(plan.output()) if str(each.name()) == column)
    while True:
        children = to_list(plan.children())
        if not children:
            there = (str(each.name()) for each in to_list(plan.output()) if each.exprId().equals(wanted))
            return next(there, None)
        below = next(child for child in children if inputs_under(child)[name])
        kind = str(plan.nodeName())
        if kind == "Union":
            place = [each.exprId().equals(wanted) for each in to_list(plan.output())].index(True)
            wanted = to_list(below.output())[place].exprId()
        elif kind == "Project":
            passed = (each for each in to_list(plan.projectList()) if each.exprId().equals(wanted))
            made = next(passed, None)
            if made is None:  # a node above has made it, as explode does
                return None
            if str(made.nodeName()) == "Alias":
                if str(made.child().nodeName()) != "AttributeReference":
                    return None
                wanted = made.child().exprId()
        plan = below


def foreign_time(
    job: Job, sides: Mapping[Place, str], times: Mapping[Place, str], handed: Mapping[Place, DataFrame]
) -> str | None:
    """A time of a join that is no event time of its side, by whatever name; None where both are.

    Args:
        job: The job.
        sides: The inputs by their sides, `left` and `right`.
        times: The columns that are the sides' times, likewise.
        handed: What the join was handed, likewise.
    """
    own = {side: origin_of(handed[side], times[side], name) for side, name in sides.items()}
    return next(
        (times[side] for side, name in sides.items() if own[side] != job.inputs[name].event_time), None
    )
