r"""Syslog: RFC 5424, and what RFC 3164 describes of older senders.

    <165>1 2003-10-11T22:14:15.003Z host app 111 ID47 [example@32473 iut="3" class="a \"b\""] An event
    <34>Oct 11 22:14:15 host su[230]: 'su root' failed

The older form may lack its priority (as in files that syslogd writes), have a year, or an ISO 8601 time; and its host,
as what a program sends to its own machine. A message that has a priority and no time is of its record's timestamp.
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

_DAY_US = 86_400_000_000
_ALMOST_A_YEAR_US = 363 * _DAY_US
_VALUE = r'"([^"\\\]]*+(?:\\.[^"\\\]]*+)*+)"'
_NAME = r'[^\s=\]"]++'
_ELEMENT = rf"\[{_NAME}(?: {_NAME}={_VALUE.replace('(', '(?:', 1)})*+\]"
_NEW = (
    r"<([0-9]{1,3})>([1-9][0-9]{0,2}) (-|[0-9]{4}-\S+) (\S+) (\S+) (\S+) (\S+) "
    rf"(-|(?:{_ELEMENT})++)(?: \x{{feff}}?(.*))?"
)
_DATE = r"([A-Z][a-z]{2}) {1,2}([0-9]{1,2})(?: ([0-9]{4}))? ([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,6})?"
_ISO = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T\S+)"
# As rsyslog has it: a word that ends otherwise is the beginning of the message.
_HOST = r"(?:([A-Za-z0-9._:%/@-]++)(?<=[A-Za-z0-9._]|::) )?"
_TAG = r"(?:([^\s\[:]{1,64}+)(?:\[([^\]\s]{1,128}+)\])?: ?)?"
_OLD = rf"(?:<([0-9]{{1,3}})>)?(?:{_DATE}|{_ISO}) {_HOST}{_TAG}(.*)"
_TIMELESS = rf"<([0-9]{{1,3}})>(?![A-Z][a-z]{{2}} {{1,2}}[0-9]|[0-9]{{4}}-|\s|\z){_TAG}(.*)"


def syslog(zone: str = "UTC") -> Parser:
    """Syslog of both RFCs.

    RFC 3164's time has no year: it is the latest that brings it to no more than a day behind the record's timestamp, so
    that what was logged on 31 December and shipped on 1 January keeps its year, and old files are not of the future.

    Args:
        zone: The time zone of RFC 3164's times, which name none: "UTC", "Europe/Berlin".
    """

    def parse(text: Column, timestamp: Column) -> Column:
        new = match(text, _NEW, 9, _build_new)
        old = match(text, _OLD, 11, lambda fields: _build_old(fields, timestamp, zone))
        timeless = match(text, _TIMELESS, 4, lambda fields: _build_timeless(fields, timestamp))
        older = F.coalesce(old, timeless)
        return F.coalesce(new, F.when(~text.rlike(r"\A<[0-9]{1,3}>[1-9][0-9]{0,2} "), older))

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

    def before(found: Column) -> Column:
        return F.unix_micros(timestamp) + _DAY_US - F.unix_micros(found)

    def latest() -> Column:
        # 29 February is in one year of four, or of eight.
        times = [dated(F.year(timestamp) + more) for more in range(-8, 2)]
        return F.array_max(F.filter(F.array(*times), lambda found: before(found) >= 0))

    # Within a year the record's own year is the latest, and one time is read instead of ten.
    this_year = let(
        dated(F.year(timestamp)),
        lambda found: F.when(before(found).between(0, _ALMOST_A_YEAR_US), found).otherwise(latest()),
    )
    when = F.when(iso != "", F.try_to_timestamp(iso)).when(year != "", dated(year)).otherwise(this_year)
    columns = _columns_of_old(unless(host, ""), app, pid, message)
    return let(when, lambda time: _row(priority, [nothing.cast("int"), time, *columns], time.isNotNull()))


def _build_timeless(fields: Sequence[Column], timestamp: Column) -> Column:
    priority, app, pid, message = fields
    nothing = F.lit(None).cast("string")
    columns = _columns_of_old(nothing, app, pid, message)
    return _row(priority, [nothing.cast("int"), timestamp, *columns], timestamp.isNotNull())


def _columns_of_old(host: Column, app: Column, pid: Column, message: Column) -> list[Column]:
    data = F.lit(None).cast(T.ArrayType(_PARAMETER))
    return [host, unless(app, ""), unless(pid, ""), F.lit(None).cast("string"), data, unless(message, "")]


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
