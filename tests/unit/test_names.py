"""Names that people choose: what can be one, and what is told of others."""

import ast
import re
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.names import column_problem, folded, named_twice, plain_name, quoted, twins
from headwater_streams.runtime.job import bind
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.tables import name_problems_of
from headwater_streams.windows.tumbling import TumblingWindow

ROOT = Path(__file__).resolve().parents[2]
clicks = hw.topic("clicks", schema="who STRING")
WELL = (
    "Product.Id", "a`b", "select", 'quo"te', "it's", "größe", "名", "x" * 255, "a-b", "[b]", "%s", "a/b\\c", "1", "?",
)  # fmt: skip


@pytest.mark.parametrize("name", WELL)
def test_names_of_columns_may_be_almost_anything(name: str) -> None:
    assert column_problem(name) is None
    assert quoted(name)[1:-1].replace("``", "`") == name


@pytest.mark.parametrize(
    ("name", "told", "rather"),
    [
        ("Product Id", "has ' ', and no column of a table has a blank", "Product_Id"),
        ("a,b", "has ','", "a_b"),
        ("sum(n)", "has '('", "sum_n"),
        ("a;b", "has ';'", "a_b"),
        ("a=b", "has '='", "a_b"),
        ("{x}", "has '{'", "x"),
        ("a\tb", r"has '\t'", "a_b"),
        ("a\nb", r"has '\n'", "a_b"),
        ("a\0b", r"has '\x00'", "a_b"),
        (".x", "begins with a dot", "x"),
        ("", "is called nothing", "name"),
        ("( )", "has '('", "name"),
    ],
)
def test_name_that_no_table_has_is_told_with_another(name: str, told: str, rather: str) -> None:
    assert told in (column_problem(name) or "")
    assert plain_name(name) == rather
    assert column_problem(rather) is None


def test_names_that_spark_takes_for_one_are_found() -> None:
    assert named_twice(["id", "ID"]) == "ID"
    assert named_twice(["k", "\N{KELVIN SIGN}"]) == "\N{KELVIN SIGN}", "java: equalsIgnoreCase is true"
    assert folded("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}") == "i", "as above"
    assert named_twice(["stra\N{LATIN SMALL LETTER SHARP S}e", "strasse"]) is None
    assert named_twice(["\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"]) is None
    assert [*twins(["id", "At"], ["id", "at"])] == [("At", "at")]


def plan_of(kind: str, inputs: dict[str, T.StructType], result: str = "") -> JobPlan:
    @hw.job(target=hw.delta("gold.delays"))
    def delays(clicks: DataFrame) -> DataFrame:
        return clicks

    own = T.StructType([T.StructField(column, T.StringType()) for column in result.split("|") if column])
    operator = TumblingWindow("at", timedelta(hours=1), ()) if kind == "window" else None
    return JobPlan(bind(delays), kind, operator, own, inputs)  # type: ignore[arg-type]


def struct(*names: str) -> T.StructType:
    return T.StructType([T.StructField(name, T.StringType()) for name in names])


def test_job_whose_table_cannot_have_a_column_is_told_in_a_sentence() -> None:
    assert name_problems_of(plan_of("row", {"clicks": struct("who")}, "Product.Id|a`b")) == []
    (told,) = name_problems_of(plan_of("row", {"clicks": struct("Product Id")}, "Product Id"))
    assert told == (
        "job 'delays': the column 'Product Id' has ' ', and no column of a table has a blank, a control character or "
        "one of ,;{}()=; rename it, .alias('Product_Id')"
    )
    # What a windowed job's topics have stands in its ingest and late tables, whatever its function makes of it.
    (told,) = name_problems_of(plan_of("window", {"clicks": struct("Product Id")}, "n"))
    assert told.endswith("; have a row-by-row job rename it, and let this one read its table")


def test_columns_of_two_inputs_that_are_one_to_spark_are_told() -> None:
    (told,) = name_problems_of(plan_of("join", {"clicks": struct("id"), "buys": struct("ID")}, "n"))
    assert told.startswith(
        "job 'delays': the column 'ID' has the name of another one, for Spark and Delta tell no "
    )


def test_field_that_no_table_has_is_told_with_its_column() -> None:
    address = T.ArrayType(T.StructType([T.StructField("zip code", T.StringType())]))
    plan = plan_of("row", {"clicks": struct("who")})
    schema = T.StructType([T.StructField("address", address)])
    (told,) = name_problems_of(JobPlan(plan.job, "row", None, schema, plan.inputs))
    assert told.startswith("job 'delays': the column 'address' has a field 'zip code' that has ' '")


def test_names_are_quoted_in_one_place() -> None:
    """A name between backticks in an f-string is one that has none itself: `quoted` and `col` take any."""
    found = []
    for source in ("streams", "platform"):
        for path in sorted((ROOT / source).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr) and path.name != "names.py":
                    parts = zip(node.values, node.values[1:], strict=False)
                    found += [
                        f"{path.relative_to(ROOT)}, line {node.lineno}"
                        for text, value in parts
                        if isinstance(text, ast.Constant) and str(text.value).endswith("`")
                        if isinstance(value, ast.FormattedValue)
                        and not re.fullmatch(r".*\w`", str(text.value))
                    ]
    assert found == []
