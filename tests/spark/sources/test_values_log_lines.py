"""What is written of access logs and syslog is what was sent, or the line is refused with its part and its text.

Each line has one odd part. Python says what that is (`strptime`, `datetime`, `zoneinfo`, `int`, `decimal`); every other
column is what it is of the line without it, for a part that is none must not shift or grow into the others.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

import pytest

import headwater as hw
from headwater_streams.sources.parsers import Parser, access_log, syslog
from odd_values import NONE, same

Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]
Row = dict[str, object]
Parts = dict[str, str]

ARRIVAL = datetime(2024, 3, 1, 12, 0, 0)
"""When the records were made: a day behind 29 February."""
NUMBERS = [
    "0", "7", "007", "200", "999", "1000", "-1", "+5", "1.0", "1.5", ".5", "5.", "1e2", "1,5", "1_0", "0x10", "5L",
    "127", "128", "255", "32768", "2147483647", "2147483648", "4294967296", "999999999999", "1000000000000",
    "999999999999999999",
    "9223372036854775807", "9223372036854775808", "9" * 40, "\u0662\u0660\u0660", "\uff12\uff10\uff10",
    "\u0968\u0966\u0966",
    "\u00bd", "NaN", "Infinity", "null", "true", "-", "", " ", "2 0", "0.123456789", "0.1234567891", "\u0000",
    "20\u0000",
]  # fmt: skip
TEXTS = [
    "x", "\u00e9", "e\u0301", "\U0001f600", "\ufffd", "\u0663", "\u0000", "a\u0000b", "\u00a0", "a\u00a0b",
    "a\u2003b", "\u2028",
    "\x1d", "a\x0bb", "a\x85b", "\x7f", "-", "--", "", " ", "a b", "a\tb", "a\nb", "a\rb", "'", "a'b", "\\", "a\\nb",
    "\\x16\\x03", '\\"', 'a\\"b', "a\\\\b", '"', 'a"b', "[", "]", "a]b", "a[b", "a=b", "\ufdd0", "\ufeff", "null",
    "NaN", "1", "200", "::1", "10.0.0.1", "%", "<1>", "HTTP/1.1", 'x" 1.5e3 "y', 'x" 7 8 "y', 'x" - "y',
    'x" \u0663 "y', 'x" 3rd "y', 'x", "y',
]  # fmt: skip
DAYS = [
    ("01", "Jan", "2024"), ("29", "Feb", "2024"), ("29", "Feb", "2023"), ("30", "Feb", "2024"), ("29", "Feb", "1900"),
    ("29", "Feb", "2000"), ("31", "Apr", "2024"), ("00", "Jan", "2024"), ("32", "Jan", "2024"), ("1", "Jan", "2024"),
    ("10", "Oct", "1582"), ("04", "Oct", "1582"), ("01", "Jan", "1900"), ("01", "Jan", "0001"), ("01", "Jan", "0000"),
    ("31", "Dec", "9999"), ("01", "Jan", "10000"), ("01", "Jan", "24"), ("10", "oct", "2024"), ("10", "OCT", "2024"),
    ("10", "Okt", "2024"), ("10", "Foo", "2024"), ("10", "10", "2024"), ("\u0661\u0660", "Oct", "2024"),
    ("10", "Oct", "\u0662\u0660\u0662\u0664"), ("-1", "Jan", "2024"), ("1 ", "Jan", "2024"),
]  # fmt: skip
CLOCKS = [
    "00:00:00", "23:59:59", "24:00:00", "10:60:00", "10:00:61", "23:59:60", "10:59:60", "10:58:60", "10:00:60",
    "1:00:00", "10:0:00", "10:00", "100:00:00", "10:00:00.5", "10:00:00.999999", "10:00:00.123456789",
    "10:00:00,5", "\u0661\u0660:00:00", "-1:00:00", "10:00:00 ", "10-00-00", "100000",
]  # fmt: skip
OFFSETS = [
    "+0000", "-0000", "+0100", "-0700", "+0530", "+1400", "-1200", "+1800", "+1801", "+2500", "+9900", "+0060",
    "+01:00", "+01", "+1", "Z", "UTC", "", "+\u0660\u0661\u0660\u0660", "+00000", "Europe/Berlin", "CEST",
]  # fmt: skip


def _in_utc(time: datetime, is_leap: bool = False) -> object:
    """A time as it is written; a leap second is at the end of an hour of UTC, as zones of half and quarter hours have
    it, too, and the first second of the next minute."""
    if is_leap and time.minute not in (59, 44, 29, 14):
        return NONE
    found = (time.astimezone(UTC) if time.tzinfo else time) + timedelta(seconds=is_leap)
    return found.replace(tzinfo=None)


def _say(oracle: Callable[[str], object], text: str) -> object:
    try:
        return oracle(text)
    except (ValueError, OverflowError, InvalidOperation, IndexError):
        return NONE


def _judge(
    cases: list[tuple[str, str, object, bool]],
    found: list[Decoded],
    columns: list[str],
    base: Row,
    named: dict[str, str],
) -> Iterator[str]:
    """What is wrong with lines of one odd part each.

    Args:
        cases: Each line's part, its text, what the columns are of it, and whether it must be taken.
        found: What was decoded.
        columns: The parser's.
        base: What the columns are of the line without an odd part.
        named: What a part is called in reasons.
    """
    for (part, text, says, is_plain), (row, reason) in zip(cases, found, strict=True):
        if row is None:
            if is_plain:
                yield f"{part} {text!r} is refused: {reason}"
            elif reason is None or not any(each in reason for each in _says(part, text, named)):
                yield f"{part} {text!r}: the reason has neither the part nor its text: {reason}"
            continue
        written = {
            name: tuple(tuple(each) for each in value) if isinstance(value, list) else value
            for name, value in zip(columns, row, strict=True)
        }
        if says is NONE:
            yield f"{part} {text!r} is not refused: {written}"
            continue
        assert isinstance(says, dict)
        expected = base | says
        wrong = {name for name in expected if not same(written[name], expected[name])}
        if wrong:
            told = ", ".join(f"{name} is {written[name]!r}, not {expected[name]!r}" for name in sorted(wrong))
            yield f"{part} {text!r}: {told}"


def _says(part: str, text: str, named: dict[str, str]) -> list[str]:
    """One of which a reason has: the part's name or the text. A blank or a quote in one part is a fault of the next."""
    told = [named[part], text[:60], "of the years 1 to 9999", "U+FDD0"]
    return [*told, *re.split(r'[ \t"]+', text)] if re.search(r'[ \t"]', text) else told


def _decoded(decode: Decode, parser: Parser, lines: list[str]) -> list[Decoded]:
    return decode(
        hw.topic("t", format=parser), [line.encode() for line in lines], at=ARRIVAL.replace(tzinfo=UTC)
    )


# Access logs ---------------------------------------------------------------------------------------------------------

_ACCESS: Parts = {
    "host": "192.0.2.7", "ident": "-", "user": "frank", "time": "10/Oct/2000:13:55:36 -0700",
    "request": "GET /a?b=1 HTTP/1.0", "status": "200", "size": "2326", "referer": "http://x/", "agent": "Mozilla/5.0",
    "forwarded_for": "10.1.1.1", "took": "0.012",
}  # fmt: skip
_ACCESS_ROW: Row = {
    "host": "192.0.2.7", "ident": None, "user": "frank", "time": datetime(2000, 10, 10, 20, 55, 36),
    "request": "GET /a?b=1 HTTP/1.0", "method": "GET", "path": "/a", "query": "b=1", "protocol": "HTTP/1.0",
    "status": 200, "bytes": 2326, "referer": "http://x/", "agent": "Mozilla/5.0", "forwarded_for": "10.1.1.1",
    "took_s": 0.012, "virtual_host": None,
}  # fmt: skip


def _access_line(parts: Parts) -> str:
    host, ident, user, time, request, status, size, referer, agent, forwarded, took = parts.values()
    return f'{host} {ident} {user} [{time}] "{request}" {status} {size} "{referer}" "{agent}" "{forwarded}" {took}'


def _clf_time(text: str) -> Row | object:
    if not text.isascii() or not re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}", text):
        return NONE
    is_leap = text[18:20] == "60"
    read = datetime.strptime(text.replace(":60 ", ":59 ") if is_leap else text, "%d/%b/%Y:%H:%M:%S %z")
    found = _in_utc(read, is_leap)
    return found if found is NONE else {"time": found}


def _whole(column: str, most: int) -> Callable[[str], Row | object]:
    def says(text: str) -> Row | object:
        if text == "-":
            return {column: 0 if column == "bytes" else None}
        value = int(text) if re.fullmatch(r"\d+", text) else -1
        return {column: value} if 0 <= value <= most else NONE

    return says


def _took(text: str) -> Row | object:
    if text.strip() == "" or re.fullmatch("[0-9]+ [0-9]+", text):  # two are the octets of Apache's combinedio
        return {"took_s": None}
    value = Decimal(text) if re.fullmatch(r"[\d.]+", text) else Decimal(-1)
    # Of a whole number no unit is known.
    return NONE if value < 0 else {"took_s": float(value) if "." in text else None}


def _quoted(column: str) -> Callable[[str], Row]:
    def says(text: str) -> Row:
        return {column: None if text in ("", "-") else re.sub(r'\\(["\\])', r"\1", text)}

    return says


def _ident(text: str) -> Row | object:
    # Of words before the time the first is the identity, and a user's name may have several.
    first, _, more = text.replace("\t", " ").partition(" ")
    return {"ident": None if first == "-" else first, "user": f"{more} frank".strip()}


def _user(text: str) -> Row | object:
    # Blanks around a name are none of it.
    return {"user": None if text.strip(" \t") in ("", "-") else text.strip(" \t")}


def _request(text: str) -> Row | object:
    """A request line; what other forms are taken apart into, their own tests say."""
    found = re.fullmatch(r"([A-Z]+)[ \t]+([^?]+?)(?:\?(.*?))?[ \t]+(HTTP/\d\.\d)", text, re.ASCII | re.DOTALL)
    parts = found.groups() if found else (None, None, None, None)
    row: Row = dict(zip(("method", "path", "query", "protocol"), parts, strict=True))
    return row | {"request": None if text in ("", "-") else text}


def test_access_log_lines_are_what_was_sent_or_refused(decode: Decode) -> None:
    times = [f"{d}/{m}/{y}:10:00:00 +0000" for d, m, y in DAYS]
    times += [f"10/Oct/2024:{clock} {offset}" for clock in CLOCKS for offset in ("+0000", "+0530")]
    times += [f"10/Oct/2024:10:00:00 {offset}" for offset in OFFSETS]
    times += [
        "01/Jan/0001:00:00:00 +0100",
        "31/Dec/9999:23:59:59 -0100",
        "31/Dec/9999:23:59:60 +0000",
        "-",
        "",
    ]
    requests = [*TEXTS, *[f"GET /{text} HTTP/1.1" for text in TEXTS if text.strip()]]
    oracles: dict[str, tuple[list[str], Callable[[str], object]]] = {
        "time": (times, _clf_time),
        "status": (NUMBERS, _whole("status", 999)),
        "size": (NUMBERS, _whole("bytes", 2**63 - 1)),
        "took": (NUMBERS, _took),
        "host": (TEXTS, lambda text: {"host": text}),
        "ident": (TEXTS, _ident),
        "user": (TEXTS, _user),
        "referer": (TEXTS, _quoted("referer")),
        "agent": (TEXTS, _quoted("agent")),
        "forwarded_for": (TEXTS, _quoted("forwarded_for")),
        "request": (requests, _request),
    }
    plain = {
        "time": {"29/Feb/2024:10:00:00 +0000", "10/Oct/1582:10:00:00 +0000", "10/Oct/2024:23:59:60 +0000"},
        "status": {"200", "-"}, "size": {"0", "2147483648", "999999999999999999", "-"}, "took": {"1.5", "7"},
        "host": {"x", "\u00e9", "::1"}, "user": {"\u00e9", "a b", "-"},
        "agent": {"\u00e9", "a b", "\U0001f600", 'a\\"b', "a\\\\b", "-", ""}, "referer": {"\u00e9", 'a\\"b', "-"},
        "request": {"GET /x HTTP/1.1", "\\x16\\x03", "-", "GET /\u00e9 HTTP/1.1"},
    }  # fmt: skip
    cases = [
        (part, text, _say(oracle, text), text in plain.get(part, ()))
        for part, (texts, oracle) in oracles.items()
        for text in texts
    ]
    found = _decoded(
        decode, access_log(), [_access_line(_ACCESS | {part: text}) for part, text, _, _ in cases]
    )
    named = {"host": "client's address", "ident": "identity", "took": "end, behind the size,"}
    named |= dict.fromkeys(("referer", "agent", "forwarded_for"), "end, behind the size,")
    names = {part: named.get(part, part) for part in oracles}
    assert list(_judge(cases, found, [*_ACCESS_ROW], _ACCESS_ROW, names)) == []


# Syslog of RFC 5424 --------------------------------------------------------------------------------------------------

_SYSLOG: Parts = {
    "priority": "165", "version": "1", "time": "2003-10-11T22:14:15.003Z", "host": "host", "app": "app", "pid": "111",
    "message_id": "ID47", "value": "3", "message": "text",
}  # fmt: skip
_SYSLOG_ROW: Row = {
    "facility": 20, "severity": 5, "version": 1, "time": datetime(2003, 10, 11, 22, 14, 15, 3000), "host": "host",
    "app": "app", "pid": "111", "message_id": "ID47", "structured_data": (("e", "v", "3"),), "message": "text",
}  # fmt: skip


def _priority(text: str) -> Row | object:
    value = int(text) if re.fullmatch(r"[0-9]+", text) else -1
    return {"facility": value >> 3, "severity": value & 7} if 0 <= value <= 191 else NONE


def _iso_time(text: str) -> Row | object:
    if text == "-":
        return {"time": ARRIVAL}
    form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
    if not re.fullmatch(form, text, re.ASCII) or "T24" in text:
        return NONE
    found = _in_utc(datetime.fromisoformat(text))
    return {"time": found}


def _version(text: str) -> Row | object:
    return {"version": int(text)} if re.fullmatch("[1-9][0-9]{0,2}", text) else NONE


def _word(column: str) -> Callable[[str], Row | object]:
    return lambda text: {column: None if text == "-" else text}


def _parameter(text: str) -> Row:
    return {"structured_data": (("e", "v", re.sub(r'\\(["\\\]])', r"\1", text)),)}


def _message(text: str) -> Row:
    # A line's end is none of it, and the mark of UTF-8 stands before it.
    message = text.removeprefix("\ufeff").rstrip("\r\n")
    return {"message": message or None}


def test_syslog_lines_are_what_was_sent_or_refused(decode: Decode) -> None:
    months = {"Jan": "01", "Feb": "02", "Apr": "04", "Oct": "10", "Dec": "12"}
    times = [f"{y}-{months.get(m, m)}-{d}T10:00:00Z" for d, m, y in DAYS]
    times += [f"2024-10-10T{clock}Z" for clock in CLOCKS]
    times += [f"2024-10-10T10:00:00{offset[:3]}:{offset[3:]}" for offset in OFFSETS if len(offset) == 5]
    times += [f"2024-10-10T10:00:00{offset}" for offset in OFFSETS]
    times += ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.999999Z"]
    times += ["2024-10-10 10:00:00Z", "2024-10-10t10:00:00z", "20241010T100000Z", "-", "--", "", "2024-10-10"]
    times += [
        "2024-1-010T10:00:00Z",
        "2024---10T10:00:00Z",
        "2024-10-10T10::00:0Z",
        "2024-10-10T10:00:00+1:000",
    ]
    quoted = [text for text in TEXTS if not re.search(r'(?<!\\)["\]]|\\\Z', text)]
    oracles: dict[str, tuple[list[str], Callable[[str], object]]] = {
        "priority": (
            [*NUMBERS, *map(str, range(185, 195))],
            _priority,
        ),
        "version": (
            [text for text in NUMBERS if re.match(r"[-+.]?\w", text) and not text.isalpha()],
            _version,
        ),
        "time": (times, _iso_time),
        "host": (TEXTS, _word("host")),
        "app": (TEXTS, _word("app")),
        "pid": (TEXTS, _word("pid")),
        # Behind a blank another part begins, and a "-" there is no structured data.
        "message_id": ([text for text in TEXTS if " - " not in text], _word("message_id")),
        "value": ([*quoted, "a\\]b", 'a \\"][b x=\\"', "\\\\"], _parameter),
        "message": ([*TEXTS, "a\n\n", "\ufeffa", " a ", "a\r\n"], _message),
    }
    plain = {
        "priority": {"0", "191"}, "version": {"1", "2"}, "host": {"x", "\u00e9", "-"}, "app": {"x", "-"},
        "time": {"2024-02-29T10:00:00Z", "2024-10-10T10:00:00.123456789Z", "2024-10-10T10:00:00+05:30", "-"},
        "value": {"\u00e9", "", "a b", 'a\\"b', "a\\]b", "a=b"}, "message": {*TEXTS} - {"\ufdd0"},
    }  # fmt: skip
    cases = [
        (part, text, _say(oracle, text), text in plain.get(part, ()))
        for part, (texts, oracle) in oracles.items()
        for text in texts
    ]

    def line(parts: Parts) -> str:
        pri, version, time, host, app, pid, message_id, value, message = parts.values()
        return f'<{pri}>{version} {time} {host} {app} {pid} {message_id} [e v="{value}"] {message}'

    found = _decoded(decode, syslog(), [line(_SYSLOG | {part: text}) for part, text, _, _ in cases])
    named = {"value": "structured data", "message_id": "message's id", "app": "program", "pid": "process"}
    names = {part: named.get(part, part) for part in oracles}
    assert list(_judge(cases, found, [*_SYSLOG_ROW], _SYSLOG_ROW, names)) == []


# Syslog of RFC 3164 --------------------------------------------------------------------------------------------------

_OLD_ROW: Row = {
    "facility": 4, "severity": 2, "version": None, "time": None, "host": "host", "app": "su", "pid": "230",
    "message_id": None, "structured_data": None, "message": "text",
}  # fmt: skip
_ZONES = {"CEST": "+0200", "UTC": "+0000", "EST": "-0500", "+01": "+0100"}


def _old_time(text: str, zone: str) -> Row | object:
    """A time of RFC 3164 by `strptime`; the latest year that brings it to no more than a day behind the arrival."""
    parts = re.fullmatch(
        r"(?:(\d{4}) +)?([A-Za-z]{3}) +(\d{1,2})(?: +(\d{4}))? +(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?: (\S+))?",
        text.strip(), re.ASCII,
    )  # fmt: skip
    if not parts:
        return NONE
    before, month, day, year, hour, minute, second, fraction, offset = parts.groups()
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    is_leap = second == "60"

    def of_year(year: int) -> datetime:
        clock = f"{hour}:{minute}:{59 if is_leap else second}"
        read = datetime.strptime(f"{year:04} {month} {day} {clock}", "%Y %b %d %H:%M:%S")
        read = read.replace(microsecond=micros)
        if offset is None:
            aware = read.replace(tzinfo=ZoneInfo(zone), fold=0)
        else:
            aware = read.replace(tzinfo=datetime.strptime(_ZONES.get(offset, offset), "%z").tzinfo)
        found = _in_utc(aware, is_leap)
        if not isinstance(found, datetime):
            raise ValueError(text)
        return found

    if before or year:
        return {"time": of_year(int(before or year))}
    for each in range(ARRIVAL.year + 1, ARRIVAL.year - 9, -1):
        try:
            found = of_year(each)
        except ValueError:
            continue
        if found <= ARRIVAL + timedelta(days=1):
            return {"time": found}
    return NONE


def _old_host(text: str) -> Row:
    # A word that is no host's name is the beginning of the message.
    if re.fullmatch(r"[A-Za-z0-9._:%/@-]*(?:[A-Za-z0-9._]|::)", text):
        return {"host": text}
    return {"host": None, "app": None, "pid": None, "message": f"{text} su[230]: text"}


def _old_pid(text: str) -> Row:
    if re.fullmatch(r"[^\]\s]*", text, re.ASCII):
        return {"pid": text or None}
    return {"app": None, "pid": None, "message": f"su[{text}]: text"}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_old_syslog_lines_are_what_was_sent_or_refused(decode: Decode, zone: str) -> None:
    times = [f"{m} {d} {y} 10:00:00" for d, m, y in DAYS] + [f"{m} {d} 10:00:00" for d, m, _ in DAYS]
    times += [f"{y} {m} {d} 10:00:00" for d, m, y in DAYS if m != "10"]
    times += [f"Feb 29 {clock}" for clock in CLOCKS] + [f"Oct 10 2020 {clock}" for clock in CLOCKS]
    times += [f"Feb 29 10:00:00 {offset}" for offset in OFFSETS if offset]
    times += ["Mar  2 11:59:59", "Mar  2 12:00:00", "Mar  2 12:00:01", "Mar  3 00:00:00", "Dec 31 23:59:59"]
    # The hour that a zone skips, and the one that it has twice.
    times += [
        "Mar 31 2024 02:30:00",
        "Oct 27 2024 02:30:00",
        "Mar 31 02:30:00",
        "Oct 29 02:30:00",
        "Oct 27 02:30:00",
    ]
    times += [
        "Jan  1 0001 00:00:00",
        "Jan  1 0001 00:00:00 +0100",
        "Dec 31 9999 23:59:59 -0100",
        "Jan  1 1900 00:00:00",
    ]
    times += ["okt 10 10:00:00", "mai 1 10:00:00", "10 Oct 2024 10:00:00", "10 Oct 10:00:00"]
    cases: list[tuple[str, str, object, bool]] = []
    plain = {
        "Feb 29 2024 10:00:00",
        "Feb 29 10:00:00",
        "Feb 29 10:00:00.5",
        "Mar  2 12:00:01",
        "Dec 31 23:59:59",
    }
    for text in times:
        says = _say(lambda each: _old_time(each, zone), text)
        cases.append(("time", text, says, text in plain))
    for text in [
        "10/10/2024 10:00:00",
        "10.10.2024 10:00:00",
        "\u0661\u0660/10/2024 10:00:00",
        "2024 10 10 10:00:00",
    ]:
        # What is no time of RFC 3164 is the beginning of the message.
        whole = {"host": None, "app": None, "pid": None, "message": f"{text} host su[230]: text"}
        cases.append(("time", text, {"time": ARRIVAL, **whole}, True))
    arrival = {"time": ARRIVAL - timedelta(days=1)}
    stamp = "Feb 29 2024 12:00:00" if zone == "UTC" else "Feb 29 2024 13:00:00"
    messages = [text for text in [*TEXTS, " a ", "a\n\n"] if text != "\ufeff"]
    for text in messages:
        said = text.rstrip("\r\n")
        cases.append(("message", text, arrival | {"message": said or None}, text == "\u00e9"))
    for text in TEXTS:
        cases.append(("pid", text, arrival | _old_pid(text), text == "x"))
        if text.strip() and " " not in text:
            cases.append(("host", text, arrival | _old_host(text), text == "x"))
    for text in [*NUMBERS, *map(str, range(185, 195))]:
        priority = _say(_priority, text)
        says = {**arrival, **priority} if isinstance(priority, dict) else NONE
        cases.append(("priority", text, says, text == "191"))

    def line(part: str, text: str) -> str:
        parts = {"priority": "34", "time": stamp, "host": "host", "pid": "230", "message": "text"} | {
            part: text
        }
        return "<{priority}>{time} {host} su[{pid}]: {message}".format(**parts)

    found = _decoded(decode, syslog(zone), [line(part, text) for part, text, _, _ in cases])
    names = dict.fromkeys(("time", "host", "pid", "message", "priority"), "no form of its time and its host")
    assert list(_judge(cases, found, [*_OLD_ROW], _OLD_ROW, names)) == []
