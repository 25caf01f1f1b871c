"""Who is let in by the registry."""

import base64
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.registry.guard import Guard
from secured import certificates

GUARD = Guard(username="jobs", password="pässword:with colon")


def header(login: str, scheme: str = "Basic") -> list[tuple[bytes, bytes]]:
    encoded = base64.b64encode(login.encode()).decode()
    return [(b"host", b"x"), (b"Authorization", f"{scheme} {encoded}".encode())]


def test_one_login_is_let_in() -> None:
    assert GUARD.lets_in(header("jobs:pässword:with colon"))
    assert GUARD.lets_in(header("jobs:pässword:with colon", "bAsIc"))
    assert Guard().lets_in([])
    assert "pässword" not in repr(GUARD)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        header("jobs:"),
        header(":pässword:with colon"),
        header("jobs:pässword:with colo"),
        header("JOBS:pässword:with colon"),
        header("jobs:pässword:with colon", "Bearer"),
        [(b"authorization", b"Basic !")],
        [(b"authorization", b"Basic")],
        [(b"authorization", b"\xff \xff")],
    ],
)
def test_others_are_not(headers: list[tuple[bytes, bytes]]) -> None:
    assert not GUARD.lets_in(headers)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    Guard(certificate=files / "broker.crt", key=files / "broker.key").check_files()
    for certificate, key in (("none.crt", None), ("broker.crt", None), ("broker.crt", "alice.key")):
        guard = Guard(certificate=files / certificate, key=files / key if key else None)
        with pytest.raises(UsageError, match=f"{key or certificate} cannot be used for TLS"):
            guard.check_files()
