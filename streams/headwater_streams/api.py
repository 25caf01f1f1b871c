"""The job API: what `import headwater as hw` gives."""

from headwater_streams.aggregates import KeyGroups, grouped, latest, top
from headwater_streams.dedup import ByKey, ByOffset, BySequence, by_key, by_offset, by_sequence
from headwater_streams.joins.interval import IntervalJoin, join
from headwater_streams.quality.check import Check
from headwater_streams.runtime.job import check, job
from headwater_streams.sinks.target import DeltaTarget, delta
from headwater_streams.sources.inputs import TableInput, TopicInput, table, topic
from headwater_streams.sources.parsers import Parser, key_value, syslog, template
from headwater_streams.windows import (
    CumulativeWindow,
    HoppingWindow,
    SessionWindow,
    TumblingWindow,
    cumulative,
    hopping,
    session,
    tumbling,
)

__all__ = [
    "ByKey",
    "ByOffset",
    "BySequence",
    "Check",
    "CumulativeWindow",
    "DeltaTarget",
    "HoppingWindow",
    "IntervalJoin",
    "KeyGroups",
    "Parser",
    "SessionWindow",
    "TableInput",
    "TopicInput",
    "TumblingWindow",
    "by_key",
    "by_offset",
    "by_sequence",
    "check",
    "cumulative",
    "delta",
    "grouped",
    "hopping",
    "job",
    "join",
    "key_value",
    "latest",
    "session",
    "syslog",
    "table",
    "template",
    "top",
    "topic",
    "tumbling",
]
