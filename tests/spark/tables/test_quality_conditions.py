"""Conditions of every form are the same to a job, to `jobs check` and to a suite over the job's table."""

import pytest
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.condition import AGGREGATES
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.analysis import analyse
from headwater_streams.plan.job import Job, bind
from headwater_streams.quality import Check
from headwater_streams.quality.run import SuiteError, run_suite
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.spark.guarded import violates

ROWS = [("a", 1, "x)"), ("b", 2, "("), ("c", 3, "it's"), ("d", 40, None)]
COLUMNS = "who STRING, n INT, gate STRING"
clicks = hw.topic("clicks", schema=COLUMNS)

BATCH = {
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY n) = 2.5": (
        True, "percentile_cont(0.5) WITHIN GROUP (ORDER BY n) = 2.5",
    ),
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY n) > 9 -- too slow": (False, None),
    "count(*) FILTER (WHERE gate = 'x)') = 1": (True, "count(*) FILTER (WHERE gate = 'x)') = 1"),
    "count(*) FILTER (WHERE n > 2) / count(*) < 0.5": (False, "count(*) FILTER (WHERE n > 2) = 2, count(*) = 4"),
    "count_if(gate = '(') = 1 AND count_if(gate = ')') = 0": (
        True, "count_if(gate = '(') = 1, count_if(gate = ')') = 0",
    ),
    "count_if(gate = 'it\\'s') = 1 -- nobody's": (True, "count_if(gate = 'it\\'s') = 1"),
    "max(n /* ) */) < 40": (False, "max(n /* ) */) = 40"),
    "listagg(who, ',') WITHIN GROUP (ORDER BY who DESC) = 'd,c,b,a'": (
        True, "listagg(who, ',') WITHIN GROUP (ORDER BY who DESC) = d,c,b,a",
    ),
    "first(gate) IGNORE NULLS IS NOT NULL": (True, None),
    "max(struct(n, who)).who = 'd'": (True, 'max(struct(n, who)) = {"n": 40, "who": "d"}'),
    "max(gate) FILTER (WHERE n > 99) > ''": (True, "max(gate) FILTER (WHERE n > 99) = NULL"),
    "avg(n)\n  < 5 -- over two lines": (False, "avg(n) = 11.5"),
    "hll_sketch_estimate(hll_sketch_agg(n)) = 4": (True, None),
    "1 = 1": (True, "true"),
}  # fmt: skip
ROW = {
    "n > 0 -- always": 0,
    "n > 1 -- \\": 1,
    "gate <> ')' -- (": 1,
    "who LIKE SOME ('a%', 'b%')": 2,
    "gate = 'it\\'s' /* or not ( */": 3,
    'gate = "it\'s"': 3,
    "gate IS NULL OR gate <> '--'": 0,
    "NULL > 3": 4,
}


def job_of(*checks: Check) -> Job:
    def kept(clicks):
        return clicks

    function = hw.job(target=hw.delta("silver.kept"))(kept)
    for check in checks:
        function = hw.check(check.name, check.expression, level=check.level, action=check.action)(function)
    return bind(function)


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame(ROWS, COLUMNS)


@pytest.fixture(scope="module")
def home(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    rows.write.format("delta").save(str(folder / "tables/silver/kept"))
    rows.limit(0).write.format("delta").save(str(folder / "tables/silver/none"))
    return folder


def test_batch_conditions_are_judged_alike_and_show_what_their_aggregates_came_to(spark, rows, home):
    checks = [Check(f"c{n}", text, level="batch", action="warn") for n, text in enumerate(BATCH)]
    gate = CheckGate(job_of(*checks), "output")
    gate.judge_rows(rows, 0)
    told = " ".join(gate.warnings)
    outcomes = {each.name: each for each in run_suite(spark, home, "silver.kept", checks=checks).outcomes}
    for check in checks:
        passes, observed = BATCH[check.expression]
        outcome = outcomes[check.name]
        assert (outcome.passed, outcome.error) == (passes, None), check.expression
        assert (f"'{check.name}'" in told) == (not passes), check.expression
        if observed is not None:
            assert outcome.observed == observed


def test_row_conditions_are_judged_alike(spark, rows, home):
    checks = [Check(f"c{n}", text, action="warn") for n, text in enumerate(ROW)]
    outcomes = {each.name: each for each in run_suite(spark, home, "silver.kept", checks=checks).outcomes}
    for check in checks:
        failing = rows.filter(F.expr(check.violation_sql)).count()
        assert failing == outcomes[check.name].unexpected_count == ROW[check.expression], check.expression


@pytest.mark.parametrize(
    ("expression", "level", "said"),
    [
        ("'yes'", "row", "it is STRING, and must be BOOLEAN, a condition: 'yes'"),
        ("who", "row", "it is STRING, and must be BOOLEAN, a condition: who"),
        ("n", "row", "it is INT, and must be BOOLEAN"),
        ("NULL", "row", "it is VOID, and must be BOOLEAN"),
        ("max(who)", "batch", "it is STRING, and must be BOOLEAN"),
        ("n > 0) OR (1 = 1", "row", "Syntax error at or near ')'"),
        ("n > 0), (TRUE", "row", "Syntax error at or near ')'"),
        ("n > 0;", "row", "Syntax error at or near ';'"),
        ("n > 0 /* open", "row", "unclosed bracketed comment"),
        ("n >", "row", "Syntax error at or near end of input"),
        ("*", "row", "it is 3 values, and must be a condition"),
        ("count(*) > 1", "row", ""),
        ("n > 0", "batch", ""),
    ],
)
def test_what_is_no_condition_is_refused_by_job_and_suite_in_a_sentence(spark, home, expression, level, said):
    check = Check("c", expression, level=level, action="fail")
    with pytest.raises(JobDefinitionError) as of_job:
        analyse(job_of(check), spark, {})
    with pytest.raises(SuiteError) as of_suite:
        run_suite(spark, home, "silver.kept", checks=[check])
    for refusal in (of_job, of_suite):
        assert said in str(refusal.value)
        assert "'c'" in str(refusal.value)
        assert not str(refusal.value).rstrip().endswith(":")
        assert "\n" not in str(refusal.value)


def test_share_of_no_rows_breaks_nothing_and_harms_no_other_check(spark, home):
    checks = [
        Check("share", "count_if(n > 2) / count(*) < 0.5", level="batch", action="fail"),
        Check("some", "count(*) > 0", level="batch", action="warn"),
        Check("each", "n > 0", action="fail"),
    ]
    result = run_suite(spark, home, "silver.none", checks=checks)
    found = {each.name: each for each in result.outcomes}
    assert (result.passed, result.rows) == (True, 0)
    assert found["share"].observed == "cannot be worked out of no rows: Division by zero"
    assert (found["some"].passed, found["some"].observed) == (False, "count(*) = 0")
    assert found["each"].observed == "0 of 0 rows unexpected"


RAISING = {
    "100 / (n - 1) > 0": 1,
    "100 / (n - 1) > 40": 1,
    "CAST(who AS INT) > 0": 4,
    "n > 1 AND CAST(gate AS INT) > 0 OR n < 2": 2,
    "array(1, 2, 3)[n] > 2": 2,
    "to_timestamp(gate) IS NULL": 3,
    "CAST(n * 1000000000 AS BIGINT) > 0": 2,
    "raise_error(who) IS NULL": 4,
}  # fmt: skip
"""For how many rows each raises."""


def test_rows_for_which_a_check_raises_count_as_failing_as_in_a_job(spark, rows, home):
    checks = [Check(f"c{n}", text, action="fail") for n, text in enumerate([*RAISING, "n > 1"])]
    result = run_suite(spark, home, "silver.kept", checks=checks)
    outcomes = {each.name: each for each in result.outcomes}
    failing = rows.agg(*[F.count_if(violates(each.expression, rows)).alias(each.name) for each in checks])
    assert {name: each.unexpected_count for name, each in outcomes.items()} == failing.first().asDict()
    for check in checks:
        outcome, raising = outcomes[check.name], RAISING.get(check.expression)
        said = "cannot" if raising is None else f", {raising} of them cannot be worked out: "
        assert (said in outcome.observed) == (raising is not None), check.expression
        assert (outcome.error is None) == (raising is None), check.expression


OF_EVERY_TYPE = {
    "INT": ("1", "100 / (c - 1) > 0"),
    "STRING": ("'x'", "CAST(c AS INT) > 0"),
    "BINARY": ("x'00'", "CAST(hex(c) AS INT) / 0 > 0"),
    "DATE": ("date'2026-01-01'", "day(c) / 0 > 0"),
    "ARRAY<STRING>": ("array('x')", "CAST(c[0] AS INT) > 0"),
    "STRUCT<f: STRING>": ("named_struct('f', 'x')", "CAST(c.f AS INT) > 0"),
    "MAP<STRING, STRING>": ("map('k', 'x')", "CAST(c['k'] AS INT) > 0"),
    "ARRAY<MAP<STRING, STRING>>": ("array(map('k', 'x'))", "CAST(c[0]['k'] AS INT) > 0"),
    "STRUCT<m: MAP<STRING, STRING>>": ("named_struct('m', map('k', 'x'))", "CAST(c.m['k'] AS INT) > 0"),
    "VARIANT": ("""parse_json('{"k": "x"}')""", "variant_get(c, '$.k', 'int') > 0"),
    "INTERVAL DAY": ("INTERVAL '3' DAY", "c / 0 > c"),
}  # fmt: skip
"""A value of each type, and a check of it that raises."""


@pytest.mark.parametrize("kind", OF_EVERY_TYPE)
def test_check_that_raises_is_told_whatever_the_type_of_its_column(spark, kind):
    value, condition = OF_EVERY_TYPE[kind]
    rows = spark.sql(f"SELECT CAST({value} AS {kind}) AS c")
    gate = CheckGate(
        job_of(
            Check("row", condition, action="warn"),
            Check("batch", f"count_if({condition}) = 0", level="batch", action="warn"),
        ),
        "output",
    )
    gate.judge_rows(rows, 0)
    told = " ".join(gate.warnings)
    assert rows.select(violates(condition, rows), violates(condition)).first() == (True, True)
    assert "'row'" in told
    assert "'batch'" in told
    assert "cannot be worked out" in told


def test_check_that_cannot_be_worked_out_fails_alone_with_its_reason(spark, home):
    checks = [
        Check("share", "sum(n) / (count(*) - 4) < 0.5", level="batch", action="fail"),
        Check("row", "100 / (n - 1) > 0", action="warn"),
        Check("cast", "CAST(who AS INT) > 0", action="warn"),
        Check("mean", "avg(n) = 11.5", level="batch", action="fail"),
        Check("each", "n > 1", action="warn"),
    ]
    result = run_suite(spark, home, "silver.kept", checks=checks, keys=["who"])
    found = {each.name: each for each in result.outcomes}
    assert not result.passed
    assert found["share"].error == found["row"].error == "cannot be worked out: Division by zero"
    assert found["row"].observed == "1 of 4 rows unexpected, 1 of them cannot be worked out: Division by zero"
    assert found["row"].unexpected_sample == ('{"who":"a","n":1,"gate":"x)"}',)
    assert found["cast"].error.startswith("cannot be worked out: The value '")
    assert "cannot be cast to" in found["cast"].error
    assert (found["mean"].passed, found["mean"].observed) == (True, "avg(n) = 11.5")
    assert found["each"].observed == "1 of 4 rows unexpected"
    assert found["keys_unique"].passed
    assert "cannot be worked out: Division by zero" in result.docs.read_text(encoding="utf-8")


def test_own_expectation_that_raises_takes_no_other_with_it(spark, home):
    def own():
        import great_expectations.expectations as gxe

        return [
            gxe.ExpectColumnMeanToBeBetween(column="who", min_value=0, max_value=7),
            gxe.ExpectColumnMaxToBeBetween(column="n", min_value=0, max_value=40),
        ]

    checks = [
        Check("mean", "avg(n) = 11.5", level="batch", action="fail"),
        Check("each", "n > 0", action="fail"),
    ]
    result = run_suite(spark, home, "silver.kept", checks=checks, extra=own)
    found = {each.name: each for each in result.outcomes}
    assert [name for name, each in found.items() if not each.passed] == ["expect_column_mean_to_be_between"]
    assert found["expect_column_mean_to_be_between"].error
    assert found["mean"].observed == "avg(n) = 11.5"


def test_aggregates_are_those_that_spark_has(spark):
    """Those of the group `agg_funcs`, and some that Spark puts elsewhere."""
    registry = spark._jsparkSession.sessionState().functionRegistry()
    names, found = registry.listFunction().iterator(), {"schema_of_variant_agg", "vector_avg", "vector_sum"}
    while names.hasNext():
        name = names.next()
        if registry.lookupFunction(name).get().getGroup() == "agg_funcs":
            found.add(name.funcName())
    assert found == AGGREGATES
