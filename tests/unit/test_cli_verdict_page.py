"""The page of a verdict: whole in itself, and what the data says is text and never markup."""

from html.parser import HTMLParser
from typing import Any

from headwater.cli._verdict_page import page

PLAN: dict[str, Any] = {
    "id": "delays-1f0c92ab",
    "mode": "repair",
    "job": "delays",
    "target": "gold.delays",
    "fingerprint": "9f2c",
    "created_at": "2013-01-02T00:00:00Z",
    "base_version": 7,
    "windows": [
        ["2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"],
        ["2013-01-01T12:00:00Z", "2013-01-01T13:00:00Z"],
    ],
    "ranges": {"departures": {"0": [100, 2_000], "1": [0, 500]}},
}
VERDICT: dict[str, Any] = {
    "passed": False,
    "findings": [
        {"name": "accounting", "ok": True, "detail": "read 3 = folded 3"},
        {"name": "checks", "ok": False, "detail": "2 rows fail the check 'a < b'"},
    ],
    "accounting": {"read": 1_234, "folded": 1_234},
    "diff": {
        "keys": ["carrier"],
        "added": 1,
        "removed": 0,
        "changed": 1,
        "unchanged": 9,
        "digest": "1f3d",
        "samples": {
            "added": [{"key": {"carrier": "<script>alert(1)</script>"}, "after": {"delays": None}}],
            "changed": [
                {"key": {"carrier": "UA"}, "before": {"n": 1, "m": 5}, "after": {"n": 2, "m": 5}},
            ],
        },
    },
    "notes": ["windows & more"],
    "verified_at": "2013-01-02T00:10:00Z",
}


class Reader(HTMLParser):
    """The tags of a page, those that are closed in a wrong place, and its text."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        outside = [value for name, value in attrs if name in ("src", "href")]
        assert not outside, "a page that is read offline names nothing outside of it"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_verdict_page_shows_findings_diff_and_timeline_and_no_markup_of_the_data() -> None:
    reader = Reader()
    reader.feed(page(PLAN, VERDICT))
    reader.close()
    assert reader.open == []
    assert "script" not in reader.tags
    assert reader.tags.count("svg") == 2
    assert reader.tags.count("rect") == 4
    for expected in (
        "delays-1f0c92ab did not pass",
        "2 rows fail the check 'a < b'",
        "1,234",
        "1 added, 0 removed, 1 changed, 9 unchanged",
        "n: 1 2",
        "carrier=<script>alert(1)</script>",
        "[2013-01-01T10:00:00Z, 2013-01-01T11:00:00Z)",
        "departures 0 [100, 2,000)",
        "windows & more",
    ):
        assert expected in reader.text, expected
    assert "m: 5" not in reader.text, "what is the same is left out"


def test_verdict_page_of_a_rebuild_shows_the_offsets_that_it_read() -> None:
    plan = {name: value for name, value in PLAN.items() if name not in ("windows", "ranges")}
    plan["mode"] = "rebuild"
    reader = Reader()
    reader.feed(page(plan, VERDICT | {"ranges": {"departures": {"0": [0, 2_300], "1": [7, 500]}}}))
    assert "A rebuild of gold.delays" in reader.text
    assert reader.tags.count("rect") == 2
    assert "departures 0 [0, 2,300)" in reader.text
    assert "Replaced, by event time" not in reader.text
    of_an_older_version = Reader()
    of_an_older_version.feed(page(plan, VERDICT))
    assert "svg" not in of_an_older_version.tags


def test_verdict_page_of_several_tables_has_the_diff_of_each_and_one_digest() -> None:
    of_bots = {**VERDICT["diff"], "added": 5, "digest": "77aa", "samples": {}}
    beside = {"silver.bots": {"diff": of_bots, "table_version": 3}}
    reader = Reader()
    reader.feed(page(PLAN, VERDICT | {"beside": beside, "digest": "9e9e"}))
    for expected in ("gold.delays", "1 added, 0 removed", "silver.bots", "5 added, 0 removed", "Digest 9e9e"):
        assert expected in reader.text, expected
    assert "1f3d" not in reader.text
    assert "77aa" not in reader.text


def test_page_of_a_repair_of_several_tables_has_an_account_of_each() -> None:
    change = {"diff": VERDICT["diff"], "table_version": 3, "accounting": {"written": 4_321}}
    found = page({**PLAN, "target": "silver.people"}, {**VERDICT, "beside": {"silver.bots": change}})
    account = found[found.index("<h2>Accounting") : found.index("<h2>Diff")]
    assert account.index("<h3>silver.people") < account.index("1,234") < account.index("<h3>silver.bots")
    assert "4,321" in account
    assert "<h3>" not in page(PLAN, VERDICT).split("<h2>Diff")[0]
