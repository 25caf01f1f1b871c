"""What is written is what was sent, or the record is refused with its field and its value: each type, format and value.

Python says what each value is (`odd_values`). All values of a format and a shape go through one batch.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from random import Random

import pytest

import headwater as hw
from odd_values import NONE, NUMBERS, PLAIN, SECONDS, TEXTS, TYPES, json_says, same, says, text_says

Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]
Case = tuple[str, str]
"""A type and a text of it."""
CONTEXT = Context(prec=100)

SHAPES = {
    "alone": "{}",
    "in a list": "ARRAY<{}>",
    "in a map": "MAP<STRING, {}>",
    "in a struct": "STRUCT<x: {}>",
    "deep": "ARRAY<STRUCT<m: MAP<STRING, ARRAY<{}>>>>",
}
_TOKENS = {
    "alone": "{}", "in a list": "[{}]", "in a map": '{{"k": {}}}', "in a struct": '{{"x": {}}}',
    "deep": '[{{"m": {{"k": [{}]}}}}]',
}  # fmt: skip


def _name(kind: str) -> str:
    return re.sub(r"\W+", "_", kind.lower()).strip("_")


def _inside(shape: str, value: object) -> object:
    """What is in a value of a shape."""
    inner: dict[str, Callable[..., object]] = {
        "alone": lambda v: v,
        "in a list": lambda v: v[0],
        "in a map": lambda v: v["k"],
        "in a struct": lambda v: v["x"],
        "deep": lambda v: v[0]["m"]["k"][0],
    }
    return inner[shape](value)


def _judge(
    cases: list[Case], found: list[Decoded], expected: Callable[[str, str], object], shape: str = "alone"
) -> Iterator[str]:
    """What is wrong with a batch whose every value has one column of each type, and one that is not NULL."""
    names = [_name(kind) for kind in TYPES]
    for (kind, text), (columns, reason) in zip(cases, found, strict=True):
        value, place = expected(kind, text), TYPES.index(kind)
        if columns is not None:
            written = None if columns[place] is None else _inside(shape, columns[place])
            if value is NONE or not same(written, value):
                yield f"{kind} of {text!r} is {written!r}, not {'refused' if value is NONE else repr(value)}"
            elif any(other is not None for at, other in enumerate(columns) if at != place):
                yield f"{kind} of {text!r} is in other columns, too: {columns}"
        elif text in PLAIN[kind] and value is not NONE:
            yield f"{kind} of {text!r} is refused: {reason}"
        elif reason is None or names[place] not in reason:
            yield f"{kind} of {text!r}: the reason does not name the field: {reason}"
        elif text.strip(' "')[:60] not in reason and "of the years 1 to 9999: " not in reason:
            yield f"{kind} of {text!r}: the reason does not have the value: {reason}"


def _json_cases(shape: str) -> list[Case]:
    """All cases alone; in the other shapes what must be taken and a part of the others each."""
    tokens = [
        *NUMBERS,
        *[json.dumps(text, ensure_ascii=False) for text in [*NUMBERS, *TEXTS]],
        "true",
        "false",
    ]
    tokens += ["NaN", "Infinity", "-Infinity", "null"]
    cases = [(kind, token) for kind in TYPES for token in tokens]
    cases += [("TIMESTAMP", token) for token in SECONDS]
    plain = [
        (kind, token) for kind, texts in PLAIN.items() for text in texts for token in (text, f'"{text}"')
    ]
    place, parts = [*SHAPES].index(shape), len(SHAPES) - 1
    return cases if place == 0 else cases[place - 1 :: parts] + [case for case in plain if case in cases]


@pytest.mark.parametrize("shape", SHAPES)
def test_json_values_are_what_was_sent_or_refused(decode: Decode, shape: str) -> None:
    cases = _json_cases(shape)
    schema = ", ".join(f"{_name(kind)} {SHAPES[shape].format(kind)}" for kind in TYPES)
    texts = [f'{{"{_name(kind)}": {_TOKENS[shape].format(token)}}}' for kind, token in cases]
    found = decode(hw.topic("t", schema=schema), [text.encode() for text in texts])
    assert list(_judge(cases, found, json_says, shape)) == []


def test_json_null_is_null_of_each_type_and_at_each_depth(decode: Decode) -> None:
    columns = {
        f"{_name(kind)}_{place}": (kind, shape) for kind in TYPES for place, shape in enumerate(SHAPES)
    }
    schema = ", ".join(f"{name} {SHAPES[shape].format(kind)}" for name, (kind, shape) in columns.items())
    texts = [f'{{"{name}": {_TOKENS[shape].format("null")}}}' for name, (_, shape) in columns.items()]
    found = decode(hw.topic("t", schema=schema), [text.encode() for text in texts])
    for place, ((name, (_, shape)), (values, reason)) in enumerate(zip(columns.items(), found, strict=True)):
        assert reason is None, (name, reason)
        assert values is not None
        assert all(value is None for at, value in enumerate(values) if at != place), name
        written = values[place]
        assert (written if shape == "alone" else _inside(shape, written)) is None, name


_DECIMALS = [(4, 0), (10, 0), (10, 2), (10, 10), (11, 3), (18, 6), (19, 2), (28, 9), (28, 28), (29, 3)]


def _decimals(digits: int, places: int, random: Random) -> Iterator[str]:
    """Numbers of a DECIMAL, and what lies next to them further and further behind its last place, to the 38th digit."""
    for behind in range(1, min(18, 39 - digits)):
        whole = str(random.randrange(10 ** min(digits - places, 3)))
        part = "".join(random.choices("0179", k=places))
        number = f"{whole}.{part}".rstrip(".")
        small = Decimal(random.choice([1, 4, 5, 9])).scaleb(-places - behind)
        below, above = (format(CONTEXT.add(Decimal(number), sign * small), "f") for sign in (-1, 1))
        padded = f"{whole}.{part}{'0' * behind}"
        for each in (number, padded, below, above, format(small, "f"), format(-small, "f")):
            yield each
            power = random.randint(-12, 12)
            yield f"{format(CONTEXT.scaleb(Decimal(each), -power), 'f')}{random.choice('eE')}{power}"
            yield f"{int(CONTEXT.scaleb(Decimal(each), places + behind))}e-{places + behind}"


def test_json_decimals_are_what_was_sent_or_refused(decode: Decode) -> None:
    """Of whatever digits the type has, and however far the number goes on."""
    random = Random(47)
    kinds = [f"DECIMAL({digits},{places})" for digits, places in _DECIMALS]
    cases = [
        (kind, token)
        for kind, (digits, places) in zip(kinds, _DECIMALS, strict=True)
        for token in dict.fromkeys(_decimals(digits, places, random))
    ]
    declared = hw.topic("t", schema=", ".join(f"{_name(kind)} {kind}" for kind in kinds))
    found = decode(declared, [f'{{"{_name(kind)}": {token}}}'.encode() for kind, token in cases])
    wrong = []
    for (kind, token), (columns, reason) in zip(cases, found, strict=True):
        value = json_says(kind, token)
        written = NONE if columns is None else columns[kinds.index(kind)]
        # Of a VARIANT a number with an exponent is a DOUBLE, and refused where that may not be it.
        may_refuse = kind == "DECIMAL(29,3)" and "e" in token.lower()
        if not (same(written, value) or (written is NONE and (value is NONE or may_refuse))):
            wrong.append((kind, token, written, value, reason))
    assert wrong == []


def test_json_decimal_with_an_exponent_without_end_is_refused_at_once(decode: Decode) -> None:
    """Java would write a number with two thousand million zeros, and the batch would not end."""
    far = ["1e2000000000", "-1E+2000000000", "1.5e-2000000000", "0.1e1999999999"]
    tokens = [*far, *(f'"{each}"' for each in far), r'"1\u00652000000000"', r'"\u0031E\u002b2000000000"']
    texts = [f'{{"id": 1, "price": {token}}}' for token in tokens]
    escaped = r'{"id": 1, "pr\u0069ce": 1e2000000000}'
    beside = '{"id": 1, "price": 1.25, "note": "1e2000000000", "more": 1e2000000000, "within": {"x": 1e2000000000}}'
    near = ["1.25e2", '"125E0"', "1e-1", "12500e-002"]
    declared = hw.topic("t", schema="id INT, price DECIMAL(10,2), within STRUCT<x: DECIMAL(10,2)>")
    sent = [*texts, escaped, beside, *(f'{{"id": 1, "price": {token}}}' for token in near)]
    found = decode(declared, [text.encode() for text in sent])
    assert [reason for _, reason in found[: len(tokens)]] == [
        f"price is not DECIMAL(10,2): {token}" for token in tokens
    ]
    assert found[len(tokens)][0] is None
    assert "within is not STRUCT" in str(found[len(tokens) + 1][1])
    written = [columns and columns[1] for columns, _ in found[-4:]]
    assert written == [Decimal(125), Decimal(125), Decimal("0.1"), Decimal(125)]


@pytest.mark.story
def test_json_values_are_taken_or_not_whatever_stands_beside_them(decode: Decode) -> None:
    declared = hw.topic("t", schema="x DOUBLE, n INT, s STRING")
    values = ["NaN", "Infinity", "-Infinity", '"NaN"', "1e400", "1", "null", "-0.0", "01", "+1", "nan"]
    beside = [
        '{{"x": {}}}',
        '{{"x": {}, "o": {{}}}}',
        '{{"o": [{{}}], "x": {}, "s": "}}"}}',
        ' {{"n": 1, "x": {}}} ',
    ]
    found = decode(declared, [form.format(value).encode() for value in values for form in beside])
    for at, value in enumerate(values):
        forms = found[at * len(beside) : (at + 1) * len(beside)]
        xs = [None if columns is None else repr(columns[0]) for columns, _ in forms]
        assert len(set(xs)) == 1, (value, forms)


def _line(kind: str, text: str, form: Callable[[str], str], empty: str, sep: str) -> bytes:
    return sep.join(form(text) if each == kind else empty for each in TYPES).encode()


_TOKENS_OF_TEXTS = [
    '"x"', '""', '"a\\u0000b"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\U0001f600"', '"\\\\ud800"', '"\\/"', '"\\n\\""',
    '"?"', "null",
    '"\\ud800"', '"\\uD800x"', '"\\udc00"', '"\\ude00\\ud83d"', '"\\\\\\ud800"', '"x\\ud83dx\\ude00"',
    '"\\ud83d\\u0041"',
    "1", "-0.0", "1.10", "true", "[1.10, 2]", '{"a": 1.10}', "12345678901234567890", "12345678901234567890.123456789",
    '"aGk="', '"aGk"', '"aG-_"', '"hi!"', '"+/8="',
]  # fmt: skip


@pytest.mark.parametrize("beside", ["", ', "o": {}'], ids=["flat", "nested"])
def test_json_texts_are_what_was_sent_or_refused(decode: Decode, beside: str) -> None:
    cases = [(kind, token) for kind in ("STRING", "BINARY") for token in _TOKENS_OF_TEXTS]
    declared = hw.topic("t", schema="string STRING, binary BINARY, m MAP<STRING, STRING>")
    values = [f'{{"{kind.lower()}": {token}{beside}}}'.encode() for kind, token in cases]
    wrong = []
    for (kind, token), (columns, reason) in zip(cases, decode(declared, values), strict=True):
        value, written = text_says(kind, token), None if columns is None else columns[kind == "BINARY"]
        if columns is not None and kind == "STRING" and value is not None and not isinstance(value, str):
            written = json.loads(str(written))
        good = same(written, value) if columns is not None else value is NONE and reason is not None
        if not good or (columns is None and kind.lower() not in str(reason)):
            wrong.append((kind, token, written, value, reason))
    assert wrong == []


def test_json_names_are_the_same_escaped_or_not(decode: Decode) -> None:
    """Python escapes all but ASCII, Go what HTML reads, and some a slash: a doubtful value is seen behind each."""
    name, small = "gr\N{LATIN SMALL LETTER O WITH DIAERESIS}\N{LATIN SMALL LETTER SHARP S}e/am<a>", "k`.l"
    declared = hw.topic("t", schema=f"`{name}` TIMESTAMP, `k``.l` DECIMAL(10,2)")

    def written(*values: object) -> list[str]:
        plain = json.dumps(dict(zip((name, small), values, strict=True)), ensure_ascii=False)
        ascii_only = json.dumps(json.loads(plain))
        of_go = plain.replace("<", r"\u003c").replace(">", r"\u003E")
        return [plain, ascii_only, of_go, plain.replace("/", r"\/"), plain.replace("`", r"\u0060")]

    good, no_time, no_number = written("2024-02-29", 1), written("2024", 1), written("2024-02-29", 1e-99)
    found = decode(declared, [value.encode() for value in [*good, *no_time, *no_number]])
    assert [reason for _, reason in found[:5]] == [None] * 5
    assert [reason for _, reason in found[5:10]] == [f'{name} is not TIMESTAMP: "2024"'] * 5
    assert [reason for _, reason in found[10:]] == [f"{small} is not DECIMAL(10,2): 1e-99"] * 5


def test_json_name_that_comes_twice_is_what_it_is_last(decode: Decode) -> None:
    """As for Python's `json`; of a MAP, which could have both, neither would be sure."""
    declared = hw.topic("t", schema="n INT, s STRUCT<x: INT>, m MAP<STRING, INT>")
    values = ['{"n": 1, "n": 2}', '{"n": 1, "n": null}', '{"s": {"x": 1, "x": 2}}']
    found = decode(
        declared, [value.encode() for value in [*values, '{"m": {"a": 1, "a": 2}}', '{"n": "x", "n": 1}']]
    )
    assert [columns for columns, _ in found] == [
        (2, None, None),
        (None, None, None),
        (None, (2,), None),
        None,
        None,
    ]
    assert [json.loads(value) for value in values] == [{"n": 2}, {"n": None}, {"s": {"x": 2}}]


def _text_cases() -> list[Case]:
    texts = [text for text in [*NUMBERS, *TEXTS] if text.strip() and "\x00" not in text]
    return [(kind, text) for kind in TYPES for text in texts]


@pytest.mark.parametrize("form", ["quoted", "as it is"])
def test_csv_values_are_what_was_sent_or_refused(decode: Decode, form: str) -> None:
    cases = _text_cases()
    schema = ", ".join(f"{_name(kind)} {kind}" for kind in TYPES)
    declared = hw.topic("t", schema=schema, format=hw.csv(sep=";"))
    written = (lambda text: f'"{text}"') if form == "quoted" else str
    found = decode(declared, [_line(kind, text, written, "", ";") for kind, text in cases])
    assert list(_judge(cases, found, says)) == []


def test_key_value_values_are_what_was_sent_or_refused(decode: Decode) -> None:
    cases = _text_cases()
    schema = ", ".join(f"{_name(kind)} {kind}" for kind in TYPES)
    declared = hw.topic("t", format=hw.key_value(schema))
    found = decode(declared, [f'{_name(kind)}="{text}"'.encode() for kind, text in cases])
    assert list(_judge(cases, found, says)) == []


def test_template_values_are_what_was_sent_or_refused(decode: Decode) -> None:
    columns = {"BIGINT": "n", "DOUBLE": "x", "TIMESTAMP": "at"}
    declared = hw.topic("t", format=hw.template("{n:int} {x:double} {at:time}"))
    texts = [text for text in [*NUMBERS, *TEXTS] if text.strip() not in ("", "-") and "\x00" not in text]
    cases = [(kind, text) for kind in columns for text in texts if kind == "TIMESTAMP" or " " not in text]
    lines = [" ".join(text if each == kind else "-" for each in columns).encode() for kind, text in cases]
    wrong = []
    for (kind, text), (row, reason) in zip(cases, decode(declared, lines), strict=True):
        value, at = says(kind, text), [*columns].index(kind)
        if row is None:
            good = text not in PLAIN[kind] or value is NONE
            told = text.strip()[:60] in str(reason) or "of the years 1 to 9999: " in str(reason)
            good &= told and columns[kind] in str(reason)
        else:
            good = value is not NONE and same(row[at], value)
        if not good:
            wrong.append((kind, text, row, value, reason))
    assert wrong == []
