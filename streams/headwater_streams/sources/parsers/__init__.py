"""Lines of logs to rows: access logs, syslog, key=value, and a template for one's own.

A parser is a function of Spark expressions (no Python runs for a row): from a line and its record's timestamp to a
struct, which is null where the line does not parse, so that the record goes to quarantine with its raw bytes. A byte
order mark before a line is ignored. JSON lines need no parser: a line is a value of `format="json"`.
"""

from headwater_streams.sources.parsers.access import ACCESS, access_log
from headwater_streams.sources.parsers.key_value import key_value
from headwater_streams.sources.parsers.parser import Parser
from headwater_streams.sources.parsers.syslog import SYSLOG, syslog
from headwater_streams.sources.parsers.template import template

__all__ = ["ACCESS", "SYSLOG", "Parser", "access_log", "key_value", "syslog", "template"]
