"""Ready-made rules in a constraint are those of Python; anything else is SQL."""

import pytest

from headwater_streams.quality import InvalidCheckError, expect
from headwater_streams.streaming_sql.rules import rule_in


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("unique(user, page)", expect.unique("user", "page")),
        ("UNIQUE ( user, within => 'table' )", expect.unique("user", within="table")),
        ("volume(within => 0.5, last => 20)", expect.volume(within=0.5, last=20)),
        ("fresh(at, '10 minutes')", expect.fresh("at", "10 minutes")),
        ("references(carrier, 'dim.airlines', code)", expect.references("carrier", "dim.airlines", "code")),
        ("drift(carrier, values => array('AA', 'UA'))", expect.drift("carrier", values=["AA", "UA"])),
        ("in_set(name, array('it''s'))", expect.in_set("name", ["it's"])),
        ("in_set(name, array('', '=>', 'a\nb'))", expect.in_set("name", ["", "=>", "a\nb"])),
        ('in_set(name, array("say ""hi"""))', expect.in_set("name", ['say "hi"'])),
        ("unique(`Product.Id`, `a``b`)", expect.unique("Product.Id", "a`b")),
        (r"matches(tail, '^N\d+\bx$')", expect.matches("tail", r"^N\d+\bx$")),
        (r"matches(tail, '^\\d')", expect.matches("tail", r"^\d")),
        (r"in_set(name, array('it\'s', 'a\tb'))", expect.in_set("name", ["it's", "a\tb"])),
        ("null_share(tail, '5 %')", expect.null_share("tail", "5 %")),
        ("between(delay, -60, 1440)", expect.between("delay", -60, 1440)),
    ],
)
def test_rule_is_that_of_python(text, rule):
    assert rule_in(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "x > 0",
        "length(carrier) = 2",
        "unique(a) AND unique(b)",
        "length(trim(carrier))",
        "array_contains(tags, 'a')",
        "unique(",
    ],
)
def test_condition_that_is_no_rule_is_sql(text):
    assert rule_in(text) is None


def test_argument_that_a_rule_does_not_take_is_refused():
    with pytest.raises(InvalidCheckError, match=r"volume\(\.\.\.\):"):
        rule_in("volume(most => 3)")
    with pytest.raises(InvalidCheckError, match="give the columns"):
        rule_in("unique()")
