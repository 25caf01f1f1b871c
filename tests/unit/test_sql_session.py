"""Statements over Delta tables in DuckDB: names, versions, errors, output forms, the prompt."""

import csv
import io
import json
import re
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from headwater.sql import Catalog, Result, SqlError, SqlSession, UnknownTableError
from headwater.sql.delta import parse_at
from headwater.sql.duckdb_engine import DuckDBEngine
from headwater.sql.output import print_table, write_csv, write_json
from headwater.sql.prompt import run_prompt
from headwater_streams.storage.delta_rows import dataset_of


@pytest.fixture
def home(tmp_path):
    flights = pa.table(
        {
            "carrier": ["UA", "AA", None],
            "delay": pa.array([1.5, float("nan"), float("inf")]),
            "seen": pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC")),
            "origin": [{"topic": "t", "offset": 1}, None, {"topic": None, "offset": 2}],
        }
    )
    write_deltalake(tmp_path / "tables/silver/departures", flights)
    write_deltalake(tmp_path / "tables/silver/departures__quarantine", pa.table({"raw": [b"\xff{"]}))
    write_deltalake(tmp_path / "tables/headwater/ledger", pa.table({"version": [0]}))
    return tmp_path


@pytest.fixture
def session(home):
    with SqlSession(home) as opened:
        yield opened


def answer(session, statement):
    return list(session.run(statement).objects())


def printed(write, result):
    out = io.StringIO()
    write(result, out)
    return out.getvalue()


def shown(result, *, width=200, terminal=False, max_rows=100):
    out = io.StringIO()
    print_table(
        result, Console(file=out, width=width, force_terminal=terminal, color_system=None), max_rows=max_rows
    )
    return out.getvalue()


def test_tables_are_found_by_schema_and_name(session):
    assert answer(session, "SELECT count(*) AS n FROM silver.departures") == [{"n": 3}]
    assert answer(session, 'SELECT * FROM "headwater"."LEDGER"') == [{"version": 0}]
    assert [ref.qualified_name for ref in session.catalog.tables()] == [
        "headwater.ledger",
        "silver.departures",
        "silver.departures__quarantine",
    ]


@pytest.mark.parametrize(
    ("statement", "dialect", "names"),
    [
        ("select * from Silver.departures__quarantine", "duckdb", ["departures__quarantine"]),
        ('from "silver" . "departures"', "duckdb", ["departures"]),
        ("from memory.`silver`.departures", "duckdb", ["departures"]),
        ("from query_table('silver.departures')", "duckdb", ["departures"]),
        ("select silver, departures from headwater.ledger", "duckdb", ["ledger"]),
        ("select 1 -- silver.departures", "duckdb", []),
        ("select 1 /* a /* b */ silver.departures */", "duckdb", []),
        ("select 1 -- a \\\n silver.departures", "spark", []),
        ("select 1 -- a \\\n silver.departures", "duckdb", ["departures"]),
        ("select /*+ broadcast(silver.departures) */ 1", "spark", ["departures"]),
        ("select * from silver/* , */.departures", "spark", ["departures"]),
        ("select * from old_silver.departures", "duckdb", []),
    ],
)
def test_tables_named_in_a_statement_are_those_that_stand_there_as_names(home, statement, dialect, names):
    assert [ref.name for ref in Catalog(home).named_in(statement, dialect)] == names


def test_table_and_schema_of_any_name_are_found(tmp_path):
    write_deltalake(tmp_path / 'tables/my schema/a "b";c', pa.table({"n": [1]}))
    with SqlSession(tmp_path) as session:
        assert answer(session, 'select n from "my schema"."a ""b"";c"') == [{"n": 1}]


def test_home_may_be_a_text(home):
    with SqlSession(str(home)) as session:
        assert answer(session, "select count(*) as n from headwater.ledger") == [{"n": 1}]


def break_log(home, name):
    path = home / "tables/silver" / name / "_delta_log"
    path.mkdir(parents=True)
    (path / "00000000000000000000.json").write_text("{")


def test_broken_table_harms_no_statement_that_does_not_read_it(home, session):
    break_log(home, "broken")
    statement = "SELECT count(*) AS n FROM silver.departures WHERE 'silver.broken' <> '' -- silver.broken"
    assert answer(session, statement) == [{"n": 3}]
    for statement in ("SELECT * FROM silver.broken", 'SELECT * FROM "silver"."broken"', "FROM Silver.Broken"):
        with pytest.raises(SqlError, match=r"silver\.broken: .*0000\.json is no commit"):
            session.run(statement)


def test_broken_table_is_told_where_no_other_was_read_before(home):
    break_log(home, "broken")
    with (
        SqlSession(home) as session,
        pytest.raises(SqlError, match=r"silver\.broken: .*0000\.json is no commit"),
    ):
        session.run("SELECT * FROM silver.broken")


def test_table_that_broke_is_not_read_as_it_was(home, session):
    assert answer(session, "SELECT version FROM headwater.ledger") == [{"version": 0}]
    (home / "tables/headwater/ledger/_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(SqlError, match=r"headwater\.ledger: .*0000\.json is no commit"):
        session.run("SELECT version FROM headwater.ledger")


def test_tables_lists_the_others_beside_one_that_is_broken(home, session):
    break_log(home, "broken")
    listed = {row["table"]: row for row in answer(session, "tables")}
    assert listed["silver.departures"]["rows"] == 3
    broken = listed["silver.broken"]
    assert (broken["version"], broken["rows"], broken["files"]) == (None, None, None)
    assert "silver/broken/_delta_log/00000000000000000000.json is no commit" in broken["problem"]
    assert listed["silver.departures"]["problem"] is None
    assert not session.run("tables").is_whole


@pytest.mark.parametrize("damage", ["garbage", "", "cut"])
def test_table_of_a_damaged_checkpoint_is_told_in_a_sentence(home, session, damage):
    path = home / "tables/headwater/ledger"
    DeltaTable(path).create_checkpoint()
    (checkpoint,) = path.glob("_delta_log/*.parquet")
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2] if damage == "cut" else damage.encode())
    (problem,) = [row["problem"] for row in answer(session, "tables") if row["problem"]]
    assert problem.startswith(f"headwater.ledger: {checkpoint} is ")
    assert "\n" not in problem
    with pytest.raises(SqlError, match=re.escape(problem)):
        session.run("SELECT * FROM headwater.ledger")


def test_folder_without_a_commit_is_not_a_table_yet(home, session):
    (home / "tables/gold/soon/_delta_log").mkdir(parents=True)
    with pytest.raises(UnknownTableError):
        session.run("SELECT * FROM gold.soon")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("silver.departurs", "did you mean silver.departures"),
        ("departures", "did you mean silver.departures"),
        ("gold.departures", "did you mean silver.departures"),
        ("gold.x", "the tables are headwater.ledger, silver.departures, silver.departures__quarantine"),
    ],
)
def test_unknown_table_names_the_nearest(session, name, hint):
    with pytest.raises(UnknownTableError) as error:
        session.run(f"SELECT * FROM {name}")
    assert f"there is no table {name}: " in str(error.value)
    assert hint in str(error.value)
    assert error.value.exit_code == 1


def test_unknown_table_in_an_empty_home_says_so(tmp_path):
    with SqlSession(tmp_path) as session, pytest.raises(UnknownTableError, match="there are no tables under"):
        session.run("SELECT * FROM silver.departures")


@pytest.mark.parametrize(
    "statement", ["SELEC 1", "SELECT nope FROM silver.departures", "SELECT CAST('x' AS INT)"]
)
def test_wrong_statement_is_an_sql_error(session, statement):
    with pytest.raises(SqlError):
        session.run(statement)


@pytest.mark.parametrize(
    "statement", ["trace", "TRACE silver.departures wher n = 1", "trace clicks:0:3", "trace 'clicks:0:3' x"]
)
def test_trace_that_is_not_written_as_one_is_told_how_to(session, statement):
    with pytest.raises(SqlError, match="write TRACE TABLE, TRACE TABLE WHERE CONDITION, or TRACE 'TOPIC:"):
        session.run(statement)


def test_statement_sees_the_newest_version_and_keeps_it(home, session):
    assert answer(session, "SELECT count(*) AS n FROM silver.departures") == [{"n": 3}]
    write_deltalake(
        home / "tables/silver/departures", pa.table({"carrier": ["DL"]}), mode="append", schema_mode="merge"
    )
    assert answer(session, "SELECT count(*) AS n FROM silver.departures") == [{"n": 4}]


def test_at_version_or_moment_reads_the_past(home):
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    time.sleep(0.05)  # a file's time is that of the kernel's last tick, up to 10 ms ago
    write_deltalake(home / "tables/headwater/ledger", pa.table({"version": [1]}), mode="append")
    for at in (0, between):
        with SqlSession(home, at=at) as session:
            assert answer(session, "SELECT version FROM headwater.ledger") == [{"version": 0}]


def test_at_version_that_does_not_exist_names_the_newest(home):
    with (
        SqlSession(home, at=9) as session,
        pytest.raises(SqlError, match=r"no version at 9: its newest is version 0"),
    ):
        session.run("SELECT * FROM headwater.ledger")


def test_at_version_asks_it_only_of_the_tables_that_are_read(home):
    for number in range(3):
        write_deltalake(home / "tables/headwater/ledger", pa.table({"version": [number]}), mode="append")
    with SqlSession(home, at=2) as session:
        statement = "SELECT count(*) AS n FROM headwater.ledger WHERE 'silver.departures' <> ''"
        assert answer(session, statement) == [{"n": 3}]
        listed = {row["table"]: row for row in answer(session, "tables")}
        assert listed["headwater.ledger"]["version"] == 2
        assert "no version at 2: its newest is version 0" in listed["silver.departures"]["problem"]
        assert session.run("tables").is_whole, "a table that is younger is not damaged"
        with pytest.raises(SqlError, match=r"silver\.departures has no version at 2"):
            session.run("SELECT * FROM headwater.ledger, silver.departures")


def test_at_moment_before_the_table_names_its_oldest_version(home):
    with (
        SqlSession(home, at=datetime(2013, 1, 1, tzinfo=UTC)) as session,
        pytest.raises(
            SqlError, match=r"no version at 2013-01-01 00:00:00\+00:00: its oldest is version 0, of 20"
        ),
    ):
        session.run("SELECT * FROM headwater.ledger")


def test_parse_at_reads_versions_and_utc_times():
    assert parse_at("12") == 12
    assert (
        parse_at("2013-01-01T10:00:00Z")
        == parse_at("2013-01-01 10:00")
        == datetime(2013, 1, 1, 10, tzinfo=UTC)
    )
    with pytest.raises(ValueError):
        parse_at("yesterday")


def test_timestamps_are_utc_whatever_the_machine_says(session, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    rows = answer(
        session,
        "SELECT date_trunc('day', seen) AS day, hour(seen) AS h FROM silver.departures WHERE carrier = 'UA'",
    )
    assert rows == [{"day": "1970-01-01T00:00:00Z", "h": 0}]


def test_partitioned_table_with_awkward_values_is_read(home, session):
    days = pa.table({"day": ["a b", "c/d", None, "e%20f"], "n": [1, 2, 3, 4]})
    write_deltalake(home / "tables/gold/by_day", days, partition_by=["day"])
    assert answer(session, "SELECT day, n FROM gold.by_day ORDER BY n") == days.to_pylist()
    assert answer(session, "SELECT n FROM gold.by_day WHERE day = 'c/d'") == [{"n": 2}]


def test_table_with_a_column_added_later_reads_null_before(home, session):
    path = home / "tables/headwater/ledger"
    write_deltalake(path, pa.table({"version": [1], "job": ["j"]}), mode="append", schema_mode="merge")
    assert answer(session, "SELECT * FROM headwater.ledger ORDER BY version") == [
        {"version": 0, "job": None},
        {"version": 1, "job": "j"},
    ]


def test_tables_lists_versions_and_rows(session):
    assert answer(session, "show tables")[1] == {
        "table": "silver.departures",
        "version": 0,
        "rows": 3,
        "files": 1,
        "problem": None,
    }


def test_describe_gives_deltas_types(session):
    assert answer(session, "describe silver.departures") == [
        {"column": "carrier", "type": "string", "nullable": True},
        {"column": "delay", "type": "double", "nullable": True},
        {"column": "seen", "type": "timestamp", "nullable": True},
        {"column": "origin", "type": "struct<topic: string, offset: long>", "nullable": True},
    ]


def test_variables_of_this_program_are_no_tables(session):
    secret = pa.table({"a": [1]})
    with pytest.raises(UnknownTableError):
        session.run("SELECT * FROM secret")
    assert len(secret) == 1


def test_tables_cannot_be_changed_here(home, session):
    with pytest.raises(SqlError):
        session.run("DELETE FROM headwater.ledger")
    assert DeltaTable(home / "tables/headwater/ledger").version() == 0


def test_json_is_one_array_with_columns_in_order(session):
    result = session.run("SELECT seen, delay, origin, 1 AS seen FROM silver.departures ORDER BY carrier")
    assert json.loads(
        printed(write_json, result), object_pairs_hook=lambda pairs: [list(pair) for pair in pairs]
    ) == [
        [["seen", "1970-01-01T00:00:01.500000Z"], ["delay", None], ["origin", None], ["seen_1", 1]],
        [
            ["seen", "1970-01-01T00:00:00Z"],
            ["delay", 1.5],
            ["origin", [["topic", "t"], ["offset", 1]]],
            ["seen_1", 1],
        ],
        [["seen", None], ["delay", None], ["origin", [["topic", None], ["offset", 2]]], ["seen_1", 1]],
    ]


@pytest.mark.parametrize("statement", ["SELECT 1 AS a WHERE false", "CREATE TABLE scratch (a INT)"])
def test_json_of_no_rows_is_an_empty_array(session, statement):
    assert printed(write_json, session.run(statement)) == "[]\n"


def test_csv_has_a_header_and_quotes_what_needs_it(session):
    statement = "SELECT carrier, delay, seen, origin, 'a,\"b' AS q FROM silver.departures ORDER BY delay"
    assert printed(write_csv, session.run(statement)).splitlines() == [
        "carrier,delay,seen,origin,q",
        'UA,1.5,1970-01-01T00:00:00Z,"{""topic"": ""t"", ""offset"": 1}","a,""b"',
        ',Infinity,,"{""topic"": null, ""offset"": 2}","a,""b"',
        'AA,NaN,1970-01-01T00:00:01.500000Z,,"a,""b"',
    ]


CSV_VALUES = (
    "VALUES (1, NULL), (2, ''), (3, 'NULL'), (4, 'a' || chr(13) || 'b'), (5, 'a' || chr(10)), (6, '\"')"
)


@pytest.mark.parametrize("null", ["", "NULL", "\\N"])
def test_csv_tells_null_from_texts_and_quotes_what_ends_a_line(session, tmp_path, null):
    result = session.run(f"SELECT * FROM ({CSV_VALUES}) AS t(id, text)")
    text = printed(partial(write_csv, null=null), result)
    quoted_null = '"NULL"' if null == "NULL" else "NULL"
    assert text == (f'id,text\n1,{null}\n2,""\n3,{quoted_null}\n4,"a\rb"\n5,"a\n"\n6,""""\n')
    file = tmp_path / "out.csv"
    file.write_text(text, newline="")
    read = f"read_csv('{file}', header = true, quote = '\"', nullstr = '{null}', allow_quoted_nulls = false)"
    assert [row["text"] for row in answer(session, f"SELECT text FROM {read} ORDER BY id")] == [
        None, "", "NULL", "a\rb", "a\n", '"',
    ]  # fmt: skip
    with file.open(newline="") as lines:
        assert len(list(csv.reader(lines))) == 7


def test_csv_of_one_column_has_no_blank_line(session):
    result = session.run("SELECT * FROM (VALUES (NULL), (''), ('a')) AS t(x)")
    assert printed(write_csv, result) == 'x\n""\n""\na\n'
    assert printed(partial(write_csv, null="-"), result) == 'x\n-\n""\na\n'


def test_csv_quotes_names_of_columns_alike(session):
    assert (
        printed(write_csv, session.run('SELECT 1 AS "a\rb", 2 AS ",", 3 AS "n"')) == '"a\rb",",",n\n1,2,3\n'
    )


def test_table_for_people_shows_null_as_it_is_told(session):
    result = session.run("SELECT NULL AS a, '' AS b, 'x' AS c")
    out = io.StringIO()
    print_table(result, Console(file=out, width=80), max_rows=1, null="(null)")
    assert out.getvalue().count("(null)") == 1
    assert "null" not in shown(result)


def test_csv_of_no_rows_keeps_its_header(session):
    assert printed(write_csv, session.run("SELECT 1 AS a, 2 AS b WHERE false")) == "a,b\n"


def test_table_for_people_counts_rows_and_cuts_nothing_in_a_pipe():
    long_value = "x" * 300
    text = shown(Result.from_rows(["name", "n"], [(long_value, 1), ("[bold]", 2)]), width=80)
    assert long_value in text
    assert "[bold]" in text
    assert "2 rows" in text


@pytest.mark.parametrize("cell", ["x" * 100_001, "\u754c" * 60_000, "a\tb" * 30_000, "x" * 250_000])
def test_table_for_people_keeps_a_cell_of_any_length_on_one_line_in_a_pipe(cell):
    lines = shown(Result.from_rows(["n", "value"], [(1, cell), (2, "y")]), width=80).splitlines()
    assert [line for line in lines if cell.expandtabs() in line]
    assert len(lines) == 7


def test_table_for_people_that_is_too_wide_becomes_records():
    text = shown(Result.from_rows(["a", "b"], [("x" * 50, "y" * 50)]), width=80, terminal=True)
    assert "row 1" in text
    assert "a  " + "x" * 50 in text


def test_table_for_people_says_how_many_it_left_out():
    text = shown(Result.from_rows(["n"], [(n,) for n in range(1_500)]), max_rows=10)
    assert "1,500 rows, the first 10 shown" in text


def test_prompt_reads_statements_over_lines_and_goes_on_after_an_error(session):
    lines = iter(
        ["select 40", "  + 2 as answer;", "selec;", "tables", "\\d headwater.ledger", "help", "quit", "never"]
    )
    out = io.StringIO()
    run_prompt(session, Console(file=out, width=120), max_rows=100, read_line=lambda _prompt: next(lines))
    text = out.getvalue()
    assert "42" in text
    assert "Parser Error" in text
    assert "silver.departures__quarantine" in text
    assert "nullable" in text
    assert "Ctrl-D" in text
    assert next(lines) == "never"


def test_prompt_reads_on_while_a_text_or_a_comment_is_open(session):
    lines = iter(["select $$a;", "b$$ as x; /* c;", "/* d; */", "*/ select 7", "* 6 as y;", "quit"])
    out = io.StringIO()
    run_prompt(session, Console(file=out, width=120), max_rows=9, read_line=lambda _prompt: next(lines))
    text = out.getvalue()
    assert "a;" in text
    assert "42" in text
    assert "Error" not in text


def test_prompt_ends_with_its_input(session):
    def end(_prompt):
        raise EOFError

    run_prompt(session, Console(file=io.StringIO()), max_rows=100, read_line=end)


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_are_shown_and_not_obeyed(session, terminal):
    told = shown(
        session.run("SELECT chr(27) || '[2J' || chr(7) || chr(155) || 'ok' AS line"), terminal=terminal
    )
    assert r"\x1b[2J\x07\x9bok" in told
    assert not {"\x1b", "\x07", "\x9b"} & set(told)


HOSTILE = "chr(27) || '[2J' || chr(155) || chr(8238) || chr(8232) || chr(13) || '[bold]ok[/bold]'"


def test_names_of_columns_are_shown_and_not_obeyed(session):
    for terminal in (True, False):
        for width in (200, 16):
            told = shown(session.run('SELECT 1 AS "a\x1b[2J[red]", 2 AS b'), terminal=terminal, width=width)
            assert r"a\x1b[2J[red]" in told
            assert "\x1b" not in told


def test_raw_table_has_the_characters_of_the_data(session):
    out = io.StringIO()
    print_table(
        session.run("SELECT 'a' || chr(155) || chr(8232) || 'b' AS line"),
        Console(file=out, width=200),
        max_rows=1,
        raw=True,
    )
    assert "a\x9b\u2028b" in out.getvalue()


def test_csv_is_as_the_data_or_escaped_for_a_terminal(session):
    result = session.run(f"SELECT {HOSTILE} AS line")
    assert "\x1b[2J\x9b\u202e\u2028\r[bold]ok[/bold]" in printed(write_csv, result)
    out = io.StringIO()
    write_csv(session.run(f"SELECT {HOSTILE} AS line"), out, raw=False)
    assert out.getvalue() == "line\n" + r"\x1b[2J\x9b\u202e\u2028\r[bold]ok[/bold]" + "\n"


def test_json_has_no_character_that_a_terminal_obeys(session):
    text = printed(write_json, session.run(f"SELECT {HOSTILE} AS line"))
    assert json.loads(text) == [{"line": "\x1b[2J\x9b\u202e\u2028\r[bold]ok[/bold]"}]
    assert text.isprintable() or text.replace("\n", "").isprintable()


def test_variant_is_shown_as_what_it_holds(session):
    statement = """
        SELECT {'a': [1, 2], 'b': NULL}::VARIANT AS v, NULL::VARIANT AS n, 'x'::VARIANT AS text,
               [1::VARIANT, NULL] AS l,
               {'inside': 2.5::DOUBLE::VARIANT, 'beside': 1} AS s, 3 AS v, DATE '2013-01-01'::VARIANT AS day"""
    result = session.run(statement)
    assert list(result.objects()) == [
        {
            "v": {"a": [1, 2], "b": None},
            "n": None,
            "text": "x",
            "l": [1, None],
            "s": {"inside": 2.5, "beside": 1},
            "v_1": 3,
            "day": "2013-01-01",
        }
    ]
    assert (
        printed(write_csv, result).splitlines()[1].startswith('"{""a"": [1, 2], ""b"": null}",,x,"[1, null]"')
    )
    assert list(session.run("SELECT 1::VARIANT AS v WHERE false").objects()) == []


def test_variant_is_what_it_holds_where_rows_come_in_batches(home):
    with closing(DuckDBEngine(Catalog(home))) as engine:
        statement = "SELECT CAST(range AS VARIANT) AS v, range AS n FROM range(3)"
        batches = [*engine.batches(statement, 2)]
    objects = [
        row for batch in batches for row in Result.from_arrow(pa.Table.from_batches([batch])).objects()
    ]
    assert objects == [{"v": n, "n": n} for n in range(3)]


def test_wide_decimal_is_found_whatever_the_log_says_of_it(home, session):
    """To deltalake bounds are doubles, and 9007199254740993.5 is not between 9007199254740994 and itself."""
    table, values = (
        home / "tables/silver/wide",
        ["9007199254740993.5", "9007199254740994.3", "-9007199254740993.5"],
    )
    for n, value in enumerate(values):
        rows = pa.table({"n": [n], "x": pa.array([Decimal(value)], pa.decimal128(17, 1))})
        write_deltalake(table, rows, mode="append")
    bounds = pa.table(DeltaTable(table).get_add_actions(flatten=True))["min.x"].to_pylist()
    assert 9007199254740994.0 in map(float, bounds), "else the test shows nothing"
    for n, value in enumerate(values):
        found = answer(session, f"SELECT n FROM silver.wide WHERE x = CAST('{value}' AS DECIMAL(17, 1))")
        assert found == [{"n": n}]
    rows = dataset_of(table)
    assert rows.schema.names == ["n", "x"]
    assert len(list(rows.get_fragments(filter=pc.field("n") == 1))) == 1, (
        "files are passed over by other columns"
    )
