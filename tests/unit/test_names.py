"""Names that people choose: what can be one, what is told of others, and that none leads out of its folder."""

import ast
import re
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.backfill.store import BackfillFolder, UnknownBackfillError
from headwater_streams.base.errors import JobDefinitionError, UnknownNameError
from headwater_streams.base.names import column_problem, folded, named_twice, plain_name, quoted, twins
from headwater_streams.loader import load_jobs
from headwater_streams.operators.windows.tumbling import TumblingWindow
from headwater_streams.plan.job import bind
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.result import stored_results
from headwater_streams.runtime.tables import name_problems_of
from headwater_streams.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
clicks = hw.topic("clicks", schema="who STRING")
WELL = (
    "Product.Id", "a`b", "select", 'quo"te', "it's", "größe", "名", "x" * 255, "a-b", "[b]", "%s", "a/b\\c", "1", "?",
)  # fmt: skip
OUT_OF_THE_HOME = ("../../../x", "..", ".", "a/b", "/etc/x", "a\\b", "a\0b")


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


@pytest.mark.parametrize("name", [*OUT_OF_THE_HOME, "", "a b", "größe", "-x", ".x", "a:b", "a*", "x" * 241])
def test_job_that_cannot_be_called_so_is_refused_where_it_is_declared(name: str) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        hw.job(name=name, target=hw.delta("gold.x"))(lambda clicks: clicks)
    wanted = (
        "and may have 240" if len(name) > 240 else "a job's name is of the letters a to z and A to Z, digits"
    )
    assert str(refused.value).startswith(f"job {name!r}: ")
    assert wanted in str(refused.value)


@pytest.mark.parametrize("name", ["delays", "orders.v2", "daily-report", "_x", "1", "x" * 240])
def test_job_may_be_called_so(name: str) -> None:
    assert bind(hw.job(name=name, target=hw.delta("gold.x"))(lambda clicks: clicks)).name == name


@pytest.mark.parametrize("name", ["a__ingest_b", "a__step_1"])
def test_job_called_as_a_part_of_one_is_refused(name: str) -> None:
    with pytest.raises(
        JobDefinitionError, match="are of the parts that the library makes of a job; take another"
    ):
        hw.job(name=name, target=hw.delta("gold.x"))(lambda clicks: clicks)


@pytest.mark.parametrize(
    "name",
    [
        *OUT_OF_THE_HOME,
        "gold",
        "gold.a.b",
        "gold.1x",
        "gold.a b",
        "../x.y",
        "gold.größe",
        "gold." + "x" * 240,
    ],
)
def test_table_that_cannot_be_called_so_is_refused_wherever_it_is_declared(name: str) -> None:
    for declare in (
        hw.delta,
        hw.table,
        hw.lookup,
        lambda table: hw.scd1(table, keys=["id"], sequence_by="at"),
        lambda table: hw.scd2(table, keys=["id"], sequence_by="at"),
    ):
        with pytest.raises(JobDefinitionError) as refused:
            declare(name)
        assert "write schema.table" in str(refused.value) or "take a shorter one" in str(refused.value)


def test_table_whose_side_tables_have_no_room_is_refused() -> None:
    fits = f"gold.{'x' * 223}"
    assert len(hw.delta(fits).quarantine_table) == 240
    with pytest.raises(
        JobDefinitionError, match=r"of 241 characters with '__quarantine' behind it, and may have 240"
    ):
        hw.delta(f"{fits}x")


def test_parameters_and_targets_that_are_one_name_in_sql_are_refused() -> None:
    one, two = hw.delta("gold.x"), hw.delta("Gold.X")
    with pytest.raises(JobDefinitionError, match=r"two of targets= are the table Gold\.X"):
        hw.job(targets={"one": one, "two": two})
    code = """
import headwater as hw
clicks = Clicks = hw.topic("clicks", schema="who STRING")

@hw.job(target=hw.delta("gold.x"))
def job(clicks, Clicks):
    return clicks
"""
    names: dict[str, object] = {}
    exec(code, names)
    with pytest.raises(JobDefinitionError, match="the parameter 'Clicks' is another one's name in SQL"):
        bind(names["job"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (
            'target=hw.delta("silver.X"), name="two"',
            r"'one' and 'two' write silver\.x and silver\.X, which are one",
        ),
        (
            'target=hw.delta("silver.y"), name="One"',
            "two jobs are named 'One', if small letters and capitals are the",
        ),
    ],
)
def test_jobs_and_tables_that_differ_in_capitals_alone_are_refused(
    tmp_path: Path, second: str, told: str
) -> None:
    (tmp_path / "jobs.py").write_text(
        f"""
import headwater as hw
clicks = hw.topic("clicks", schema="who STRING")

@hw.job(target=hw.delta("silver.x"))
def one(clicks):
    return clicks

@hw.job({second})
def two(clicks):
    return clicks
"""
    )
    with pytest.raises(JobDefinitionError, match=told):
        load_jobs([str(tmp_path / "jobs.py")])


@pytest.mark.parametrize("name", OUT_OF_THE_HOME)
def test_no_name_leads_out_of_its_folder_of_the_home(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    for path_of in (
        lambda: home.table(f"gold.{name}"),
        lambda: home.job(name),
        lambda: home.checkpoint(name, 1),
        lambda: home.module(name),
    ):
        with pytest.raises(UnknownNameError, match="can be called"):
            path_of()
    with pytest.raises(UnknownBackfillError, match="headwater backfill list"):
        BackfillFolder(home, name)
    assert stored_results(tmp_path, name) == []


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
