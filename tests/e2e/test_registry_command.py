"""`headwater registry` against the registry of a stack, as a person uses it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    up = ["--coordinator", "memory", "--port", "0", "--registry", "--registry-port", "0"]
    started = run("up", *up, home=folder)
    assert started.returncode == 0, started.stderr
    yield folder
    run("down", home=folder)


def run(*arguments: str, home: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "headwater.cli", *arguments]
    return subprocess.run(
        command, env={**os.environ, "HEADWATER_HOME": str(home)}, capture_output=True, text=True, check=False
    )


def schema(tmp_path: Path, *more: dict[str, object]) -> str:
    file = tmp_path / f"order{len(more)}.avsc"
    file.write_text(json.dumps({**ORDER, "fields": [*ORDER["fields"], *more]}), encoding="utf-8")
    return str(file)


def test_a_subject_from_registration_to_deletion(home: Path, tmp_path: Path) -> None:
    assert run("registry", "register", "o-value", schema(tmp_path), home=home).stdout.startswith(
        "registered as version 1 of o-value, id "
    )
    broken = schema(tmp_path, {"name": "currency", "type": "string"})
    refused = run("registry", "check", "o-value", broken, home=home)
    assert (refused.returncode, "compatibility is BACKWARD" in refused.stdout) == (1, True)
    failed = run("registry", "register", "o-value", broken, home=home)
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert run("registry", "config", "o-value", "--compatibility", "none", home=home).returncode == 0
    assert run("registry", "register", "o-value", broken, home=home).returncode == 0
    rows = json.loads(run("registry", "subjects", "--json", home=home).stdout)
    assert [(row["subject"], row["version"], row["compatibility"]) for row in rows] == [
        ("o-value", 2, "NONE")
    ]
    assert run("registry", "delete", "o-value", home=home).stdout == "deleted version 1, 2 of o-value\n"
    (gone,) = json.loads(run("registry", "subjects", "--deleted", "--json", home=home).stdout)
    assert (gone["subject"], gone["version"]) == ("o-value", 2)
    assert run("registry", "show", "o-value", home=home).stderr == "headwater: Subject 'o-value' not found.\n"


def test_a_registry_that_is_killed_runs_again_at_its_address(home: Path, tmp_path: Path) -> None:
    run("registry", "register", "k-value", schema(tmp_path), home=home)
    status = json.loads(run("status", "--json", home=home).stdout)
    (member,) = [each for each in status["processes"] if each["role"] == "registry"]
    os.kill(member["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while run("registry", "show", "k-value", home=home).returncode != 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    again = json.loads(run("status", "--json", home=home).stdout)
    assert again["registry"] == status["registry"]
    assert member["pid"] not in [each["pid"] for each in again["processes"]]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["show", "s", "--url", "http://127.0.0.1:1"], 4, "no registry answers at http://127.0.0.1:1"),
        (["show", "none-value"], 2, "Subject 'none-value' not found."),
        (["show", "123456"], 2, "Schema 123456 not found"),
        (["versions", "none-value"], 2, "Subject 'none-value' not found."),
        (["delete", "none-value"], 2, "Subject 'none-value' not found."),
        (["show", "none-value", "--version", "x"], 2, "'x' is not a valid version"),
        (["check", "none-value", "int.avsc", "--version", "3"], 2, "Version 3 not found."),
        (["config", "--compatibility", "some"], 2, "Invalid compatibility level SOME"),
        (["config", "none-value", "--compatibility", "default"], 2, "Subject 'none-value' not found."),
        (["mode", "--set", "some"], 2, "Invalid mode SOME"),
        (["register", "s", "a.avsc"], 1, "Invalid schema of type AVRO"),
        (["show", "s", "--url", "127.0.0.1:8081"], 2, "give one as http://127.0.0.1:8081"),
        (["register", "s", "none.avsc"], 2, "cannot read none.avsc"),
        (["register", "s", "schema.txt"], 2, "give --type avro, json, protobuf"),
        (["register", "s", "a.avsc", "--reference", "x"], 2, "NAME=SUBJECT:VERSION"),
        (["serve", "--login"], 2, "set HEADWATER_REGISTRY_USERNAME and HEADWATER_REGISTRY_PASSWORD"),
        (["serve", "--tls-certificate", "a.avsc"], 2, "a.avsc cannot be used for TLS"),
        (["serve", "--tls-key", "a.avsc"], 2, "--tls-key needs --tls-certificate"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    status: int,
    sentence: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.avsc").write_text("{}", encoding="utf-8")
    Path("int.avsc").write_text('"int"', encoding="utf-8")
    ended = run("registry", *arguments, home=home)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
