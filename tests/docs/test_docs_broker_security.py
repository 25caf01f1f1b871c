"""What docs/how-to/broker-security.md shows of a broker with passwords and ACLs works as it stands there."""

import re
from pathlib import Path

import pytest

from headwater.cli import main
from headwater_broker.testing import broker

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "broker-security.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:9093"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_page_of_security_lets_in_whom_it_names_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = dict(line.split("=", 1) for line in block("properties").splitlines())
    assert properties.pop("log.dirs") == "data"
    assert properties["listeners"] == f"SASL_PLAINTEXT://{ADDRESS}"
    properties["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0"
    *exports, command = block("sh").splitlines()
    with broker(tmp_path / "log", properties=properties) as running:
        for line in exports:
            name, value = re.fullmatch(r'export (\w+)="?([^"]*)"?', line).groups()  # type: ignore[union-attr]
            monkeypatch.setenv(name, running.bootstrap if value == ADDRESS else value)

        def verb(*arguments: str) -> tuple[int, str]:
            status = main(arguments)
            said = capsys.readouterr()
            return status, said.out + said.err

        assert verb(*command.split()[1:]) == (0, "created orders\n")
        exec(block("python").replace(ADDRESS, running.bootstrap), {})
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_MECHANISM", "SCRAM-SHA-256")
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_USERNAME", "alice")
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_PASSWORD", "her password")
        (tmp_path / "lines").write_text("one\n", encoding="utf-8")
        assert verb("produce", "orders", "--file", str(tmp_path / "lines"))[0] == 0
        assert verb("topics", "create", "others")[0] == 1
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_PASSWORD", "not hers")
        status, said = verb("topics", "list")
        assert status == 1
        assert "refuses this client" in said
