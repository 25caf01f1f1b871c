r"""Syslog: RFC 5424, and what RFC 3164 describes of older senders.

    <165>1 2003-10-11T22:14:15.003Z host app 111 ID47 [example@32473 iut="3" class="a \"b\""] An event
    <34>Oct 11 22:14:15 host su[230]: 'su root' failed

`old_syslog` says what the older form may look like. A message that has a priority and no time, or RFC 5424's `-` for
it, is of its record's timestamp.
"""

import re
from collections.abc import Sequence
from zoneinfo import available_timezones

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.nearest import nearest
from headwater_streams.sources.parsers.old_syslog import NO_VERSION, old_form
from headwater_streams.sources.parsers.old_syslog_time import unknown_zone, wrong_date
from headwater_streams.sources.parsers.parser import Parser, let, match, unescaped, unless, why_of_parts
from headwater_streams.sources.wrong_fields import excerpt

_PARAMETER = T.StructType([T.StructField(name, T.StringType()) for name in ("id", "name", "value")])
SCHEMA = T.StructType(
    [
        T.StructField("facility", T.IntegerType()),
        T.StructField("severity", T.IntegerType()),
        T.StructField("version", T.IntegerType()),
        T.StructField("time", T.TimestampType()),
        T.StructField("host", T.StringType()),
        T.StructField("app", T.StringType()),
        T.StructField("pid", T.StringType()),
        T.StructField("message_id", T.StringType()),
        T.StructField("structured_data", T.ArrayType(_PARAMETER)),
        T.StructField("message", T.StringType()),
    ]
)
"""`structured_data` has one entry for each parameter (an element may repeat a name, of which a map would lose values),
and one with null name and value for an element without parameters. `version` is null for RFC 3164."""

_VALUE = r'"([^"\\\]]*+(?:\\.[^"\\\]]*+)*+)"'
_NAME = r'[^\s=\]"]++'
# The examples of RFC 5424, section 6.5, have a blank behind "=" where lines were broken, and so have copies of them.
_ELEMENT = rf"\[{_NAME}(?: {_NAME}= ?{_VALUE.replace('(', '(?:', 1)})*+\]"
_HEAD = r"<([0-9]{1,3})>([1-9][0-9]{0,2}) "
_PRIORITY = "<(?:0?[0-9]{1,2}|1[0-8][0-9]|19[01])>"
_PARTS = (
    ("head", _HEAD),
    ("time", r"(-|[0-9]{4}-[0-9-]{5}T[0-9:]{8}(?:\.[0-9]{1,9}+)?(?:Z|[+-][0-9:]{5})) "),
    ("host", r"(\S++) "),
    ("program", r"(\S++) "),
    ("process", r"(\S++) "),
    ("message's id", r"(\S++) "),
    ("structured data", rf"(-|(?:{_ELEMENT})++)"),
    ("message", r"(?: \x{feff}?(.*)(?<![\r\n])[\r\n]*+)?"),
)
_NEW = "".join(pattern for _, pattern in _PARTS)
_PLAIN_ZONE = re.compile(r"UTC|GMT|Z|(?:UTC|GMT)?[+-](?:0[0-9]|1[0-7]):[0-5][0-9]")
_NOT_OF_JAVA = {"EST", "Factory", "GMT+0", "GMT-0", "HST", "MST", "ROC", "localtime"}
"""Zones that Python knows and Java does not."""


def syslog(zone: str = "UTC") -> Parser:
    """Syslog of both RFCs.

    RFC 3164's time has no year. It gets the latest year in which it is no more than a day after the record's timestamp:
    a line that was logged on 31 December and shipped on 1 January keeps its year, and old files are not in the future.

    Args:
        zone: The time zone of times without one, as RFC 3164's: "UTC", "+02:00", "Europe/Berlin".

    Raises:
        JobDefinitionError: There is no such zone.
    """
    _require_zone(zone)

    def parse(text: Column, timestamp: Column) -> Column:
        new = match(text, _NEW, 9, lambda fields: _build(fields, timestamp))
        old = old_form(text, timestamp, zone, _row_of_old)
        return F.when(text.rlike(rf"\A{_HEAD}"), new).otherwise(old)

    return Parser("syslog", SCHEMA, parse, zone, _why)


def _require_zone(zone: str) -> None:
    """Checks that a zone is an offset or has a known name, where this machine has a list of them.

    Raises:
        JobDefinitionError: It is neither.
    """
    if _PLAIN_ZONE.fullmatch(zone):
        return
    zones = available_timezones() - _NOT_OF_JAVA
    if zones and zone not in zones:
        raise JobDefinitionError(
            f"syslog: zone={zone!r} is not a time zone; write an offset, as '+02:00', or a name: "
            f"{nearest(zone, sorted(zones))}"
        )


def _why(text: Column) -> Column:
    new = why_of_parts(text, _PARTS, "time or priority")
    zone, date = unknown_zone(text), wrong_date(text)
    advice = "is not the name of a zone that is known; let its sender write the offset, as +02:00, or UTC"
    named = F.when(zone != "", F.concat(zone, F.lit(f" behind its time {advice}")))
    dated = F.when(date != "", F.concat(F.lit("its date, "), date, F.lit(", is in no calendar")))
    old = F.coalesce(dated, named, F.lit("no form of its time and its host is known"))
    other_priority = text.startswith("<") & ~text.rlike(rf"\A{_PRIORITY}")
    of_part = F.when(other_priority, F.lit("priority")).when(
        text.rlike(rf"\A<[0-9]{{1,3}}>{NO_VERSION}"), F.lit("version")
    )
    part = F.concat(F.lit("its "), of_part, F.lit(" is not as it should be: "), excerpt(text))
    return F.when(text.rlike(rf"\A{_HEAD}"), new).otherwise(F.coalesce(part, old))


def _build(fields: Sequence[Column], timestamp: Column) -> Column:
    priority, version, time, host, app, pid, message_id, data, message = fields
    columns = [
        unless(host, "-"),
        unless(app, "-"),
        unless(pid, "-"),
        unless(message_id, "-"),
        F.when(data != "-", _parameters(data)),
        unless(message, ""),
    ]
    return let(
        F.when(time == "-", timestamp).otherwise(F.try_to_timestamp(time)),
        lambda when: _row(priority, [version.cast("int"), when, *columns], when.isNotNull()),
    )


def _row_of_old(
    priority: Column, time: Column, host: Column, app: Column, pid: Column, message: Column
) -> Column:
    nothing, data = F.lit(None).cast("string"), F.lit(None).cast(T.ArrayType(_PARAMETER))
    texts = [unless(column, "") for column in (host, app, pid)]
    columns = [nothing.cast("int"), time, *texts, nothing, data, unless(message, "")]
    return _row(priority, columns, time.isNotNull())


def _row(priority: Column, columns: Sequence[Column], good: Column) -> Column:
    number = unless(priority, "").try_cast("int")
    every = [F.shiftright(number, 3), number.bitwiseAND(F.lit(7)), *columns]
    named = [column.alias(field.name) for column, field in zip(every, SCHEMA.fields, strict=True)]
    # RFC 5424, section 6.2.1: facilities end at 23.
    return F.when(good & (F.coalesce(number, F.lit(0)) <= 191), F.struct(*named))


def _parameters(data: Column) -> Column:
    def of_element(element: Column) -> Column:
        name = F.regexp_extract(element, rf"\A\[({_NAME})", 1)
        pairs = F.regexp_extract_all(element, F.lit(rf" ({_NAME})= ?{_VALUE}"), F.lit(1))
        values = F.regexp_extract_all(element, F.lit(rf" ({_NAME})= ?{_VALUE}"), F.lit(2))
        entries = F.transform(
            F.arrays_zip(pairs.alias("n"), values.alias("v")),
            lambda pair: F.struct(
                name.alias("id"), pair["n"].alias("name"), unescaped(pair["v"]).alias("value")
            ),
        )
        nothing = F.lit(None).cast("string")
        alone = F.array(F.struct(name.alias("id"), nothing.alias("name"), nothing.alias("value")))
        return F.when(F.size(pairs) > 0, entries).otherwise(alone)

    several = F.regexp_extract_all(data, F.lit(f"({_ELEMENT})"), F.lit(1))
    elements = F.when(F.contains(data, F.lit("][")), several).otherwise(F.array(data))
    return F.flatten(F.transform(elements, of_element))


SYSLOG = syslog()
"""Syslog whose times without a zone are UTC."""
