"""A topic or a table as a job's input: the format of its values, its event-time column, how late rows may be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import JobDefinitionError, UnavailableError
from headwater_streams.base.names import quoted, require_table_name
from headwater_streams.base.topics import cluster_of
from headwater_streams.sources.avro_value import Avro
from headwater_streams.sources.csv_value import Csv
from headwater_streams.sources.event_time import event_time_of
from headwater_streams.sources.json_schema import JsonSchema
from headwater_streams.sources.parsers import ACCESS, SYSLOG, Parser
from headwater_streams.sources.protobuf_value import Protobuf
from headwater_streams.sources.registered import Registered, registered

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_CLUSTER = re.compile(r"[a-z][a-z0-9_-]*")
Format = Literal["json", "csv", "access", "syslog"] | Csv | Avro | Protobuf | Parser | Registered
_NAMED: Mapping[str, Csv | Parser | None] = {"json": None, "csv": Csv(), "access": ACCESS, "syslog": SYSLOG}
OFFSETS_PER_BATCH = 1_000_000
"""A batch takes a quarter of a second besides its rows; half a million rows take one second. Nexmark's 1.84 million
bids took in two batches 0.84 to 0.94 of the time of four batches; 0.70 where files of the table are rewritten."""


@dataclass(frozen=True)
class TopicInput:
    """Records of a topic, one row each.

    Attributes:
        name: The topic; of a cluster that the settings name, `"CLUSTER:TOPIC"`, see `hw.topic`.
        schema: The value's columns as Spark DDL, `"carrier STRING, departed_at TIMESTAMP"`, for JSON and CSV; other
            formats have their own. Fields of JSON that the schema does not name are left out.
        event_time: When the event happened: a column, or Spark's SQL over the value's columns and the record's own
            `_key`, `_timestamp` and `_headers['name']`, `"timestamp_millis(ts_ms)"`, which makes a column `event_time`
            (or `"... AS ordered_at"`). Rows without it, and those for which it cannot be computed, go to quarantine.
        watermark: How far behind the greatest event time seen a row may be and still count ("30 minutes").
        format: How values are encoded: `"json"`, one object in each value; `"csv"` or `hw.csv(sep=";", header=...)`,
            one line in each; `hw.avro("flight.avsc")` or `hw.protobuf("flights.desc", "flights.Departure")`, one
            record or message in each; or one line of text in each, taken apart by a parser: `"access"` (the common and
            the combined log format), `hw.access_log(took_unit="us")`, `"syslog"`, `hw.syslog(zone=...)`,
            `hw.key_value("level STRING, took_ms DOUBLE")`, `hw.template("{at:time} {level:word} {message}")`.
        max_ahead: How far an event time may be ahead of its record's timestamp before it is quarantined.
        max_offsets_per_batch: The most records that one batch reads, over all partitions. A greater number makes a job
            that is behind faster, and its batches longer. The records' coordinates pass through the driver.
        more: Further topics with values of the same form; `_topic` has the topic of a row.
        computed: What the column `event_time` is computed of; None where it is one of the value's. It follows from
            `event_time` as it was written.
        record: Of the record's own columns, `_key` and `_headers`, those that a job uses; its plan says them.
    """

    name: str
    schema: str | None = None
    event_time: str | None = None
    watermark: str | None = None
    format: Format = "json"
    max_ahead: str = "1 day"
    max_offsets_per_batch: int = OFFSETS_PER_BATCH
    more: tuple[str, ...] = ()
    # A job's fingerprint is of the text of its inputs, which for older declarations is as it was.
    computed: str | None = field(default=None, repr=False)
    record: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in self.names:
            # Names of clusters in the settings have no colon, so a second one is in the topic's name, wrongly.
            bare, cluster = name.partition(":")[2] or name, cluster_of(name)
            if not _TOPIC.fullmatch(bare) or bare in (".", ".."):
                raise JobDefinitionError(
                    f"topic {bare!r}: a topic's name is 1 to 249 letters, digits, '.', '_' and '-'"
                )
            if cluster != self.cluster or ((cluster or name != bare) and not _CLUSTER.fullmatch(cluster)):
                raise JobDefinitionError(
                    f"topic {name!r}: cluster= is one section [cluster.NAME] of the settings, of small letters, "
                    "digits, '_' and '-', for all topics of an input"
                )
        _check_time(self.name, self.event_time, self.watermark)
        if self.event_time is not None and self.computed is None:
            time = event_time_of(f"topic {self.name!r}", self.event_time, self._has_column)
            object.__setattr__(self, "event_time", time.column)
            object.__setattr__(self, "computed", time.expression)
        parse_duration(self.max_ahead)
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise JobDefinitionError(f"topic {self.name!r}: {twice[0]!r} is named twice")
        if isinstance(self.format, str) and self.format not in _NAMED:
            raise JobDefinitionError(
                f"topic {self.name!r}: format {self.format!r} is not one of 'json', 'csv', 'access', 'syslog', "
                "hw.csv(...), hw.avro(...), hw.protobuf(...), hw.access_log(...), hw.syslog(...), hw.key_value(...), "
                "hw.template(...)"
            )
        form = self._declared_format
        if form is None or isinstance(form, Csv):
            if self.schema is None:
                raise JobDefinitionError(
                    f"topic {self.name!r}: schema= names the columns of its {'JSON' if form is None else 'CSV'}, "
                    "as 'name TYPE, name TYPE'"
                )
        elif self.schema is not None:
            raise JobDefinitionError(
                f"topic {self.name!r}: the format {form.name!r} has columns of its own; "
                "leave schema= out and select in the job"
            )
        if self.max_offsets_per_batch < 1:
            raise JobDefinitionError(f"topic {self.name!r}: max_offsets_per_batch must be 1 or more")

    @property
    def names(self) -> tuple[str, ...]:
        """The topics."""
        return (self.name, *self.more)

    def _has_column(self, name: str) -> bool:
        """Whether the value has a column of a name with other characters than letters, digits and '_'."""
        columns = self.format.schema if isinstance(self.format, Parser) else self.schema
        if columns is None:
            return False
        # Such a name is quoted wherever DDL has it.
        return quoted(name) in columns if isinstance(columns, str) else name in columns.fieldNames()

    @property
    def cluster(self) -> str:
        """The section `[cluster.NAME]` of the settings that says where the topics are; empty for `[client]`."""
        return cluster_of(self.name)

    @property
    def value_format(self) -> Csv | Avro | Protobuf | JsonSchema | Parser | None:
        """The format of the values; None for JSON without a header. Where their schemas are in a registry, it is asked.

        Raises:
            JobDefinitionError: The registry does not know the subject.
            UnavailableError: It does not answer.
        """
        form = self._declared_format
        if not isinstance(form, Registered):
            return form
        try:
            return form.resolved
        except (JobDefinitionError, UnavailableError) as error:
            raise type(error)(f"topic {self.name!r}: {error}") from error

    @property
    def _declared_format(self) -> Csv | Avro | Protobuf | Parser | Registered | None:
        return _NAMED[self.format] if isinstance(self.format, str) else self.format


@dataclass(frozen=True)
class TableInput:
    """Rows of a Delta table that another job writes, read commit by commit.

    A job that begins after a backfill has replaced some or all of the rows, or after the table's log was cut, first
    reads all rows of the table as they are then.

    Rows must stay as they were written: tables of mode `"append"`, no dimensions. A row of a join has the coordinates
    of its left row, and a window those of its first record; windows are read by row-by-row jobs. Such a job with an
    `event_time` stands between stateful jobs (a function may have several operators, too, see `job`); here windows of
    an hour write the first table, and a job that filters it the second one:

        hourly = hw.table("gold.hourly", event_time="window_start")
        busy = hw.table("silver.busy", event_time="window_start", watermark="1 second")

    Attributes:
        name: The table, `"silver.departures"`.
        event_time: The column that says when the event happened.
        watermark: How far behind the greatest event time seen a row may be and still count.
        record: Of the columns of records, `_key` and `_headers`, those that the table keeps for this job.
    """

    name: str
    event_time: str | None = None
    watermark: str | None = None
    record: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        require_table_name("table", self.name)
        _check_time(self.name, self.event_time, self.watermark)


Input = TopicInput | TableInput


def topic(
    name: str,
    *more: str,
    schema: str | None = None,
    event_time: str | None = None,
    watermark: str | None = None,
    format: Format = "json",  # noqa: A002 - the word that Spark's readers use
    max_ahead: str = "1 day",
    max_offsets_per_batch: int = OFFSETS_PER_BATCH,
    cluster: str | None = None,
    registry: bool | str = False,
    subject: str | None = None,
) -> TopicInput:
    """Declares a topic, or several with values alike, as an input; see `TopicInput` for the arguments.

    `cluster="payments"` reads from the brokers of `[cluster.payments]` in the settings, in place of those of `[client]`
    and `--bootstrap`. Ledger, `_topic` and commands call such a topic `payments:orders`.

    `registry=True` takes the columns from the newest schema of the subject `NAME-value`, or of `subject=`, in the
    schema registry of the settings, of the running stack, or of `registry="http://HOST:PORT"`. Values begin with the
    header of Confluent's wire format; those of Avro are read by the schemas that they were written with. The registry
    is asked when the job is planned, and for Avro once for each id that is new.
    """
    if registry:
        if schema is not None or format != "json":
            raise JobDefinitionError(
                f"topic {name!r}: the registry says the columns and the format; leave schema= and format= out"
            )
        format = registered(name, registry, subject)  # noqa: A001
    elif subject is not None:
        raise JobDefinitionError(f"topic {name!r}: subject= is for registry=True")
    if cluster is not None:
        name, *others = (f"{cluster}:{each}" for each in (name, *more))
        more = tuple(others)
    return TopicInput(name, schema, event_time, watermark, format, max_ahead, max_offsets_per_batch, more)


def table(name: str, *, event_time: str | None = None, watermark: str | None = None) -> TableInput:
    """Declares a Delta table as an input; see `TableInput` for the arguments."""
    return TableInput(name, event_time, watermark)


def _check_time(name: str, event_time: str | None, watermark: str | None) -> None:
    if watermark is not None:
        parse_duration(watermark)
        if event_time is None:
            raise JobDefinitionError(f"input {name!r}: a watermark needs event_time=, the column it is about")
