"""A condition's text: which aggregates it has, whatever stands in its texts and comments."""

import subprocess
import sys

import pytest

from headwater_streams.base.condition import aggregates_in, enclosed, has_aggregate
from headwater_streams.quality import Check


@pytest.mark.parametrize(
    ("expression", "calls"),
    [
        ("avg(delay) < 600", ["avg(delay)"]),
        ("COUNT(*) > 0 and max( a + (b) ) = max( a + (b) )", ["COUNT(*)", "max( a + (b) )"]),
        ("sum(abs(x)) / count(distinct y) > 1", ["sum(abs(x))", "count(distinct y)"]),
        (
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY delay DESC) < 9",
            ["percentile_cont(0.5) WITHIN GROUP (ORDER BY delay DESC)"],
        ),
        ("count(*) FILTER (WHERE gate = ')') = 0", ["count(*) FILTER (WHERE gate = ')')"]),
        (
            "listagg(a, ',') within group (order by a) filter (where a > '(') <> ''",
            ["listagg(a, ',') within group (order by a) filter (where a > '(')"],
        ),
        ("first(a) IGNORE NULLS > 1 OR last(a) > 1", ["first(a) IGNORE NULLS", "last(a)"]),
        ("count_if(gate = '(') = 0", ["count_if(gate = '(')"]),
        ("count_if(gate = ')') = 0", ["count_if(gate = ')')"]),
        ("count_if(gate = 'it\\'s )') = 0", ["count_if(gate = 'it\\'s )')"]),
        ("count_if(gate = r'\\') + max(a) = 0", ["count_if(gate = r'\\')", "max(a)"]),
        ("max(`a)`) > 0", ["max(`a)`)"]),
        ("max(a /* ) */) > 0 -- ) and avg(b) > 1", ["max(a /* ) */)"]),
        ("max(a -- )\n) > 0", ["max(a -- )\n)"]),
        ("max(struct(a, b)).a > 0", ["max(struct(a, b))"]),
        ("max_by(a, b) > 0 and bit_xor(a) = 0", ["max_by(a, b)", "bit_xor(a)"]),
        ("any(a) and some (b)", ["any(a)", "some (b)"]),
        ("a LIKE ANY ('x') or a not ilike some ('y')", []),
        ("sum(a) OVER (PARTITION BY b) > 1", []),
        ("aggregate(list, 0, (x, y) -> x + y) > 1", []),
        ("maximum(x) > summary", []),
        ("`max`(x) > 1 and 'max(x)' <> '' and max > 1", []),
        ("avg(unclosed", []),
        ("avg('unclosed", []),
        ("", []),
    ],
)
def test_aggregates_in_finds_the_outermost_calls_with_all_that_belongs_to_them(expression, calls):
    assert aggregates_in(expression) == calls
    assert has_aggregate(expression) == bool(calls)


@pytest.mark.parametrize("expression", ["x > 0 -- at last", "x > 0 -- \\", "x > '--'"])
def test_enclosed_closes_on_a_line_of_its_own_where_a_comment_may_be_open(expression):
    assert enclosed(expression) == f"({expression} \n)"
    assert Check("c", expression).passes_sql == f"coalesce(({expression} \n), FALSE)"


def test_enclosed_leaves_other_expressions_on_one_line():
    assert enclosed("x > 0 /* - - */") == "(x > 0 /* - - */)"


def test_checks_are_declared_without_the_parser():
    declares = "import sys, headwater_streams.quality as q; q.Check('c', 'x > 0 -- c').passes_sql"
    code = f"{declares}; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
