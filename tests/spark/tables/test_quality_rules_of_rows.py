"""Ready-made rules on rows over odd values: what passes is what the rule says in words."""

import math
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.quality import expect
from headwater_streams.quality.sql_analysis import require_condition
from headwater_streams.spark.guarded import judged, violates
from odd_values import NONE, NUMBERS, PLAIN, TEXTS, TYPES, says


def failing(spark, kind, values, *rules):
    """The values that each rule rejects, as a job does and as a suite does."""
    rows = spark.createDataFrame([(value,) for value in values], f"c {kind}")
    columns = [
        F.array(violates(rule.condition), violates(rule.condition, rows)).alias(f"r{n}")
        for n, rule in enumerate(rules)
    ]
    found = rows.select("c", *columns).collect()
    for row in found:
        assert all(in_job == in_suite for in_job, in_suite in row[1:]), row
    return [[row["c"] for row in found if row[f"r{n}"][0]] for n in range(len(rules))]


def test_text_of_a_type_is_what_the_parsers_take_for_a_value_of_it(spark):
    texts = [*dict.fromkeys([*NUMBERS, *TEXTS, *(text for plain in PLAIN.values() for text in plain)])]
    rejected = failing(spark, "STRING", texts, *[expect.text_of("c", kind) for kind in TYPES])
    wrong = {
        kind: (taken, refused)
        for kind, found in zip(TYPES, rejected, strict=True)
        if any(
            (
                taken := {text for text in texts if says(kind, text) is NONE} - {*found},
                refused := {*PLAIN[kind]} & {*found},
            )
        )
    }
    assert wrong == {}


_DOCUMENTS = ['{"a":1}', " [1, 2]\n", "null", '"x"', "1e400", "[" * 500 + "]" * 500]
_NO_DOCUMENTS = [
    '{"a":1} garbage', "1 2", "1,2", '1,"":2', '{"a":1}{"b":2}', '{"a":1}]', "1],[2", "1}", "", " ", "tru",
    "[1,]", "NaN", "{'a':1}", '{"a":01}',
]  # fmt: skip
_OTHERS = {
    "uuid": (
        ["123E4567-e89b-12d3-a456-426614174000"],
        ["123e4567-e89b-12d3-a456-426614174000\n", "123e4567"],
    ),
    "ipv4": (["0.10.200.255"], ["1.2.3.4\n", "01.2.3.4", "256.1.1.1", "1.2.3"]),
    "email": (["a@b.de", "\u00e4@\u00f6.de"], ["a@b.de\n", "a@b", "a b@c.de"]),
    "json": (_DOCUMENTS, _NO_DOCUMENTS),
    "VARCHAR(2)": (["a", "ab", "\U0001f600\U0001f600"], ["abc", "ab "]),
}


@pytest.mark.parametrize("kind", _OTHERS)
def test_text_of_another_form_is_all_of_the_text(spark, kind):
    right, wrong = _OTHERS[kind]
    assert failing(spark, "STRING", [*right, *wrong], expect.text_of("c", kind)) == [wrong]


def test_number_that_is_none_is_between_no_numbers(spark):
    rules = expect.between("c", 0), expect.between("c", high=9), expect.between("c", 0, math.inf)
    for kind in ("FLOAT", "DOUBLE"):
        found = failing(spark, kind, [math.nan, math.inf, -math.inf, -0.0, 5.0, None], *rules)
        assert [[str(each) for each in rejected] for rejected in found] == [
            ["nan", "-inf"],
            ["nan", "inf"],
            ["nan", "-inf"],
        ]
    assert failing(spark, "INT", [-1, 0, 2**31 - 1], expect.between("c", 0)) == [[-1]]
    least, most = Decimal("-" + "9" * 38), Decimal("9" * 38)
    assert failing(spark, "DECIMAL(38,0)", [least, most], expect.between("c", 0)) == [[least]]


def test_value_that_was_written_is_what_a_rule_takes_it_for_whatever_the_columns_type(spark):
    tenths, rules = [n / 10 for n in range(-9, 10)], {}
    for value in (*tenths, Decimal("0.3"), 1e-5, 16_777_217, 3.4e38):
        rules[value] = (
            expect.in_set("c", [value, 99]),
            expect.between("c", value, value),
            expect.between("c", low=value),
            expect.between("c", high=value),
        )
    for kind in ("FLOAT", "DOUBLE"):
        found = failing(spark, kind, tenths, *(each for value in tenths for each in rules[value]))
        for place, value in enumerate(tenths):
            others, below, above = (
                [x for x in tenths if keep(x)] for keep in (value.__ne__, value.__gt__, value.__lt__)
            )
            rejected = [[round(x, 6) for x in each] for each in found[4 * place : 4 * place + 4]]
            assert rejected == [others, others, below, above], (kind, value)
        for value in rules.keys() - {*tenths}:
            assert failing(spark, kind, [float(value)], *rules[value]) == [[]] * 4, (kind, value)
    # A bound that is no FLOAT is as it was: infinity is above it, and 0 below.
    most, least = expect.between("c", high=1e300), expect.between("c", low=1e-300)
    assert failing(spark, "FLOAT", [math.inf, 0.0], most, least) == [[math.inf], [0.0]]
    assert failing(spark, "STRING", ["0.1", "0.2"], expect.in_set("c", [0.1])) == [["0.2"]]


def test_drift_has_a_written_value_in_its_bin_whatever_the_columns_type(spark):
    for kind in ("FLOAT", "DOUBLE"):
        rows = spark.createDataFrame([(n / 10,) for n in range(10)], f"c {kind}")
        edges, values = expect.drift("c", edges=[0.1, 0.7]), expect.drift("c", values=[0.1, 0.7])
        for rule, counts in ((edges, [1, 6, 3, 0]), (values, [1, 1, 8, 0])):
            (row,) = rows.agg(*[F.expr(f"count_if({sql})") for _, sql in rule.bins]).collect()
            assert [*row] == counts, kind


@pytest.mark.parametrize(
    ("at_most", "nulls", "holds"),
    [(1 / 3, 3333, True), (1 / 3, 3334, False), ("30 %", 3000, True), (0.3, 3001, False)],
)
def test_share_of_nulls_is_exact_and_overflows_nothing(spark, at_most, nulls, holds):
    rows = spark.range(10_000).select(F.expr(f"if(id < {nulls}, NULL, id)").alias("c"))
    assert rows.agg(*judged(expect.null_share("c", at_most).condition)).first() == (holds, False)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (expect.matches("c", "(").condition, "( is no regular expression of Java's: Unclosed group"),
        (expect.matches("c", "(?P<x>A)").condition, "is no regular expression of Java's: Unknown"),
        (
            "c RLIKE concat('[', 'a') OR c IS NULL",
            "[a is no regular expression of Java's: Unclosed character",
        ),
        ("regexp_extract(c, '*', 0) = ''", "* is no regular expression of Java's: Dangling"),
        ("regexp_count(c, '(') = 1", "( is no regular expression of Java's"),
        ("size(split(c, '(')) = 1", "( is no regular expression of Java's"),
        ("exists(array(c), x -> x rlike '(')", "( is no regular expression of Java's"),
    ],
)
def test_regular_expression_that_is_none_is_refused_before_it_rejects_each_row(spark, condition, said):
    rows = spark.createDataFrame([("a",)], "c STRING")
    with pytest.raises(InvalidCheckError) as refusal:
        require_condition(rows, condition)
    assert said in str(refusal.value)


@pytest.mark.parametrize("pattern", ["(?<=A)A", "A++", r"(?<x>A)\k<x>", "(?i)^aa$", r"\p{Lu}", "A{2}"])
def test_regular_expression_of_java_is_taken(spark, pattern):
    rows = spark.createDataFrame([("AA",)], "c STRING")
    require_condition(rows, expect.matches("c", pattern).condition)
    require_condition(rows, "c RLIKE c AND c RLIKE NULL")
    assert failing(spark, "STRING", ["AA", "b"], expect.matches("c", pattern)) == [["b"]]
