"""The job API: what `import headwater as hw` gives."""

from headwater_streams.dedup.by_offset import ByOffset, by_offset
from headwater_streams.joins.interval import IntervalJoin, join
from headwater_streams.quality.check import Check
from headwater_streams.runtime.job import check, job
from headwater_streams.sinks.target import DeltaTarget, delta
from headwater_streams.sources.inputs import TableInput, TopicInput, table, topic
from headwater_streams.sources.parsers import Parser, key_value, syslog, template
from headwater_streams.windows.tumbling import TumblingWindow, tumbling

__all__ = [
    "ByOffset",
    "Check",
    "DeltaTarget",
    "IntervalJoin",
    "Parser",
    "TableInput",
    "TopicInput",
    "TumblingWindow",
    "by_offset",
    "check",
    "delta",
    "job",
    "join",
    "key_value",
    "syslog",
    "table",
    "template",
    "topic",
    "tumbling",
]
