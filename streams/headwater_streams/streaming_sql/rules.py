"""Ready-made rules in a constraint: `EXPECT (unique(user, page))`, `EXPECT (volume(within => 0.5, last => 20))`.

They are the functions of `quality.expect` by their names. A column is a name, and everything else a literal; a list of
values is `array('AA', 'UA')`. A condition that is not one such call is SQL, as it always was.
"""

import ast
import re

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.rule import Rule
from headwater_streams.quality import expect

_CALL = re.compile(r"\s*(?P<name>[A-Za-z_]+)\s*\((?P<arguments>.*)\)\s*", re.DOTALL)
_LISTS = ("array", "ARRAY")
_DIFFERING = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|=>""", re.DOTALL)
"""Texts, in which a quote may be doubled, names in backticks, and the arrow of a named argument."""
_ESCAPED = re.compile(r"\\([\\'\"ntr])")
"""What a backslash stands before in a text of SQL. Before other letters it stays: a regular expression has it there."""
_LETTERS = {"n": "\n", "t": "\t", "r": "\r"}


def rule_in(text: str) -> Rule | None:
    """The rule that a constraint's condition names; None where it is SQL.

    Raises:
        InvalidCheckError: It names a rule with arguments that the rule does not take.

    Example:
        >>> rule_in("unique(user, page)").text
        'user, page is unique in the batch'
        >>> rule_in("length(carrier) = 2") is None
        True
    """
    call = _CALL.fullmatch(text)
    if call is None or call["name"].lower() not in expect.__all__:
        return None
    name = call["name"].lower()
    try:
        # A call with literals is the same in both languages, but for these.
        parsed = ast.parse(f"call({_DIFFERING.sub(_in_python, call['arguments'])})", mode="eval").body
        if (
            not isinstance(parsed, ast.Call)
            or not isinstance(parsed.func, ast.Name)
            or parsed.func.id != "call"
        ):
            return None
        arguments = [_value(each) for each in parsed.args]
        named = {each.arg: _value(each.value) for each in parsed.keywords if each.arg is not None}
    except (SyntaxError, ValueError):
        return None
    try:
        rule: Rule = getattr(expect, name)(*arguments, **named)
    except TypeError as error:
        raise InvalidCheckError(f"{name}(...): {error}") from error
    return rule


def _in_python(differing: re.Match[str]) -> str:
    written = differing[0]
    if written == "=>":
        return "="
    quote, text = written[0], written[1:-1].replace(written[0] * 2, written[0])
    return repr(text if quote == "`" else _ESCAPED.sub(lambda m: _LETTERS.get(m[1], m[1]), text))


def _value(node: ast.expr) -> object:
    """A literal, or a column by its name.

    Raises:
        ValueError: It is an expression, so that the condition is SQL.
    """
    if isinstance(node, ast.Name):
        return {"TRUE": True, "FALSE": False}.get(node.id.upper(), node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LISTS:
        return [_value(each) for each in node.args]
    return ast.literal_eval(node)
