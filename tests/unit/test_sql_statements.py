"""Cutting text into statements: semicolons in quotes and comments end nothing."""

import pytest

from headwater.sql.statements import all_statements, split_statements


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
        ("select 1 -- not; here\n + 1;", ["select 1  \n + 1"], ""),
        ("select/* ; */1;", ["select 1"], ""),
        ("select 'open; ", [], "select 'open;"),
        ("select 4/2-1;", ["select 4/2-1"], ""),
        ("/* open ;", [], "/* open ;"),
        ("-- only a comment", [], ""),
    ],
)
def test_split_statements_ends_at_bare_semicolons(text, statements, rest):
    assert split_statements(text) == (statements, rest)


def test_all_statements_last_one_needs_no_semicolon():
    assert all_statements("select 1;\nselect 2\n") == ["select 1", "select 2"]
