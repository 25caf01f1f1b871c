"""The job API: what `import headwater as hw` gives."""

from headwater_streams.base.check import Check
from headwater_streams.base.target import DeltaTarget, delta
from headwater_streams.delta.scd_target import ScdTarget, scd1, scd2
from headwater_streams.operators.aggregates import KeyGroups, grouped, latest, top
from headwater_streams.operators.dedup import ByKey, ByOffset, BySequence, by_key, by_offset, by_sequence
from headwater_streams.operators.joins.as_of import AsOf, as_of
from headwater_streams.operators.joins.enrich import enrich
from headwater_streams.operators.joins.interval import IntervalJoin, join
from headwater_streams.operators.joins.union import union
from headwater_streams.operators.windows import (
    CountWindow,
    CumulativeWindow,
    HoppingWindow,
    SessionWindow,
    TumblingWindow,
    count_window,
    cumulative,
    hopping,
    session,
    tumbling,
)
from headwater_streams.plan.job import check, job
from headwater_streams.quality import expect
from headwater_streams.sources.avro_value import Avro, avro
from headwater_streams.sources.csv_value import Csv, csv
from headwater_streams.sources.inputs import TableInput, TopicInput, table, topic
from headwater_streams.sources.lookup import LookupInput, lookup
from headwater_streams.sources.parsers import Parser, access_log, key_value, syslog, template
from headwater_streams.sources.protobuf_value import Protobuf, protobuf

__all__ = [
    "AsOf",
    "Avro",
    "ByKey",
    "ByOffset",
    "BySequence",
    "Check",
    "CountWindow",
    "Csv",
    "CumulativeWindow",
    "DeltaTarget",
    "HoppingWindow",
    "IntervalJoin",
    "KeyGroups",
    "LookupInput",
    "Parser",
    "Protobuf",
    "ScdTarget",
    "SessionWindow",
    "TableInput",
    "TopicInput",
    "TumblingWindow",
    "access_log",
    "as_of",
    "avro",
    "by_key",
    "by_offset",
    "by_sequence",
    "check",
    "count_window",
    "csv",
    "cumulative",
    "delta",
    "enrich",
    "expect",
    "grouped",
    "hopping",
    "job",
    "join",
    "key_value",
    "latest",
    "lookup",
    "protobuf",
    "scd1",
    "scd2",
    "session",
    "syslog",
    "table",
    "template",
    "top",
    "topic",
    "tumbling",
    "union",
]
