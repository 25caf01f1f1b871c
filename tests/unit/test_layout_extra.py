"""Each key of `LedgerEntry.extra` is spelled in one place, `base.extra`."""

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import headwater
import headwater_streams
from headwater_streams.base.extra import Extra, Key
from headwater_streams.base.ledger_entry import LedgerEntry

ROOTS = [Path(headwater_streams.__file__).parent, Path(headwater.__file__).parent]
_OWN = "base/extra.py"
KEYS = [value for value in vars(Extra).values() if isinstance(value, Key)]
_LOOK_UPS = {"get", "pop", "setdefault"}


def test_each_key_of_extra_is_named_once() -> None:
    assert [key for key, count in Counter(KEYS).items() if count > 1] == []


def test_no_other_module_spells_a_key_of_extra() -> None:
    spelled = [
        f"{path.relative_to(root)}:{line} {key!r}"
        for root in ROOTS
        for path in sorted(root.rglob("*.py"))
        if str(path.relative_to(root)) != _OWN
        for line, key in spelled_keys(ast.parse(path.read_text()))
    ]
    assert spelled == []


def test_spelled_keys_are_seen_in_look_ups_and_in_what_is_written() -> None:
    """The search itself: each line spells one key, but for the last two."""
    lines = [
        'entry.extra["action"]',
        'entry.extra.get("gaps", {})',
        '"shadow" in commit.entry.extra',
        'extra["warnings"] = warnings',
        'LedgerEntry(job="j", extra={"beside": table})',
        'replace(entry, extra={**entry.extra, "action": SWAP})',
        'extra = {Extra.HOW: how} | ({"late": "count"} if counts else {})',
        'extra |= {"since": since}',
        'def late() -> ExtraValues: return {"late": "count"} if counts else {}',
        'spark_session(home, extra={"spark.ui.enabled": "false"})',
        'extra: ExtraValues = {Extra.OPEN: {"windows": [], "batch": 1}}',
    ]
    found = [[key for _, key in spelled_keys(ast.parse(line))] for line in lines]
    expected = ["action", "gaps", "shadow", "warnings", "beside", "action", "late", "since", "late"]
    assert found == [*([key] for key in expected), [], []]


def test_key_is_stored_as_the_string_that_it_is() -> None:
    values = {Extra.HOW: "left", Extra.WATERMARK_US: None}
    entry = LedgerEntry(job="j", generation=1, batch=0, table="a.b", kind="as_of", extra=values)
    assert json.loads(entry.to_json())["extra"] == {"how": "left", "watermark_us": None}
    read = LedgerEntry.from_json(entry.to_json())
    assert read == entry
    assert (Extra.HOW.of(read), Extra.WATERMARK_US.of(read), Extra.LATE.get(read)) == ("left", None, None)
    assert Extra.WATERMARK_US.is_in(read)
    assert not Extra.LATE.is_in(read)
    assert Extra.GAPS.get(read, {}) == {}


def spelled_keys(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings with which a module looks something up in an `extra`, or writes into one, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and _is_extra(node.value):
            yield from _constant(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _LOOK_UPS and _is_extra(node.func.value):
                yield from _constant(node.args[0])
        elif isinstance(node, ast.Compare) and _is_extra(node.comparators[0]):
            yield from _constant(node.left)
        for written in _written(node):
            yield from _keys_in(written)


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """What a node makes an `extra` of, or gives as `ExtraValues`."""
    if isinstance(node, ast.keyword) and node.arg == "extra":
        yield node.value
    elif isinstance(node, ast.FunctionDef) and _names_values(node.returns):
        yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        is_declared = isinstance(node, ast.AnnAssign) and _names_values(node.annotation)
        if is_declared or any(_is_extra(target) for target in targets):
            yield node.value


def _keys_in(value: ast.expr) -> Iterator[tuple[int, str]]:
    if isinstance(value, ast.Dict):
        for key, inner in zip(value.keys, value.values, strict=True):
            yield from _keys_in(inner) if key is None else _constant(key)
    elif isinstance(value, ast.BinOp):
        yield from (*_keys_in(value.left), *_keys_in(value.right))
    elif isinstance(value, ast.IfExp):
        yield from (*_keys_in(value.body), *_keys_in(value.orelse))


def _constant(node: ast.expr) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." not in node.value:
        yield node.lineno, node.value  # with a dot it is a setting of Spark


def _is_extra(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "extra") or (
        isinstance(node, ast.Name) and node.id == "extra"
    )


def _names_values(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "ExtraValues"
