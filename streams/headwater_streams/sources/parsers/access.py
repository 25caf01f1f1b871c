r"""Access logs of web servers: the common and the combined log format of Apache httpd, which nginx and others write.

    192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.0" 200 2326 "http://x/" "Mozilla/5.0"

https://httpd.apache.org/docs/2.4/logs.html#accesslog. The last two fields are the combined format's. Two more may
follow, as in the log_format that nginx ships (`"$http_x_forwarded_for"`) and where people add the seconds that a
request took (nginx's `$request_time`, Apache's `%T`).
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.parsers.parser import QUOTED, Parser, let, match, unescaped, unless

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
    ]
)
"""`request` is the request line as it was logged; `method` to `protocol` are null where it is no request line, as from
scanners that speak TLS to a plain port. `bytes` is 0 where the log has `-`. Elsewhere `-` is null."""

_TIME = r"([0-3][0-9]/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4})"
# A user's name may have spaces in it (Apache escapes none). A field more before the host shifts the others: then a "-"
# is a word of the name, or the client's address stands where the identity should.
_USER = r"((?!- (?!\[)|[^\[]* - ?\[)[^\[]*?)"
_IDENT = r"(?!(?:[0-9]{1,3}\.){3}[0-9]{1,3}[ ,])(\S+)"
# Some servers do not escape quotes in what a client sends: one that ends no field belongs to the text.
_TOOK = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_AGENT = rf'"((?:[^"\\]++|\\.|"(?! "| {_TOOK}\z|\z))*+)"'
_MORE = rf"(?: {QUOTED} {_AGENT}(?: {QUOTED})?(?: ({_TOOK}))?)?"
_LINE = rf"(\S+) {_IDENT} {_USER} \[{_TIME}\] {QUOTED} ([0-9]{{3}}|-) ([0-9]{{1,18}}|-){_MORE}"
_REQUEST = r"([A-Za-z][A-Za-z_-]*+) ([^?]*?)(?:\?(.*?))?(?: (HTTP/[0-9](?:\.[0-9])?))?"


def _build(fields: Sequence[Column]) -> Column:
    host, ident, user, time, request, status, size, referer, agent, forwarded_for, took_s = fields
    when = F.try_to_timestamp(time, F.lit("dd/MMM/yyyy:HH:mm:ss Z"))
    line = match(request, _REQUEST, 4, lambda found: F.array(*found))

    def row(known: Column) -> Column:
        method, path, query, protocol = (F.get(known["line"], F.lit(place)) for place in range(4))
        columns = [
            host,
            unless(ident, "-"),
            unless(user, "-", ""),
            known["time"],
            unless(request, "-", ""),
            method,
            path,
            unless(query, ""),
            unless(protocol, ""),
            status.try_cast("int"),
            F.when(size == "-", F.lit(0)).otherwise(size.try_cast("long")),
            unless(unescaped(referer), "-", ""),
            unless(unescaped(agent), "-", ""),
            unless(unescaped(forwarded_for), "-", ""),
            unless(took_s, "").try_cast("double"),
        ]
        named = [column.alias(field.name) for column, field in zip(columns, SCHEMA.fields, strict=True)]
        return F.when(known["time"].isNotNull(), F.struct(*named))

    return let(F.struct(when.alias("time"), line.alias("line")), row)


ACCESS = Parser("access", SCHEMA, lambda text, _: match(text, _LINE, 11, _build))
"""Access logs, common or combined; `referer` and what follows it are null in the common format."""
