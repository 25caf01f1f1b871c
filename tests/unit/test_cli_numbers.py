"""Numbers of the command line and the settings: the digits 0 to 9, whoever reads them."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer import BadParameter

from headwater.cli import main
from headwater.cli._backfill import parse_offsets
from headwater.cli.verbs import VERBS, load_verb
from headwater.config import load_settings
from headwater.config.load import known_keys
from headwater.config.settings import Settings
from headwater.errors import UsageError
from headwater.ship.listener import parse_address as parse_syslog_address
from headwater.sql.delta import parse_at
from headwater.stack.ports import parse_address
from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import JobDefinitionError

ODD = ["1_000", "\u0661\u0660", "\u00b2", "1\u00a0", "0x10", "9" * 5000]


def options() -> Iterator[tuple[str, Any, Any, Any]]:
    """Each option and argument of each verb that is a number: where it is, its least and most value, and itself."""

    def below(path: str, command: Any) -> Iterator[tuple[str, Any, Any, Any]]:
        for parameter in command.params:
            descriptor = parameter.type_descriptor
            if descriptor.annotation in (int, float):
                info = descriptor.parameter_info
                yield f"{path} {parameter.name}", info.min, info.max, parameter
        for name, each in getattr(command, "commands", {}).items():
            yield from below(f"{path} {name}", each)

    for verb in VERBS:
        yield from below(verb, load_verb(verb))


def test_every_number_of_the_command_line_is_read_strictly() -> None:
    found = list(options())
    assert len(found) > 20
    for path, least, most, parameter in found:
        for text in (*ODD, "nan", "inf"):
            with pytest.raises(BadParameter, match=r"is not a (whole )?number"):
                parameter.process_value(None, text)
        for number in (least or 0, (least or 0) + 1, most):
            if number is not None and (most is None or number <= most):
                assert parameter.process_value(None, f" {number}") == number, path


def test_command_line_number_that_is_none_exits_2_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consume", "flights", "--count", "1_000"]) == 2
    assert "'1_000' is not a whole number" in capsys.readouterr().err


NUMBERS = [
    key
    for key in known_keys()
    if key.count(".") == 1
    and type(getattr(getattr(Settings(), key.split(".")[0]), key.split(".")[1])) in (int, float)
]


@pytest.mark.parametrize("key", NUMBERS)
def test_every_number_of_the_settings_is_read_strictly(key: str) -> None:
    variable = "HEADWATER_" + key.upper().replace(".", "_")
    for text in (*ODD, "nan", "inf", "true"):
        with pytest.raises(UsageError, match=f"{variable}: {key} is .*valid (integer|number)"):
            load_settings({variable: text})
    section, name = key.split(".")
    assert getattr(getattr(load_settings({variable: " 64 "}).settings, section), name) == 64


def test_every_setting_that_is_a_number_is_tried() -> None:
    assert {"stack.port", "stack.brokers", "jobs.files_kept_h", "client.timeout_s"} <= set(NUMBERS)


@pytest.mark.parametrize("number", ODD)
def test_numbers_within_a_text_are_read_strictly(number: str) -> None:
    for parse in (parse_address, parse_syslog_address):
        with pytest.raises((ValueError, UsageError)):
            parse(f"localhost:{number}")
    with pytest.raises(UsageError):
        parse_offsets([f"flights:0=0-{number}"])
    with pytest.raises(ValueError, match=r"isoformat|month"):
        parse_at(number)


@pytest.mark.parametrize("number", ["\u0663", "1_0"])
def test_numbers_of_durations_are_read_strictly(number: str) -> None:
    with pytest.raises(JobDefinitionError, match="is not a duration"):
        parse_duration(f"{number} minutes")
