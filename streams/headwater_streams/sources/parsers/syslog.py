r"""Syslog: RFC 5424, and what RFC 3164 describes of older senders.

    <165>1 2003-10-11T22:14:15.003Z host app 111 ID47 [example@32473 iut="3" class="a \"b\""] An event
    <34>Oct 11 22:14:15 host su[230]: 'su root' failed

The older form may lack its priority (as in files that syslogd writes), have a year, or an ISO 8601 time.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.parsers.parser import Parser, let, match, unescaped, unless

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
"""`structured_data` has one entry for each parameter (an element may repeat a name, so that a map would lose some), and
one with null name and value for an element without parameters. `version` is null for RFC 3164."""

_HALF_A_YEAR_US = 180 * 86_400_000_000
_VALUE = r'"([^"\\\]]*+(?:\\.[^"\\\]]*+)*+)"'
_NAME = r'[^\s=\]"]++'
_ELEMENT = rf"\[{_NAME}(?: {_NAME}={_VALUE.replace('(', '(?:', 1)})*+\]"
_NEW = (
    r"<([0-9]{1,3})>([1-9][0-9]{0,2}) (-|[0-9]{4}-\S+) (\S+) (\S+) (\S+) (\S+) "
    rf"(-|(?:{_ELEMENT})++)(?: \x{{feff}}?(.*))?"
)
_DATE = r"([A-Z][a-z]{2}) {1,2}([0-9]{1,2})(?: ([0-9]{4}))? ([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,6})?"
_ISO = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T\S+)"
_OLD = (
    rf"(?:<([0-9]{{1,3}})>)?(?:{_DATE}|{_ISO}) (\S+) "
    r"(?:([^\s\[:]{1,64}+)(?:\[([^\]\s]{1,128}+)\])?: ?)?(.*)"
)


def syslog(zone: str = "UTC") -> Parser:
    """Syslog of both RFCs.

    RFC 3164's time has no year: it is the one that brings it closest to the record's timestamp, so that what was
    logged on 31 December and shipped on 1 January keeps its year.

    Args:
        zone: The time zone of RFC 3164's times, which name none: "UTC", "Europe/Berlin".
    """

    def parse(text: Column, timestamp: Column) -> Column:
        new = match(text, _NEW, 9, _build_new)
        old = match(text, _OLD, 11, lambda fields: _build_old(fields, timestamp, zone))
        return F.coalesce(new, F.when(~text.rlike(r"\A<[0-9]{1,3}>[1-9][0-9]{0,2} "), old))

    return Parser("syslog", SCHEMA, parse, zone)


def _build_new(fields: Sequence[Column]) -> Column:
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
        F.try_to_timestamp(unless(time, "-")),
        lambda when: _row(priority, [version.cast("int"), when, *columns], when.isNotNull() | (time == "-")),
    )


def _build_old(fields: Sequence[Column], timestamp: Column, zone: str) -> Column:
    priority, month, day, year, clock, fraction, iso, host, app, pid, message = fields
    nothing = F.lit(None).cast("string")
    rest = F.concat(F.lit(" "), month, F.lit(" "), day, F.lit(" "), clock, fraction, F.lit(f" {zone}"))

    def dated(found: Column) -> Column:
        return F.try_to_timestamp(
            F.concat(found.cast("string"), rest), F.lit("yyyy MMM d HH:mm:ss[.SSSSSS] VV")
        )

    def apart(found: Column) -> Column:
        return F.abs(F.unix_micros(found) - F.unix_micros(timestamp))

    def nearest() -> Column:
        times = [dated(F.year(timestamp) + more) for more in (-1, 0, 1)]
        known = F.filter(F.array(*times), lambda found: found.isNotNull())
        return F.array_min(F.transform(known, lambda found: F.struct(apart(found), found.alias("time"))))[
            "time"
        ]

    # Within half a year the record's own year is the nearest, and one time is read instead of three.
    this_year = let(
        dated(F.year(timestamp)),
        lambda found: F.when(apart(found) < _HALF_A_YEAR_US, found).otherwise(nearest()),
    )
    when = F.when(iso != "", F.try_to_timestamp(iso)).when(year != "", dated(year)).otherwise(this_year)
    columns = [
        host,
        unless(app, ""),
        unless(pid, ""),
        nothing,
        F.lit(None).cast(T.ArrayType(_PARAMETER)),
        unless(message, ""),
    ]
    return let(when, lambda time: _row(priority, [nothing.cast("int"), time, *columns], time.isNotNull()))


def _row(priority: Column, columns: Sequence[Column], good: Column) -> Column:
    number = unless(priority, "").try_cast("int")
    every = [F.floor(number / 8).cast("int"), number % 8, *columns]
    named = [column.alias(field.name) for column, field in zip(every, SCHEMA.fields, strict=True)]
    # RFC 5424, section 6.2.1: facilities end at 23.
    return F.when(good & (F.coalesce(number, F.lit(0)) <= 191), F.struct(*named))


def _parameters(data: Column) -> Column:
    def of_element(element: Column) -> Column:
        name = F.regexp_extract(element, rf"\A\[({_NAME})", 1)
        pairs = F.regexp_extract_all(element, F.lit(rf" ({_NAME})={_VALUE}"), F.lit(1))
        values = F.regexp_extract_all(element, F.lit(rf" ({_NAME})={_VALUE}"), F.lit(2))
        entries = F.transform(
            F.arrays_zip(pairs.alias("n"), values.alias("v")),
            lambda pair: F.struct(
                name.alias("id"), pair["n"].alias("name"), unescaped(pair["v"]).alias("value")
            ),
        )
        nothing = F.lit(None).cast("string")
        alone = F.array(F.struct(name.alias("id"), nothing.alias("name"), nothing.alias("value")))
        return F.when(F.size(pairs) > 0, entries).otherwise(alone)

    return F.flatten(F.transform(F.regexp_extract_all(data, F.lit(f"({_ELEMENT})"), F.lit(1)), of_element))


SYSLOG = syslog()
"""Syslog whose times without a zone are UTC."""
