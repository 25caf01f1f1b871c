"""Lineage for other tools: events of OpenLineage, made of ledger entries. It opens nothing and sends nothing.

    job delays, 10:00 to 10:01                     run 6f0c...
      inputs   kafka://127.0.0.1:9092 flights      offsets {"0": [120, 460]}, 340 records
      outputs  file /data/tables/gold/delays       version 17, 24 rows written, columns and what they are made of

A stream does not end, but receivers such as Marquez show a job only once a run of it is complete, and others stumble
over runs that go on. So each *period* of a table is a run of its own: a minute, by default, of committed batches, with
an event START and an event COMPLETE. COMPLETE says all by itself, and the job says so (`emissionPattern`: PERIODIC,
COMPLETE_SNAPSHOT). A run's id follows from table, generation and period: to send a period twice tells nothing new.

Names of data sets are those of the specification: `kafka://HOST:PORT` and the topic, `file` and the table's folder;
`symlinks` has the table's name. What OpenLineage has no word for stands in facets of our own: `headwater_offsets` of an
input, `headwater_ledger` of a run. The events are of version 2-0-2 of the specification.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, merge_ranges
from headwater_streams.base.made_of import CHOSEN
from headwater_streams.base.moments import iso
from headwater_streams.base.topics import bare_topic, cluster_of
from headwater_streams.ledger.log import Commit
from headwater_streams.quality.check_result import merged, results_of

Event = dict[str, Any]
Columns = Mapping[str, Sequence[tuple[str, str, str]]]
"""What each column of a table is made of: an input, its column, and how it comes from there; and, under `CHOSEN`, what
chose its rows. See `column_lineage`."""

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "dataQualityAssertions": "1-1-0/DataQualityAssertionsDatasetFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "nominalTime": "1-0-1/NominalTimeRunFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "schema": "1-2-0/SchemaDatasetFacet",
    "symlinks": "1-0-1/SymlinksDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
}
"""The facets, with the newest versions of their schemas."""
_OWN = "urn:headwater:openlineage:1"
_RUNS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:headwater:runs")
_TOLD = ("backfill", "generation")
"""Kinds of commits that are told besides those of batches: they change rows."""


@dataclass(frozen=True, kw_only=True)
class Assertion:
    """A check, and whether it held.

    Attributes:
        name: The check.
        success: Whether it held of every row.
        severity: "warn" or "error"; empty where it does not say.
        actual: What was found; empty for nothing.
        column: The column that it is about; empty for all.
    """

    name: str
    success: bool
    severity: str = ""
    actual: str = ""
    column: str = ""

    def to_json(self) -> Event:
        """The assertion as the facet has it."""
        value: Event = {"assertion": self.name, "name": self.name, "success": self.success}
        more = {"severity": self.severity, "actual": self.actual, "column": self.column}
        return value | {key: text for key, text in more.items() if text}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where events of a home say that its data is.

    Attributes:
        namespace: The namespace of its jobs.
        version: Headwater's version.
        tables: The folder of its tables, an absolute path.
        brokers: The brokers of each cluster by its name, `HOST:PORT`; those of topics without one under "".
        period_ms: How long a run is.
    """

    namespace: str
    version: str
    tables: str
    brokers: Mapping[str, str] = field(default_factory=dict)
    period_ms: int = 60_000

    def facet(self, name: str, /, **values: Any) -> Event:
        """A facet, with what each must have."""
        schema = f"{_SPEC}/facets/{_FACETS[name]}.json" if name in _FACETS else f"{_OWN}:{name}"
        kind = f"#/$defs/{_FACETS[name].partition('/')[2]}" if name in _FACETS else ""
        return {"_producer": self.producer, "_schemaURL": schema + kind, **values}

    @property
    def producer(self) -> str:
        """Who speaks."""
        return f"urn:headwater:{self.version}"

    def topic(self, name: str) -> dict[str, str]:
        """The data set of a topic."""
        brokers = self.brokers.get(cluster_of(name), "") or cluster_of(name) or "unknown"
        return {"namespace": f"kafka://{brokers.partition(',')[0]}", "name": bare_topic(name)}

    def table(self, name: str) -> dict[str, str]:
        """The data set of a table."""
        return {"namespace": "file", "name": f"{self.tables.rstrip('/')}/{name.replace('.', '/', 1)}"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The commits of a job to one of its tables in one period.

    Attributes:
        table: The table.
        job: The job.
        generation: Its generation.
        start_ms: When the period began.
        commits: The commits, oldest first.
    """

    table: str
    job: str
    generation: int
    start_ms: int
    commits: tuple[Commit, ...]

    @property
    def entries(self) -> list[LedgerEntry]:
        """Their entries."""
        return [commit.entry for commit in self.commits if commit.entry is not None]

    @property
    def run_id(self) -> str:
        """The run's id, the same whenever the period is told."""
        return str(uuid.uuid5(_RUNS, f"{self.table}\t{self.job}\t{self.generation}\t{self.start_ms}"))


def runs_of(commits: Iterable[Commit], period_ms: int) -> Iterator[Run]:
    """The runs of a table's commits, in the order of their last commits; commits by nobody's job, and of side tables,
    are of none.

    Args:
        commits: The commits, oldest first. One whose clock was behind is of the period of those before it.
        period_ms: How long a run is.
    """
    start_ms = 0
    of_period: dict[tuple[str, str, int], list[Commit]] = {}
    for commit in filter(is_told, commits):
        entry = commit.entry
        assert entry is not None
        its_start_ms = commit.timestamp_ms // period_ms * period_ms
        if its_start_ms > start_ms:
            yield from _of_period(of_period, start_ms)
            start_ms, of_period = its_start_ms, {}
        of_period.setdefault((entry.table, entry.job, entry.generation), []).append(commit)
    yield from _of_period(of_period, start_ms)


def is_told(commit: Commit) -> bool:
    """Whether a commit is of a run."""
    return commit.entry is not None and (commit.entry.is_batch or commit.entry.kind in _TOLD)


def _of_period(commits: Mapping[tuple[str, str, int], list[Commit]], start_ms: int) -> list[Run]:
    runs = [
        Run(table=table, job=job, generation=generation, start_ms=start_ms, commits=tuple(its))
        for (table, job, generation), its in commits.items()
    ]
    return sorted(runs, key=lambda run: run.commits[-1].version)


def events_of(
    run: Run,
    place: Place,
    *,
    schemas: Mapping[str, Mapping[str, str]] | None = None,
    columns: Columns | None = None,
    assertions: Sequence[Assertion] = (),
    spark: str = "",
) -> list[Event]:
    """The two events of a run.

    Args:
        run: The run.
        place: Where its data is.
        schemas: The types of the columns of tables, by their names, where they are known.
        columns: What the table's columns are made of, where that is known.
        assertions: What checks found of the table's rows in that time, besides what the ledger says.
        spark: Spark's version, where it is known.
    """
    # DataHub answers an event without it with 500 (datahub-project/datahub#13874).
    engine = {"processing_engine": place.facet("processing_engine", name="spark", version=spark or "unknown")}
    first, last = run.commits[0].timestamp_ms, run.commits[-1].timestamp_ms
    base = {"producer": place.producer, "schemaURL": _EVENT}
    named = {
        "job": _job(run, place),
        "run": {"runId": run.run_id, "facets": {**_run_facets(run, place), **engine}},
    }
    started = {
        "eventType": "START",
        "eventTime": iso(first * 1000),
        **base,
        "run": {"runId": run.run_id, "facets": engine},
        "job": named["job"],
        "inputs": [],
        "outputs": [],
    }
    schemas = schemas or {}
    inputs = [*_inputs(run, place, schemas, assertions)]
    return [
        started,
        {
            "eventType": "COMPLETE",
            "eventTime": iso(last * 1000),
            **base,
            **named,
            "inputs": [value for _, value in inputs],
            "outputs": [_output(run, place, schemas, columns, inputs)],
        },
    ]


def _job(run: Run, place: Place) -> Event:
    pattern = {
        "eventTrigger": "PERIODIC",
        "eventContentMode": "COMPLETE_SNAPSHOT",
        "windowDuration": max(1, place.period_ms // 1000),
    }
    kind = place.facet(
        "jobType", processingType="STREAMING", integration="HEADWATER", jobType="JOB", emissionPattern=pattern
    )
    return {"namespace": place.namespace, "name": run.job, "facets": {"jobType": kind}}


def _run_facets(run: Run, place: Place) -> Event:
    terms: dict[str, Counter[str]] = {}
    for entry in run.entries:
        for name, its in entry.accounting.items():
            terms.setdefault(name, Counter()).update(its)
    end_ms = run.start_ms + place.period_ms
    return {
        "nominalTime": place.facet(
            "nominalTime", nominalStartTime=iso(run.start_ms * 1000), nominalEndTime=iso(end_ms * 1000)
        ),
        "headwater_ledger": place.facet(
            "headwater_ledger",
            generation=run.generation,
            batches=[run.entries[0].batch, run.entries[-1].batch],
            versions=[run.commits[0].version, run.commits[-1].version],
            kinds=sorted({entry.kind for entry in run.entries}),
            fingerprint=run.entries[-1].fingerprint,
            accounting={name: dict(its) for name, its in terms.items()},
        ),
    }


def _inputs(
    run: Run, place: Place, schemas: Mapping[str, Mapping[str, str]], assertions: Sequence[Assertion]
) -> Iterator[tuple[str, Event]]:
    """The data sets that were read, each with the name of its input."""
    sources: dict[tuple[str, str, str | None], list[SourceRange]] = {}
    for entry in run.entries:
        for source in entry.sources:
            topics: list[str | None] = (
                [None] if source.table is not None else [*source.ranges, *_unread(source)]
            )
            for topic in topics:
                key = source.input, source.table or topic or "", source.table
                sources.setdefault(key, []).append(source)
    for (name, data, table), its in sources.items():
        ranges = merge_ranges([source.ranges for source in its])
        only = ranges if table is not None else {data: ranges.get(data, {})}
        offsets = {
            topic: {str(number): list(pair) for number, pair in sorted(partitions.items())}
            for topic, partitions in only.items()
        }
        facets: Event = {"headwater_offsets": place.facet("headwater_offsets", input=name, offsets=offsets)}
        read = sum(entry.accounting.get(name, {}).get("read", 0) for entry in run.entries)
        if sum(key[0] == name for key in sources) == 1:  # the terms of an input are those of all its topics
            facets["inputStatistics"] = place.facet("inputStatistics", rowCount=read)
        judged = [*_judged(run, name, read), *assertions]
        if judged:
            facets["dataQualityAssertions"] = place.facet(
                "dataQualityAssertions", assertions=[each.to_json() for each in judged]
            )
        data_set = place.topic(data) if table is None else place.table(table)
        versions = [source.versions for source in its if source.versions is not None]
        last = max((end - 1 for _, end in versions), default=None)
        of_table = {} if table is None else _table_facets(place, table, last, schemas)
        yield name, {**data_set, "facets": of_table, "inputFacets": facets}
    looked_up = {name: read for entry in run.entries for name, read in Extra.LOOKUPS.get(entry, {}).items()}
    for name, version in looked_up.items():
        table = version["table"]
        facets = _table_facets(place, table, version["version"], schemas)
        yield name, {**place.table(table), "facets": facets, "inputFacets": {}}


def _unread(source: SourceRange) -> list[str]:
    """The topic of a source of which nothing was read."""
    return [source.topic] if source.topic is not None and not source.ranges else []


def _judged(run: Run, name: str, read: int) -> Iterator[Assertion]:
    """What the ledger says of the rows of an input: whether any were rejected, and what checks came to."""
    rejected = sum(entry.accounting.get(name, {}).get("quarantined", 0) for entry in run.entries)
    found = f"{rejected} of {read} were rejected" if rejected else ""
    yield Assertion(name="no_row_rejected", success=not rejected, severity="error", actual=found)
    checks = [{each.check: each for each in results_of(Extra.CHECKS.get(entry))} for entry in run.entries]
    for each in merged(checks).values():
        yield Assertion(
            name=each.check,
            success=each.outcome == "held",
            severity="warn" if each.action == "warn" else "error",
            actual=each.observed or (f"{each.failed} of {each.judged} rows fail it" if each.failed else ""),
        )


def _output(
    run: Run,
    place: Place,
    schemas: Mapping[str, Mapping[str, str]],
    columns: Columns | None,
    inputs: Sequence[tuple[str, Event]],
) -> Event:
    facets = _table_facets(place, run.table, run.commits[-1].version, schemas)
    if columns:
        facets["columnLineage"] = place.facet(
            "columnLineage",
            fields={
                column: {"inputFields": _input_fields("DIRECT", of, inputs)}
                for column, of in columns.items()
                if column != CHOSEN
            },
            dataset=_input_fields("INDIRECT", columns.get(CHOSEN, ()), inputs),
        )
    written = place.facet(
        "outputStatistics",
        rowCount=sum(commit.rows_added for commit in run.commits),
        fileCount=sum(len(commit.added_paths) for commit in run.commits),
    )
    return {**place.table(run.table), "facets": facets, "outputFacets": {"outputStatistics": written}}


def _input_fields(
    kind: str, of: Sequence[tuple[str, str, str]], inputs: Sequence[tuple[str, Event]]
) -> list[Event]:
    """Columns of inputs, each once in a data set, with all ways in which it counts."""
    fields: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for name, column, how in of:
        for input_name, data_set in inputs:
            if input_name == name:
                key = data_set["namespace"], data_set["name"], column
                fields.setdefault(key, []).append({"type": kind, "subtype": how})
    return [
        {"namespace": namespace, "name": name, "field": column, "transformations": hows}
        for (namespace, name, column), hows in fields.items()
    ]


def _table_facets(
    place: Place, table: str, version: int | None, schemas: Mapping[str, Mapping[str, str]]
) -> Event:
    name = {"namespace": place.namespace, "name": table, "type": "TABLE"}
    facets: Event = {"symlinks": place.facet("symlinks", identifiers=[name])}
    if version is not None:
        facets["version"] = place.facet("version", datasetVersion=str(version))
    if schemas.get(table):
        fields = [{"name": column, "type": kind} for column, kind in schemas[table].items()]
        facets["schema"] = place.facet("schema", fields=fields)
    return facets
