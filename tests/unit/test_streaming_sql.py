"""What a SQL file of streaming tables declares, and what is told of one that is wrong. No session is started."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headwater as hw
from headwater_streams.base.at_most import AtMost
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import Job
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.streaming_sql.script import Script
from headwater_streams.streaming_sql.select import read_select

TOPIC = """topic('departures', schema => 'carrier STRING, delay INT, at TIMESTAMP', event_time => 'at',
                 watermark => '1 hour')"""


def jobs_of(folder: Path, text: str) -> list[Job]:
    file = folder / "delays.sql"
    file.write_text(text)
    return load_jobs([str(file)])


def refused(folder: Path, text: str) -> str:
    with pytest.raises(JobDefinitionError) as error:
        jobs_of(folder, text)
    told = str(error.value)
    assert "\n" not in told
    return told.replace(str(folder), "").removeprefix("/")


def test_sql_statement_declares_what_a_module_would(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        f"""
        CREATE STREAMING TABLE gold.delays (
          CONSTRAINT has_carrier EXPECT (carrier IS NOT NULL),
          CONSTRAINT sane EXPECT (avg(delay) < 600) ON INPUT ON VIOLATION WARN,
          CONSTRAINT counts EXPECT (n > 0) ON VIOLATION FAIL)
        WITH (mode = 'update', late = 'count', name = 'hourly')
        AS SELECT d.carrier AS airline, window.start hour, count(*) n FROM {TOPIC} d
        WHERE d.delay <> 0 GROUP BY d.carrier, window(d.at, INTERVAL 1 HOUR);
        """,
    )
    declared = {
        "schema": "carrier STRING, delay INT, at TIMESTAMP",
        "event_time": "at",
        "watermark": "1 hour",
    }
    assert (job.name, job.late, job.dedup) == ("hourly", "count", None)
    assert job.inputs == {"d": hw.topic("departures", **declared)}
    assert job.target == hw.delta("gold.delays", keys=["airline", "hour"], mode="update")
    assert list(job.checks) == [
        hw.Check("has_carrier", "carrier IS NOT NULL"),
        hw.Check("sane", "avg(delay) < 600", on="input", level="batch", action="warn"),
        hw.Check("counts", "n > 0", on="output", action="fail"),
    ]


def test_sql_keys_of_cumulative_windows_have_their_end(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        f"""CREATE STREAMING TABLE gold.delays WITH (mode = 'update') AS
        SELECT carrier, window_start, window_end, count(*) AS n FROM {TOPIC}
        GROUP BY carrier, cumulate(at, '10 minutes', '1 hour')""",
    )
    assert job.target.keys == ("carrier", "window_start", "window_end")


def test_sql_inputs_take_the_librarys_arguments(tmp_path: Path) -> None:
    first, second, third = jobs_of(
        tmp_path,
        """
        CREATE STREAMING TABLE silver.lines WITH (dedup = by_offset(origin => TRUE)) AS
        SELECT * FROM topic('east', 'west', schema => 'a INT', format => csv(sep => ';', header => array('b', 'a')),
                            max_offsets_per_batch => 100);
        CREATE OR REFRESH STREAMING TABLE silver.once WITH (dedup = by_key((a, b), within => '2 days')) AS
        SELECT * FROM stream(silver.lines, event_time => 'a', watermark => '1 minute') AS x;
        CREATE STREAMING TABLE silver.copy AS SELECT `copy`.a, 'it''s -- no; comment' AS text FROM silver.lines copy
        """,
    )
    form = hw.csv(sep=";", header=("b", "a"))
    assert first.inputs == {
        "east": hw.topic("east", "west", schema="a INT", format=form, max_offsets_per_batch=100)
    }
    assert first.dedup == hw.by_offset(origin=True)
    assert second.inputs == {"x": hw.table("silver.lines", event_time="a", watermark="1 minute")}
    assert second.dedup == hw.by_key(["a", "b"], within="2 days")
    assert third.inputs == {"copy": hw.table("silver.lines")}
    assert (third.name, third.target.mode) == ("copy", "append")


def test_sql_event_time_is_a_column_or_sql(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        """
        CREATE STREAMING TABLE a.b AS
        SELECT k FROM topic('t', schema => 'k STRING, ts BIGINT', event_time => timestamp_millis(ts) AS at,
                            watermark => '1 hour')
        UNION ALL SELECT k FROM topic('u', schema => 'k STRING', event_time => 'to_timestamp(k, ''dd.MM.yyyy'')')
        UNION ALL SELECT k FROM topic('v', schema => 'k STRING, at TIMESTAMP', event_time => at)
        UNION ALL SELECT k FROM topic('w', schema => 'k STRING',
                                      event_time => to_timestamp(CAST(_headers['sent'] AS STRING), 'dd.MM, yyyy'))
        """,
    )
    times = {
        name: (i.event_time, i.computed) for name, i in job.inputs.items() if isinstance(i, hw.TopicInput)
    }
    assert times == {
        "t": ("at", "timestamp_millis(ts)"),
        "u": ("event_time", "to_timestamp(k, 'dd.MM.yyyy')"),
        "v": ("at", None),
        "w": ("event_time", "to_timestamp(CAST(_headers['sent'] AS STRING), 'dd.MM, yyyy')"),
    }


def test_sql_event_time_that_changes_is_refused_at_its_place(tmp_path: Path) -> None:
    assert refused(
        tmp_path,
        "CREATE STREAMING TABLE a.b AS SELECT k FROM\ntopic('t', schema => 'k STRING', event_time => now())",
    ).startswith(
        "delays.sql, line 2: topic 't': event_time => 'now()' has now, which is another one each time"
    )


def test_sql_grouping_may_name_a_column_that_the_select_computes(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        f"""CREATE STREAMING TABLE gold.a WITH (mode = 'update') AS
        SELECT upper(CAST(_key AS STRING)) AS customer, window_start, count(*) AS n FROM {TOPIC}
        GROUP BY Customer, window(at, '1 hour')""",
    )
    assert job.target.keys == ("customer", "window_start")


@pytest.mark.parametrize(
    ("computed", "ending"),
    [
        ("upper(Carrier)", ", upper(Carrier) AS name, and write GROUP BY name to group by it"),
        ("max(delay)", ", max(delay) AS name"),
    ],
)
def test_sql_grouping_is_by_the_rows_own_column_and_nothing_else_has_its_name(
    tmp_path: Path, computed: str, ending: str
) -> None:
    text = f"SELECT\n{computed} AS CARRIER, count(*) AS n FROM a.c GROUP BY carrier, window(at, '1 hour')"
    rows: Any = SimpleNamespace(columns=["carrier", "delay", "at"])
    with pytest.raises(JobDefinitionError) as error:
        read_select(Script(tmp_path / "delays.sql", text)).result({"c": rows})
    assert str(error.value) == (
        f"{tmp_path}/delays.sql, line 2: GROUP BY CARRIER is by the column CARRIER of the rows, and {computed} would "
        f"be a second CARRIER: give it another name{ending}"
    )


def test_sql_names_of_arguments_are_taken_in_any_case(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        "create streaming table a.b with (DEDUP = BY_KEY((k), WITHIN => '1 hour')) as select k "
        "from TOPIC('t', SCHEMA => 'k INT', Format => CSV(Sep => ';'))",
    )
    assert job.inputs == {"t": hw.topic("t", schema="k INT", format=hw.csv(sep=";"))}
    assert job.dedup == hw.by_key(["k"], within="1 hour")


def test_sql_names_of_columns_are_taken_in_any_case(tmp_path: Path) -> None:
    grouped, joined = jobs_of(
        tmp_path,
        f"""
        CREATE STREAMING TABLE gold.a WITH (mode = 'update', keys = (CARRIER, Window_Start)) AS
        SELECT Carrier, window_start, count(*) AS n FROM {TOPIC} GROUP BY carrier, window(AT, '1 hour');
        CREATE STREAMING TABLE gold.b AS SELECT x.k FROM a.c x
        JOIN a.d y ON (x.K = y.k AND y.landed BETWEEN x.at AND x.At + INTERVAL 1 HOUR)""",
    )
    assert grouped.target.keys == ("Carrier", "window_start")
    assert joined.name == "b"


def test_sql_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (job,) = jobs_of(tmp_path, "\ufeffCREATE STREAMING TABLE a.b AS SELECT x FROM a.c")
    assert job.target == hw.delta("a.b")
    assert refused(tmp_path, "\ufeff\nDROP").startswith("delays.sql, line 2: CREATE was to come")


def test_sql_fingerprint_is_of_the_statement_and_not_of_its_layout(tmp_path: Path) -> None:
    def fingerprint(query: str) -> str:
        (job,) = jobs_of(tmp_path, f"CREATE STREAMING TABLE a.b AS {query}")
        return job.fingerprint

    first = fingerprint("SELECT a, 'x' AS b FROM silver.c")
    assert fingerprint("-- said\nSELECT a,\n  'x' AS b FROM /* from */ silver.c;") == first
    assert fingerprint("SELECT a, 'X' AS b FROM silver.c") != first


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "delays.sql: no job in it; write CREATE STREAMING TABLE schema.table AS SELECT ..."),
        ("\nCREATE TABLE a.b AS SELECT 1", "delays.sql, line 2: STREAMING was to come, and there is 'TABLE'"),
        (
            "CREATE STREAMING TABLE a.b AS\nSELECT 'x AS y\nFROM topic('t', schema => 'a INT')",
            "delays.sql, line 2: the text or comment that begins here is not closed; end it with its quote, or with */",
        ),
        ("SELECT 'x\ny' AS z,\n `a FROM b", "line 3: the text or comment that begins here is not closed"),
        (
            "SELECT 1 /* one */\n/* two /* three */",
            "line 2: the text or comment that begins here is not closed",
        ),
        ("\nSELECT x'0g'", "line 2: x'...' takes hexadecimal digits"),
        ("CREATE STREAMING TABLE a.b AS\nSELECT x", "line 2: FROM was to come, and the file ends"),
        ("CREATE STREAMING TABLE b AS SELECT x FROM a.c", "line 1: table 'b': write schema.table"),
        ("CREATE STREAMING TABLE a.b WITH (mod = 'x') AS", "WITH has no 'mod'; it has mode, keys, dedup"),
        ("CREATE STREAMING TABLE a.b WITH (late = 'no') AS SELECT x FROM a.c", "late = 'no' is not one of"),
        ("CREATE STREAMING TABLE a.b WITH (dedup = 'offset') AS SELECT x FROM a.c", "is not by_offset(...)"),
        (
            "CREATE STREAMING TABLE a.b AS SELECT x\nFROM kafka('t')",
            "line 2: there is no function 'kafka' here",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT x\nFROM topic('t', shema => 'a')",
            "line 2: topic(...): got an unexp",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT x\nFROM topic('t')",
            "line 2: topic 't': schema => ... names the columns",
        ),
        ("CREATE STREAMING TABLE a.b AS SELECT x FROM a.c ORDER BY x", "a table has no order"),
        ("CREATE STREAMING TABLE a.b AS SELECT x FROM a.c\nLIMIT 5", "line 2: a stream has no end"),
        (
            "CREATE STREAMING TABLE a.b AS\nSELECT DISTINCT x FROM a.c",
            "line 2: SELECT DISTINCT would have to keep every row for ever; remove what comes twice by WITH (dedup",
        ),
        ("CREATE STREAMING TABLE a.b AS SELECT x FROM a.c, a.d", "two streams are joined by [LEFT | RIGHT"),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c,\ncount(*) FROM a.c GROUP BY c, window(t, '1 hour')",
            "line 2: count(*): give it a name, count(*) AS name",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c\nGROUP BY upper(c)",
            "line 2: GROUP BY names columns",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c GROUP BY window(t)",
            "GROUP BY has one window, window(time",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c x JOIN a.d y\nON x.k = y.k",
            "line 2: ON is keys that are equal, and the time within which y comes: ON x.k = y.k AND y.time BETWEEN",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c x JOIN a.d y ON x.k = y.k\nAND y.t > x.t",
            "line 2: ON is keys that are equal, and the time within which y comes: ON x.k = y.k AND y.time BETWEEN",
        ),
        (
            (
                "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c x JOIN a.d y ON x.k = y.k AND y.t BETWEEN x.t AND x.t "
                "+ INTERVAL 1 HOUR\nJOIN a.e z"
            ),
            "line 2: a SELECT joins two streams; join the third in a statement that reads this one's table",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c\nFROM a.c `x y`",
            "line 2: the input's name 'x y' is part of a table's name; write letters, digits and '_'",
        ),
        (
            (
                "CREATE STREAMING TABLE a.b AS SELECT c,\nupper(d AS e\nFROM a.c;\n"
                "CREATE STREAMING TABLE a.f AS SELECT x FROM a.c"
            ),
            "line 2: the bracket ( that opens here is not closed",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c,\nupper(d)) AS e FROM a.c",
            "line 2: the bracket ) closes none; take it out",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c,\nx.d, count(*) AS n FROM a.c x GROUP BY c, window(t, '1 hour')",
            "line 2: d is not in GROUP BY, and no aggregate; GROUP BY has c: add it there, or write max(d) AS name",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c, max(d) m,\nmin(d) M FROM a.c GROUP BY c, window(t, '1 hour')",
            "line 2: the result has two columns named 'M'; rename one",
        ),
        (
            "CREATE STREAMING TABLE a.b AS\nSELECT * FROM a.c x GROUP BY c, window(t, '1 hour')",
            "line 2: SELECT * does not say what is grouped; name the columns, those of GROUP BY among them",
        ),
        (
            "CREATE STREAMING TABLE a.b\nWITH (mode = 'update') AS SELECT x FROM a.c",
            "line 2: table 'a.b': mode 'update' needs WITH (keys = (...)), the columns that name a row",
        ),
        (
            "CREATE STREAMING TABLE a.b\nWITH (mode = 'complete') AS SELECT x FROM a.c",
            "line 2: table 'a.b': mode 'complete' is not one of 'append', 'update', 'scd1', 'scd2'",
        ),
        (
            "CREATE STREAMING TABLE a.b\nWITH (mode = 'update', keys = 5) AS SELECT x FROM a.c",
            "line 2: keys = 5 is not a list of columns; write keys = (a, b)",
        ),
        (
            "CREATE STREAMING TABLE a.b\nWITH (mode = 'scd1', keys = (x)) AS SELECT x FROM a.c",
            "line 2: table 'a.b': sequence_by is empty; write WITH (sequence_by = ...), the column that orders",
        ),
        (
            "CREATE STREAMING TABLE a.b\nWITH (dedup = by_key('x', within => '1 hour')) AS SELECT x FROM a.c",
            "line 2: by_key: write the columns as a list, (x)",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c x JOIN a.d y ON x.k = y.j AND x.t BETWEEN y.t AND y.t",
            "k = j: both sides of a join have their key by the same name",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c FROM a.c x JOIN a.d y ON x.k = y.k AND x.t BETWEEN y.t AND y.t",
            "the one time in BETWEEN is that of y, which comes after x",
        ),
        (
            "CREATE STREAMING TABLE a.b (CONSTRAINT c EXPECT (x > 1) ON VIOLATION DELETE) AS",
            "line 1: ON VIOLATION DELETE: write QUARANTINE, DROP, FAIL or WARN",
        ),
        (
            "CREATE STREAMING TABLE a.b (CONSTRAINT c\nEXPECT (x > 1) ON OUTPUT) AS",
            "line 1: check 'c': a row goes to quarantine where it comes in; leave ON OUTPUT out, or write ON VIOLATION",
        ),
        (
            "CREATE STREAMING TABLE a.b (\nCONSTRAINT c EXPECT (avg(x) > 1) ON VIOLATION QUARANTINE) AS",
            "line 2: check 'c' is about a batch, which cannot go to quarantine; write ON VIOLATION FAIL or WARN",
        ),
        (
            "CREATE STREAMING TABLE a.b AS SELECT c, count(*) n FROM a.c\nGROUP BY c",
            "line 2: GROUP BY without a window keeps every key for ever; say so, WITH (state = 'unbounded'), or add",
        ),
        ("CREATE STREAMING TABLE a.b AS SELECT x FROM a.c x GO", "was to come, and there is 'GO'"),
    ],
)
def test_sql_wrong_statement_is_one_sentence_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert told in refused(tmp_path, text)


def test_sql_files_that_are_not_utf8_or_name_a_job_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes(b"-- caf\xe9")
    with pytest.raises(JobDefinitionError, match=r"latin\.sql is not UTF-8"):
        load_jobs([str(tmp_path / "latin.sql")])
    (tmp_path / "one.sql").write_text("CREATE STREAMING TABLE a.b AS SELECT x FROM a.c")
    (tmp_path / "two.sql").write_text("CREATE STREAMING TABLE d.b AS SELECT x FROM a.c")
    assert len(load_jobs([str(tmp_path / "one.sql"), f"{tmp_path}/one.sql:b"])) == 1
    with pytest.raises(
        JobDefinitionError,
        match=r"two jobs are named 'b': .*one\.sql, line 1 and .*two\.sql, line 1; give one .* WITH \(name = \.\.\.\)",
    ):
        load_jobs([str(tmp_path / "one.sql"), str(tmp_path / "two.sql")])
    (tmp_path / "two.sql").write_text("CREATE STREAMING TABLE a.b AS SELECT x FROM a.c;\n" * 2)
    with pytest.raises(
        JobDefinitionError, match=r"line 1 and .*, line 2; both write a\.b, and a table has one writer"
    ):
        load_jobs([str(tmp_path / "two.sql")])


def test_sql_names_in_backticks_are_columns_whatever_they_have(tmp_path: Path) -> None:
    topic = """topic('sales', schema => '`Product.Id` STRING, `sold``at` TIMESTAMP, `select` INT',
                     event_time => 'sold`at', watermark => '1 hour')"""
    (job,) = jobs_of(
        tmp_path,
        f"""CREATE STREAMING TABLE gold.sales WITH (mode = 'update') AS
        SELECT s.`Product.Id`, `window_start`, max(`window.start`) AS w, sum(`select`) AS `select` FROM {topic} s
        GROUP BY s.`Product.Id`, window(s.`sold``at`, '1 hour')""",
    )
    assert job.target.keys == ("Product.Id", "window_start")
    (query,) = [cell.cell_contents for cell in job.function.__closure__ or ()]
    group = query.group
    assert (group.by, group.window) == (("Product.Id",), ("window", "sold`at", "1 hour"))
    outputs = [(each.name, each.column) for each in group.outputs]
    assert outputs == [
        ("Product.Id", "Product.Id"), ("window_start", "window_start"), ("w", None), ("select", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("name = '../../../x'", "job '../../../x': a job's name is of the letters a to z and A to Z, digits"),
        ("name = 'a__ingest_b'", "names with '__ingest_b' are of the parts that the library makes of a job"),
        ("name = ''", "job '': a job's name is"),
    ],
)
def test_sql_job_that_cannot_be_called_so_is_refused(tmp_path: Path, options: str, told: str) -> None:
    text = f"CREATE STREAMING TABLE gold.x WITH ({options}) AS SELECT * FROM {TOPIC}"
    assert refused(tmp_path, text).startswith(
        f"delays.sql, line 1: {told}" if told[0] == "j" else "delays.sql"
    )
    assert told in refused(tmp_path, text)


@pytest.mark.parametrize("table", ["`../x`.y", "gold.`a b`", "gold.`../../x`", "x.y.z"])
def test_sql_table_that_cannot_be_called_so_is_refused(tmp_path: Path, table: str) -> None:
    assert "write schema.table" in refused(
        tmp_path, f"CREATE STREAMING TABLE {table} AS SELECT * FROM {TOPIC}"
    )
    assert "write schema.table" in refused(
        tmp_path, f"CREATE STREAMING TABLE gold.x AS SELECT * FROM {table}"
    )


LINES = "topic('orders', schema => 'id STRING, lines ARRAY<STRING>') o"


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (
            "LATERAL VIEW stack(2, o.id, o.id) t AS x",
            "LATERAL VIEW takes explode, posexplode, inline, and not stack",
        ),
        ("LATERAL VIEW explode() t AS x", "the array or map that is exploded was to come"),
        ("LATERAL explode(o.lines) t", "rows are exploded by LATERAL VIEW"),
        (", LATERAL explode(o.lines) AS t(line)", "rows are exploded by LATERAL VIEW"),
        ("CROSS JOIN UNNEST(o.lines) AS t(line)", "rows are exploded by LATERAL VIEW"),
        ("LEFT OUTER JOIN LATERAL explode(o.lines) AS t(line) ON true", "rows are exploded by LATERAL VIEW"),
        ("JOIN UNNEST(lines) t", "rows are exploded by LATERAL VIEW"),
        (", topic('b', schema => 'k STRING') b", "two streams are joined by"),
    ],
)
def test_sql_lateral_view_that_is_none_is_refused(tmp_path: Path, view: str, told: str) -> None:
    text = f"CREATE STREAMING TABLE silver.lines AS SELECT id FROM {LINES} {view}"
    assert refused(tmp_path, text).startswith(f"delays.sql, line 1: {told}")


def test_sql_lateral_views_are_read_with_their_names(tmp_path: Path) -> None:
    text = (
        f"SELECT o.id, t.place, t.line FROM {LINES} LATERAL VIEW OUTER posexplode(o.lines) t AS place, line "
        "LATERAL VIEW explode(split(t.line, ',')) parts part WHERE t.line <> 'x'"
    )
    query = read_select(Script(tmp_path / "lines.sql", text))
    assert [(view.name, view.generator, view.columns) for view in query.laterals] == [
        ("t", "posexplode_outer(lines)", ("place", "line")),
        ("parts", "explode(split(line, ','))", ("part",)),
    ]
    assert [item.text for item in query.items] == ["id", "place", "line"]
    assert query.where is not None
    assert query.where.text == "line <> 'x'"


def test_sql_rows_of_a_join_are_not_exploded(tmp_path: Path) -> None:
    time = "event_time => 'at', watermark => '1 hour'"
    text = (
        f"CREATE STREAMING TABLE gold.x AS SELECT * FROM topic('a', schema => 'k STRING, at TIMESTAMP', {time}) a "
        f"JOIN topic('b', schema => 'k STRING, at TIMESTAMP, lines ARRAY<INT>', {time}) b ON a.k = b.k "
        "AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR LATERAL VIEW explode(lines) x AS line"
    )
    assert "rows are exploded before they are joined" in refused(tmp_path, text)


def test_sql_layout_is_written_as_spark_writes_it(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        """CREATE STREAMING TABLE silver.orders (
          placed_at COMMENT 'when it''s placed',
          CONSTRAINT has_id EXPECT (order_id IS NOT NULL),
          cents COMMENT 'gross'
        )
        USING DELTA
        PARTITIONED BY (days(placed_at), country)
        CLUSTER BY (order_id)
        COMMENT 'all orders'
        TBLPROPERTIES ('delta.logRetentionDuration' = '60 days', team = 'sales')
        WITH (keep = '90 days', keep_by = 'placed_at')
        AS SELECT order_id, country, cents, placed_at FROM topic('orders', schema => 'order_id STRING, country STRING,
          cents BIGINT, placed_at TIMESTAMP', event_time => 'placed_at');""",
    )
    layout = job.target.layout
    assert layout.partition_columns == ("placed_at_day", "country")
    assert (layout.cluster_by, layout.comment) == (("order_id",), "all orders")
    assert (layout.keep, layout.keep_by) == ("90 days", "placed_at")
    assert layout.properties == (("delta.logRetentionDuration", "interval 60 days"), ("team", "sales"))
    assert layout.comments == (("placed_at", "when it's placed"), ("cents", "gross"))


def test_sql_clauses_of_all_kinds_stand_in_one_statement(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        """CREATE STREAMING TABLE silver.lines (line COMMENT 'as it was ordered')
        PARTITIONED BY (days(event_time)) CLUSTER BY (id) WITH (keep = '90 days', dedup = by_offset())
        AS SELECT o.id, t.place, t.line, event_time, CAST(_key AS STRING) AS customer
        FROM topic('orders', cluster => 'payments', schema => 'id STRING, ts_ms BIGINT, lines ARRAY<STRING>',
          event_time => timestamp_millis(ts_ms), watermark => '1 hour') o
        LATERAL VIEW posexplode(o.lines) t AS place, line WHERE t.line <> '';""",
    )
    orders = job.inputs["o"]
    assert isinstance(orders, TopicInput)
    assert (orders.name, orders.cluster, orders.event_time, orders.computed) == (
        "payments:orders",
        "payments",
        "event_time",
        "timestamp_millis(ts_ms)",
    )
    layout = job.target.layout
    assert (layout.partition_columns, layout.cluster_by, layout.keep) == (
        ("event_time_day",),
        ("id",),
        "90 days",
    )
    assert Path(job.code.co_filename).name == "delays.sql"
    assert "COMMENT" not in job.text


def test_sql_layout_is_not_in_the_fingerprint_but_for_computed_partitions(tmp_path: Path) -> None:
    def fingerprint(clauses: str, brackets: str = "") -> str:
        text = f"CREATE STREAMING TABLE s.t {brackets} {clauses} AS SELECT a, at FROM topic('o', schema => 'a STRING, "
        (job,) = jobs_of(tmp_path, f"{text}at TIMESTAMP', event_time => 'at');")
        return job.fingerprint

    plain = fingerprint("")
    for clauses in (
        "PARTITIONED BY (a)",
        "CLUSTER BY (a)",
        "COMMENT 'x'",
        "TBLPROPERTIES (b = 1)",
        "USING DELTA",
        "WITH (keep = '9 days')",
        "WITH (keep = '9 days', keep_by = 'at')",
    ):
        assert fingerprint(clauses) == plain
    once = fingerprint("WITH (dedup = by_offset(), name = 'x')")
    for options in (
        "keep = '9 days', dedup = by_offset(), name = 'x'",
        "keep = '9 days', keep_by = 'at', dedup = by_offset(), name = 'x'",
        "dedup = by_offset(), keep = '9 days', name = 'x'",
        "dedup = by_offset(), name = 'x', keep = '9 days'",
    ):
        assert fingerprint(f"WITH ({options})") == once
    assert fingerprint("", "(a COMMENT 'x')") == plain
    assert fingerprint("PARTITIONED BY (days(at))") != plain


@pytest.mark.parametrize(
    ("clause", "told"),
    [
        (
            "PARTITIONED BY (a STRING)",
            "line 1: the next column of PARTITIONED BY was to come; a column's type is that",
        ),
        ("PARTITIONED BY (weeks(at))", "PARTITIONED BY (weeks(at)): there is no weeks(...); write a column"),
        ("COMMENT x", "line 1: the comment, a 'text', was to come, and there is 'x'"),
        ("COMMENT 'a' COMMENT 'b'", "line 1: COMMENT stands twice"),
        (
            "(a STRING COMMENT 'x')",
            "line 1: the COMMENT of the column 'a' was to come; its type is that of the SELECT",
        ),
        (
            "LOCATION 'x'",
            "AS was to come, or one of WITH, PARTITIONED BY, CLUSTER BY, TBLPROPERTIES, COMMENT",
        ),
        ("WITH (keep = 'long')", "WITH (keep = 'long') is not a duration"),
        ("WITH (keep = 90)", "keep=90 is not a duration; write a number and one of"),
        ("TBLPROPERTIES ('b' = 1, 'b' = 2)", "line 1: the property 'b' stands twice"),
        ("(a COMMENT 'x', a COMMENT 'y')", "line 1: the column 'a' has two comments"),
        (
            "WITH (mode = 'scd1', keys = (a), sequence_by = at, keep = '1 day')",
            "keep is not for slowly changing",
        ),
    ],
)
def test_sql_layout_that_is_wrong_is_one_sentence(tmp_path: Path, clause: str, told: str) -> None:
    query = "AS SELECT a, at FROM topic('o', schema => 'a STRING, at TIMESTAMP');"
    assert told in refused(tmp_path, f"CREATE STREAMING TABLE s.t {clause} {query}")


def test_sql_constraint_has_the_bounds_of_a_check(tmp_path: Path) -> None:
    (job,) = jobs_of(
        tmp_path,
        """CREATE STREAMING TABLE a.b (
          CONSTRAINT one EXPECT (x > 1) ON VIOLATION QUARANTINE AT MOST 50 PERCENT WARN OVER 1 %,
          CONSTRAINT two EXPECT (x > 2) ON VIOLATION DROP WARN OVER 10 ROWS
        ) AS SELECT x FROM topic('t', schema => 'x INT')""",
    )
    assert [(each.at_most, each.warn_over) for each in job.checks] == [
        (AtMost.of("50 %"), AtMost.of("1 %")),
        (None, AtMost.of(10)),
    ]
