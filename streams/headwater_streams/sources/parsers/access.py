r"""Access logs of web servers: the common and the combined log format of Apache httpd, which nginx and others write.

    192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.0" 200 2326 "http://x/" "Mozilla/5.0"

https://httpd.apache.org/docs/2.4/logs.html#accesslog. The last two fields are the combined format's. Two more may
follow, as in the log_format that nginx ships (`"$http_x_forwarded_for"`) and where people add the time that a request
took. A number with a fraction is in seconds (nginx's `$request_time`); the unit of a whole number is an argument of
`access_log` (Apache's `%T` is in seconds, `%D` in microseconds). A whole number without a unit, which may be bytes, the
two of Apache's combinedio (`%I %O`) and a number in quotes (nginx's `"$gzip_ratio"`) are ignored. The virtual host may
come first (Apache's vhost_combined, `%v:%p`).
"""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.parsers.parser import (
    BLANKS,
    FIRST_BLANKS,
    LEAP,
    QUOTED,
    Parser,
    let,
    match,
    unescaped,
    unless,
    why_of_parts,
)

SCHEMA = T.StructType(
    [
        T.StructField("host", T.StringType()),
        T.StructField("ident", T.StringType()),
        T.StructField("user", T.StringType()),
        T.StructField("time", T.TimestampType()),
        T.StructField("request", T.StringType()),
        T.StructField("method", T.StringType()),
        T.StructField("path", T.StringType()),
        T.StructField("query", T.StringType()),
        T.StructField("protocol", T.StringType()),
        T.StructField("status", T.IntegerType()),
        T.StructField("bytes", T.LongType()),
        T.StructField("referer", T.StringType()),
        T.StructField("agent", T.StringType()),
        T.StructField("forwarded_for", T.StringType()),
        T.StructField("took_s", T.DoubleType()),
        T.StructField("virtual_host", T.StringType()),
    ]
)
"""`request` is the request line as it was logged. `method` to `protocol` are null where it is no request line, as from
scanners that speak TLS to a plain port; `path` is null where it is empty. `bytes` is 0 where the log has `-`; elsewhere
`-` is null. `virtual_host` is as it was logged, with its port."""

_B = BLANKS
_TIME = (
    r"([0-3][0-9]/[A-Z][a-z]{2}/[0-9]{4}:[0-2][0-9]:"
    rf"(?:[0-5][0-9]:[0-5][0-9]|{LEAP}) [+-][0-9]{{4}})"
)
_ADDRESS = r"(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]++)"
# A name with a port, or one before an address: two names could as well be the client's and its identity, and of two
# addresses the first may be that for which a proxy speaks.
_VIRTUAL_HOST = (
    r"(?:(?!unknown[ \t])((?:[\w.*-]++|\[[0-9A-Fa-f:.]++\])"
    rf"(?::[0-9]{{1,5}}+|(?<=[A-Za-z_][0-9]{{0,4}})(?={_B}{_ADDRESS}[ \t]))){_B}(?!-[ \t]))?"
)
_HOST = r'([^ \t\r\n",]++)'
# A field more before the host shifts the others: then the client's address stands where the identity should, or a "-"
# is a word of the user's name. A name may have spaces in it (Apache escapes none).
_IDENT = rf'(?!{_ADDRESS}[ \t,])("-"|[^ \t\r\n",]++)'
_USER = r"(?:((?!-[ \t]++(?!\[)|[^\[]*[ \t]-[ \t]*\[)[^\[]*?[^\[\s])[ \t]++|(?<=[ \t]{2}))"
_TOOK = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_SIZES = rf"{_B}[0-9]{{1,18}}{_B}[0-9]{{1,18}}"
# Some servers do not escape quotes in what a client sends: one that ends no field belongs to the text. Behind one that
# ends the agent may stand more than is known here, as `0.012 0.010 "-"` and `rt=0.012 uct="0.001"`: no part of it.
_NEXT = rf'{_B}(?:"|(?:{_TOOK}|-){_B}|[\w.-]++=)'
_ENDS = rf"(?:{_NEXT}|(?:{_B}{_TOOK}|{_SIZES})?[ \t]*+\r?\n?\z)"
# Who escapes some quotes escapes all: `\"` before a quote that ends no field is a backslash at the end of the agent.
_AGENT = rf'"((?:[^"\\]++|\\.)*+(?="{_ENDS})|(?:[^"\\]++|\\[^"]|"(?!{_ENDS}))*+)"'
_RATIO = r'"[0-9]{1,9}\.[0-9]{1,9}"'
_MORE = rf"(?:{_B}{QUOTED}{_B}{_AGENT}(?:{_B}(?:{_RATIO}|{QUOTED}))?(?:{_B}({_TOOK})|{_SIZES})?)?"
# Two words are a request if the last is a protocol, or if they look like one of HTTP/0.9, which names none. nginx logs
# `GET  HTTP/1.1` of a client that sent no path.
_PROTOCOL = r"(?:HTTP|RTSP|SIP)/[0-9](?:\.[0-9])?"
_REQUEST = (
    rf"(?=[A-Z]++{_B}(?:/|[a-z]++://)|.*[ \t]{_PROTOCOL}[ \t]*+\z)"
    rf"([A-Za-z][A-Za-z_-]*+)(?:{_B}(?!{_PROTOCOL}[ \t]*+\z)([^?]*?)(?:\?(.*?))?)?"
    rf"(?:{FIRST_BLANKS}({_PROTOCOL}))?(?:{FIRST_BLANKS})?"
)
# One without blanks and escapes in its path is taken apart on the way, which saves most lines a second expression.
_PLAIN = rf'([A-Z]++) ([^?"\\\s]++)(?:\?([^"\\\s]*+))? ({_PROTOCOL})(?=")'
_QUOTED_REQUEST = QUOTED.replace("(", f"((?:{_PLAIN})?+", 1)
_PARTS = (
    ("client's address", rf"{_VIRTUAL_HOST}{_HOST}{_B}"),
    ("identity", rf"{_IDENT}{_B}"),
    ("user", _USER),
    ("time", rf"\[{_TIME}\]{_B}"),
    ("request", rf"{_QUOTED_REQUEST}{_B}"),
    ("status", rf"([0-9]{{3}}|-){_B}"),
    ("size", r"([0-9]{1,18}|-)(?!\S)"),
    ("end, behind the size,", rf"{_MORE}[ \t]*+"),
)


_IN_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def access_log(*, took_unit: Literal["s", "ms", "us"] | None = None) -> Parser:
    """Access logs, common or combined; `referer` and what follows it are null in the common format.

    Args:
        took_unit: The unit of a whole number behind the agent, which becomes `took_s`: "s" (Apache's `%T`), "ms"
            (`%{ms}T`) or "us" (`%D`). Without it `took_s` is null. A number with a fraction is always in seconds.

    Raises:
        JobDefinitionError: There is no such unit.
    """
    if took_unit is not None and took_unit not in _IN_A_SECOND:
        raise JobDefinitionError(f"access_log: took_unit={took_unit!r} is not one of 's', 'ms', 'us'")

    def parse(text: Column, _timestamp: Column) -> Column:
        return match(text, _LINE, 16, lambda fields: _build(fields, took_unit))

    return Parser("access", SCHEMA, parse, took_unit or "", lambda text: why_of_parts(text, _PARTS, "time"))


def _is_whole(number: Column) -> Column:
    return (number != "") & ~F.contains(number, F.lit("."))


def _took_s(number: Column, unit: str | None) -> Column:
    seconds = unless(number, "").try_cast("double")
    of_whole = F.lit(None) if unit is None else seconds / _IN_A_SECOND[unit]
    return F.when(_is_whole(number), of_whole).otherwise(seconds)


def _build(fields: Sequence[Column], took_unit: str | None) -> Column:
    virtual_host, host, ident, user, time, request, *plain = fields[:10]
    status, size, referer, agent, forwarded_for, took = fields[10:]
    when = _instant(time)
    other = match(request, _REQUEST, 4, lambda groups: F.array(*groups))
    line = F.when(plain[0] != "", F.array(*plain)).otherwise(other)

    def row(parsed: Column) -> Column:
        method, path, query, protocol = (F.get(parsed["line"], F.lit(place)) for place in range(4))
        columns = [
            host,
            unless(ident, "-", '"-"'),
            unless(user, "-", "", '""'),
            parsed["time"],
            unless(request, "-", ""),
            method,
            unless(path, ""),
            unless(query, ""),
            unless(protocol, ""),
            status.try_cast("int"),
            F.when(size == "-", F.lit(0)).otherwise(size.try_cast("long")),
            unless(unescaped(referer), "-", ""),
            unless(unescaped(agent), "-", ""),
            unless(unescaped(forwarded_for), "-", ""),
            _took_s(took, took_unit),
            unless(virtual_host, ""),
        ]
        named = [column.alias(field.name) for column, field in zip(columns, SCHEMA.fields, strict=True)]
        return F.when(parsed["time"].isNotNull(), F.struct(*named))

    return let(F.struct(when.alias("time"), line.alias("line")), row)


def _instant(time: Column) -> Column:
    """A leap second is the first of the next minute, as in POSIX."""
    form, is_leap = F.lit("dd/MMM/yyyy:HH:mm:ss Z"), F.substring(time, 19, 2) == "60"
    before = F.try_to_timestamp(F.regexp_replace(time, ":60 ", ":59 "), form)
    return F.when(is_leap, before + F.expr("INTERVAL 1 SECOND")).otherwise(F.try_to_timestamp(time, form))


_LINE = "".join(pattern for _, pattern in _PARTS)
ACCESS = access_log()
"""Access logs without a `took_unit`."""
