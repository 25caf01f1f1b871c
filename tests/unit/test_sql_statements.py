"""Cutting text into statements as each engine reads it: semicolons in texts, comments and blocks end nothing."""

import random

import duckdb
import pytest

from amount import amount, drawn_seed
from headwater.sql.lexer import without_comments
from headwater.sql.statements import all_statements, split_statements

BOTH = ("duckdb", "spark")


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        (" ; ; ", [], ""),
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2", ["select 1"], "select 2"),
        ("select 'a;b', \"c;d\", `e;f`; x", ["select 'a;b', \"c;d\", `e;f`"], "x"),
        ("select 'it''s; fine';", ["select 'it''s; fine'"], ""),
        ("select 1 -- not; here\n + 1;", ["select 1 -- not; here\n + 1"], ""),
        ("select/* ; */1;", ["select/* ; */1"], ""),
        ("select 'open; ", [], "select 'open; "),
        ("select 4/2-1;", ["select 4/2-1"], ""),
        ("/* open ;", [], "/* open ;"),
        ("-- only a comment", [], ""),
        ("-- before\nselect 1 /* behind */ ; -- and so on", ["select 1"], ""),
        # What command lines of others got wrong: an apostrophe or a dash where it is neither, nested comments, a
        # statement dropped for the comment behind it.
        ("select 1 -- nobody's fault;\n; select 2", ["select 1"], "select 2"),
        ("select 'a -- b'; select 2", ["select 'a -- b'"], "select 2"),
        ("select 'a /* b'; select 2 /* c */", ["select 'a /* b'"], "select 2"),
        ("select 1; /* a /* b; */ c; */ select 2", ["select 1"], "select 2"),
        ("/* a */ -- b\n/* c */;", [], ""),
        ("select `a``;`; x", ["select `a``;`"], "x"),
        ("select 1 as \u00e4;select 2", ["select 1 as \u00e4"], "select 2"),
        ("select $a; select $b", ["select $a"], "select $b"),
        ("begin; select 1; end; x", ["begin", "select 1", "end"], "x"),
        ("select case when a then 1 end; x", ["select case when a then 1 end"], "x"),
    ],
)
def test_split_statements_ends_at_bare_semicolons(dialect, text, statements, rest):
    assert split_statements(text, dialect) == (statements, rest)


@pytest.mark.parametrize(
    "statement",
    [
        "select $$a;b$$",
        "select $q$ $$; $q$",
        "select E'it\\'s; x'",
        "select e'a\\\\', ';'",
        "select 'a\\', ';'",
        'select "a""; b" from t',
        "select /* a /* b */ ; c */ 1",
        "select /*+ /* */ ; */ 1",
        "select 1 as a$b$, ';'",
    ],
)
def test_split_statements_knows_what_duckdb_quotes(statement):
    assert split_statements(f"{statement}; select 2", "duckdb") == ([statement], "select 2")


@pytest.mark.parametrize(
    "statement",
    [
        "select 'it\\'s; x'",
        'select "it\\"s; x"',
        "select 'a\\\\'",
        "select r'a\\', R\"b\\\"",
        "select /*+ BROADCAST(a) */ 1",
        "select /*+ ORDERED */*",
        "select /* a /*+ b */ 1",
        "select /* + ; */ 1",
        "select 1 -- a; \\\n; b\n + 1",
        "begin select 1; end",
        "BEGIN NOT ATOMIC SELECT 1; SELECT 2; END",
        "begin /* a */ begin select 1; end; -- b;\n end",
        "begin declare x int default 1; if x = 1 then select case when x = 1 then 'a' end; end if; end",
        "begin case when true then select 1; end case; select 2; end",
        "begin while false do select 1; end while; repeat select 1; until true end repeat; end",
        "begin for r as select 1 do select 2; end for; end",
        "begin l: begin select 1; end l; select 1 as end; select t.end, t.case, v:end from t; end",
        "begin declare exit handler for sqlexception begin select 1; end; select 2; end",
        "l: begin select 1; end l",
        "begin end",
    ],
)
def test_split_statements_knows_what_spark_quotes_and_its_blocks(statement):
    assert split_statements(f"{statement}; select 2", "spark") == ([statement], "select 2")


@pytest.mark.parametrize("text", ["begin select 1;", "begin select 1; begin select 2; end;"])
def test_split_statements_waits_for_the_end_of_a_block(text):
    assert split_statements(text, "spark") == ([], text)


@pytest.mark.parametrize(
    "text",
    ["select 1 as begin; x", "select v:begin from t; x", "begin transaction; x", "select t.begin from t; x"],
)
def test_split_statements_takes_no_other_begin_for_a_block(text):
    assert split_statements(text, "spark")[1] == "x"


def test_all_statements_last_one_needs_no_semicolon():
    assert all_statements("select 1;\nselect 2\n") == ["select 1", "select 2"]


def test_without_comments_keeps_texts_and_hints():
    text = "select /*+ h */ '-- a', /* b */ 1 -- c"
    assert without_comments(text, "spark") == "select /*+ h */ '-- a',   1  "
    assert without_comments(text, "duckdb") == "select   '-- a',   1  "


PIECES = (
    "'a;'",
    "'b''; '",
    "E'\\';'",
    "$$;$$",
    "$t$ $$; $t$",
    '"c"',
    "-- d;\n",
    "/* ; /* ; */ ; */",
    "1",
    "2",
    "`c`",
)


def test_statements_are_as_many_as_duckdb_finds():
    seed = drawn_seed()
    rng = random.Random(seed)
    with duckdb.connect() as connection:
        for _ in range(amount(small=200, full=2_000)):
            made = []
            for _ in range(rng.randrange(1, 5)):
                items = [rng.choice(PIECES) for _ in range(rng.randrange(1, 5))]
                values = [item if not item.startswith(("-", "/")) else f"{item} 3" for item in items]
                made.append("SELECT " + ", ".join(values))
            text = ";".join(made)
            assert len(all_statements(text)) == len(connection.extract_statements(text)) == len(made), text
