"""What `--help` prints is what is written."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context

from headwater.cli.verbs import VERBS, load_verb


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group, by what is typed for it."""

    def below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield path, command
        for name, each in getattr(command, "commands", {}).items():
            yield from below(f"{path} {name}", each)

    for verb in VERBS:
        yield from below(verb, load_verb(verb))


def words(text: str) -> str:
    """A text without its line breaks, indents and the escapes before brackets."""
    return " ".join(text.replace("\\[", "[").split())


def test_help_of_every_command_has_each_text_as_it_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")  # each option's text in one line
    brackets = 0
    for path, command in commands():
        with Context(command, info_name=path) as context:
            command.get_help(context)
        shown = words(capsys.readouterr().out)
        texts = [command.help, *(getattr(each, "help", None) for each in command.params)]
        for text in filter(None, texts):
            plain = words(text.replace("\b", " "))
            assert plain in shown, f"headwater {path} --help"
            brackets += plain.count("[")
    assert brackets > 20
