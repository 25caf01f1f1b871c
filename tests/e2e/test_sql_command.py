"""`headwater sql` as scripts and people run it: forms, exit statuses, both engines, during writes."""

import json
import os
import shutil
import subprocess
import sys
import threading
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    flights = pa.table(
        {
            "carrier": ["UA", "AA", None],
            "delay": pa.array([1.5, float("nan"), float("-inf")]),
            "short": pa.array([0.1, 2.0, None], pa.float32()),
            "seen": pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC")),
            "day": pa.array([0, 15_706, None], pa.date32()),
            "fare": pa.array([Decimal("12.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
            "origin": [{"topic": "t", "offset": 1}, None, {"topic": None, "offset": 2}],
            "ranges": [[{"p": 0, "start": 1}], [], None],
            "headers": pa.array([[("k", b"\xff")], None, []], pa.map_(pa.string(), pa.binary())),
            "raw": [b"\x00\xff", None, b""],
        }
    )
    write_deltalake(folder / "tables/silver/departures", flights)
    return folder


@pytest.fixture
def run_sql(headwater):
    """Runs `headwater sql` over a home."""

    def run(home, *arguments, stdin=""):
        return headwater("sql", "--home", str(home), *arguments, stdin=stdin)

    return run


def run_process(home, *arguments, stdin="", env=None):
    """Runs `headwater sql` over a home in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "headwater.cli", "sql", "--home", str(home), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | (env or {}),
    )


@pytest.mark.story
def test_sql_json_prints_one_array_and_nothing_else(home):
    done = run_process(
        home, "--json", "SELECT count(*) AS n, sum(CAST(1 AS HUGEINT)) AS s FROM silver.departures"
    )
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, [{"n": 3, "s": 3}], "")


@pytest.mark.story
def test_sql_reads_statements_from_standard_input(home):
    done = run_process(
        home, "--csv", stdin="CREATE VIEW v AS SELECT * FROM silver.departures;\nSELECT carrier FROM v;"
    )
    assert (done.returncode, done.stdout) == (0, "carrier\nUA\nAA\n\n".replace("\n\n", '\n""\n'))


@pytest.mark.story
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["SELECT * FROM silver.departurs"], 1, "did you mean silver.departures?"),
        (["SELEC 1"], 1, "syntax error"),
        (["--json", "--csv", "SELECT 1"], 2, "exclude each other"),
        (["--at", "yesterday", "SELECT 1"], 2, "give a version"),
        (["--engine", "sqlite", "SELECT 1"], 2, "sqlite"),
        (["SELECT 1", "SELECT 2"], 2, "unexpected extra argument"),
        ([""], 2, "there is no statement"),
        ([], 2, "there is no statement"),
    ],
)
def test_sql_mistake_is_told_on_standard_error_with_its_status(run_sql, home, arguments, status, said):
    done = run_sql(home, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_sql_tables_ends_as_other_lists_do_where_a_table_is_damaged(run_sql, home, tmp_path, form):
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "tables/silver/broken/_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    done = run_sql(tmp_path, "tables", *form)
    assert (done.returncode, "silver.departures" in done.stdout, "is no commit" in done.stdout) == (
        1,
        True,
        True,
    )
    assert run_sql(tmp_path, "SELECT count(*) FROM silver.departures", *form).returncode == 0
    assert run_sql(home, "tables", *form).returncode == 0


@pytest.mark.story
def test_sql_json_is_utf8_in_any_locale(home):
    done = run_process(
        home, "--json", "SELECT 'Zürich' AS city", env={"PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}
    )
    assert json.loads(done.stdout) == [{"city": "Zürich"}]


def test_sql_stops_quietly_when_its_reader_has_enough(home):
    query = f"'{sys.executable}' -m headwater.cli sql --home '{home}' --json 'SELECT * FROM range(200000)'"
    command = f"{query} | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ('[{"range":', "")


def test_sql_imports_neither_spark_nor_pandas(home):
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-m",
            "headwater.cli",
            "sql",
            "--home",
            str(home),
            "--json",
            "FROM silver.departures",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "duckdb" in imported
    assert imported.isdisjoint({"pyspark", "pandas.core", "great_expectations", "rich.table"})


def test_sql_with_a_limit_ends_cleanly_each_time(home, tmp_path):
    """Arrow's read-ahead must not outlive the interpreter: with Python's files one run in ten crashed."""
    write_deltalake(tmp_path / "tables/silver/wide", pa.table({f"c{n}": range(100_000) for n in range(10)}))
    statement = "SELECT * FROM silver.wide LIMIT 1"
    assert [run_process(tmp_path, statement).returncode for _ in range(5)] == [0] * 5


def test_sql_sees_whole_commits_while_a_job_writes(run_sql, tmp_path):
    path = tmp_path / "tables/silver/pairs"
    write_deltalake(path, pa.table({"half": [1, -1]}))
    stop = threading.Event()

    def keep_writing():
        while not stop.is_set():
            write_deltalake(path, pa.table({"half": [1]}).slice(0, 0), mode="append")
            write_deltalake(path, pa.table({"half": [1, -1]}), mode="append")

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        for _ in range(4):
            statement = "SELECT sum(half) AS balance, count(*) > 0 AS some FROM silver.pairs"
            assert json.loads(run_sql(tmp_path, "--json", statement).stdout) == [{"balance": 0, "some": True}]
    finally:
        stop.set()
        writer.join()


@pytest.mark.story
def test_both_engines_print_the_same(run_sql, home):
    statement = """
        SELECT *, 1 AS one, 2 AS one, CAST(seen AS DATE) AS seen_day, 1.5 AS exact, 10 > 2 AS yes,
               seen - TIMESTAMP '1969-12-30 22:00:00Z' AS since, TIMESTAMP '2013-01-01 10:00:00' AS moment,
               NULL AS nothing, 'é"' AS text
        FROM silver.departures ORDER BY carrier NULLS LAST"""
    answers = {
        engine: run_sql(home, "--json", "--engine", engine, statement) for engine in ("duckdb", "spark")
    }
    assert answers["duckdb"].returncode == 0, answers["duckdb"].stderr
    assert answers["spark"].returncode == 0, answers["spark"].stderr
    assert answers["spark"].stdout == answers["duckdb"].stdout
    first = json.loads(answers["spark"].stdout)[0]
    assert (first["carrier"], first["delay"], first["seen"]) == ("AA", None, "1970-01-01T00:00:01.500000Z")


def test_spark_engine_tells_mistakes_in_a_sentence_and_does_the_rest(run_sql, tmp_path):
    path = tmp_path / "tables/silver/pairs"
    write_deltalake(path, pa.table({"n": [1, 2, 3]}))
    unknown = run_sql(tmp_path, "--engine", "spark", "--json", "SELECT * FROM silver.pears")
    dropped = run_sql(tmp_path, "--engine", "spark", "/* away */ drop table silver.pairs")
    assert dropped.returncode != 0
    assert "remove its folder" in dropped.stderr
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "there is no table silver.pears: did you mean silver.pairs?" in unknown.stderr
    assert "Traceback" not in unknown.stderr
    assert "SQLQueryContextLogger" not in unknown.stderr

    changed = run_sql(
        tmp_path,
        "--engine",
        "spark",
        "--json",
        "DELETE FROM silver.pairs WHERE n = 2; DESCRIBE HISTORY silver.pairs",
    )
    assert changed.returncode == 0, changed.stderr
    assert [row["operation"] for row in json.loads(changed.stdout)] == ["DELETE", "WRITE"]
    assert DeltaTable(path).version() == 1

    past = run_sql(
        tmp_path, "--engine", "spark", "--at", "0", "--json", "SELECT count(*) AS n FROM silver.pairs"
    )
    assert json.loads(past.stdout) == [{"n": 3}]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["tables"]


SCRIPT = r"""
-- silver.broken is not read; nobody's fault
CREATE TEMPORARY VIEW words AS SELECT 'it\'s; x' AS a, "b\"; c" AS b, r'd\' AS `e;f` /* g /* ; */ ; */;
SELECT a, b, `e;f` FROM words WHERE 'silver.broken' <> '';
BEGIN
  DECLARE total INT DEFAULT 40;
  IF total > 1 THEN SET total = total + CASE WHEN true THEN 2 ELSE 0 END; END IF;
  SELECT total AS answer;
END;
EXPLAIN SELECT /*+ COALESCE(3) */ id FROM range(0, 10, 1, 7);
SELECT parse_json('{"a": [1, null]}') AS loose, CAST(NULL AS VARIANT) AS nothing, '' AS blank;
DROP VIEW words;
SELECT count(*) AS n FROM silver.pairs
"""


def test_spark_engine_cuts_a_script_as_spark_reads_it(run_sql, tmp_path):
    write_deltalake(tmp_path / "tables/silver/pairs", pa.table({"n": [1, 2, 3]}))
    (tmp_path / "tables/silver/broken/_delta_log").mkdir(parents=True)
    (tmp_path / "tables/silver/broken/_delta_log/00000000000000000000.json").write_text("{")
    done = run_sql(tmp_path, "--engine", "spark", "--null", "(null)", stdin=SCRIPT)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["it's;", "x", 'b";', "c", "d\\"] in lines
    assert ["42"] in lines
    assert "Coalesce 3" in done.stdout
    assert '{"a": [1, null]}' in done.stdout
    assert done.stdout.count("(null)") == 1
    assert ["3"] in lines
    read = run_sql(tmp_path, "--engine", "spark", "SELECT * FROM silver.broken -- silver.pairs")
    assert (read.returncode, read.stdout) == (1, "")
    log = tmp_path / "tables/silver/broken/_delta_log"
    assert f"silver.broken: {log}/00000000000000000000.json is no commit of a Delta log" in read.stderr
    at = run_sql(
        tmp_path,
        "--engine",
        "spark",
        "--at",
        "0",
        "--json",
        "SELECT count(*) AS n FROM silver.pairs, silver.x",
    )
    assert "there is no table silver.x" in at.stderr
    span = run_sql(tmp_path, "--engine", "spark", "SELECT INTERVAL '1' YEAR AS span")
    assert (span.returncode, span.stdout) == (1, "")
    assert "not supported in conversion to Arrow. Cast that column to STRING." in span.stderr


@pytest.mark.story
def test_sql_reads_duckdb_s_texts_and_tells_null_from_an_empty_text(run_sql, home):
    script = r"SELECT $$a;b$$ AS a, E'it\'s; x' AS b, NULL AS c, '' AS d, 'NULL' AS e /* f /* ; */ ; */; -- ;"
    assert run_sql(home, "--csv", stdin=script).stdout == 'a,b,c,d,e\na;b,it\'s; x,,"",NULL\n'
    told = run_sql(home, "--csv", "--null", "NULL", script)
    assert told.stdout == 'a,b,c,d,e\na;b,it\'s; x,NULL,"","NULL"\n'
    assert "(null)" in run_sql(home, "--null", "(null)", script).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "--null", "x"], "JSON has a null of its own"),
        (["--csv", "--null", "a,b"], "give a plain text"),
    ],
)
def test_sql_null_that_cannot_be_is_refused(run_sql, home, arguments, said):
    done = run_sql(home, *arguments, "SELECT 1")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
