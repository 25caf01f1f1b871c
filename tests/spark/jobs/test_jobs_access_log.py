"""The access log's jobs, from lines as the shipper sends them to the tables."""

from collections.abc import Callable
from typing import Any

from headwater.config import shipped_dir
from headwater_streams.ledger.audit import audit_home
from headwater_streams.loader import load_jobs
from headwater_streams.testing import JobDriver

_FILE = ("web-1", "3f2a9c", 0)  # as the shipper names it; the line's number follows


def _line(second: int, path: str, status: int, agent: str, took: str = "") -> bytes:
    clock = f"10/Oct/2000:13:{second // 60:02}:{second % 60:02} +0000"
    return f'192.0.2.7 - - [{clock}] "GET {path} HTTP/1.1" {status} 100 "-" "{agent}"{took}'.encode()


_LINES = [
    _line(0, "/", 200, "Mozilla/5.0", " 0.5"),
    _line(5, "/", 200, "Mozilla/5.0", " 1.5"),
    _line(30, "/search?q=x", 503, "Mozilla/5.0", " 9.000"),
    _line(59, "/robots.txt", 200, "Googlebot/2.1"),
    b"\x16\x03\x01 no access log",
    _line(60, "/", 999, "Mozilla/5.0"),
    b'192.0.2.9 - - [10/Oct/2000:13:01:02 +0000] "\\x16\\x03\\x01" 400 0 "-" "-"',
]


def test_access_log_lines_become_traffic_and_bad_ones_are_kept(drive: Callable[..., JobDriver]) -> None:
    jobs = load_jobs([str(shipped_dir("jobs") / "access_log.py")])
    driver: JobDriver = drive(*jobs)
    driver.send("access", *_LINES, origin=(*_FILE, 0))
    driver.send("access", *_LINES[:2], origin=(*_FILE, 0))  # the shipper was started again
    driver.run()

    traffic: list[tuple[Any, ...]] = driver.rows(
        "gold.traffic_by_minute", "status", "is_bot", "requests", "errors", "bytes"
    )
    assert sorted(traffic) == [
        (200, False, 2, 0, 200),
        (200, True, 1, 0, 100),
        (400, True, 1, 0, 0),
        (503, False, 1, 1, 100),
    ]
    assert sorted(driver.rows("gold.slow_paths", "path", "requests", "seconds", "slowest_s")) == [
        ("/", 2, 2.0, 1.5),
        ("/search", 1, 9.0, 9.0),
    ]
    rejected = driver.rows("silver.requests__quarantine", "_offset", "_raw", "_reason")
    assert [(offset, bytes(raw)) for offset, raw, _ in sorted(rejected)] == [(4, _LINES[4]), (5, _LINES[5])]
    assert [reason for *_, reason in sorted(rejected)] == [
        "the line is not of the format 'access': its time is not as it should be: log",
        "status_is_http: status BETWEEN 100 AND 599",
    ]
    assert all(found.ok for found in audit_home(driver.home))
