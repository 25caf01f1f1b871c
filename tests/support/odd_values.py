"""Odd values of each type, and what Python says that they are: the oracle of `spark/sources/test_values.py`.

A value is told by its text. `says` gives what a text is as a value of a type, `NONE` where it is none. What a format
writes is that, or the record is refused; `PLAIN` are texts that each format must take.
"""

import base64
import json
import math
import re
import struct
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

NONE = object()
TYPES = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(10,2)", "DECIMAL(38,0)", "DECIMAL(38,18)", "FLOAT", "DOUBLE",
    "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
)  # fmt: skip
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EDGES = [edge for bits in BITS.values() for edge in (2 ** (bits - 1), 2**bits)]
NUMBERS = [
    *[str(sign * edge + more) for edge in _EDGES for sign in (1, -1) for more in (-1, 0, 1)],
    "0", "-0", "-0.0", "7", "200", "1.0", "1.5", "-1.5", "1e2", "1E2", "1.5e1", "1e-2", "1e-5", "1e-400", "0e-400",
    "1e400", "-1e400", "3.5e38", "1.7976931348623157e308", "1.8e308", "5e-324", "1.239", "1.235", "1.230", "0.001",
    "99999999.99", "99999999.995", "100000000", "-99999999.99", "0.1", "16777217", "9007199254740993",
    "0.1000000000000000055511151231257827021181583404541015625", "1.0000000000000000000000000001",
    "1.000000000000000000", "1.0000000000000000001", "1.2300000000000001", "-1.2299999999999999999",
    "12300000.000001e-5", "0.00001e-9", "123.000000000000e-2", "12345678901234567890.123456789012345678",
    "9" * 38, "-" + "9" * 38, "1" + "0" * 38, "9" * 20 + "." + "9" * 18, "9" * 40,
]  # fmt: skip
"""Each is a number of JSON, too."""
TEXTS = [
    "NaN", "nan", "Infinity", "-Infinity", "INF", "-INF", "+INF", "Inf", "007", "-007", "+5", ".5", "5.", " 5",
    "5 ", "",
    " ", "1_000", "1,5", "1,000", "1.000,5", "1 000", "1'000", "5d", "5f", "5L", "0x10", "0x1p3", "0b1", "1e", "--1",
    "\u0663", "\u0967", "\uff15", "\u00bd", "true", "false", "True", "TRUE", "yes", "no", "t", "f", "on", "null",
    "None",
    "NULL", "2023-02-29", "2024-02-29", "2024-02-30", "2024-13-01", "2024-00-10", "2024", "2024-02", "20240229",
    "24-02-29",
    "29.02.2024", "02/29/2024", "2024-2-9", "2024-02-29 ", " 2024-02-29", "2024-02-29x", "2024-02-29 x", "2024-02-29T",
    "2024-02-29Tx", "2024-02-29T00:00:00", "2024-02-29T00:00:00Z", "2024-02-29T00:00:00+02:00", "2024-02-29T10:00:00Z",
    "2024-02-29T10:00:00", "2024-02-29 10:00:00", "2024-02-29T10:00", "2024-02-29T10:00Z", "2024-02-29T10:00:00+02:00",
    "2024-02-29T10:00:00+0200", "2024-02-29T10:00:00-00:00", "2024-02-29T10:00:00+25:00", "2024-02-29T10:00:00 UTC",
    "2024-02-29T23:59:60Z", "2016-12-31T23:59:60Z", "2024-02-29T24:00:00Z", "2024-02-29T10:60:00Z",
    "2024-02-29T10:00:00.1Z", "2024-02-29T10:00:00.123456Z", "2024-02-29T10:00:00.123456789Z",
    "2024-02-29T10:00:00.999999999", "2024-02-29T10:00:00,5Z", "2024-03-31T02:30:00 Europe/Berlin",
    "2024-10-27T02:30:00 Europe/Berlin", "2024-03-31T02:30:00", "0001-01-01", "0000-01-01", "0000-12-31",
    "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "1582-10-04", "1582-10-10", "1582-10-15",
    "1582-10-10T10:00:00Z", "1900-01-01", "1900-02-29", "1969-12-31T23:59:59.999999Z", "9999-12-31",
    "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z", "10000-01-01", "10000-01-01T00:00:00Z", "-0001-01-01",
    "+2024-01-01", "10:00:00", "10:00", "T10:00", "now", "today", "epoch", "\u0662\u0660\u0662\u0664-01-01",
    "1700000000x", "x", "\u0000", "a\u0000b", "\u00e9", "e\u0301", "\U0001f600", "\ufffd",
]  # fmt: skip
SECONDS = [
    "0", "-1", "86400", "1700000000", "253402300799", "253402300800", "-62135596800", "-62135596801", "1700000000000",
    "1700000000000000", "1700000000000000001", "9223372036854", "9223372036855", "-9223372036855",
    "9223372036854775807",
    "1.5", "1e9", "2024", "20240229",
]  # fmt: skip
"""Times as numbers of JSON."""

PLAIN = {
    "TINYINT": ["-128", "127", "0", "7"],
    "SMALLINT": ["-32768", "32767", "200"],
    "INT": ["-2147483648", "2147483647", "16777217"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "DECIMAL(10,2)": ["99999999.99", "-99999999.99", "1.5", "1.230", "0"],
    "DECIMAL(38,0)": ["9" * 38, "-" + "9" * 38, "1.0"],
    "DECIMAL(38,18)": ["9" * 20 + "." + "9" * 18, "1e-5", "12345678901234567890.123456789012345678"],
    "FLOAT": ["0.1", "16777217", "-0.0", "1e-400"],
    "DOUBLE": ["0.1", "1.7976931348623157e308", "5e-324", "9007199254740993", "-0.0"],
    "BOOLEAN": ["true", "false"],
    "DATE": ["2024-02-29", "0001-01-01", "1582-10-10", "9999-12-31", "2024-02-29T00:00:00Z"],
    "TIMESTAMP": [
        "2024-02-29T10:00:00Z", "2024-02-29T10:00:00.123456789Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z",
        "1582-10-10T10:00:00Z", "2024-10-27T02:30:00 Europe/Berlin", "2024-02-29T10:00:00", "2024-02-29",
    ],
    "TIMESTAMP_NTZ": ["2024-02-29T10:00:00", "2024-02-29 10:00:00", "2024-03-31T02:30:00",
    "2024-02-29T10:00:00.999999999"],
}  # fmt: skip


def says(kind: str, text: str) -> object:
    """What a text is as a value of a type."""
    try:
        return _READ.get(kind.partition("(")[0], _whole)(text.strip(" \t"), kind)
    except (ValueError, ArithmeticError, InvalidOperation):
        return NONE


def same(one: object, other: object) -> bool:
    """Whether two values are one, NaN and the sign of 0 included."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("<d", one) == struct.pack("<d", other) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


def _whole(text: str, kind: str) -> object:
    most = 2 ** (BITS[kind] - 1)
    value = int(text) if "_" not in text else NONE
    return value if isinstance(value, int) and -most <= value < most else NONE


def _decimal(text: str, kind: str) -> object:
    digits, places = (int(number) for number in re.findall(r"\d+", kind))
    value = Decimal(text) if "_" not in text else Decimal("NaN")
    if not value.is_finite() or value.copy_abs() >= Decimal(10) ** (digits - places):
        return NONE
    # In integers: Decimal's own context would round.
    sign, mantissa, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number, power = int("".join(map(str, mantissa))), exponent + places
    if number == 0:
        return Decimal((0, (0,), -places))
    if power < 0 and (power < -500 or number % 10**-power):
        return NONE
    number = number * 10**power if power >= 0 else number // 10**-power
    return Decimal((sign, tuple(map(int, str(number))), -places))


def _fraction(text: str, kind: str) -> object:
    if "_" in text or text.lower() == "nan":
        return NONE if "_" in text else math.nan
    exact, value = Decimal(text), float(text)
    if not exact.is_finite():
        return value
    if kind == "FLOAT":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return NONE if math.isinf(value) else value


def _boolean(text: str, _kind: str) -> object:
    words = {"true": True, "t": True, "yes": True, "y": True, "1": True}
    words |= {"false": False, "f": False, "no": False, "n": False, "0": False}
    return words.get(text.lower(), NONE)


def _time(text: str, _kind: str) -> object:
    at, _, zone = text.rpartition(" ")
    if zone in ("UTC", "Europe/Berlin"):
        return datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None)
    moment = _iso(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _local(text: str, _kind: str) -> object:
    moment = _iso(text)
    return NONE if moment.tzinfo else moment


def _date(text: str, _kind: str) -> object:
    moment = _iso(text)
    is_midnight = not (
        moment.hour or moment.minute or moment.second or moment.microsecond or moment.utcoffset()
    )
    return moment.date() if is_midnight else NONE


def _iso(text: str) -> datetime:
    # `2024-2-9` is a date to Spark and to `strptime`.
    if re.fullmatch(r"[+]?\d{4}-\d{1,2}-\d{1,2}", text):
        return datetime.strptime(text.lstrip("+"), "%Y-%m-%d")
    if not re.match(r"\d{4}-\d{2}-\d{2}", text) or text.endswith("T"):
        raise ValueError(text)
    return datetime.fromisoformat(text)


_READ = {
    "DECIMAL": _decimal, "FLOAT": _fraction, "DOUBLE": _fraction, "BOOLEAN": _boolean, "DATE": _date,
    "TIMESTAMP": _time,
    "TIMESTAMP_NTZ": _local,
}  # fmt: skip


def of_seconds(token: str) -> object:
    """What a number of JSON is as a TIMESTAMP: so many seconds since 1970."""
    try:
        return datetime.fromtimestamp(int(token), UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return NONE


def text_says(kind: str, token: str) -> object:
    """What a token of JSON is as a STRING, the text of any token, or as a BINARY, in base64."""
    value = json.loads(token)
    try:
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    except UnicodeEncodeError:
        return NONE
    if value is None or kind == "STRING":
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        return NONE


def json_says(kind: str, token: str) -> object:
    """What a token of JSON is as a value of a type; a number and a text of it are two things."""
    value = json.loads(token, parse_int=Decimal, parse_float=Decimal, parse_constant=Decimal)
    if value is None:
        return None
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else NONE
    if isinstance(value, Decimal):
        if kind == "TIMESTAMP":
            return of_seconds(token)
        is_date = kind.startswith(("DATE", "TIMESTAMP"))
        # -0 is 0 to `json`, and Spark has it from that, too.
        return NONE if is_date else says(kind, "0" if token == "-0" else token)
    if isinstance(value, str):
        is_whole = kind in BITS
        return NONE if is_whole else says(kind, value)
    return NONE
