"""Lines of real logs to rows; what is not of the format gives null.

A table has lines of one parser with what they give. The lines of all tables of one kind of parser go through one Spark
job, when the first of these tables is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from math import inf, isnan
from typing import Any, Literal

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from headwater_streams.sources.parsers import ACCESS, SYSLOG, Parser, access_log, key_value, syslog, template

SHIPPED = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
Request = tuple[Parser, str | bytes, datetime]
TABLES: list["LineTable"] = []


@dataclass(frozen=True, eq=False)
class LineTable:
    """Lines of one parser, each with what it gives.

    Attributes:
        parser: The parser.
        columns: The names of the columns that are compared, with blanks between; if there are none, whole rows are, as
            dictionaries.
        expected: By line; None for a line that does not parse.
        shipped: The timestamp of its records.
    """

    parser: Parser
    columns: str
    expected: Mapping[Any, tuple[Any, ...] | dict[str, Any] | None]
    shipped: datetime = SHIPPED

    def __post_init__(self) -> None:
        TABLES.append(self)

    def requests(self) -> list[Request]:
        return [(self.parser, line, self.shipped) for line in self.expected]

    def outcome(self, row: Row | None) -> object:
        """What is compared of a row."""
        if row is None:
            return None
        return tuple(row[name] for name in self.columns.split()) if self.columns else row.asDict()


def parsed(spark: SparkSession, requests: Sequence[Request]) -> dict[Request, Row | None]:
    """Parses lines in one Spark job, with a column for each parser."""
    parsers = [*dict.fromkeys(parser for parser, _, _ in requests)]
    lines = [
        (place, parsers.index(parser), line.encode() if isinstance(line, str) else line, shipped)
        for place, (parser, line, shipped) in enumerate(requests)
    ]
    frame = spark.createDataFrame(lines, "place INT, parser INT, line BINARY, shipped TIMESTAMP")
    rows = frame.select(
        "place",
        *[
            F.when(F.col("parser") == number, parser(F.col("line"), F.col("shipped"))).alias(str(number))
            for number, parser in enumerate(parsers)
        ],
    )
    for number, parser in enumerate(parsers):
        assert rows.schema[str(number)].dataType == parser.columns()
    by_place = {row["place"]: row for row in rows.collect()}
    return {
        request: by_place[place][str(parsers.index(request[0]))] for place, request in enumerate(requests)
    }


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> Callable[[LineTable], dict[Any, Any]]:
    """What the lines of a table give, by line; times are as `at` has them."""

    @cache
    def rows_of(kind: str) -> dict[Request, Row | None]:
        requests = [each for table in TABLES if table.parser.name == kind for each in table.requests()]
        return parsed(spark, [*dict.fromkeys(requests)])

    def of_table(table: LineTable) -> dict[Any, Any]:
        rows = rows_of(table.parser.name)
        return {request[1]: table.outcome(rows[request]) for request in table.requests()}

    return of_table


Outcomes = Callable[[LineTable], dict[Any, Any]]


def at(text: str) -> datetime:
    """A time as Spark's collect() gives it: in the machine's zone, without saying so."""
    return datetime.fromisoformat(text).astimezone().replace(tzinfo=None)


ACCESS_COMBINED = LineTable(
    ACCESS,
    "",
    {
        '192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a/b?c=1&d HTTP/1.0" 200 2326 '
        '"http://www.example.com/start" "Mozilla/4.08 [en] (Win98; I ;Nav)"': {
            "host": "192.0.2.7",
            "ident": None,
            "user": "frank",
            "time": at("2000-10-10T20:55:36Z"),
            "request": "GET /a/b?c=1&d HTTP/1.0",
            "method": "GET",
            "path": "/a/b",
            "query": "c=1&d",
            "protocol": "HTTP/1.0",
            "status": 200,
            "bytes": 2326,
            "referer": "http://www.example.com/start",
            "agent": "Mozilla/4.08 [en] (Win98; I ;Nav)",
            "forwarded_for": None,
            "took_s": None,
            "virtual_host": None,
        }
    },
)


@pytest.mark.story
def test_access_combined_line_gives_every_column(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_COMBINED) == ACCESS_COMBINED.expected


_UP_TO_THE_REFERER = 'h - - [10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 200 5 "-"'
ACCESS_BEHIND_THE_COMBINED_FORMAT = LineTable(
    ACCESS,
    "agent forwarded_for took_s",
    {
        f'{_UP_TO_THE_REFERER} "curl/8" "203.0.113.9, 10.0.0.1"': ("curl/8", "203.0.113.9, 10.0.0.1", None),
        f'{_UP_TO_THE_REFERER} "curl/8" "-" 0.125': ("curl/8", None, 0.125),
        f'{_UP_TO_THE_REFERER} "curl/8" 3.000': ("curl/8", None, 3.0),
        f'{_UP_TO_THE_REFERER} "an "unescaped" agent" 0.5': ('an "unescaped" agent', None, 0.5),
        f'{_UP_TO_THE_REFERER} "curl/8" soon': None,
    },
)


def test_access_fields_that_servers_add_behind_the_combined_format(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_BEHIND_THE_COMBINED_FORMAT) == ACCESS_BEHIND_THE_COMBINED_FORMAT.expected


_BEFORE = "h - - [10/Oct/2000:13:55:36 +0000] "
_REQUESTS = {
    "GET / HTTP/1.1": ("GET", "/", None, "HTTP/1.1"),
    "GET /": ("GET", "/", None, None),
    "GET /a b c HTTP/1.1": ("GET", "/a b c", None, "HTTP/1.1"),
    "GET /?q=a?b HTTP/2.0": ("GET", "/", "q=a?b", "HTTP/2.0"),
    "PROPFIND /x HTTP/1.1": ("PROPFIND", "/x", None, "HTTP/1.1"),
    "CONNECT example.com:443 HTTP/1.1": ("CONNECT", "example.com:443", None, "HTTP/1.1"),
    r"\x16\x03\x01\x02": (None, None, None, None),
    r"GET /\"quoted\" HTTP/1.1": ("GET", r"/\"quoted\"", None, "HTTP/1.1"),
    "GET  /x?q  HTTP/1.1 ": ("GET", "/x", "q", "HTTP/1.1"),
    "GET  HTTP/1.1": ("GET", None, None, "HTTP/1.1"),
    "GET HTTP/1.1": ("GET", None, None, "HTTP/1.1"),
    "POST \t HTTP/2 ": ("POST", None, None, "HTTP/2"),
    "OPTIONS  RTSP/1.0": ("OPTIONS", None, None, "RTSP/1.0"),
    "GET ?a=1 HTTP/1.1": ("GET", None, "a=1", "HTTP/1.1"),
    "GET HTTP/1.1 HTTP/1.1": ("GET", "HTTP/1.1", None, "HTTP/1.1"),
    "GET /HTTP/1.1": ("GET", "/HTTP/1.1", None, None),
    "OPTIONS * HTTP/1.0": ("OPTIONS", "*", None, "HTTP/1.0"),
    "OPTIONS / RTSP/1.0": ("OPTIONS", "/", None, "RTSP/1.0"),
    "GET http://example.com/?a": ("GET", "http://example.com/", "a", None),
    "GET /x HTTP/3": ("GET", "/x", None, "HTTP/3"),
    "hello world": (None, None, None, None),
    "HELP": (None, None, None, None),
    "SSH-2.0-Go": (None, None, None, None),
    "- - HTTP/1.0": (None, None, None, None),
    "<x>y</x> / HTTP/1.1": (None, None, None, None),
    "-": (None, None, None, None),
    "": (None, None, None, None),
}
ACCESS_REQUESTS = LineTable(
    ACCESS,
    "method path query protocol request bytes",
    {
        f'{_BEFORE}"{request}" 400 -{tail}': (*parts, None if request in ("-", "") else request, 0)
        for tail in ("", ' "-" "-"')
        for request, parts in _REQUESTS.items()
    },
)


@pytest.mark.story
def test_access_requests_as_servers_log_them(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_REQUESTS) == ACCESS_REQUESTS.expected


_NOT_MODIFIED = '[10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 304 -'
ACCESS_HOSTS = LineTable(
    ACCESS,
    "host ident user referer agent",
    {
        f"2001:db8::1 - - {_NOT_MODIFIED}": ("2001:db8::1", None, None, None, None),
        f"host.example.com ident a user name {_NOT_MODIFIED}": (
            "host.example.com",
            "ident",
            "a user name",
            None,
            None,
        ),
        f"::1 - - {_NOT_MODIFIED}": ("::1", None, None, None, None),
        rf'h - - {_NOT_MODIFIED} "-" "a \"quoted\" agent \\ \x41"': (
            "h",
            None,
            None,
            None,
            r'a "quoted" agent \ \x41',
        ),
        f'h - - {_NOT_MODIFIED} "-" "an "unescaped" agent"': ("h", None, None, None, 'an "unescaped" agent'),
        f'h - - {_NOT_MODIFIED} "http://x/" ""': ("h", None, None, "http://x/", None),
    },
)


def test_access_hosts_users_and_agents_of_all_kinds(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_HOSTS) == ACCESS_HOSTS.expected


_GOOD = '"GET / HTTP/1.1" 200 1'
ACCESS_OTHERS = LineTable(
    ACCESS,
    "",
    dict.fromkeys(
        [
            "",
            "no access log",
            f'{_BEFORE}{_GOOD} "-"',
            f'{_BEFORE}{_GOOD} "-" "agent" "forwarded" "more"',
            f'{_BEFORE}"GET / HTTP/1.1 200 1',
            f'{_BEFORE}"GET / HTTP/1.1" 2000 1',
            f"h - - [32/Oct/2000:13:55:36 +0000] {_GOOD}",
            f"h - - [10/Okt/2000:13:55:36 +0000] {_GOOD}",
            f"h - - [10/Oct/2000:13:55:36] {_GOOD}",
            f"h - - [10/Oct/2000:13:58:60 +0000] {_GOOD}",
            f"h - - [10/Oct/2000:24:55:36 +0000] {_GOOD}",
            f"h - [10/Oct/2000:13:55:36 +0000] {_GOOD}",
            f"{_BEFORE}{_GOOD}\nand a second line",
            f"{_BEFORE}".encode() + b'"GET /\xff HTTP/1.1" 200 1',
            f"\ufdd0{_BEFORE}{_GOOD}",
        ]
    ),
)


@pytest.mark.story
def test_access_lines_of_other_formats_are_null(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_OTHERS) == ACCESS_OTHERS.expected


def test_parsers_lines_of_a_megabyte_overflow_no_stack(spark: SparkSession) -> None:
    long = r"\"x y=z" * 150_000
    access = f'{_BEFORE}"GET /{long} HTTP/1.1" 200 1 "{long}" "{long}"'
    whole: dict[tuple[Parser, str], tuple[str, int]] = {
        (ACCESS, access): ("agent", len(long) - 150_000),
        (SYSLOG, f'<1>1 - h a p m [id v="{long}"] {long}'): ("message", len(long)),
        (key_value("a STRING"), f'a="{long}" ' + "b=c d " * 100_000): ("a", len(long) - 150_000),
        (template("{a:quoted} {b}!"), f'"{long}" {long}!'): ("b", len(long)),
    }
    broken: list[tuple[Parser, str]] = [
        (ACCESS, access + '"x'),
        (SYSLOG, f'<1>1 - h a p m [id v="{long}] {long}'),
        (key_value("a STRING"), f'a="{long}'),
        (template("{a:quoted} {b}!"), f'"{long}" {long}'),
    ]
    rows = parsed(spark, [(*each, SHIPPED) for each in (*whole, *broken)])
    for (parser, line), (column, length) in whole.items():
        row = rows[parser, line, SHIPPED]
        assert row is not None, parser.name
        assert len(row[column]) == length, parser.name
    for parser, line in broken:
        assert rows[parser, line, SHIPPED] is None, parser.name


def test_parsers_take_lines_of_every_kind_in_a_time_that_grows_with_them(spark: SparkSession) -> None:
    """One of 200,000 characters that went back to each of its places would be at it for minutes."""
    units = [
        "a",
        ":",
        " ",
        "\t",
        "a ",
        "a: ",
        "1: ",
        '"',
        '" ',
        r"\"",
        "'",
        " a='",
        "' ",
        "%",
        "[",
        "]",
        "- ",
        "=",
        "\r",
        ",",
    ]
    time, old = "[10/Oct/2000:13:55:36 +0000]", "Nov  1 09:59:59"
    shapes = {
        ACCESS: [
            "{}",
            f"{{}} - - {time} x",
            f"h {{}} {time} x",
            "h.example:80 h {}",
            f"h - - {time} {{}}",
            f'h - - {time} "{{}}" 200 5 x',
            f'h - - {time} "GET / HTTP/1.1" 200 5 "-" "{{}}',
            f'h - - {time} "GET /{{}} HTTP/1.1" 200 5',
            f'h - - {time} "GET / HTTP/1.1" 200 5{{}}x',
        ],
        SYSLOG: [
            "{}",
            "<1>{}",
            "<1>1: {}",
            f"<1>{old} {{}}",
            f"{old} h {{}}",
            f"{old} h a: {{}}",
            f"<1>1: {old}: {{}}",
            "2019-11-01 09:59:59 {}",
            "<1>h: {}",
            '<1>1 - h a p m [a b="{}',
            "<1>1 - h a p m {}",
        ],
        key_value("a STRING, b INT"): ["{}", "a=1 {}", 'a="{}', "a='{}", "a={} b=x"],
        template("{a:word} {b} [{c:int}] {d:quoted} {e}"): ["{}", "w {}", 'w a [1] "{}', 'w a [1] "" {}'],
    }
    for parser, lines in shapes.items():
        parts = [(*line.split("{}"), unit, 200_000 // len(unit), SHIPPED) for line in lines for unit in units]
        frame = spark.createDataFrame(
            parts, "first STRING, last STRING, unit STRING, times INT, shipped TIMESTAMP"
        )
        long = frame.select(F.concat("first", F.expr("repeat(unit, times)"), "last").alias("line"), "shipped")
        # A hash needs all columns of a row, and is short to collect.
        hashes = long.select(F.xxhash64(parser(F.col("line"), F.col("shipped")))).collect()
        assert len(hashes) == len(parts)  # a square of that would take longer than a test may


_COMBINED = '10.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 5'
_UNMARKED: dict[Parser, list[str]] = {
    ACCESS: [_COMBINED, f'{_COMBINED} "-" "\ufeff"'],
    SYSLOG: [
        "<34>1 - h a - - - \ufefftext",
        "<34>Oct 11 22:14:15 h su: text",
        "Oct 11 22:14:15 h su: text",
    ],
    key_value("level STRING, n INT"): ["level=info n=1", "n=1 \ufefflevel=info"],
    template("{a} {b:int}"): ["x 1"],
}
# What the first two of each give is compared with one another.
MARKS = [
    (
        LineTable(parser, "", dict.fromkeys(lines)),
        LineTable(parser, "", dict.fromkeys(f"\ufeff{line}" for line in lines)),
        LineTable(parser, "", dict.fromkeys(["\ufeff", b"\xef\xbb\xbf\xff"])),
    )
    for parser, lines in _UNMARKED.items()
]


def test_parsers_byte_order_mark_before_a_line_is_no_part_of_it(outcomes: Outcomes) -> None:
    """Editors and tools of Windows write one at the beginning of a file."""
    for unmarked, marked, nothing in MARKS:
        rows = outcomes(unmarked)
        assert None not in rows.values(), unmarked.parser.name
        assert outcomes(marked) == {f"\ufeff{line}": row for line, row in rows.items()}, marked.parser.name
        assert outcomes(nothing) == nothing.expected, nothing.parser.name


SYSLOG_NEW_FORM = LineTable(
    SYSLOG,
    "",
    {
        r'<165>1 2003-10-11T22:14:15.003-07:00 host app 111 ID47 [ex@1 a="1" a="two \"2\" \] \\ \n" b=""][empty]'
        ' \ufeffAn event [with] "everything"': {
            "facility": 20,
            "severity": 5,
            "version": 1,
            "time": at("2003-10-12T05:14:15.003Z"),
            "host": "host",
            "app": "app",
            "pid": "111",
            "message_id": "ID47",
            "structured_data": [
                ("ex@1", "a", "1"),
                ("ex@1", "a", 'two "2" ] \\ \\n'),
                ("ex@1", "b", ""),
                ("empty", None, None),
            ],
            "message": 'An event [with] "everything"',
        }
    },
)


@pytest.mark.story
def test_syslog_new_form_gives_every_column(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_NEW_FORM) == SYSLOG_NEW_FORM.expected


_ARRIVAL, _NOTHING = at(SHIPPED.isoformat()), (None, None, None, None, None)
SYSLOG_NIL = LineTable(
    SYSLOG,
    "facility severity version time host app pid message_id structured_data message",
    {
        "<0>1 - - - - - -": (0, 0, 1, _ARRIVAL, *_NOTHING, None),
        "<0>1 - - - - - - ": (0, 0, 1, _ARRIVAL, *_NOTHING, None),
        "<0>1 - - - - - - two\nlines": (0, 0, 1, _ARRIVAL, *_NOTHING, "two\nlines"),
    },
)


def test_syslog_new_form_nil_values_are_null_and_a_nil_time_is_of_the_arrival(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_NIL) == SYSLOG_NIL.expected


SYSLOG_YEARS = [
    LineTable(
        SYSLOG,
        "time",
        {f"<34>{logged} host su[230]: 'su root' failed": (at(f"{time}+00:00"),)},
        datetime.fromisoformat(shipped).replace(tzinfo=UTC),
    )
    for shipped, logged, time in [
        ("2026-11-21T10:00:00", "Nov 21 09:59:59", "2026-11-21T09:59:59"),
        ("2026-01-01T00:00:05", "Dec 31 23:59:59", "2025-12-31T23:59:59"),
        ("2025-12-31T23:59:59", "Jan  1 00:00:05", "2026-01-01T00:00:05"),
        ("2026-03-01T00:00:00", "Nov  1 00:00:00", "2025-11-01T00:00:00"),
        ("2024-03-01T00:00:00", "Feb 29 12:00:00", "2024-02-29T12:00:00"),
        ("2025-01-01T00:00:00", "Feb 29 12:00:00", "2024-02-29T12:00:00"),
        ("2026-11-21T10:00:00", "Apr  4 03:39:57", "2026-04-04T03:39:57"),
        ("2026-03-21T10:00:00", "Dec  4 03:39:57", "2025-12-04T03:39:57"),
        ("2026-11-21T10:00:00", "Feb 29 12:00:00", "2024-02-29T12:00:00"),
        ("2026-11-21T10:00:00", "Nov 21 2019 09:59:59", "2019-11-21T09:59:59"),
        ("2026-11-21T10:00:00", "Nov  1 09:59:59.123", "2026-11-01T09:59:59.123000"),
    ]
]


def test_syslog_old_form_takes_the_latest_year_that_is_not_ahead_of_the_record(outcomes: Outcomes) -> None:
    for table in SYSLOG_YEARS:
        assert outcomes(table) == table.expected, table.shipped


_OCTOBER = at("2026-10-11T22:14:15Z")
SYSLOG_OLD_FORM = LineTable(
    SYSLOG,
    "facility severity version time host app pid message",
    {
        "<34>Oct 11 22:14:15 host su[230]: 'su root' failed": (
            *(4, 2, None, _OCTOBER),
            *("host", "su", "230", "'su root' failed"),
        ),
        "Oct 11 22:14:15 host kernel: [12.3] usb 1-1: new device": (
            *(None, None, None, _OCTOBER),
            *("host", "kernel", None, "[12.3] usb 1-1: new device"),
        ),
        "<13>Oct 11 22:14:15 host just words": (
            *(1, 5, None, _OCTOBER),
            *("host", None, None, "just words"),
        ),
        "<13>Oct 11 22:14:15 2001:db8::1 postfix/smtpd[12]: connect": (
            *(1, 5, None, _OCTOBER),
            *("2001:db8::1", "postfix/smtpd", "12", "connect"),
        ),
        "<13>2026-10-11T22:14:15.5+02:00 host app: text": (
            *(1, 5, None, at("2026-10-11T20:14:15.5Z")),
            *("host", "app", None, "text"),
        ),
        "<13>Oct 11 22:14:15 host app:": (*(1, 5, None, _OCTOBER), *("host", "app", None, None)),
    },
)


@pytest.mark.story
def test_syslog_old_form_of_all_kinds(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_OLD_FORM) == SYSLOG_OLD_FORM.expected


_LOGGED = at("2026-11-21T09:59:59Z")
SYSLOG_WITHOUT_HOST_OR_TIME = LineTable(
    SYSLOG,
    "time host app pid message",
    {
        "<30>Nov 21 09:59:59 systemd[1]: Started x.": (_LOGGED, None, "systemd", "1", "Started x."),
        "<6>Nov 21 09:59:59 kernel: [ 12.345] usb": (_LOGGED, None, "kernel", None, "[ 12.345] usb"),
        "<13>Nov 21 09:59:59 app[12]:no space": (_LOGGED, None, "app", "12", "no space"),
        "Nov 21 09:59:59 --- last message repeated 1 time ---": (
            *(_LOGGED, None, None, None),
            "--- last message repeated 1 time ---",
        ),
        "<13>Nov 21 09:59:59 fe80:: app: x": (_LOGGED, "fe80::", "app", None, "x"),
        "<13>Nov 21 09:59:59 my-host.example. app: x": (
            *(_LOGGED, "my-host.example."),
            *("app", None, "x"),
        ),
        "<12>python says \u00e9": (_ARRIVAL, None, None, None, "python says \u00e9"),
        "<12>app[3]: text": (_ARRIVAL, None, "app", "3", "text"),
        "<12>": None,
        "<12> ": None,
        "<999>text": None,
        "<12>2026-13-41T00:00:00Z h a: x": None,
    },
)


def test_syslog_old_form_without_a_host_or_a_time(outcomes: Outcomes) -> None:
    """As rsyslog takes them: what is no host's name begins the message, and what has no time is of its arrival."""
    assert outcomes(SYSLOG_WITHOUT_HOST_OR_TIME) == SYSLOG_WITHOUT_HOST_OR_TIME.expected


SYSLOG_SUMMER = LineTable(
    syslog("Europe/Berlin"),
    "time",
    {"Jul  1 12:00:00 host app: summer": (at("2026-07-01T10:00:00Z"),)},
    datetime(2026, 7, 2, tzinfo=UTC),
)


def test_syslog_old_form_is_in_the_zone_that_was_named(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_SUMMER) == SYSLOG_SUMMER.expected


_CISCO = "%SYS-5-CONFIG_I: Configured from console"
SYSLOG_CISCO = LineTable(
    SYSLOG,
    "time host app pid message",
    {
        f"{header}{_CISCO}": (
            at(f"{time}+00:00"),
            host,
            "%SYS-5-CONFIG_I",
            None,
            "Configured from console",
        )
        for header, time, host in [
            ("<189>29: *Mar  1 18:48:50.483 UTC: ", "2026-03-01T18:48:50.483", None),
            ("<189>29: .Mar  1 18:48:50.483: ", "2026-03-01T18:48:50.483", None),
            ("<189>: Mar 11 18:48:50: ", "2026-03-11T18:48:50", None),
            ("<189>*Mar 11 18:48:50: ", "2026-03-11T18:48:50", None),
            ("<189>29: 30: Mar  1 2020 18:48:50 CEST: ", "2020-03-01T16:48:50", None),
            ("<189>29: sw01: Mar  1 18:48:50.483 PDT: ", "2026-03-02T01:48:50.483", "sw01"),
            ("<189>: sw-0.example: 000030: Mar  1 18:48:50 utc: ", "2026-03-01T18:48:50", "sw-0.example"),
            ("<189>29: 2001:db8::: 30: Mar  1 18:48:50: ", "2026-03-01T18:48:50", "2001:db8::"),
            ("<189>29: 192.0.2.7 30: Mar  1 18:48:50: ", "2026-03-01T18:48:50", "192.0.2.7"),
            ("<189>sw01: Mar  1 18:48:50 UTC+07:30: ", "2026-03-01T11:18:50", "sw01"),
            ("<189>29: sw01: Mar  1 18:48:50 UTC+1: ", "2026-03-01T17:48:50", "sw01"),
            ("<189>: 2020 Mar  1 18:48:50.1 EST: ", "2020-03-01T23:48:50.1", None),
            ("000029: *Mar  1 18:48:50.483: ", "2026-03-01T18:48:50.483", None),
            # What a relay writes before it is of the relay's clock.
            (
                "Mar  2 18:48:50 192.0.2.7 29: Mar  1 2019 18:48:50.483 MST: ",
                "2026-03-02T18:48:50",
                "192.0.2.7",
            ),
            (
                "<189>Mar  2 18:48:50 192.0.2.7 sw01: 29: *Mar  1 18:48:50: ",
                "2026-03-02T18:48:50",
                "192.0.2.7",
            ),
            ("<189>Mar  2 18:48:50 192.0.2.7 29: ", "2026-03-02T18:48:50", "192.0.2.7"),
            ("<189>Mar  2 18:48:50 192.0.2.7 : ", "2026-03-02T18:48:50", "192.0.2.7"),
            ("<189>Mar  2 18:48:50 192.0.2.7 ", "2026-03-02T18:48:50", "192.0.2.7"),
            ("<189>2026-03-02T18:48:50Z sw01 : ", "2026-03-02T18:48:50", "sw01"),
            ("<189>Mar  2 2019 18:48:50: ", "2019-03-02T18:48:50", None),
            # Without a date it is of the record's timestamp.
            ("<189>29: 00:20:10: ", "2026-11-21T10:00:00", None),
            ("<189>29: sw01: 000030: 2y10w: ", "2026-11-21T10:00:00", "sw01"),
            ("<189>29: sw01: ", "2026-11-21T10:00:00", "sw01"),
            ("<189>", "2026-11-21T10:00:00", None),
        ]
    },
)


@pytest.mark.story
def test_syslog_of_cisco(outcomes: Outcomes) -> None:
    """https://www.cisco.com/c/en/us/td/docs/ios/fundamentals/command/reference/cf_book.html: `logging origin-id`,
    `service timestamps`, `service sequence-numbers`; numbers, and what is no name, are no program's."""
    assert outcomes(SYSLOG_CISCO) == SYSLOG_CISCO.expected


SYSLOG_CISCO_FIREWALLS = LineTable(
    SYSLOG,
    "time host app message",
    {
        f"{header}{mnemonic}: Built a": (at("2018-10-11T22:14:15Z"), host, mnemonic, "Built a")
        for mnemonic in ("%ASA-6-302013", "%FTD-session-6-302013")
        for header, host in {
            "<166>Oct 11 2018 22:14:15: ": None,
            "<166>Oct 11 2018 22:14:15 wall : ": "wall",
            "<166>Oct 11 2018 22:14:15 wall: ": "wall",
            "<166>Oct 11 2018 22:14:15 192.0.2.7 wall: ": "192.0.2.7",
            "<166>:Oct 11 2018 18:14:15 EDT: ": None,
            "<166>2018-10-11T22:14:15Z wall : ": "wall",
        }.items()
    },
)


def test_syslog_of_cisco_firewalls(outcomes: Outcomes) -> None:
    """EMBLEM's has a colon before the time: https://www.cisco.com/c/en/us/td/docs/security/asa/syslog/asa-syslog.html"""
    assert outcomes(SYSLOG_CISCO_FIREWALLS) == SYSLOG_CISCO_FIREWALLS.expected


SYSLOG_CISCO_IOS_XR = LineTable(
    SYSLOG,
    "host app pid message",
    {
        "<190>Oct 7 07:19:44 r1 RP/0/RP0/CPU0:Oct 7 07:19:43.630 UTC: acl_mgr[310]: %ACL-6-X : a": (
            "r1",
            "acl_mgr",
            "310",
            "%ACL-6-X : a",
        ),
        "<190>1: RP/0/RP0/CPU0:Oct  7 07:19:43.630 UTC: acl_mgr[310]: %ACL-6-X : a": (
            None,
            "acl_mgr",
            "310",
            "%ACL-6-X : a",
        ),
        "<191>7: r1: Aug 18 07:15:04.461 CEST: NTP Core (INFO): peer": (
            "r1",
            None,
            None,
            "NTP Core (INFO): peer",
        ),
        "<190>7: text": (None, None, None, "7: text"),
        "<190>7: r1: text": (None, None, None, "7: r1: text"),
        # The name of a zone that only its device knows gives no time.
        f"<189>29: Mar  1 18:48:50.483 Vienna: {_CISCO}": None,
    },
)


def test_syslog_of_cisco_ios_xr_and_of_lines_without_a_mnemonic(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_CISCO_IOS_XR) == SYSLOG_CISCO_IOS_XR.expected


SYSLOG_OLD_FORM_TIMES = LineTable(
    SYSLOG,
    "time host app pid message",
    {
        f"{priority}{stamp} host su[230]: text": (at(f"{time}+00:00"), "host", "su", "230", "text")
        for priority in ("<34>", "", "<34> ")
        for stamp, time in [
            ("Nov  1 2019 09:59:59", "2019-11-01T09:59:59"),
            ("Nov  1 09:59:59 2019", "2019-11-01T09:59:59"),
            ("2019 Nov  1 09:59:59", "2019-11-01T09:59:59"),
            ("NOV  1 09:59:59", "2026-11-01T09:59:59"),
            ("Nov 01 09:59:59:", "2026-11-01T09:59:59"),
            ("Nov  1   09:59:59 ", "2026-11-01T09:59:59"),
            ("Nov\t1\t09:59:59\t", "2026-11-01T09:59:59"),
            ("Nov  1 09:59:59 CET", "2026-11-01T08:59:59"),
            ("Nov  1 09:59:59.25 +0530", "2026-11-01T04:29:59.25"),
            ("Nov  1 09:59:59 -05:00 2019", "2019-11-01T14:59:59"),
            ("Nov  1 09:59:59 GMT 2019", "2019-11-01T09:59:59"),
            ("Dec 31 2016 23:59:60", "2017-01-01T00:00:00"),
            ("Dec 31 2016 23:59:60.5", "2017-01-01T00:00:00.5"),
            ("2016-12-31T23:59:60.25Z", "2017-01-01T00:00:00.25"),
            ("2019-11-01T09:59:59", "2019-11-01T09:59:59"),
            ("2019-11-01T09:59:59.123456789+02", "2019-11-01T07:59:59.123456"),
            ("2019-11-01 09:59:59", "2019-11-01T09:59:59"),
            ("2019-11-01 09:59:59.5", "2019-11-01T09:59:59.5"),
            ("2019-11-01 09:59:59,5+0200", "2019-11-01T07:59:59.5"),
            ("2019-11-01  09:59:59 -05:00", "2019-11-01T14:59:59"),
        ]
    },
)


def test_syslog_old_form_times_of_all_kinds(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_OLD_FORM_TIMES) == SYSLOG_OLD_FORM_TIMES.expected


_PRIORITIES = ("<13>", "")
SYSLOG_UNKNOWN_ZONES = LineTable(
    SYSLOG,
    "",
    dict.fromkeys(
        [
            f"{priority}{time} {more}"
            for priority in _PRIORITIES
            for time in (
                "Nov 20 15:00:00",
                "Nov 20 2026 15:00:00.5",
                "2026 Nov 20 15:00:00",
                "2026-11-20 15:00:00",
            )
            for more in (
                "IST h a: x",
                "IST h a[1]: x",
                "WIB h.example a/b[1]: x",
                "NA 192.0.2.7 a: x",
                "IST  h\ta: x",
            )
        ]
        + [f"{priority}Nov 20 15:00:00 IST 2026 h a: x" for priority in _PRIORITIES]
    ),
)
SYSLOG_ZONES_AND_HOSTS = LineTable(
    SYSLOG,
    "time host app message",
    {
        f"{priority}{line}": (at("2026-11-20T15:00:00Z"), *columns)
        for priority in _PRIORITIES
        for line, columns in {
            "Nov 20 15:00:00 Z h a: x": ("h", "a", "x"),
            "Nov 20 15:00:00 Z a[1]: x": (None, "a", "x"),
            "Nov 20 15:00:00 UTC h a: x": ("h", "a", "x"),
            "2026-11-20 15:00:00 Z h a: x": ("h", "a", "x"),
            "Nov 20 15:00:00 NAS sshd[1]: x": ("NAS", "sshd", "x"),
            "Nov 20 15:00:00 DC sshd: x: y": ("DC", "sshd", "x: y"),
            "Nov 20 15:00:00 NAS disk is full": ("NAS", None, "disk is full"),
            "Nov 20 15:00:00 NAS state a=b:c": ("NAS", None, "state a=b:c"),
            "Nov 20 15:00:00 NAS at 10:15:31": ("NAS", None, "at 10:15:31"),
            "Nov 20 15:00:00 NAS GET http://x/": ("NAS", None, "GET http://x/"),
            "Nov 20 15:00:00 ERROR main queue: x": (None, None, "ERROR main queue: x"),
            "2026-11-20T15:00:00Z NAS h a: x": ("NAS", None, "h a: x"),
        }.items()
    },
)


def test_syslog_old_form_zone_that_is_not_known_is_no_host(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_UNKNOWN_ZONES) == SYSLOG_UNKNOWN_ZONES.expected
    assert outcomes(SYSLOG_ZONES_AND_HOSTS) == SYSLOG_ZONES_AND_HOSTS.expected


SYSLOG_IN_BERLIN = LineTable(
    syslog("Europe/Berlin"),
    "time host app",
    dict.fromkeys(
        [
            "<34>Jul  1 12:00:00 host app: x",
            "<34>Jul  1 12:00:00 2026 host app: x",
            "<34>2026-07-01T12:00:00 host app: x",
            "2026-07-01 12:00:00 host app: x",
            "<34>Jul  1 10:00:00 UTC host app: x",
            "<34>1 2026-07-01T10:00:00Z host app - - - x",
        ],
        (at("2026-07-01T10:00:00Z"), "host", "app"),
    ),
    datetime(2026, 7, 2, tzinfo=UTC),
)


def test_syslog_times_without_a_zone_are_in_the_one_that_was_named(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_IN_BERLIN) == SYSLOG_IN_BERLIN.expected


SYSLOG_WORDS = LineTable(
    SYSLOG,
    "host app pid message",
    {
        'Nov  1 09:59:59 host {"a": 1, "b": "x: y"}': ("host", None, None, '{"a": 1, "b": "x: y"}'),
        "Nov  1 09:59:59 host a=b:c d": ("host", None, None, "a=b:c d"),
        "Nov  1 09:59:59 host http://x/ is away": ("host", None, None, "http://x/ is away"),
        "Nov  1 09:59:59 host std::bad_alloc: what": ("host", None, None, "std::bad_alloc: what"),
        "Nov  1 09:59:59 host 10:15:31 started": ("host", None, None, "10:15:31 started"),
        "Nov  1 09:59:59 host 192.0.2.7: refused": ("host", None, None, "192.0.2.7: refused"),
        "Nov  1 09:59:59 host 12[3]: text": ("host", None, None, "12[3]: text"),
        "Nov  1 09:59:59 host 7zip[3]: text": ("host", "7zip", "3", "text"),
        "Nov  1 09:59:59 host app[]: text": ("host", "app", None, "text"),
        "Nov  1 09:59:59 host app:text": ("host", "app", None, "text"),
        "Nov  1 09:59:59  host\tapp[3]:\ttext": ("host", "app", "3", "text"),
        "Nov  1 09:59:59 host launchd[1] (com.x[3]): text": ("host", "launchd", "1", "(com.x[3]): text"),
        "Nov  1 09:59:59 host Big Editor[3]: text": ("host", "Big Editor", "3", "text"),
        "Nov  1 09:59:59 host Services 2.5[3]: text": ("host", "Services 2.5", "3", "text"),
        "Nov  1 09:59:59 host some words[3]: text": ("host", None, None, "some words[3]: text"),
        "Nov  1 09:59:59 host syslogd 1.4.1: restart.": ("host", None, None, "syslogd 1.4.1: restart."),
        "Nov  1 09:59:59 last message repeated 3 times": (None, None, None, "last message repeated 3 times"),
        "Nov  1 09:59:59 host last message repeated 3 times": (
            "host",
            None,
            None,
            "last message repeated 3 times",
        ),
        "2019-11-01T09:59:59Z info vpxd[3] [a@1 b=c] text": (None, None, None, "info vpxd[3] [a@1 b=c] text"),
        "2019-11-01T09:59:59Z ERROR main: text": (None, None, None, "ERROR main: text"),
        "Nov  1 09:59:59 COMBO app: text": ("COMBO", "app", None, "text"),
        "Nov  1 09:59:59 WEB app: text": ("WEB", "app", None, "text"),
        "Nov  1 09:59:59 host app: 12: text": ("host", "app", None, "12: text"),
        "Nov  1 09:59:59 host app: text %d: %s": ("host", "app", None, "text %d: %s"),
        "Nov  1 09:59:59 host app: Nov  1 09:59:58 text": ("host", "app", None, "Nov  1 09:59:58 text"),
        "Nov  1 09:59:59 host app: text\r": ("host", "app", None, "text"),
        "Nov  1 09:59:59 host app: two\nlines\r\n": ("host", "app", None, "two\nlines"),
        "Nov  1 09:59:59 host 05: text": ("host", None, None, "05: text"),
        "Nov  1 09:59:59 host 05/21/2017:00:00:00 x": ("host", None, None, "05/21/2017:00:00:00 x"),
    },
)


def test_syslog_old_form_words_that_are_no_host_and_no_program(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_WORDS) == SYSLOG_WORDS.expected


SYSLOG_OTHER_LOGS = LineTable(
    SYSLOG,
    "",
    dict.fromkeys(
        [
            "2019-11-01 09:59:59,123 - INFO  [main:Server@1] - text",
            "2019-11-01 09:59:59,123 INFO [main] org.example.Server: text",
            "2019-11-01 09:59:59 INFO main: text",
            "2019-11-01 09:59:59.123 PDT [123] LOG:  text",
            "2019-11-01 09:59:59 0 [Note] text",
            "2019/11/01 09:59:59 [error] 1#1: *1 text",
            "19/11/01 09:59:59 INFO executor.Executor: text",
            "[Fri Nov 01 09:59:59 2019] [error] text",
            "- 1131566461 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 crond[2915]: text",
            "11-01 09:59:59.123  1702  2395 D Manager: text",
            "Nov  1 09:60:59 host app: text",
            "Nov  1 09:58:60 host app: text",
            "Nox  1 09:59:59 host app: text",
            "2019-11-01T09:59 host app: text",
            "2019-11-01T09:59:59FOO host app: text",
            "\tat org.example.Server.run(Server.java:1)",
            "<34>1 2019-11-01T09:59:60Z host app - - - x",
            "<34>1 2019-11-01T09:59 host app - - - x",
            "<34>1 2019-11-01T09:59:59 host app - - - x",
            "<34>1 2019-11-01 09:59:59 host app - - - x",
        ]
    ),
)


def test_syslog_lines_of_other_logs_are_null(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_OTHER_LOGS) == SYSLOG_OTHER_LOGS.expected


SYSLOG_BLANK_OF_THE_RFC = LineTable(
    SYSLOG,
    "structured_data message",
    {
        '<165>1 2003-10-11T22:14:15.003Z h a - ID47 [ex@32473 iut="3" source= "App"] text\r\n': (
            [("ex@32473", "iut", "3"), ("ex@32473", "source", "App")],
            "text",
        )
    },
)


def test_syslog_new_form_takes_the_blank_of_the_example_in_the_rfc(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_BLANK_OF_THE_RFC) == SYSLOG_BLANK_OF_THE_RFC.expected


_PLAIN = '[10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 200 5'
ACCESS_VIRTUAL_HOSTS = LineTable(
    ACCESS,
    "virtual_host host ident user",
    {
        f"{before} {_PLAIN}": columns
        for before, columns in {
            "www.example.com:443 192.0.2.7 - frank": ("www.example.com:443", "192.0.2.7", None, "frank"),
            "www.example.com:80 client.example.org - -": (
                "www.example.com:80",
                "client.example.org",
                None,
                None,
            ),
            "_default_:443 2001:db8::1 - a b": ("_default_:443", "2001:db8::1", None, "a b"),
            "[2001:db8::2]:80 ::1 - -": ("[2001:db8::2]:80", "::1", None, None),
            "192.0.2.1:80 unix: - -": ("192.0.2.1:80", "unix:", None, None),
            "localhost:443 192.0.2.7 1x2y frank": ("localhost:443", "192.0.2.7", "1x2y", "frank"),
            'example.com:443 192.0.2.7 "-" -': ("example.com:443", "192.0.2.7", None, None),
            "www.example.com 192.0.2.7 - -": ("www.example.com", "192.0.2.7", None, None),
            "web12 2001:db8::1 - frank": ("web12", "2001:db8::1", None, "frank"),
            "_ 192.0.2.7 - -": ("_", "192.0.2.7", None, None),
            # A client with its port, as load balancers log it, is none.
            "192.0.2.7:50312 - -": (None, "192.0.2.7:50312", None, None),
            "192.0.2.7:50312 - frank miller": (None, "192.0.2.7:50312", None, "frank miller"),
            "192.0.2.7:50312 ident frank": (None, "192.0.2.7:50312", "ident", "frank"),
        }.items()
    },
)


def test_access_virtual_host_before_the_address(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_VIRTUAL_HOSTS) == ACCESS_VIRTUAL_HOSTS.expected


ACCESS_MORE_FIELDS_BEFORE_THE_HOST = LineTable(
    ACCESS,
    "",
    dict.fromkeys(
        f"{before} {_PLAIN}"
        for before in (
            "10.0.0.2, 10.0.0.1, 127.0.0.1 - -",
            '"10.5.102.222, 199.96.1.1, 204.246.1.1" 10.2.1.185 - -',
            'example.com:80 "10.5.102.222, 199.96.1.1" 10.2.1.185 - frank',
            "2001:db8::1, 10.0.0.1 10.2.1.185 - -",
            "example.com localhost, localhost - -",
            "192.0.2.7 localhost - -",
            "203.0.113.9 10.0.0.1 - -",
            "2001:db8::1 2001:db8::2 - -",
            "unknown 10.0.0.1 - -",
            "- 10.0.0.1 - -",
            "client.example.org www.example.com - -",
            "client.example.org 2001:db8::1 -",
        )
    ),
)


def test_access_lines_with_more_fields_before_the_host_are_null(outcomes: Outcomes) -> None:
    """Where nothing tells which of them is the client's."""
    assert outcomes(ACCESS_MORE_FIELDS_BEFORE_THE_HOST) == ACCESS_MORE_FIELDS_BEFORE_THE_HOST.expected


_REQUEST = '"GET / HTTP/1.1" 200 5'
_TIME = "[10/Oct/2000:13:55:36 +0000]"
_AGENTS = '"http://x/" "an agent" "192.0.2.9" 0.5'
_WIDE_AGENTS = '"http://x/"  "an agent"\t"192.0.2.9"   0.5'
ACCESS_BLANKS = LineTable(
    ACCESS,
    "user bytes referer agent forwarded_for took_s",
    {
        f"h\t-\tfrank\t{_TIME}\t{_REQUEST}".replace(" 200 ", "\t200\t"): ("frank", 5, None, None, None, None),
        f"h  -   frank  miller   {_TIME}  {_REQUEST}  {_WIDE_AGENTS}": (
            *("frank  miller", 5),
            *("http://x/", "an agent", "192.0.2.9", 0.5),
        ),
        f"h -  {_TIME} {_REQUEST} {_AGENTS}\r": (None, 5, "http://x/", "an agent", "192.0.2.9", 0.5),
        f"h - frank {_TIME} {_REQUEST} \t\r\n": ("frank", 5, None, None, None, None),
        f"h - frank {_TIME} {_REQUEST} {_AGENTS} ": ("frank", 5, "http://x/", "an agent", "192.0.2.9", 0.5),
    },
)


def test_access_blanks_between_fields_and_line_ends(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_BLANKS) == ACCESS_BLANKS.expected


ACCESS_LEAP_SECOND = LineTable(
    ACCESS,
    "time",
    dict.fromkeys(
        (
            f'h - - [{time}] "GET / HTTP/1.1" 200 5'
            for time in ("31/Dec/2016:23:59:60 +0000", "01/Jan/2017:05:29:60 +0530")
        ),
        (at("2017-01-01T00:00:00Z"),),
    ),
)


def test_access_leap_second_is_the_first_of_the_next_minute(outcomes: Outcomes) -> None:
    assert outcomes(ACCESS_LEAP_SECOND) == ACCESS_LEAP_SECOND.expected


_ODD = f'{_BEFORE}"GET / HTTP/1.1" 200 5 "-" "an "odd" agent"'
ACCESS_NUMBERS = LineTable(
    ACCESS,
    "agent forwarded_for took_s",
    {
        f"{_ODD} 412 2704": ('an "odd" agent', None, None),
        f'{_ODD} "2.75"': ('an "odd" agent', None, None),
        f'{_ODD} "192.0.2.9" 412 2704': ('an "odd" agent', "192.0.2.9", None),
        f"{_ODD} 1 2 3": None,
        f'{_ODD} "2.75" "x"': None,
        f'{_ODD} 0.12 0.10 "-"': None,
        f'{_ODD} - "x"': None,
        f'{_ODD} rt=0.1 uct="0.0"': None,
        f'{_ODD} "-" 0.1 0.2 "x"': None,
        f'{_ODD} 0.1 be1 "x"': None,
    },
)


def test_access_numbers_behind_the_agent(outcomes: Outcomes) -> None:
    """Apache's combinedio has the bytes in and out; nginx's manual has a compression ratio in quotes."""
    assert outcomes(ACCESS_NUMBERS) == ACCESS_NUMBERS.expected


_UNITS: dict[Literal["s", "ms", "us"] | None, list[float | None]] = {
    None: [None, None, 0.5, None, None],
    "s": [3.0, 0.0, 0.5, 1_234_567.0, 12_345_678_901.0],
    "ms": [0.003, 0.0, 0.5, 1234.567, 12_345_678.901],
    "us": [0.000003, 0.0, 0.5, 1.234567, 12_345.678901],
}
ACCESS_UNITS = {
    unit: LineTable(
        access_log(took_unit=unit),
        "took_s",
        {
            f'{_BEFORE}"GET / HTTP/1.1" 200 5 "-" "curl/8" {number}': (took_s,)
            for number, took_s in zip(("3", "0", "0.500", "1234567", "12345678901"), times_s, strict=True)
        },
    )
    for unit, times_s in _UNITS.items()
}


def test_access_whole_number_behind_the_agent_is_of_the_unit_that_was_named(outcomes: Outcomes) -> None:
    """Apache's %D is of microseconds and its %T of seconds, nginx's $request_length of bytes."""
    for unit, table in ACCESS_UNITS.items():
        assert outcomes(table) == table.expected, unit


TEMPLATE_TIMES = [
    LineTable(template(text), "t msg", {line: (at("2026-11-21T10:00:00Z"), message)})
    for (text, line), message in {
        (
            "{t:time yyyy-MM-dd HH:mm:ss} {level:word} {msg}",
            "2026-11-21  10:00:00 INFO hello world",
        ): "hello world",
        ("{t:time yyyy-MM-dd HH:mm:ss.SSS} {msg}", "2026-11-21 10:00:00.000 a b"): "a b",
        ("{t:time yyMMdd HHmmss} {pid:int} {msg}", "261121 100000 12 a b"): "a b",
        ("{t:time yy/MM/dd HH:mm:ss} {msg}", "26/11/21 10:00:00 a"): "a",
        ("{t:time} {level:word} {msg}", "2026-11-21 10:00:00 INFO a b"): "a b",
        ("{t:time} {msg}", "2026-11-21T10:00:00Z a"): "a",
        ("[{day:word} {t:time MMM d HH:mm:ss yyyy}] {msg}", "[Sat Nov 21 10:00:00 2026] a"): "a",
    }.items()
]
TEMPLATE_NO_TIME = LineTable(
    template("{t:time yyyy-MM-dd HH:mm:ss} {msg}"), "t msg", {"- a b": (None, "a b")}
)


def test_template_times_have_as_many_words_as_their_pattern(outcomes: Outcomes) -> None:
    for table in (*TEMPLATE_TIMES, TEMPLATE_NO_TIME):
        assert outcomes(table) == table.expected, table.parser.variant


TEMPLATE_BLANKS = [
    LineTable(template(text), "a b", {line: columns})
    for (text, line), columns in {
        ("{a:word}  {b}", "x y z"): ("x", "y z"),
        ("{a}:  {b}", "LOG:  duration"): ("LOG", "duration"),
        ("{a} \t{b}", "x\ty"): ("x", "y"),
        ("{a}\t\t{b}", "x\t\ty"): ("x", "y"),
        ("{a}\t\t{b}", "x\ty"): None,
        ("{a:time  MMM  d yyyy HH:mm:ss } {b}", "Nov  1 2026 10:00:00 y"): (at("2026-11-01T10:00:00Z"), "y"),
        ("{a:time MMM  d yyyy  HH:mm:ss}  {b}", "Nov 11 2026 10:00:00   y"): (
            at("2026-11-11T10:00:00Z"),
            "y",
        ),
    }.items()
]


def test_template_blanks_in_a_row_stand_for_one_or_more(outcomes: Outcomes) -> None:
    """PostgreSQL writes two behind its level; so do programs that put texts into columns."""
    for table in TEMPLATE_BLANKS:
        assert outcomes(table) == table.expected, table.parser.variant


TEMPLATE_WORDS = [
    LineTable(template(text), columns, lines)
    for text, columns, lines in (
        (
            "[{level:word}] {msg}",
            "level msg",
            {"[INFO] a b": ("INFO", "a b"), "[a]b] c": ("a]b", "c"), "[] a": None, "[a b] c": None},
        ),
        ("{level:word}: {msg}", "level msg", {"WARN: it's: x": ("WARN", "it's: x"), "a:b: c": ("a:b", "c")}),
        (
            "{host:word}:{port:int} {msg}",
            "host port msg",
            {"2001:db8::1:80 x": ("2001:db8::1", 80, "x"), "h:p x": None},
        ),
        ("{path:word},{took:double}s", "path took", {"/a,b,1.5s": ("/a,b", 1.5), "/a,s": None}),
        ("{unit:word}{n:int}", "unit n", {"vm12": ("vm", 12), "12": ("1", 2), "vm": None}),
        ("{key:word}{text:quoted}", "key text", {'k="a b"': ("k=", "a b")}),
        ("{a:word}{b}", "a b", {"one two": ("one", " two")}),
        ("{a:word}\t{b:word}", "a b", {"one\ttwo": ("one", "two"), "one two": None}),
        ("took {s:double}.", "s", {"took 3.": (3.0,), "took 3.5.": (3.5,)}),
        ("{n:int}{unit:word}", "n unit", {"12ms": (12, "ms")}),
        ("{{{a:word}}}", "a", {"{x}": ("x",), "{x}}": ("x}",)}),
    )
]


def test_template_word_before_a_text_ends_where_that_begins(outcomes: Outcomes) -> None:
    for table in TEMPLATE_WORDS:
        assert outcomes(table) == table.expected, table.parser.variant


TEMPLATE_YEARS = [
    LineTable(
        template(f"{{t:time {pattern}}} {{msg}}"),
        "t msg",
        {f"{line} x": (at(f"{time}+00:00"), "x"), "- x": (None, "x"), "Feb 30 10:00:00 x": None},
    )
    for (pattern, line), time in {
        ("MMM d HH:mm:ss", "Oct 11 22:14:15"): "2026-10-11T22:14:15",
        ("MMM d HH:mm:ss", "Nov  1 09:59:59"): "2026-11-01T09:59:59",
        ("MMM d HH:mm:ss", "Nov 22 09:59:59"): "2026-11-22T09:59:59",
        ("MMM d HH:mm:ss", "Nov 23 09:59:59"): "2025-11-23T09:59:59",
        ("MMM d HH:mm:ss", "Feb 29 00:00:00"): "2024-02-29T00:00:00",
        ("MM-dd HH:mm:ss.SSS", "11-01 09:59:59.123"): "2026-11-01T09:59:59.123",
        ("MMdd HH:mm:ss.SSSSSS", "1231 09:59:59.123456"): "2025-12-31T09:59:59.123456",
        ("d/M", "1/12"): "2025-12-01T00:00:00",
        ("D HH:mm", "366 10:00"): "2024-12-31T10:00:00",
        ("MMM d hh:mm:ss a", "Oct 11 10:14:15 PM"): "2026-10-11T22:14:15",
        ("MMM d HH:mm:ss XX", "Oct 11 22:14:15 +0200"): "2026-10-11T20:14:15",
    }.items()
]


def test_template_time_without_a_year_is_the_latest_that_is_not_ahead_of_the_record(
    outcomes: Outcomes,
) -> None:
    """As syslog's; Spark alone would have it of 1970."""
    for table in TEMPLATE_YEARS:
        assert outcomes(table) == table.expected, table.parser.variant


_ISO_TIMES = {
    "2026-10-25 02:30:00 +0200": "2026-10-25T00:30:00",
    "2026-10-25 02:30:00 -02:00": "2026-10-25T04:30:00",
    "2026-10-25T02:30:00 +02": "2026-10-25T00:30:00",
    "2026-10-25 02:30:00.5  +0530": "2026-10-24T21:00:00.5",
    "2026-10-25 02:30:00 Z": "2026-10-25T02:30:00",
    "2026-10-25 02:30:00 UTC": "2026-10-25T02:30:00",
    "2026-10-25 02:30:00 GMT": "2026-10-25T02:30:00",
    "2026-10-25 02:30:00,123": "2026-10-25T02:30:00.123",
    "2026-10-25T02:30:00,123456789+02:00": "2026-10-25T00:30:00.123456",
    "2026-10-25 02:30:00,123 +0200": "2026-10-25T00:30:00.123",
    "2026-10-25T02:30Z": "2026-10-25T02:30:00",
    "2026-10-25T02:30+02:00": "2026-10-25T00:30:00",
    "2026-10-25 02:30 +02": "2026-10-25T00:30:00",
    "2026-10-25T02:30": "2026-10-25T02:30:00",
    "2026-10-25": "2026-10-25T00:00:00",
    "2026-1-5 2:30": "2026-01-05T02:30:00",
}
_ISO_AT = {text: at(f"{time}+00:00") for text, time in _ISO_TIMES.items()}
ISO_TIMES = [
    LineTable(
        template("{at:time} {level:word} {message}"),
        "at level message",
        {f"{text} INFO x y": (time, "INFO", "x y") for text, time in [*_ISO_AT.items()][:-1]},
    ),
    *[
        LineTable(
            template(text),
            "at message",
            {
                text.replace("{at:time}", time).replace("{message}", "x"): (moment, "x")
                for time, moment in _ISO_AT.items()
            },
        )
        for text in (
            "[{at:time}] {message}",
            "{at:time}, {message}",
            "{at:time}|{message}",
            "x {message} {at:time}",
        )
    ],
    LineTable(
        key_value("at TIMESTAMP, n INT"),
        "at",
        {f'at="{text}" n=1': (time,) for text, time in _ISO_AT.items()},
    ),
]


def test_times_of_iso_8601_with_a_comma_and_with_a_zone_behind_a_blank(outcomes: Outcomes) -> None:
    """Python's logging writes the comma; the time of another zone must not be one of UTC."""
    for table in ISO_TIMES:
        assert outcomes(table) == table.expected, table.parser


TEMPLATE_BEHIND_A_TIME = [
    LineTable(template(text), "", {line: {"at": at("2026-10-25T02:30:00Z"), **columns}})
    for (text, line), columns in {
        ("{at:time} {n:int} {m}", "2026-10-25 02:30:00 +02 x"): {"n": 2, "m": "x"},
        ("{at:time} {n:word} {m:int}", "2026-10-25 02:30:00 +0200 5"): {"n": "+0200", "m": 5},
        ("{at:time} {n:word}", "2026-10-25 02:30:00 UTC"): {"n": "UTC"},
        ("{at:time} {n:word} {m}", "2026-10-25 02:30:00 Zoe x"): {"n": "Zoe", "m": "x"},
        ("{at:time} {n:word} {m}", "2026-10-25 02:30:00 -15 x"): {"n": "-15", "m": "x"},
        ("{at:time} {n:word} {m}", "2026-10-25 02:30:00 -01.5 x"): {"n": "-01.5", "m": "x"},
        ("{at:time yyyy-MM-dd HH:mm:ss[.SSS]} {n:word} {m}", "2026-10-25 02:30:00.000 +0200 x"): {
            "n": "+0200",
            "m": "x",
        },
    }.items()
]


def test_template_what_stands_behind_a_time_and_is_no_zone_is_not_taken(outcomes: Outcomes) -> None:
    for table in TEMPLATE_BEHIND_A_TIME:
        assert outcomes(table) == table.expected, table.parser.variant


KEY_VALUE_DATES = LineTable(
    key_value("d DATE, t TIMESTAMP_NTZ"),
    "d",
    {
        "d=2026": None,
        "d=2026-10": None,
        "d=2026-10-25": (date(2026, 10, 25),),
        "t=2026": None,
        "t=2026-10": None,
    },
)


def test_key_value_dates_have_a_month_and_a_day(outcomes: Outcomes) -> None:
    """Spark takes the first of the year or of the month."""
    assert outcomes(KEY_VALUE_DATES) == KEY_VALUE_DATES.expected


_NO_DATES = ["10:00:00", "10:00", "T10:00", "2026", "2026-11", "+12026-11-21T10:00:00Z", "20261121"]
_MIDNIGHT = at("2026-11-21T00:00:00Z")
TIMES_WITHOUT_A_DATE = [
    LineTable(
        template("{at:time} {msg}"),
        "at msg",
        {**dict.fromkeys(f"{text} a" for text in _NO_DATES), "2026-11-21 a": (_MIDNIGHT, "a")},
    ),
    LineTable(
        key_value("at TIMESTAMP, msg STRING"),
        "at msg",
        {
            **dict.fromkeys(f"at={text} msg=a" for text in _NO_DATES),
            "at=2026-11-21 msg=a": (_MIDNIGHT, "a"),
        },
    ),
]


def test_time_without_its_date_is_none_for_it_would_be_of_the_day_on_which_it_is_read(
    outcomes: Outcomes,
) -> None:
    for table in TIMES_WITHOUT_A_DATE:
        assert outcomes(table) == table.expected, table.parser


TEMPLATE_FREE_TEXTS = LineTable(
    template("{level:word} {a} {b} {c} {d} {e}: {msg}"),
    "a d e msg",
    {"INFO 1 2 3 4 5 6: text: more": ("1", "4", "5 6", "text: more"), "INFO" + " a" * 20_000: None},
)


def test_template_free_texts_are_found_in_a_time_that_grows_with_the_line(outcomes: Outcomes) -> None:
    """A matcher that goes back on each of them would be at it for a day."""
    assert outcomes(TEMPLATE_FREE_TEXTS) == TEMPLATE_FREE_TEXTS.expected


SYSLOG_OTHERS = LineTable(
    SYSLOG,
    "",
    dict.fromkeys(
        [
            "",
            "a line",
            "<192>1 - - - - - -",
            "<34>Oct 32 22:14:15 host app: x",
            "<999>Oct 11 22:14:15 host app: x",
            '<1>1 - h a p m [id v="open] x',
            "<1>1 2003-13-41T22:14:15Z h a p m - x",
            b"<34>Oct 11 22:14:15 host app: \xff",
        ]
    ),
)


@pytest.mark.story
def test_syslog_other_lines_are_null(outcomes: Outcomes) -> None:
    assert outcomes(SYSLOG_OTHERS) == SYSLOG_OTHERS.expected


KEY_VALUE_TYPES = LineTable(
    key_value("level STRING, msg STRING, took_ms DOUBLE, n INT"),
    "level msg took_ms n",
    {
        r'level=info msg="he said \"hi\" = \\" took_ms=12.5 cached n=3': (
            "info",
            'he said "hi" = \\',
            12.5,
            3,
        ),
        "  n=1\tlevel=   msg=a=b n=2 ": (None, "a=b", None, 1),
        'other=1 level="" path=/x?y=1': ("", None, None, None),
        'url=http://x/?a="b" level=warn': ("warn", None, None, None),
    },
)


@pytest.mark.story
def test_key_value_takes_the_wanted_keys_with_their_types(outcomes: Outcomes) -> None:
    assert outcomes(KEY_VALUE_TYPES) == KEY_VALUE_TYPES.expected


KEY_VALUE_ESCAPES = LineTable(
    key_value("msg STRING"),
    "msg",
    {
        r'msg="a\nb\tc\rd"': ("a\nb\tc\rd",),
        r'msg="C:\\new\\temp"': (r"C:\new\temp",),
        r'msg="\\\n\\\\n"': ("\\\n\\\\n",),
        r'msg="\"\\\"\n\\"': ('"\\"\n\\',),
        r'msg="\x1b[0m \u00e9"': (r"\x1b[0m \u00e9",),
        r"msg=C:\new": (r"C:\new",),
    },
)


def test_key_value_escapes_that_go_writes_are_what_they_stand_for(outcomes: Outcomes) -> None:
    assert outcomes(KEY_VALUE_ESCAPES) == KEY_VALUE_ESCAPES.expected


KEY_VALUE_COMMAS = LineTable(
    key_value("date STRING, msg STRING, n INT"),
    "date msg n",
    {
        '<189>date=2026-11-21 msg="a, b" n=3': ("2026-11-21", "a, b", 3),
        'date=2026-11-21, msg="a, b", n=3': ("2026-11-21", "a, b", 3),
        'date=2026-11-21,  msg="a, b",n=4, n=3,': None,
        "date=2026-11-21 msg=a,b,c, list=, n=3 ,": ("2026-11-21", "a,b,c", 3),
        "date=2026-11-21 msg=,a n=3": ("2026-11-21", ",a", 3),
    },
)


def test_key_value_behind_a_priority_and_with_commas_between(outcomes: Outcomes) -> None:
    """As firewalls send them; a comma within a value is the value's."""
    assert outcomes(KEY_VALUE_COMMAS) == KEY_VALUE_COMMAS.expected


KEY_VALUE_SINGLE_QUOTES = LineTable(
    key_value("msg STRING, a STRING"),
    "msg a",
    {
        """pid=5 msg='op=PAM:authentication acct="root" res=failed' a=1""": (
            'op=PAM:authentication acct="root" res=failed',
            "1",
        ),
        "msg='single quoted value' a=warn": ("single quoted value", "warn"),
        "msg='', a='x',": ("", "x"),
        "msg='it's fine' a=1": ("it's fine", "1"),
        r"msg='it\'s \\ \n \"' a=1": ("it's \\ \n \\\"", "1"),
        "msg='two\nlines' a='x'\r\n": ("two\nlines", "x"),
        # Not closed, or of other values.
        "msg='tis a=c": ("'tis", "c"),
        "msg='tis a='x y'": ("'tis", "x y"),
        "msg=O'Brien a=D'Arcy": ("O'Brien", "D'Arcy"),
        "msg=rock'n'roll' a='": ("rock'n'roll'", "'"),
        "msg='a'b a=1": ("'a'b", "1"),
        "msg='x',a='y' n=1": ("'x',a='y'", None),
        """msg="'a b'" a='"x y"'""": ("'a b'", '"x y"'),
    },
)


def test_key_value_single_quotes_that_are_closed_are_quotes(outcomes: Outcomes) -> None:
    assert outcomes(KEY_VALUE_SINGLE_QUOTES) == KEY_VALUE_SINGLE_QUOTES.expected


KEY_VALUE_AUDITD = LineTable(
    key_value("type STRING, msg STRING, pid INT, op STRING, acct STRING, res STRING"),
    "type msg pid op acct res",
    {
        "type=USER_LOGIN msg=audit(1:2): pid=5 uid=0 msg='op=PAM:authentication acct=\"root\" res=failed'": (
            *("USER_LOGIN", "audit(1:2):", 5),
            *(None, None, None),
        )
    },
)


def test_key_value_pairs_in_single_quotes_are_not_the_line_s(outcomes: Outcomes) -> None:
    """auditd's; of its two `msg` the first counts, as of every key."""
    assert outcomes(KEY_VALUE_AUDITD) == KEY_VALUE_AUDITD.expected


_RESOLVED = (
    "type=SYSCALL msg=audit(1364481363.243:24287): arch=c000003e pid=3538 auid=4294967295 key={}\x1d{}"
)
KEY_VALUE_AUDITD_RESOLVED = LineTable(
    key_value("type STRING, pid INT, auid BIGINT, key STRING, ARCH STRING, AUID STRING, res STRING"),
    "type pid auid key ARCH AUID res",
    {
        _RESOLVED.format("(null)", 'ARCH=x86_64 AUID="unset"'): (
            *("SYSCALL", 3538, 4294967295, "(null)", "x86_64", "unset", None),
        ),
        _RESOLVED.format('"sshd_config"', 'ARCH=x86_64 AUID="unset"'): (
            *("SYSCALL", 3538, 4294967295, "sshd_config", "x86_64", "unset", None),
        ),
        'type=LOGIN pid=5 res=1\x1dAUID="root"': ("LOGIN", 5, None, None, None, "root", "1"),
        'pid=5\x1dAUID="root"\x1d': (None, 5, None, None, None, "root", None),
        "key='op=login res=failed'\x1dAUID=\"root\"": (
            None,
            None,
            None,
            "op=login res=failed",
            None,
            "root",
            None,
        ),
        "key=,\x1dAUID=a, \x1d res=": (None, None, None, None, None, "a", None),
        'key="a\x1dAUID=b" pid=1': (None, 1, None, "a\x1dAUID=b", None, None, None),
    },
)


def test_key_value_fields_that_auditd_resolved_are_fields_of_their_own(outcomes: Outcomes) -> None:
    """auditd with `log_format = ENRICHED` writes the byte 1D between what the kernel said and the names of it."""
    assert outcomes(KEY_VALUE_AUDITD_RESOLVED) == KEY_VALUE_AUDITD_RESOLVED.expected


_NUMBERS = {
    "5": 5.0, "-5.25": -5.25, "+.5": 0.5, "1.": 1.0, "1.5e3": 1500.0, "1E-2": 0.01, "1e-400": 0.0,
    "1.7976931348623157e308": 1.7976931348623157e308, "Infinity": inf, "+Inf": inf, "-inf": -inf,
    "5d": None, "5F": None, "5D": None, "0x1p3": None, "1_000": None, "1e": None, "1e400": None, "-1e400": None,
    "1,5": None, "Infinit": None, "nano": None,
}  # fmt: skip
KEY_VALUE_NUMBERS = [
    LineTable(
        key_value("n DOUBLE, a STRING"),
        "n",
        {f"n={text} a=x": None if number is None else (number,) for text, number in _NUMBERS.items()},
    ),
    LineTable(
        key_value("n FLOAT"),
        "n",
        {
            "n=1.5": (1.5,),
            "n=1e40": None,
            "n=5f": None,
            "n=-Infinity": (-inf,),
            'n=" 2.5 "': (2.5,),
        },
    ),
]
# NaN is equal to no number, itself among them.
KEY_VALUE_NO_NUMBER = LineTable(key_value("n FLOAT"), "n", {"n=NaN": ()})


def test_key_value_numbers_are_decimal_ones(outcomes: Outcomes) -> None:
    """Spark takes Java's, too, and one that is too great for infinity."""
    for table in KEY_VALUE_NUMBERS:
        assert outcomes(table) == table.expected, table.parser
    (columns,) = outcomes(KEY_VALUE_NO_NUMBER).values()
    assert isnan(*columns)


TEMPLATE_NUMBERS = LineTable(
    template("{n:double} {a}"),
    "n",
    {f"{text} x": None if number is None else (number,) for text, number in _NUMBERS.items()},
)
TEMPLATE_NO_NUMBER = LineTable(template("{n:double} {a}"), "n", {"NaN x": ()})


def test_template_numbers_are_decimal_ones(outcomes: Outcomes) -> None:
    assert outcomes(TEMPLATE_NUMBERS) == TEMPLATE_NUMBERS.expected
    (columns,) = outcomes(TEMPLATE_NO_NUMBER).values()
    assert isnan(*columns)


KEY_VALUE_OTHERS = LineTable(
    key_value("level STRING, n INT"),
    "",
    dict.fromkeys(
        [
            "",
            "words only",
            "other=1",
            'level="open',
            'level="a"b',
            "n=three",
            "=x level=info",
            b"level=\xff",
        ]
    ),
)


def test_key_value_other_lines_are_null(outcomes: Outcomes) -> None:
    assert outcomes(KEY_VALUE_OTHERS) == KEY_VALUE_OTHERS.expected


TEMPLATE_PLACEHOLDERS = LineTable(
    template(
        "{{x}} [{at:time yyyy-MM-dd HH:mm:ss VV}] {iso:time} {level:word} {n:int} {f:double} {q:quoted} "
        "{who}: {message}"
    ),
    "at iso level n f q who message",
    {
        r'{x} [2026-11-21 10:00:00 UTC]   2026-11-21T10:00:00Z WARN -5 1.5e3 "a \"b\"" a b: c: d': (
            *(at("2026-11-21T10:00:00Z"), at("2026-11-21T10:00:00Z"), "WARN", -5, 1500.0),
            *('a "b"', "a b", "c: d"),
        ),
        '{x} [-] - - - - "" :  ': (None, None, "-", None, None, "", "", ""),
        '{x} [2026-11-41 10:00:00 UTC] - w 1 1 "" a: b': None,
        '{x} [-] - w 99999999999999999999 1 "" a: b': None,
        '{x} [-] - w 1 1 "" a': None,
        "": None,
    },
)


@pytest.mark.story
def test_template_placeholders_of_every_kind(outcomes: Outcomes) -> None:
    assert TEMPLATE_PLACEHOLDERS.parser.columns().simpleString() == (
        "struct<at:timestamp,iso:timestamp,level:string,n:bigint,f:double,q:string,who:string,message:string>"
    )
    assert outcomes(TEMPLATE_PLACEHOLDERS) == TEMPLATE_PLACEHOLDERS.expected
