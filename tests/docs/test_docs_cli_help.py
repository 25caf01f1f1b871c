"""Every verb explains itself: a summary, an example that is one of its own commands, and what --json means."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.cli.verbs import VERBS, installed_verbs, load_verb, root_command


def _commands() -> Iterator[tuple[str, Any]]:
    for verb in installed_verbs():
        yield from _with_children(f"headwater {verb}", load_verb(verb))


def _with_children(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _with_children(f"{path} {name}", child)


_COMMANDS = dict(_commands())


@pytest.mark.parametrize("path", _COMMANDS)
def test_help_has_an_example_of_the_command_itself(path: str) -> None:
    text = _COMMANDS[path].help or ""
    assert re.search(r"^\s*Examples?:", text, re.MULTILINE), f"{path} --help shows no example"
    assert path in text, f"no example in {path} --help begins with {path}"


@pytest.mark.parametrize("path", _COMMANDS)
def test_help_explains_every_option(path: str) -> None:
    silent = [each.name for each in _COMMANDS[path].params if not getattr(each, "help", None)]
    assert silent == [], f"{path} --help does not say what {silent} are for"


@pytest.mark.parametrize("path", [path for path in _COMMANDS if not hasattr(_COMMANDS[path], "commands")])
def test_help_offers_json(path: str) -> None:
    options = [option for each in _COMMANDS[path].params for option in each.opts]
    assert "--json" in options, f"{path} has no --json for machines"


def test_root_help_lists_every_verb_by_its_summary() -> None:
    root = root_command()
    context = root.make_context("headwater", [], resilient_parsing=True)
    assert root.list_commands(context) == installed_verbs()
    for name in installed_verbs():
        assert root.get_command(context, name).help == VERBS[name].summary
