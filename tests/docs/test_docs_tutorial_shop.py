"""The shop's tutorial without Spark: its oracle on records that are written by hand, and the page's figures by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tutorial_shop import ADDRESS, PAGE, broker_properties, load_oracle, make_files, page_for

TOPICS = ("orders", "payments", "refunds", "clicks", "customers")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_oracle(tmp_path_factory.mktemp("oracle"))


def ms(time: str) -> int:
    return int(pd.Timestamp(time, tz="UTC").timestamp() * 1000)


def line(sku: str, qty: Any, cents: int, discount: int | None = None) -> dict[str, Any]:
    off = None if discount is None else {"code": "X", "cents": discount}
    return {"sku": sku, "qty": qty, "cents": cents, "discount": off}


def order(name: str, time: str, *lines: dict[str, Any], channel: str = "web") -> dict[str, Any]:
    fixed = {"customer_id": "c", "channel": channel, "currency": "EUR"}
    return {"order_id": name, **fixed, "ts_ms": ms(time), "lines": list(lines)}


def payment(name: str, of: str, time: str, cents: Any = 5) -> dict[str, Any]:
    return {"payment_id": name, "order_id": of, "ts_ms": ms(time), "method": None, "cents": cents}


def click(name: str, visitor: str, time: str) -> dict[str, Any]:
    return {"click_id": name, "visitor": visitor, "source": None, "ts_ms": ms(time)}


def change(name: str | None, op: str, city: str | None, time: str) -> dict[str, Any]:
    address = {"city": city, "zip": "1"} if city else None
    return {"customer_id": name, "op": op, "ts_ms": ms(time), "name": "N", "address": address}


def read(oracle: Any, topic: str, *parts: list[dict[str, Any]]) -> pd.DataFrame:
    frame, wrong = oracle.read(topic, [[json.dumps(each) for each in part] for part in parts])
    assert wrong == 0
    assert isinstance(frame, pd.DataFrame)
    return frame


def tuples(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    rows = frame[list(columns)].itertuples(index=False, name=None)
    return [tuple(None if pd.isna(value) else value for value in row) for row in rows]


# -- The oracle ------------------------------------------------------------------------------------------


def test_oracle_takes_each_good_record_once_and_counts_the_broken(oracle: Any) -> None:
    good = order("a", "2024-01-01", line("cup", 1, 5))
    broken = [
        good | {"ts_ms": None},
        good | {"lines": None},
        good | {"lines": [line("cup", "two", 5)]},
    ]
    texts = [json.dumps(each) for each in (good, good, *broken)]
    frame, wrong = oracle.read("orders", [[*texts, texts[0][:-3]], [json.dumps(good | {"order_id": "b"})]])
    assert (wrong, tuples(frame, "order_id", "part")) == (4, [("a", 1), ("b", 2)])


@pytest.mark.parametrize(
    ("topic", "record"),
    [
        ("payments", payment("p", "a", "2024-01-01", "12,50")),
        ("payments", payment("p", "a", "2024-01-01", -5)),
        ("refunds", {"refund_id": "r", "cents": 12.5, "ts_ms": 1}),
        ("clicks", {"click_id": "k", "ts_ms": "yesterday"}),
        ("customers", change(None, "c", "Rome", "2024-01-01")),
    ],
)
def test_oracle_knows_what_is_broken(oracle: Any, topic: str, record: dict[str, Any]) -> None:
    assert not oracle.is_good(topic, record)


def test_oracle_keeps_orders_of_90_full_days(oracle: Any) -> None:
    times = {"a": "2024-01-01T23:59:59.999", "b": "2024-01-02T00:00", "c": "2024-04-01T12:00"}
    orders = read(oracle, "orders", [order(name, time) for name, time in times.items()])
    assert oracle.horizon(orders) == pd.Timestamp("2024-01-02", tz="UTC")
    assert tuples(oracle.kept(orders), "order_id") == [("b",), ("c",)]


def test_oracle_makes_a_row_of_each_line(oracle: Any) -> None:
    orders = read(
        oracle,
        "orders",
        [
            order("a", "2024-01-01", line("cup", 2, 500, 50), line("pot", 1, 900)),
            order("b", "2024-01-01"),
            order("c", "2024-01-01", line("tea", 1, 7)),
        ],
    )
    assert tuples(oracle.order_lines(orders), "order_id", "_row", "sku", "qty", "discount") == [
        ("a", 0, "cup", 2, 50),
        ("a", 1, "pot", 1, None),
        ("c", 0, "tea", 1, None),
    ]


def test_oracle_adds_up_the_revenue_with_and_without_the_bug_and_late_lines(oracle: Any) -> None:
    first = [
        order("a", "2024-01-01T10:00", line("cup", 2, 500, 50), line("pot", 1, 900)),
        order("b", "2024-01-05T23:00", line("tea", 3, 10)),
    ]
    second = [
        order("c", "2024-01-01T11:00", line("tea", 1, 1, 0)),  # its day was closed when 2 January was over
        order("d", "2024-01-04T11:00", line("tea", 1, 2, 0)),  # 4 January ends at 5 January, and is open
    ]
    lines = oracle.order_lines(read(oracle, "orders", first, second))
    columns = ("lines", "revenue")
    assert tuples(oracle.revenue(lines), *columns) == [(3, 1851), (1, 2), (1, 30)]
    assert tuples(oracle.revenue(lines, with_late=False), *columns) == [(2, 1850), (1, 2), (1, 30)]
    assert tuples(oracle.revenue(lines, with_bug=True), *columns) == [(3, 951), (1, 2), (1, None)]


def test_oracle_pairs_orders_of_the_web_with_payments_of_three_days(oracle: Any) -> None:
    orders = read(
        oracle,
        "orders",
        [order(name, "2024-01-01") for name in "abcd"] + [order("e", "2024-01-01", channel="fair")],
    )
    times = {"a": "2024-01-01", "b": "2024-01-04", "c": "2024-01-04T00:00:00.001", "d": "2023-12-31"}
    payments = read(
        oracle,
        "payments",
        [payment(f"p-{of}", of, time) for of, time in (times | {"e": "2024-01-02"}).items()],
    )
    assert tuples(oracle.paid(orders, payments), "order_id", "cents") == [("a", 5), ("b", 5)]


def test_oracle_counts_refunds_of_each_reason_and_day(oracle: Any) -> None:
    refunds = read(
        oracle,
        "refunds",
        [
            {"refund_id": name, "reason": reason, "cents": 5, "ts_ms": ms(time)}
            for name, reason, time in (
                ("a", None, "2024-01-01"),
                ("b", None, "2024-01-01T23:00"),
                ("c", "late", "2024-01-02"),
            )
        ],
    )
    assert tuples(oracle.refunds(refunds), "reason", "refunds", "cents") == [
        ("late", 1, 5),
        ("unknown", 2, 10),
    ]


def test_oracle_makes_sessions_of_clicks_half_an_hour_apart_once_they_are_over(oracle: Any) -> None:
    first = [
        click("1", "a", "2024-01-01T10:00"),
        click("2", "a", "2024-01-01T10:30"),
        click("3", "a", "2024-01-01T11:00:00.001"),
        click("4", "b", "2024-01-01T10:10"),
        click("5", "b", "2024-01-02T10:00"),
    ]
    second = [click("6", "b", "2024-01-01T20:00"), click("7", "c", "2024-01-02T11:00")]
    clicks = read(oracle, "clicks", first, second)
    assert tuples(oracle.late_clicks(clicks), "click_id") == [("6",)]
    found = oracle.sessions(clicks)
    assert tuples(found, "visitor", "clicks") == [("a", 2), ("a", 1), ("b", 1)], "that of click 5 may go on"
    assert str(found["window_end"].iloc[0]) == "2024-01-01 11:00:00+00:00"


def test_oracle_keeps_versions_of_customers(oracle: Any) -> None:
    changes = read(
        oracle,
        "customers",
        [
            change("a", "c", "Rome", "2024-01-01"),
            change("a", "u", "Rome", "2024-01-02"),
            change("a", "u", None, "2024-01-03"),
            change("a", "d", None, "2024-01-06"),
            change("a", "u", "Rome", "2024-01-07"),
            change("b", "c", "Rome", "2024-01-01"),
        ],
        [change("a", "u", "Oslo", "2024-01-04")],
    )
    found = tuples(oracle.history(changes), "customer_id", "city", "valid_from", "valid_to", "is_current")
    assert [
        (name, city, start.day, end and end.day, current) for name, city, start, end, current in found
    ] == [
        ("a", "Rome", 1, 3, False),
        ("a", None, 3, 4, False),
        ("a", "Oslo", 4, 6, False),
        ("a", "Rome", 7, None, True),
        ("b", "Rome", 1, None, True),
    ]


# -- The page --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    make_files(folder)
    return folder


@pytest.fixture
def good(oracle: Any, shop: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, pd.DataFrame]:
    """The good records of each topic, by the oracle, in the folder of the files."""
    monkeypatch.chdir(shop)
    return {topic: oracle.read(topic, oracle.files(topic))[0] for topic in TOPICS}


def test_tutorial_has_as_many_late_records_as_it_says(good: dict[str, pd.DataFrame]) -> None:
    late = {
        topic: int((frame["at"][frame["part"] == 2] < pd.Timestamp("2024-03-15", tz="UTC")).sum())
        for topic, frame in good.items()
    }
    assert late == {"orders": 30, "payments": 0, "refunds": 0, "clicks": 40, "customers": 20}


def test_tutorial_states_what_became_of_the_records_of_each_part(
    oracle: Any, good: dict[str, pd.DataFrame]
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for topic in ("orders", "payments", "clicks", "refunds"):
        parts = oracle.files(topic)
        for part, lines in enumerate(parts, start=1):
            _, wrong = oracle.read(topic, [lines])
            written = int((good[topic]["part"] == part).sum())
            twice = len(lines) - written - wrong
            stated = f"{len(lines):,} read, {written:,} written, {twice:,} duplicate, {wrong:,} quarantined\n"
            assert page.count(stated) == (0 if part == 2 and topic in ("clicks", "refunds") else 1), stated
            start = 0 if part == 1 else len(parts[0])
            assert (
                f"sent {len(lines):,} records to {topic}: partition 0 offsets {start} to {start + len(lines) - 1}\n"
                in page
            )


def test_tutorial_states_how_many_rows_the_oracle_has(oracle: Any, good: dict[str, pd.DataFrame]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    orders, lines = good["orders"], oracle.order_lines(good["orders"])
    frames = {
        "silver.orders": oracle.kept(orders),
        "silver.order_lines": lines,
        "silver.payments": oracle.payments(good["payments"]),
        "gold.paid": oracle.paid(orders, good["payments"]),
        "gold.refunds": oracle.refunds(good["refunds"]),
        "gold.sessions": oracle.sessions(good["clicks"]),
        "gold.sessions__late": oracle.late_clicks(good["clicks"]),
        "dim.customers": oracle.history(good["customers"]),
    }
    for table, frame in frames.items():
        assert page.count(f"\n{table:20} {len(frame):6,} rows right\n") == 2, (table, len(frame))
    expired = len(orders) - len(oracle.kept(orders))
    assert (
        f"silver.orders: {expired:,} rows whose ordered_at is before {oracle.horizon(orders):%Y-%m-%d}T"
        in page
    )
    for part in (1, 2):
        of_part = orders[orders["part"] == part]
        empty = int((of_part["lines"].map(len) == 0).sum())
        rows = int((lines["part"] == part).sum())
        assert (
            f"{len(of_part):,} read, {len(of_part) - empty:,} exploded, {rows:,} rows written, {empty:,} filtered\n"
            in page
        )


def test_tutorial_states_what_the_repair_changes(oracle: Any, good: dict[str, pd.DataFrame]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    lines = oracle.order_lines(good["orders"])
    before, after = oracle.revenue(lines, with_bug=True, with_late=False), oracle.revenue(lines)
    keys = ["currency", "window_start"]
    both = before.merge(after, on=keys, suffixes=("_before", "_after"))
    assert len(both) == len(before) == len(after)
    changed = int((both["revenue_before"].fillna(-1) != both["revenue_after"]).sum())
    assert page.count(f"0 rows added, 0 removed, {changed} changed, {len(both) - changed} unchanged;") == 2
    assert page.count(f"gold.revenue         {len(after):6,} rows WRONG\n") == 1
    assert page.count(f"gold.revenue         {len(after):6,} rows right\n") == 1
    assert f"{good['payments']['cents'].sum()}   {before['revenue'].sum():.0f}\n" in page
    first = both.iloc[0]
    assert f"revenue: {first['revenue_before']:.0f} -> {first['revenue_after']:.0f}\n" in page
    for currency, rows in after.groupby("currency"):
        assert f" {currency}         {rows['lines'].sum()}   {rows['revenue'].sum():.0f}\n" in page
    late = int(before["lines"].sum())
    assert f"{len(lines[lines['part'] == 2]):,} read, " in page
    assert f"{len(lines) - late} late\n" in page


def test_tutorial_for_another_broker_makes_none() -> None:
    text = page_for("kafka:1234", Path("/certificates/ca.pem"))
    assert ADDRESS in PAGE.read_text(encoding="utf-8")
    assert ADDRESS not in text
    assert "headwater_broker" not in text
    assert "openssl req" not in text
    assert "kill %1" not in text
    assert (
        text.count('bootstrap = "kafka:1234"') == text.count('ssl_ca_location = "/certificates/ca.pem"') == 2
    )
    assert text.count("\n") == PAGE.read_text(encoding="utf-8").count("\n"), (
        "so that lines keep their numbers"
    )
    assert "user_finance=" in broker_properties()["listener.name.sasl_ssl.plain.sasl.jaas.config"]
