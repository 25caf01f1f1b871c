"""A job: a plain function on DataFrames, and what `@hw.job` and `@hw.check` say about it."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal, TypeVar

from pyspark.sql import DataFrame

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.check import REMOVING, Action, Check, InvalidCheckError, Level, On
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import named_twice, require_job_name
from headwater_streams.base.rule import Rule
from headwater_streams.base.target import DeltaTarget, declared_name
from headwater_streams.base.topics import of_several_clusters
from headwater_streams.delta.scd_target import ScdTarget
from headwater_streams.operators.dedup import Dedup
from headwater_streams.operators.windows.spec import WindowSpec
from headwater_streams.plan.dropping import without_dropped
from headwater_streams.plan.laid_out import with_layout
from headwater_streams.plan.reached import functions_of, reached, tree_of
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.sources.lookup import LookupInput
from headwater_streams.sources.registered import Registered

Frames = DataFrame | Mapping[str, DataFrame]
JobFunction = TypeVar("JobFunction", bound=Callable[..., Frames])
Late = Literal["table", "count"]
OnError = Literal["quarantine", "fail"]
_FEW = 20
INT_MAX = 2**31 - 1

_CHECKS, _JOB = "__headwater_checks__", "__headwater_job__"

declared: ContextVar[list[Callable[..., Any]] | None] = ContextVar("headwater_declared", default=None)
"""The functions that `@job` met while a module is being loaded, in order; None outside the loader."""


@dataclass(frozen=True)
class _Declaration:
    name: str
    targets: Mapping[str, DeltaTarget]
    dedup: Dedup | None
    late: Late
    on_error: OnError
    max_errors: "ErrorBound"


@dataclass(frozen=True)
class ErrorBound:
    """How many records of a batch a job's function may raise for before the job stops.

    Attributes:
        rows: At most so many records.
        share: At most this share of the batch's records. It counts from 20 records on: of fewer, one may be all that
            there is.
    """

    rows: int = 100
    share: float = 0.5

    @classmethod
    def of(cls, max_errors: float) -> "ErrorBound":
        """What a job says: so many records, or a share of them below 1.

        Raises:
            ValueError: It is neither.
        """
        if isinstance(max_errors, bool) or not isinstance(max_errors, int | float) or not max_errors > 0:
            raise ValueError(
                f"max_errors={max_errors!r} is no number of records, nor a share of them such as 0.1"
            )
        if max_errors < 1:
            return cls(rows=INT_MAX, share=max_errors)
        if max_errors != int(max_errors):
            raise ValueError(
                f"max_errors={max_errors!r} is no whole number of records, nor a share of them below 1"
            )
        return cls(rows=int(max_errors))

    def most(self, records: int, batches: int = 1) -> int:
        """How many of `records` records may raise, where these came in `batches` batches.

        Example:
            >>> bound = ErrorBound()
            >>> bound.most(5), bound.most(30), bound.most(5_000), bound.most(5_000, batches=10)
            (100, 15, 100, 1000)
        """
        rows = self.rows * batches
        return rows if records < _FEW else min(rows, int(self.share * records))


@dataclass(frozen=True)
class Job:
    """A job with its inputs bound.

    Attributes:
        name: Unique within a home; checkpoint folder and Delta application id follow from it.
        function: The user's function, called with one DataFrame for each input.
        inputs: The inputs by the function's parameter names, in the function's order.
        target: The table it writes; of several, the first, which has the quarantine and the state.
        dedup: What is removed before anything else looks at a row; None removes nothing.
        late: `"table"` keeps late rows in `<table>__late`; `"count"` only counts them.
        checks: The checks, in the order of the decorators.
        branches: All tables by the names in the function's result, where it has several; the target is the first.
        text: What says what the function does, where it is not the function's own source.
        lookups: The tables that it looks things up in, by the function's parameter names.
        unites_for: Of the part of a windowed job that unites its inputs, see `runtime.ingest`: the window that folds
            its rows.
        steps: Of a part of a chain, see `chain`: the inputs that are results of operators before it.
        is_step: Whether it is such a part, and not the last one.
        places: Of a job in SQL, where its parts stand (`"x.sql, line 3"`): `"input NAME"`, `"check NAME"`, `"target"`.
        worded: Puts a sentence about it into the words of the language that it is written in.
        on_error: What becomes of a record for which the function raises: `"quarantine"`, or `"fail"`, the job stops.
        max_errors: For how many records of a batch it may raise before the job stops.
        keeps: Of an ingest part, the record's own columns (`_key`, `_headers`) that its table has for what reads it.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, Input]
    target: DeltaTarget
    dedup: Dedup | None = None
    late: Late = "table"
    checks: tuple[Check, ...] = field(default=())
    branches: Mapping[str, DeltaTarget] = field(default_factory=dict)
    text: str = ""
    lookups: Mapping[str, LookupInput] = field(default_factory=dict)
    unites_for: WindowSpec | None = None
    steps: tuple[str, ...] = ()
    is_step: bool = False
    places: Mapping[str, str] = field(default_factory=dict)
    worded: Callable[[str], str] = str
    on_error: OnError = "quarantine"
    max_errors: ErrorBound = ErrorBound()
    keeps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_job_name(self.name)
        alike = of_several_clusters(self.topic_names)
        if alike is not None:
            raise JobDefinitionError(
                f"job {self.name!r}: {' and '.join(alike)} are topics of one name, and Spark's checkpoint does not say "
                "of which cluster a topic is; read each by a job of its own, and unite their tables"
            )

    @property
    def targets(self) -> tuple[DeltaTarget, ...]:
        """The tables that it writes, the target first."""
        return tuple(self.branches.values()) or (self.target,)

    @property
    def code(self) -> CodeType:
        """The code of the user's own function, with its file and line."""
        code: CodeType = inspect.unwrap(self.function).__code__
        return code

    @property
    def other_tables(self) -> tuple[str, ...]:
        """The tables beside the target that its batches are written to and that a rebuild empties with it."""
        changes = (self.target.changes_table,) if isinstance(self.target, ScdTarget) else ()
        return (*[target.name for target in self.targets[1:]], *changes)

    def results(self, **inputs: DataFrame) -> dict[str, DataFrame]:
        """Calls the function: what it gives for each table, by the table's name, the target's first.

        Raises:
            JobDefinitionError: It does not give one DataFrame, or one for each of the targets' names.
        """
        returned = self.function(**inputs)
        if not self.branches:
            if not isinstance(returned, DataFrame):
                raise JobDefinitionError(f"the function returned {_what(returned)}")
            return {self.target.name: returned}
        if not isinstance(returned, Mapping):
            raise JobDefinitionError(
                f"the function returned {type(returned).__name__}, not a dict of DataFrames for targets="
            )
        if set(returned) != set(self.branches):
            frames, names = ", ".join(map(repr, returned)), ", ".join(map(repr, self.branches))
            raise JobDefinitionError(f"the function returned frames for {frames}, and targets= names {names}")
        wrong = next((name for name, frame in returned.items() if not isinstance(frame, DataFrame)), None)
        if wrong is not None:
            raise JobDefinitionError(
                f"the function returned {returned[wrong]!r} for {wrong!r}, not a DataFrame"
            )
        return {target.name: returned[name] for name, target in self.branches.items()}

    @property
    def comes_before(self) -> bool:
        """Whether it is a part of a job that does some of what the job's function does, before the last part."""
        return self.is_step or self.unites_for is not None

    @property
    def result_time(self) -> str | None:
        """The column of the result that says how far its readers have seen, where its inputs' event times do not."""
        window = self.unites_for
        return window.time if window is not None and window.closing else None

    def app_id(self, generation: int) -> str:
        """The Delta application id of a generation: its batches' transaction marks."""
        return app_id(self.name, generation)

    def checks_for(self, on: On, level: Level) -> tuple[Check, ...]:
        """The checks of the input or the output, at a level."""
        return tuple(check for check in self.checks if (check.on, check.level) == (on, level))

    @property
    def quarantining(self) -> tuple[Check, ...]:
        """The checks that take rows of the input aside."""
        return tuple(check for check in self.checks_for("input", "row") if check.action == "quarantine")

    @property
    def topics(self) -> tuple[TopicInput, ...]:
        """The inputs that are topics."""
        return tuple(i for i in self.inputs.values() if isinstance(i, TopicInput))

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics of its inputs."""
        return tuple(name for declared in self.topics for name in declared.names)

    @property
    def tables(self) -> tuple[TableInput, ...]:
        """The inputs that are tables."""
        return tuple(i for i in self.inputs.values() if isinstance(i, TableInput))

    @property
    def table_names(self) -> frozenset[str]:
        """The tables that must be there first: those it streams and those it looks things up in."""
        return frozenset(i.name for i in self.tables) | {i.name for i in self.lookups.values()}

    @property
    def fingerprint(self) -> str:
        """A digest of what decides the job's results: its function's syntax tree with what that reaches of its own
        project (see `reached`), or its SQL, and its declaration."""
        parsers = [function for topic in self.topics for function in functions_of(topic.format)]
        tree = self.text or tree_of(self.function) + reached(self.function, *parsers)
        declaration = repr((dict(self.inputs), self.target, self.dedup, self.checks))
        if self.branches:
            declaration += repr(dict(self.branches))
        if self.lookups:
            declaration += repr(dict(self.lookups))
        computed = {
            name: i.computed for name, i in self.inputs.items() if isinstance(i, TopicInput) and i.computed
        }
        if computed:
            declaration += repr(computed)
        if self.keeps:
            declaration += repr(self.keeps)
        schemas = [each.format.digest for each in self.topics if isinstance(each.format, Registered)]
        if schemas:
            declaration += repr(schemas)
        partitions = {t.name: t.layout.computed for t in self.targets if t.layout.partition_by}
        if any(partitions.values()):
            declaration += repr(partitions)
        return hashlib.sha256((tree + declaration).encode()).hexdigest()[:16]


def app_id(job: str, generation: int) -> str:
    """The Delta application id of a job's generation."""
    return f"{job}/{generation}"


def require_own_name(name: str) -> None:
    """Checks that a job that is declared can be called so.

    Raises:
        JobDefinitionError: It cannot, or it would be taken for a part of a job that the library makes.
    """
    require_job_name(name)
    if declared_name(name) != name:
        suffix = name.removeprefix(declared_name(name))
        raise JobDefinitionError(
            f"job {name!r}: names with {suffix!r} are of the parts that the library makes of a job; take another"
        )


def job(
    *,
    target: DeltaTarget | None = None,
    targets: Mapping[str, DeltaTarget] | None = None,
    name: str | None = None,
    dedup: Dedup | None = None,
    late: Late = "table",
    quarantine: Literal["table"] = "table",
    on_error: OnError = "quarantine",
    max_errors: float = 100,
) -> Callable[[JobFunction], JobFunction]:
    """Declares a function as a streaming job; the function itself is returned unchanged.

    It may use one stateful operator after the other, each on what the one before gave:

        minutes = hw.tumbling(clicks, "at", "1 minute", by=["page"]).agg(F.count("*").alias("clicks"))
        busiest = hw.tumbling(minutes, "window_end", "1 hour").agg(hw.top(3, "clicks", ["page"]).alias("pages"))

    Each but the last then has a table of its own, `<target>__step_1` and on, of rows that are final; what follows it
    takes these in the order in which they became so: of windows by `window_end` (of windows of fixed times also by
    `window_start`), of a join by one of its times. So the last one's rows come one window later at the most.

    Args:
        target: Where the result goes, `hw.delta(...)`.
        targets: In its place, several tables by names, `{"good": hw.delta(...), "bots": hw.delta(...)}`: a row-by-row
            function returns a dict of frames by the same names. What is rejected goes to the first one's quarantine.
        name: The job's name, of the letters a to z and A to Z, digits, '_', '-' and '.'; by default the function's.
        dedup: `hw.by_offset(...)`, `hw.by_sequence(...)` or `hw.by_key(...)`; None for input that never comes twice.
        late: `"table"` keeps late rows in `<table>__late`, `"count"` only counts them. A window or a join over a topic
            (not a window over several inputs, or with look-ups) needs no ingest table then and is about twice as fast;
            what it gives up: a window's `_sources` are whole batches, and a part of its table cannot be repaired, only
            built anew or put back. Lateness is Spark's: a join's rows are late behind the lesser of its watermarks.
        quarantine: Rejected rows go to `<table>__quarantine`.
        on_error: What becomes of a record for which the function raises, as in a division by zero or a Python function:
            with `"quarantine"` it goes there with the error, and the others of its batch are written; with `"fail"` the
            job stops. A batch that failed is computed again in parts to find such records; the others cost nothing.
        max_errors: For how many records of a batch the function may raise before the job stops, in 20 records or more
            for half of them at the most; below 1 it is a share of the batch. So a deployment that is broken does not
            empty a topic into quarantine.

    Raises:
        JobDefinitionError: An argument is not one of its allowed values.
    """
    if targets is not None and target is not None:
        raise JobDefinitionError(
            "job: target= and targets= are both given; write targets={...} for several tables"
        )
    if targets is None:
        if not isinstance(target, DeltaTarget):
            raise JobDefinitionError(
                f"job: target={target!r} is not a target; write target=hw.delta('schema.table'), "
                "or targets={...} for several"
            )
        named = {"": target}
    else:
        named = dict(targets)
        _check_targets(named)
    if late not in ("table", "count"):
        raise JobDefinitionError(f"job: late={late!r} is not one of 'table', 'count'")
    if quarantine != "table":
        raise JobDefinitionError(
            f"job: quarantine={quarantine!r} is not 'table'; rejected rows are never thrown away"
        )
    if on_error not in ("quarantine", "fail"):
        raise JobDefinitionError(f"job: on_error={on_error!r} is not one of 'quarantine', 'fail'")
    try:
        bound = ErrorBound.of(max_errors)
    except ValueError as error:
        raise JobDefinitionError(f"job: {error}") from error
    if dedup is not None and not isinstance(dedup, Dedup):
        raise JobDefinitionError(
            f"job: dedup={dedup!r} is not a deduplication; write dedup=hw.by_offset(), hw.by_sequence() or "
            "hw.by_key([...], within=...)"
        )

    def declare(function: JobFunction) -> JobFunction:
        called = function.__name__ if name is None else name
        require_own_name(called)
        setattr(function, _JOB, _Declaration(called, named, dedup, late, on_error, bound))
        met = declared.get()
        if met is not None:
            met.append(function)
        return function

    return declare


def check(
    name: str,
    expression: str | Rule,
    *,
    on: On | None = None,
    level: Level | None = None,
    action: Action | None = None,
    at_most: str | float | AtMost | None = None,
    warn_over: str | float | AtMost | None = None,
) -> Callable[[JobFunction], JobFunction]:
    """Adds a check to a job; see `headwater_streams.quality.Check` for the arguments.

    Raises:
        JobDefinitionError: The parts contradict each other.
    """
    try:
        added = Check(
            name, expression, on=on, level=level, action=action, at_most=at_most, warn_over=warn_over
        )
    except InvalidCheckError as error:
        raise JobDefinitionError(str(error)) from error
    if added.action in REMOVING and added.on == "output":
        deed = "quarantined" if added.action == "quarantine" else "dropped"
        raise JobDefinitionError(
            f"check {name!r}: a row is {deed} where it comes in; leave on= out or say 'input'"
        )

    def attach(function: JobFunction) -> JobFunction:
        setattr(function, _CHECKS, (added, *getattr(function, _CHECKS, ())))
        return function

    return attach


def declared_as(function: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """The name of the job that `@job` declared, and the tables that it writes."""
    declaration: _Declaration = getattr(function, _JOB)
    return declaration.name, tuple(target.name for target in declaration.targets.values())


def is_job(value: object) -> bool:
    """Whether `@job` decorated this function."""
    return hasattr(value, _JOB)


def bind(function: Callable[..., Any]) -> Job:
    """Makes the `Job` of a decorated function: each parameter is an input of that name in the function's module.

    Raises:
        JobDefinitionError: A parameter has no input, or two checks have one name.
    """
    declaration: _Declaration = getattr(function, _JOB)
    module_globals = inspect.unwrap(function).__globals__
    declared_inputs = {
        name: value
        for name, value in module_globals.items()
        if isinstance(value, TopicInput | TableInput | LookupInput)
    }
    inputs: dict[str, Input] = {}
    lookups: dict[str, LookupInput] = {}
    for parameter in inspect.signature(function).parameters:
        if parameter not in declared_inputs:
            usable = ", ".join(sorted(declared_inputs)) or "none: declare them outside of functions"
            raise JobDefinitionError(
                f"job {declaration.name!r}: no input for the parameter {parameter!r}; the module's inputs are {usable}"
            )
        declared_input = declared_inputs[parameter]
        if isinstance(declared_input, LookupInput):
            lookups[parameter] = declared_input
        else:
            inputs[parameter] = declared_input
    if not inputs:
        what = "only look-ups, and they start no batch" if lookups else "no parameter, so it reads nothing"
        raise JobDefinitionError(f"job {declaration.name!r}: the function has {what}")
    alike = named_twice(inputs)
    if alike is not None:  # each may have an ingest table
        raise JobDefinitionError(
            f"job {declaration.name!r}: the parameter {alike!r} is another one's name in SQL, where small letters and "
            "capitals are the same; call it otherwise"
        )
    checks: tuple[Check, ...] = getattr(function, _CHECKS, ())
    names = [c.name for c in checks]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise JobDefinitionError(f"job {declaration.name!r}: two checks are named {twice[0]!r}")
    targets = declaration.targets
    return Job(
        declaration.name,
        with_layout(without_dropped(function, checks, inputs), targets),
        inputs,
        next(iter(targets.values())),
        declaration.dedup,
        declaration.late,
        checks,
        {} if "" in targets else targets,
        lookups=lookups,
        on_error=declaration.on_error,
        max_errors=declaration.max_errors,
    )


def _what(result: object) -> str:
    """What a function returned in place of a DataFrame, and what it should."""
    if result is None:
        return "nothing; end it with return and the DataFrame that it made"
    if callable(getattr(result, "agg", None)):
        return "windows without their aggregates; call .agg(...) on them, and return what that gives"
    if isinstance(result, Mapping | tuple | list):
        return f"a {type(result).__name__}, and the job has one table; return one DataFrame"
    return f"{type(result).__name__}, not a DataFrame"


def _check_targets(targets: Mapping[str, object]) -> None:
    names = [target.name for target in targets.values() if isinstance(target, DeltaTarget)]
    if not names or len(names) < len(targets) or "" in targets:
        raise JobDefinitionError(
            "job: targets= is not a dict of targets by names; write "
            "targets={'good': hw.delta('schema.good'), 'bots': hw.delta('schema.bots')}"
        )
    twice = named_twice(names)
    if twice is not None:
        raise JobDefinitionError(f"job: two of targets= are the table {twice}; a table has one writer")
