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
        # A call with literals is the same in both languages, but for the arrow and a quote in a text.
        parsed = ast.parse(
            f"call({call['arguments'].replace('=>', '=')})".replace("''", "\\'"), mode="eval"
        ).body
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
