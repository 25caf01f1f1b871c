"""The reference has everything that the code has, and each thing's words stand in the code once."""

import inspect
import re

import pytest

import headwater.backfill
from docs_reference import commands, messages, pages, settings, sql_jobs, tables
from headwater.cli.verbs import installed_verbs, root_command
from headwater.config import known_keys
from headwater.errors import EXIT_CODES
from headwater_broker.log import CONFIG_KEYS
from headwater_broker.server.properties import known_properties
from headwater_streams import api
from headwater_streams.base.ledger_entry import TERMS
from headwater_streams.streaming_sql.calls import FUNCTIONS

PAGES = pages()


def test_reference_has_every_command_with_every_option() -> None:
    for verb in installed_verbs():
        page = PAGES[f"reference/commands/{verb}.md"]
        for path, command in commands.commands_of(verb).items():
            assert f"# {path}\n" in page
            for parameter in command.params:
                is_option = parameter.opts[0].startswith("-")
                name = max(parameter.opts, key=len) if is_option else parameter.metavar or parameter.name
                assert name in page, f"{path} {parameter.opts}"
        assert f"({verb}.md)" in PAGES["reference/commands/index.md"]


def test_reference_has_every_setting_and_property() -> None:
    assert sorted(settings.commented_keys()) == sorted(known_keys())
    page = PAGES["reference/settings.md"]
    assert [name for name in known_properties() if f"`{name}`" not in page] == []
    assert [name for name in CONFIG_KEYS if f"`{name}`" not in page] == []


def test_reference_gives_a_setting_its_type_limits_default_and_variable() -> None:
    page = PAGES["reference/settings.md"]
    assert (
        "Type: whole number, at least 0, at most 65535; default: `9092`; environment: `HEADWATER_STACK_PORT`."
        in page
    )
    assert "Type: one of `zookeeper`, `memory`; default: `zookeeper`" in page
    assert "Type: text, never printed; default: empty; environment: `HEADWATER_CLIENT_SASL_PASSWORD`." in page


def test_reference_has_every_name_of_the_python_api() -> None:
    page = PAGES["reference/python.md"]
    headings = set(re.findall(r"^ +heading: (\S+)$", page, re.MULTILINE))
    modules = {name: each for name in api.__all__ if inspect.ismodule(each := getattr(api, name))}
    assert {f"hw.{name}" for name in api.__all__ if name not in modules} <= headings
    assert {f"hw.{name}.{each}" for name, module in modules.items() for each in module.__all__} <= headings
    verbs = [
        name for name in headwater.backfill.__all__ if inspect.isfunction(getattr(headwater.backfill, name))
    ]
    assert {f"hw.backfill.{name}" for name in verbs} <= headings
    assert {"JobDriver", "broker", "hw.load", "hw.trace.rows", "hw.trace.record"} <= headings


@pytest.mark.parametrize("title", tables.spark_tables())
def test_reference_says_what_each_column_of_a_job_s_tables_holds(title: str) -> None:
    columns, what = tables.spark_tables()[title]
    assert [each.name for each in columns if not what.get(each.name)] == []


@pytest.mark.parametrize("table", tables.library_tables())
def test_reference_says_what_each_column_of_the_library_s_tables_holds(table: str) -> None:
    schema, what = tables.library_tables()[table]
    assert schema.names == list(what)


def test_reference_describes_no_column_that_is_not_there() -> None:
    there = {each.name for columns, _ in tables.spark_tables().values() for each in columns} | {"_input"}
    described = {name for _, what in tables.spark_tables().values() for name in what}
    assert described - there == set()


def test_reference_has_the_words_of_sql() -> None:
    page = sql_jobs.page()
    assert [name for name in FUNCTIONS if f"`{name}(" not in page] == []
    for word in (
        "session_window(",
        "LEFT SEMI JOIN",
        "track_history_columns",
        "QUARANTINE",
        "HAVING",
        "csv(sep => ",
    ):
        assert word in page


def test_reference_has_the_terms_of_ledger_entries() -> None:
    page = PAGES["reference/ledger-entries.md"]
    for terms in TERMS.values():
        assert f"`read = {' + '.join(terms)}`" in page


def test_exit_codes_are_in_the_reference_and_in_the_help_of_the_command() -> None:
    root = root_command()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in PAGES["reference/exit-codes.md"]
        assert f"{code}: {meaning}" in root.epilog


def test_reference_has_messages_with_their_remedy_and_names_for_what_differs() -> None:
    found = {message.text: message.error for message in messages.messages()}
    assert found["there is no group ‹group›: headwater groups list shows them"] == "UsageError"
    assert (
        found["no stack runs over ‹home›: start one with headwater up, or give --bootstrap HOST:PORT"]
        == "UserError"
    )
    assert len(found) > 150
    page = PAGES["reference/messages.md"]
    assert "## BackfillError\n" in page
    assert "headwater backfill list" in page


def test_messages_of_a_module_are_read_from_what_it_raises() -> None:
    import ast

    source = """
def f(name):
    if name:
        raise UsageError(f"no {name!r} in {self._home.root}: give --home" + more)
    raise other
"""
    assert list(messages.messages_in(ast.parse(source))) == [
        messages.Message("UsageError", "no ‹name› in ‹root›: give --home…")
    ]
