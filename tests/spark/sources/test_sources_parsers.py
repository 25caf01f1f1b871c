"""Lines of real logs to rows; what is not of the format gives null."""

from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, isnan
from typing import Any, Literal

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from headwater_streams.errors import JobDefinitionError
from headwater_streams.sources.parsers import ACCESS, SYSLOG, Parser, access_log, key_value, syslog, template

SHIPPED = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
Parse = Callable[..., list[Row | None]]


@pytest.fixture
def parse(spark: SparkSession) -> Parse:
    """Parses lines in one Spark job, and shows times as text in UTC."""

    def run(parser: Parser, lines: list[str | bytes], shipped: datetime = SHIPPED) -> list[Row | None]:
        rows = [
            (i, line.encode() if isinstance(line, str) else line, shipped) for i, line in enumerate(lines)
        ]
        frame = spark.createDataFrame(rows, "i INT, line BINARY, shipped TIMESTAMP")
        found = frame.select("i", parser(F.col("line"), F.col("shipped")).alias("row"))
        assert found.schema["row"].dataType == parser.columns()
        return [row["row"] for row in found.sort("i").collect()]

    return run


def at(text: str) -> datetime:
    """A time as Spark's collect() gives it: in the machine's zone, without saying so."""
    return datetime.fromisoformat(text).astimezone().replace(tzinfo=None)


def fields(row: Row | None, *names: str) -> tuple[Any, ...] | None:
    return None if row is None else tuple(row[name] for name in names)


def test_access_combined_line_gives_every_column(parse: Parse) -> None:
    line = (
        '192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a/b?c=1&d HTTP/1.0" 200 2326 '
        '"http://www.example.com/start" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
    )
    (row,) = parse(ACCESS, [line])
    assert row is not None
    assert row.asDict() == {
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


def test_access_fields_that_servers_add_behind_the_combined_format(parse: Parse) -> None:
    rest = '[10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 200 5 "-"'
    found = parse(
        ACCESS,
        [
            f'h - - {rest} "curl/8" "203.0.113.9, 10.0.0.1"',
            f'h - - {rest} "curl/8" "-" 0.125',
            f'h - - {rest} "curl/8" 3.000',
            f'h - - {rest} "an "unescaped" agent" 0.5',
            f'h - - {rest} "curl/8" soon',
        ],
    )
    assert [fields(row, "agent", "forwarded_for", "took_s") for row in found] == [
        ("curl/8", "203.0.113.9, 10.0.0.1", None),
        ("curl/8", None, 0.125),
        ("curl/8", None, 3.0),
        ('an "unescaped" agent', None, 0.5),
        None,
    ]


_BEFORE = "h - - [10/Oct/2000:13:55:36 +0000] "


@pytest.mark.parametrize("case", range(2))
def test_access_requests_as_servers_log_them(parse: Parse, case: int) -> None:
    tail = ["", ' "-" "-"'][case]
    requests = {
        "GET / HTTP/1.1": ("GET", "/", None, "HTTP/1.1"),
        "GET /": ("GET", "/", None, None),
        "GET /a b c HTTP/1.1": ("GET", "/a b c", None, "HTTP/1.1"),
        "GET /?q=a?b HTTP/2.0": ("GET", "/", "q=a?b", "HTTP/2.0"),
        "PROPFIND /x HTTP/1.1": ("PROPFIND", "/x", None, "HTTP/1.1"),
        "CONNECT example.com:443 HTTP/1.1": ("CONNECT", "example.com:443", None, "HTTP/1.1"),
        r"\x16\x03\x01\x02": (None, None, None, None),
        r"GET /\"quoted\" HTTP/1.1": ("GET", r"/\"quoted\"", None, "HTTP/1.1"),
        "GET  /x?q  HTTP/1.1 ": ("GET", "/x", "q", "HTTP/1.1"),
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
    found = parse(ACCESS, [f'{_BEFORE}"{request}" 400 -{tail}' for request in requests])
    assert [fields(row, "method", "path", "query", "protocol") for row in found] == list(requests.values())
    assert [fields(row, "request", "bytes") for row in found] == [
        (None if request in ("-", "") else request, 0) for request in requests
    ]


def test_access_hosts_users_and_agents_of_all_kinds(parse: Parse) -> None:
    rest = '[10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 304 -'
    found = parse(
        ACCESS,
        [
            f"2001:db8::1 - - {rest}",
            f"host.example.com ident a user name {rest}",
            f"::1 - - {rest}",
            rf'h - - {rest} "-" "a \"quoted\" agent \\ \x41"',
            f'h - - {rest} "-" "an "unescaped" agent"',
            f'h - - {rest} "http://x/" ""',
        ],
    )
    assert [fields(row, "host", "ident", "user", "referer", "agent") for row in found] == [
        ("2001:db8::1", None, None, None, None),
        ("host.example.com", "ident", "a user name", None, None),
        ("::1", None, None, None, None),
        ("h", None, None, None, r'a "quoted" agent \ \x41'),
        ("h", None, None, None, 'an "unescaped" agent'),
        ("h", None, None, "http://x/", None),
    ]


def test_access_lines_of_other_formats_are_null(parse: Parse) -> None:
    good = '"GET / HTTP/1.1" 200 1'
    lines: list[str | bytes] = [
        "",
        "no access log",
        f'{_BEFORE}{good} "-"',
        f'{_BEFORE}{good} "-" "agent" "forwarded" "more"',
        f'{_BEFORE}"GET / HTTP/1.1 200 1',
        f'{_BEFORE}"GET / HTTP/1.1" 2000 1',
        f"h - - [32/Oct/2000:13:55:36 +0000] {good}",
        f"h - - [10/Okt/2000:13:55:36 +0000] {good}",
        f"h - - [10/Oct/2000:13:55:36] {good}",
        f"h - - [10/Oct/2000:13:58:60 +0000] {good}",
        f"h - - [10/Oct/2000:24:55:36 +0000] {good}",
        f"h - [10/Oct/2000:13:55:36 +0000] {good}",
        f"{_BEFORE}{good}\nand a second line",
        f"{_BEFORE}".encode() + b'"GET /\xff HTTP/1.1" 200 1',
        f"\ufdd0{_BEFORE}{good}",
    ]
    assert parse(ACCESS, lines) == [None] * len(lines)


def test_parsers_lines_of_a_megabyte_overflow_no_stack(parse: Parse) -> None:
    long = r"\"x y=z" * 150_000
    access = f'{_BEFORE}"GET /{long} HTTP/1.1" 200 1 "{long}" "{long}"'
    (row, bad) = parse(ACCESS, [access, access + '"x'])
    assert row is not None
    assert len(row["agent"]) == len(long) - 150_000
    assert bad is None
    (row, bad) = parse(
        SYSLOG, [f'<1>1 - h a p m [id v="{long}"] {long}', f'<1>1 - h a p m [id v="{long}] {long}']
    )
    assert row is not None
    assert len(row["message"]) == len(long)
    assert bad is None
    (row, bad) = parse(key_value("a STRING"), [f'a="{long}" ' + "b=c d " * 100_000, f'a="{long}'])
    assert row is not None
    assert len(row["a"]) == len(long) - 150_000
    assert bad is None
    (row, bad) = parse(template("{a:quoted} {b}!"), [f'"{long}" {long}!', f'"{long}" {long}'])
    assert row is not None
    assert len(row["b"]) == len(long)
    assert bad is None


def test_parsers_take_lines_of_every_kind_in_a_time_that_grows_with_them(parse: Parse) -> None:
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
        long = [line.format(unit * (200_000 // len(unit))) for line in lines for unit in units]
        assert len(parse(parser, long)) == len(long)  # a square of that would take longer than a test may


def test_parsers_byte_order_mark_before_a_line_is_no_part_of_it(parse: Parse) -> None:
    """Editors and tools of Windows write one at the beginning of a file."""
    access = '10.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 5'
    lines: dict[Parser, list[str]] = {
        ACCESS: [access, f'{access} "-" "\ufeff"'],
        SYSLOG: [
            "<34>1 - h a - - - \ufefftext",
            "<34>Oct 11 22:14:15 h su: text",
            "Oct 11 22:14:15 h su: text",
        ],
        key_value("level STRING, n INT"): ["level=info n=1", "n=1 \ufefflevel=info"],
        template("{a} {b:int}"): ["x 1"],
    }
    for parser, bare in lines.items():
        expected = parse(parser, [*bare])
        assert None not in expected
        assert parse(parser, [f"\ufeff{line}" for line in bare]) == expected, parser.name
        assert parse(parser, ["\ufeff", b"\xef\xbb\xbf\xff"]) == [None, None], parser.name


def test_syslog_new_form_gives_every_column(parse: Parse) -> None:
    line = (
        r'<165>1 2003-10-11T22:14:15.003-07:00 host app 111 ID47 [ex@1 a="1" a="two \"2\" \] \\ \n" b=""][empty]'
        ' \ufeffAn event [with] "everything"'
    )
    (row,) = parse(SYSLOG, [line])
    assert row is not None
    data = [tuple(each) for each in row["structured_data"]]
    assert data == [
        ("ex@1", "a", "1"),
        ("ex@1", "a", 'two "2" ] \\ \\n'),
        ("ex@1", "b", ""),
        ("empty", None, None),
    ]
    assert row.asDict() | {"structured_data": None} == {
        "facility": 20,
        "severity": 5,
        "version": 1,
        "time": at("2003-10-12T05:14:15.003Z"),
        "host": "host",
        "app": "app",
        "pid": "111",
        "message_id": "ID47",
        "structured_data": None,
        "message": 'An event [with] "everything"',
    }


def test_syslog_new_form_nil_values_are_null_and_a_nil_time_is_of_the_arrival(parse: Parse) -> None:
    names = (
        "facility",
        "severity",
        "version",
        "time",
        "host",
        "app",
        "pid",
        "message_id",
        "structured_data",
        "message",
    )
    arrival, nothing = at(SHIPPED.isoformat()), (None, None, None, None, None)
    found = parse(SYSLOG, ["<0>1 - - - - - -", "<0>1 - - - - - - ", "<0>1 - - - - - - two\nlines"])
    assert [fields(row, *names) for row in found] == [
        (0, 0, 1, arrival, *nothing, None),
        (0, 0, 1, arrival, *nothing, None),
        (0, 0, 1, arrival, *nothing, "two\nlines"),
    ]


@pytest.mark.parametrize(
    ("shipped", "logged", "time"),
    [
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
    ],
)
def test_syslog_old_form_takes_the_latest_year_that_is_not_ahead_of_the_record(
    parse: Parse, shipped: str, logged: str, time: str
) -> None:
    moment = datetime.fromisoformat(shipped).replace(tzinfo=UTC)
    (row,) = parse(SYSLOG, [f"<34>{logged} host su[230]: 'su root' failed"], moment)
    assert row is not None
    assert row["time"] == at(f"{time}+00:00")


def test_syslog_old_form_of_all_kinds(parse: Parse) -> None:
    found = parse(
        SYSLOG,
        [
            "<34>Oct 11 22:14:15 host su[230]: 'su root' failed",
            "Oct 11 22:14:15 host kernel: [12.3] usb 1-1: new device",
            "<13>Oct 11 22:14:15 host just words",
            "<13>Oct 11 22:14:15 2001:db8::1 postfix/smtpd[12]: connect",
            "<13>2026-10-11T22:14:15.5+02:00 host app: text",
            "<13>Oct 11 22:14:15 host app:",
        ],
    )
    assert [fields(row, "facility", "severity", "host", "app", "pid", "message") for row in found] == [
        (4, 2, "host", "su", "230", "'su root' failed"),
        (None, None, "host", "kernel", None, "[12.3] usb 1-1: new device"),
        (1, 5, "host", None, None, "just words"),
        (1, 5, "2001:db8::1", "postfix/smtpd", "12", "connect"),
        (1, 5, "host", "app", None, "text"),
        (1, 5, "host", "app", None, None),
    ]
    assert found[4] is not None
    assert found[4]["time"] == at("2026-10-11T20:14:15.5Z")
    assert {row["version"] for row in found if row is not None} == {None}


def test_syslog_old_form_without_a_host_or_a_time(parse: Parse) -> None:
    """As rsyslog takes them: what is no host's name begins the message, and what has no time is of its arrival."""
    found = {
        "<30>Nov 21 09:59:59 systemd[1]: Started x.": (None, "systemd", "1", "Started x."),
        "<6>Nov 21 09:59:59 kernel: [ 12.345] usb": (None, "kernel", None, "[ 12.345] usb"),
        "<13>Nov 21 09:59:59 app[12]:no space": (None, "app", "12", "no space"),
        "Nov 21 09:59:59 --- last message repeated 1 time ---": (
            None,
            None,
            None,
            "--- last message repeated 1 time ---",
        ),
        "<13>Nov 21 09:59:59 fe80:: app: x": ("fe80::", "app", None, "x"),
        "<13>Nov 21 09:59:59 my-host.example. app: x": ("my-host.example.", "app", None, "x"),
        "<12>python says \u00e9": (None, None, None, "python says \u00e9"),
        "<12>app[3]: text": (None, "app", "3", "text"),
    }
    rows = parse(SYSLOG, [*found])
    assert [fields(row, "host", "app", "pid", "message") for row in rows] == list(found.values())
    timeless = [row["time"] for row in rows[-2:] if row is not None]
    assert timeless == [at(SHIPPED.isoformat())] * 2
    assert parse(SYSLOG, ["<12>", "<12> ", "<999>text", "<12>2026-13-41T00:00:00Z h a: x"]) == [None] * 4


def test_syslog_old_form_is_in_the_zone_that_was_named(parse: Parse) -> None:
    (row,) = parse(
        syslog("Europe/Berlin"), ["Jul  1 12:00:00 host app: summer"], datetime(2026, 7, 2, tzinfo=UTC)
    )
    assert row is not None
    assert row["time"] == at("2026-07-01T10:00:00Z")


_CISCO = "%SYS-5-CONFIG_I: Configured from console"


@pytest.mark.parametrize(
    ("header", "time", "host"),
    [
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
        ("Mar  2 18:48:50 192.0.2.7 29: Mar  1 2019 18:48:50.483 MST: ", "2026-03-02T18:48:50", "192.0.2.7"),
        ("<189>Mar  2 18:48:50 192.0.2.7 sw01: 29: *Mar  1 18:48:50: ", "2026-03-02T18:48:50", "192.0.2.7"),
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
    ],
)
def test_syslog_of_cisco(parse: Parse, header: str, time: str, host: str | None) -> None:
    """https://www.cisco.com/c/en/us/td/docs/ios/fundamentals/command/reference/cf_book.html: `logging origin-id`,
    `service timestamps`, `service sequence-numbers`; numbers, and what is no name, are no program's."""
    (row,) = parse(SYSLOG, [f"{header}{_CISCO}"])
    assert fields(row, "time", "host", "app", "pid", "message") == (
        at(f"{time}+00:00"),
        host,
        "%SYS-5-CONFIG_I",
        None,
        "Configured from console",
    )


def test_syslog_of_cisco_firewalls(parse: Parse) -> None:
    """EMBLEM's has a colon before the time: https://www.cisco.com/c/en/us/td/docs/security/asa/syslog/asa-syslog.html"""
    found = {
        "<166>Oct 11 2018 22:14:15: ": None,
        "<166>Oct 11 2018 22:14:15 wall : ": "wall",
        "<166>Oct 11 2018 22:14:15 wall: ": "wall",
        "<166>Oct 11 2018 22:14:15 192.0.2.7 wall: ": "192.0.2.7",
        "<166>:Oct 11 2018 18:14:15 EDT: ": None,
        "<166>2018-10-11T22:14:15Z wall : ": "wall",
    }
    for mnemonic in ("%ASA-6-302013", "%FTD-session-6-302013"):
        rows = parse(SYSLOG, [f"{header}{mnemonic}: Built a" for header in found])
        assert [fields(row, "time", "host", "app", "message") for row in rows] == [
            (at("2018-10-11T22:14:15Z"), host, mnemonic, "Built a") for host in found.values()
        ]


def test_syslog_of_cisco_ios_xr_and_of_lines_without_a_mnemonic(parse: Parse) -> None:
    found = {
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
    }
    rows = parse(SYSLOG, [*found])
    assert [fields(row, "host", "app", "pid", "message") for row in rows] == list(found.values())
    # The name of a zone that only its device knows gives no time.
    assert parse(SYSLOG, [f"<189>29: Mar  1 18:48:50.483 Vienna: {_CISCO}"]) == [None]


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
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
    ],
)
def test_syslog_old_form_times_of_all_kinds(parse: Parse, stamp: str, time: str) -> None:
    found = parse(
        SYSLOG,
        [
            f"<34>{stamp} host su[230]: text",
            f"{stamp} host su[230]: text",
            f"<34> {stamp} host su[230]: text",
        ],
    )
    expected = (at(f"{time}+00:00"), "host", "su", "230", "text")
    assert [fields(row, "time", "host", "app", "pid", "message") for row in found] == [expected] * 3


@pytest.mark.parametrize("priority", ["<13>", ""])
def test_syslog_old_form_zone_that_is_not_known_is_no_host(parse: Parse, priority: str) -> None:
    times = ["Nov 20 15:00:00", "Nov 20 2026 15:00:00.5", "2026 Nov 20 15:00:00", "2026-11-20 15:00:00"]
    unknown = ["IST h a: x", "IST h a[1]: x", "WIB h.example a/b[1]: x", "NA 192.0.2.7 a: x", "IST  h\ta: x"]
    lines = [f"{priority}{time} {more}" for time in times for more in unknown]
    assert parse(SYSLOG, [*lines, f"{priority}Nov 20 15:00:00 IST 2026 h a: x"]) == [None] * (len(lines) + 1)
    found = {
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
    }
    rows = parse(SYSLOG, [f"{priority}{line}" for line in found])
    assert [fields(row, "time", "host", "app", "message") for row in rows] == [
        (at("2026-11-20T15:00:00Z"), *expected) for expected in found.values()
    ]


def test_syslog_times_without_a_zone_are_in_the_one_that_was_named(parse: Parse) -> None:
    lines = [
        "<34>Jul  1 12:00:00 host app: x",
        "<34>Jul  1 12:00:00 2026 host app: x",
        "<34>2026-07-01T12:00:00 host app: x",
        "2026-07-01 12:00:00 host app: x",
        "<34>Jul  1 10:00:00 UTC host app: x",
        "<34>1 2026-07-01T10:00:00Z host app - - - x",
    ]
    found = parse(syslog("Europe/Berlin"), [*lines], datetime(2026, 7, 2, tzinfo=UTC))
    assert [fields(row, "time", "host", "app") for row in found] == [
        (at("2026-07-01T10:00:00Z"), "host", "app")
    ] * len(lines)


def test_syslog_old_form_words_that_are_no_host_and_no_program(parse: Parse) -> None:
    found = {
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
    }
    rows = parse(SYSLOG, [*found])
    assert [fields(row, "host", "app", "pid", "message") for row in rows] == list(found.values())


def test_syslog_lines_of_other_logs_are_null(parse: Parse) -> None:
    lines: list[str | bytes] = [
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
    assert parse(SYSLOG, lines) == [None] * len(lines)


def test_syslog_new_form_takes_the_blank_of_the_example_in_the_rfc(parse: Parse) -> None:
    (row,) = parse(
        SYSLOG, ['<165>1 2003-10-11T22:14:15.003Z h a - ID47 [ex@32473 iut="3" source= "App"] text\r\n']
    )
    assert row is not None
    assert [tuple(each) for each in row["structured_data"]] == [
        ("ex@32473", "iut", "3"),
        ("ex@32473", "source", "App"),
    ]
    assert row["message"] == "text"


def test_access_virtual_host_before_the_address(parse: Parse) -> None:
    rest = '[10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 200 5'
    found = {
        "www.example.com:443 192.0.2.7 - frank": ("www.example.com:443", "192.0.2.7", None, "frank"),
        "www.example.com:80 client.example.org - -": ("www.example.com:80", "client.example.org", None, None),
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
    }
    rows = parse(ACCESS, [f"{before} {rest}" for before in found])
    assert [fields(row, "virtual_host", "host", "ident", "user") for row in rows] == list(found.values())


def test_access_lines_with_more_fields_before_the_host_are_null(parse: Parse) -> None:
    """Where nothing tells which of them is the client's."""
    rest = '[10/Oct/2000:13:55:36 +0200] "GET / HTTP/1.1" 200 5'
    before = [
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
    ]
    assert parse(ACCESS, [f"{fields} {rest}" for fields in before]) == [None] * len(before)


def test_access_blanks_between_fields_and_line_ends(parse: Parse) -> None:
    rest = '"GET / HTTP/1.1" 200 5'
    time = "[10/Oct/2000:13:55:36 +0000]"
    agents = '"http://x/" "an agent" "192.0.2.9" 0.5'
    wide = '"http://x/"  "an agent"\t"192.0.2.9"   0.5'
    found = parse(
        ACCESS,
        [
            f"h\t-\tfrank\t{time}\t{rest}".replace(" 200 ", "\t200\t"),
            f"h  -   frank  miller   {time}  {rest}  {wide}",
            f"h -  {time} {rest} {agents}\r",
            f"h - frank {time} {rest} \t\r\n",
            f"h - frank {time} {rest} {agents} ",
        ],
    )
    assert [fields(row, "user", "bytes", "referer", "agent", "forwarded_for", "took_s") for row in found] == [
        ("frank", 5, None, None, None, None),
        ("frank  miller", 5, "http://x/", "an agent", "192.0.2.9", 0.5),
        (None, 5, "http://x/", "an agent", "192.0.2.9", 0.5),
        ("frank", 5, None, None, None, None),
        ("frank", 5, "http://x/", "an agent", "192.0.2.9", 0.5),
    ]


def test_access_leap_second_is_the_first_of_the_next_minute(parse: Parse) -> None:
    times = ["31/Dec/2016:23:59:60 +0000", "01/Jan/2017:05:29:60 +0530"]
    found = parse(ACCESS, [f'h - - [{time}] "GET / HTTP/1.1" 200 5' for time in times])
    assert [fields(row, "time") for row in found] == [(at("2017-01-01T00:00:00Z"),)] * 2


def test_access_numbers_behind_the_agent(parse: Parse) -> None:
    """Apache's combinedio has the bytes in and out; nginx's manual has a compression ratio in quotes."""
    before = f'{_BEFORE}"GET / HTTP/1.1" 200 5 "-" "an "odd" agent"'
    found = parse(ACCESS, [f"{before}{more}" for more in (" 412 2704", ' "2.75"', ' "192.0.2.9" 412 2704')])
    assert [fields(row, "agent", "forwarded_for", "took_s") for row in found] == [
        ('an "odd" agent', None, None),
        ('an "odd" agent', None, None),
        ('an "odd" agent', "192.0.2.9", None),
    ]
    unknown = (
        "1 2 3",
        '"2.75" "x"',
        '0.12 0.10 "-"',
        '- "x"',
        'rt=0.1 uct="0.0"',
        '"-" 0.1 0.2 "x"',
        '0.1 be1 "x"',
    )
    assert parse(ACCESS, [f"{before} {more}" for more in unknown]) == [None] * len(unknown)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (None, [None, None, 0.5, None, None]),
        ("s", [3.0, 0.0, 0.5, 1_234_567.0, 12_345_678_901.0]),
        ("ms", [0.003, 0.0, 0.5, 1234.567, 12_345_678.901]),
        ("us", [0.000003, 0.0, 0.5, 1.234567, 12_345.678901]),
    ],
)
def test_access_whole_number_behind_the_agent_is_of_the_unit_that_was_named(
    parse: Parse, unit: Literal["s", "ms", "us"] | None, expected: list[float | None]
) -> None:
    """Apache's %D is of microseconds and its %T of seconds, nginx's $request_length of bytes."""
    numbers = ["3", "0", "0.500", "1234567", "12345678901"]
    lines = [f'{_BEFORE}"GET / HTTP/1.1" 200 5 "-" "curl/8" {number}' for number in numbers]
    rows = parse(access_log(took_unit=unit), [*lines])
    assert [row["took_s"] for row in rows if row is not None] == expected


def test_access_unit_that_is_none_is_refused() -> None:
    with pytest.raises(
        JobDefinitionError, match=r"^access_log: took_unit='min' is not one of 's', 'ms', 'us'$"
    ):
        access_log(took_unit="min")  # type: ignore[arg-type]


def test_template_times_have_as_many_words_as_their_pattern(parse: Parse) -> None:
    found = {
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
    }
    for (text, line), message in found.items():
        (row,) = parse(template(text), [line])
        assert row is not None, text
        assert (row["t"], row["msg"]) == (at("2026-11-21T10:00:00Z"), message)
    (row,) = parse(template("{t:time yyyy-MM-dd HH:mm:ss} {msg}"), ["- a b"])
    assert fields(row, "t", "msg") == (None, "a b")


def test_template_blanks_in_a_row_stand_for_one_or_more(parse: Parse) -> None:
    """PostgreSQL writes two behind its level; so do programs that put texts into columns."""
    found = {
        ("{a:word}  {b}", "x y z"): ("x", "y z"),
        ("{a}:  {b}", "LOG:  duration"): ("LOG", "duration"),
        ("{a} \t{b}", "x\ty"): ("x", "y"),
        ("{a}\t\t{b}", "x\t\ty"): ("x", "y"),
        ("{a:time  MMM  d yyyy HH:mm:ss } {b}", "Nov  1 2026 10:00:00 y"): (at("2026-11-01T10:00:00Z"), "y"),
        ("{a:time MMM  d yyyy  HH:mm:ss}  {b}", "Nov 11 2026 10:00:00   y"): (
            at("2026-11-11T10:00:00Z"),
            "y",
        ),
    }
    rows = {text: parse(template(text), [line])[0] for text, line in found}
    assert [fields(row, "a", "b") for row in rows.values()] == list(found.values())
    assert parse(template("{a}\t\t{b}"), ["x\ty"]) == [None]


def test_template_time_without_a_year_is_the_latest_that_is_not_ahead_of_the_record(parse: Parse) -> None:
    """As syslog's; Spark alone would have it of 1970."""
    found = {
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
    }
    for (pattern, line), time in found.items():
        parser = template(f"{{t:time {pattern}}} {{msg}}")
        rows = parse(parser, [f"{line} x", "- x", "Feb 30 10:00:00 x"])
        assert [fields(row, "t", "msg") for row in rows] == [
            (at(f"{time}+00:00"), "x"),
            (None, "x"),
            None,
        ], pattern


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("HH:mm:ss", r"needs its month and day; write both .*, or take it as text, \{t\}$"),
        ("yyyy", "needs its month and day"),
        ("yyyy-MM", "needs its month and day"),
        ("yyyy-mm-dd HH:mm:ss", "needs its month and day"),
        ("yyyy[-MM[-dd]]", "needs its month and day"),
        ("'Md' HH:mm:ss", "needs its month and day"),
        ("MMM d[ yyyy] HH:mm:ss", r"without the year in \[...\] would be of 1970; write yyyy outside of it"),
        ("yyyy-MM-dd hh:mm:ss", "needs a, its half of the day; write HH where there is none"),
    ],
)
def test_template_time_that_leaves_its_date_or_half_of_the_day_open_is_refused(
    pattern: str, told: str
) -> None:
    with pytest.raises(JobDefinitionError, match=told):
        template(f"{{t:time {pattern}}} {{msg}}")


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


def test_times_of_iso_8601_with_a_comma_and_with_a_zone_behind_a_blank(parse: Parse) -> None:
    """Python's logging writes the comma; the time of another zone must not be one of UTC."""
    times = [at(f"{time}+00:00") for time in _ISO_TIMES.values()]
    found = parse(template("{at:time} {level:word} {message}"), [f"{text} INFO x y" for text in _ISO_TIMES])
    assert [fields(row, "level", "message") for row in found[:-1]] == [("INFO", "x y")] * (len(times) - 1)
    assert [row and row["at"] for row in found[:-1]] == times[:-1]
    for text in (
        "[{at:time}] {message}",
        "{at:time}, {message}",
        "{at:time}|{message}",
        "x {message} {at:time}",
    ):
        lines = [text.replace("{at:time}", time).replace("{message}", "x") for time in _ISO_TIMES]
        found = parse(template(text), [*lines])
        assert [fields(row, "at", "message") for row in found] == [(time, "x") for time in times], text
    found = parse(key_value("at TIMESTAMP, n INT"), [f'at="{text}" n=1' for text in _ISO_TIMES])
    assert [row and row["at"] for row in found] == times


def test_template_what_stands_behind_a_time_and_is_no_zone_is_not_taken(parse: Parse) -> None:
    found = {
        ("{at:time} {n:int} {m}", "2026-10-25 02:30:00 +02 x"): ("+02", "x"),
        ("{at:time} {n:word} {m:int}", "2026-10-25 02:30:00 +0200 5"): ("+0200", "5"),
        ("{at:time} {n:word}", "2026-10-25 02:30:00 UTC"): ("UTC", None),
        ("{at:time} {n:word} {m}", "2026-10-25 02:30:00 Zoe x"): ("Zoe", "x"),
        ("{at:time} {n:word} {m}", "2026-10-25 02:30:00 -15 x"): ("-15", "x"),
        ("{at:time} {n:word} {m}", "2026-10-25 02:30:00 -01.5 x"): ("-01.5", "x"),
        ("{at:time yyyy-MM-dd HH:mm:ss[.SSS]} {n:word} {m}", "2026-10-25 02:30:00.000 +0200 x"): (
            "+0200",
            "x",
        ),
    }
    for (text, line), (n, m) in found.items():
        (row,) = parse(template(text), [line])
        assert row is not None, text
        assert row["at"] == at("2026-10-25T02:30:00Z"), text
        assert str(row["n"]) == n.lstrip("+0" if "n:int" in text else ""), text
        assert m is None or str(row["m"]) == m, text


def test_key_value_dates_have_a_month_and_a_day(parse: Parse) -> None:
    """Spark takes the first of the year or of the month."""
    rows = parse(
        key_value("d DATE, t TIMESTAMP_NTZ"), ["d=2026", "d=2026-10", "d=2026-10-25", "t=2026", "t=2026-10"]
    )
    assert [None if row is None else str(row["d"]) for row in rows] == [None, None, "2026-10-25", None, None]


@pytest.mark.parametrize(
    "text",
    ["10:00:00", "10:00", "T10:00", "2026", "2026-11", "+12026-11-21T10:00:00Z", "20261121"],
)
def test_time_without_its_date_is_none_for_it_would_be_of_the_day_on_which_it_is_read(
    parse: Parse, text: str
) -> None:
    assert parse(template("{at:time} {msg}"), [f"{text} a", "2026-11-21 a"])[0] is None
    found = parse(key_value("at TIMESTAMP, msg STRING"), [f"at={text} msg=a", "at=2026-11-21 msg=a"])
    assert (found[0], found[1] is None) == (None, False)


def test_template_free_texts_are_found_in_a_time_that_grows_with_the_line(parse: Parse) -> None:
    """A matcher that goes back on each of them would be at it for a day."""
    parser = template("{level:word} {a} {b} {c} {d} {e}: {msg}")
    good = "INFO 1 2 3 4 5 6: text: more"
    (row, bad) = parse(parser, [good, "INFO" + " a" * 20_000])
    assert fields(row, "a", "d", "e", "msg") == ("1", "4", "5 6", "text: more")
    assert bad is None


def test_template_pattern_by_which_spark_reads_no_time_is_refused() -> None:
    with pytest.raises(
        JobDefinitionError, match=r"no time by the letter 'E'; take the name of a day as a word"
    ):
        template("[{at:time EEE MMM dd HH:mm:ss yyyy}] {msg}")
    with pytest.raises(JobDefinitionError, match="no time by the letter 'n'"):
        template("{at:time HH:mm:ss.n} {msg}")
    with pytest.raises(JobDefinitionError, match="a quote in the pattern has no end"):
        template("{at:time yyyy-MM-dd'T} {msg}")


def test_syslog_other_lines_are_null(parse: Parse) -> None:
    lines: list[str | bytes] = [
        "",
        "a line",
        "<192>1 - - - - - -",
        "<34>Oct 32 22:14:15 host app: x",
        "<999>Oct 11 22:14:15 host app: x",
        '<1>1 - h a p m [id v="open] x',
        "<1>1 2003-13-41T22:14:15Z h a p m - x",
        b"<34>Oct 11 22:14:15 host app: \xff",
    ]
    assert parse(SYSLOG, lines) == [None] * len(lines)


def test_key_value_takes_the_wanted_keys_with_their_types(parse: Parse) -> None:
    parser = key_value("level STRING, msg STRING, took_ms DOUBLE, n INT")
    found = parse(
        parser,
        [
            r'level=info msg="he said \"hi\" = \\" took_ms=12.5 cached n=3',
            "  n=1\tlevel=   msg=a=b n=2 ",
            'other=1 level="" path=/x?y=1',
            'url=http://x/?a="b" level=warn',
        ],
    )
    assert [fields(row, "level", "msg", "took_ms", "n") for row in found] == [
        ("info", r'he said "hi" = \ '.rstrip(), 12.5, 3),
        (None, "a=b", None, 1),
        ("", None, None, None),
        ("warn", None, None, None),
    ]


def test_key_value_escapes_that_go_writes_are_what_they_stand_for(parse: Parse) -> None:
    texts = {
        r"a\nb\tc\rd": "a\nb\tc\rd",
        r"C:\\new\\temp": r"C:\new\temp",
        r"\\\n\\\\n": "\\\n\\\\n",
        r"\"\\\"\n\\": '"\\"\n\\',
        r"\x1b[0m \u00e9": r"\x1b[0m \u00e9",
    }
    found = parse(key_value("msg STRING"), [f'msg="{text}"' for text in texts])
    assert [fields(row, "msg") for row in found] == [(text,) for text in texts.values()]
    assert fields(parse(key_value("msg STRING"), [r"msg=C:\new"])[0], "msg") == (r"C:\new",)


def test_key_value_behind_a_priority_and_with_commas_between(parse: Parse) -> None:
    """As firewalls send them; a comma within a value is the value's."""
    lines = [
        '<189>date=2026-11-21 msg="a, b" n=3',
        'date=2026-11-21, msg="a, b", n=3',
        'date=2026-11-21,  msg="a, b",n=4, n=3,',
        "date=2026-11-21 msg=a,b,c, list=, n=3 ,",
        "date=2026-11-21 msg=,a n=3",
    ]
    found = parse(key_value("date STRING, msg STRING, n INT"), [*lines])
    assert [fields(row, "date", "msg", "n") for row in found] == [
        ("2026-11-21", "a, b", 3),
        ("2026-11-21", "a, b", 3),
        None,
        ("2026-11-21", "a,b,c", 3),
        ("2026-11-21", ",a", 3),
    ]


def test_key_value_single_quotes_that_are_closed_are_quotes(parse: Parse) -> None:
    found = {
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
    }
    rows = parse(key_value("msg STRING, a STRING"), [*found])
    assert [fields(row, "msg", "a") for row in rows] == list(found.values())


def test_key_value_pairs_in_single_quotes_are_not_the_line_s(parse: Parse) -> None:
    """auditd's; of its two `msg` the first counts, as of every key."""
    line = "type=USER_LOGIN msg=audit(1:2): pid=5 uid=0 msg='op=PAM:authentication acct=\"root\" res=failed'"
    (row,) = parse(key_value("type STRING, msg STRING, pid INT, op STRING, acct STRING, res STRING"), [line])
    assert row is not None
    assert tuple(row) == ("USER_LOGIN", "audit(1:2):", 5, None, None, None)


_NUMBERS = {
    "5": 5.0, "-5.25": -5.25, "+.5": 0.5, "1.": 1.0, "1.5e3": 1500.0, "1E-2": 0.01, "1e-400": 0.0,
    "1.7976931348623157e308": 1.7976931348623157e308, "Infinity": inf, "+Inf": inf, "-inf": -inf,
    "5d": None, "5F": None, "5D": None, "0x1p3": None, "1_000": None, "1e": None, "1e400": None, "-1e400": None,
    "1,5": None, "Infinit": None, "nano": None,
}  # fmt: skip


def test_key_value_numbers_are_decimal_ones(parse: Parse) -> None:
    """Spark takes Java's, too, and one that is too great for infinity."""
    rows = parse(key_value("n DOUBLE, a STRING"), [f"n={text} a=x" for text in _NUMBERS])
    assert [None if row is None else row["n"] for row in rows] == list(_NUMBERS.values())
    rows = parse(key_value("n FLOAT"), ["n=1.5", "n=1e40", "n=5f", "n=-Infinity", 'n=" 2.5 "', "n=NaN"])
    assert [row and row["n"] for row in rows[:-1]] == [1.5, None, None, -inf, 2.5]
    assert rows[-1] is not None
    assert isnan(rows[-1]["n"])


def test_template_numbers_are_decimal_ones(parse: Parse) -> None:
    parser = template("{n:double} {a}")
    rows = parse(parser, [f"{text} x" for text in _NUMBERS])
    assert [None if row is None else row["n"] for row in rows] == list(_NUMBERS.values())
    (row,) = parse(parser, ["NaN x"])
    assert row is not None
    assert isnan(row["n"])


def test_key_value_other_lines_are_null(parse: Parse) -> None:
    lines: list[str | bytes] = [
        "",
        "words only",
        "other=1",
        'level="open',
        'level="a"b',
        "n=three",
        "=x level=info",
        b"level=\xff",
    ]
    assert parse(key_value("level STRING, n INT"), lines) == [None] * len(lines)


def test_template_placeholders_of_every_kind(parse: Parse) -> None:
    parser = template(
        "{{x}} [{at:time yyyy-MM-dd HH:mm:ss VV}] {iso:time} {level:word} {n:int} {f:double} {q:quoted} "
        "{who}: {message}"
    )
    assert parser.columns().simpleString() == (
        "struct<at:timestamp,iso:timestamp,level:string,n:bigint,f:double,q:string,who:string,message:string>"
    )
    found = parse(
        parser,
        [
            r'{x} [2026-11-21 10:00:00 UTC]   2026-11-21T10:00:00Z WARN -5 1.5e3 "a \"b\"" a b: c: d',
            '{x} [-] - - - - "" :  ',
        ],
    )
    assert [tuple(row) if row else None for row in found] == [
        (at("2026-11-21T10:00:00Z"), at("2026-11-21T10:00:00Z"), "WARN", -5, 1500.0, 'a "b"', "a b", "c: d"),
        (None, None, "-", None, None, "", "", ""),
    ]
    bad: list[str | bytes] = [
        '{x} [2026-11-41 10:00:00 UTC] - w 1 1 "" a: b',
        '{x} [-] - w 99999999999999999999 1 "" a: b',
        '{x} [-] - w 1 1 "" a',
        "",
    ]
    assert parse(parser, bad) == [None] * len(bad)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a:float}", r"\{a:float\} is of no known kind; there are word, quoted, int, double, time"),
        ("{a:int 3}", "is of no known kind"),
        ("{a} {a}", "a comes twice"),
        ("{a", r"what begins with '\{a' is no placeholder"),
        ("text", "it has no placeholder"),
    ],
)
def test_template_wrong_one_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        template(text)
