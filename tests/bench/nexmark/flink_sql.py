"""The queries in Flink's SQL, with nexmark/nexmark's meaning, and the tables that they read and write."""

from __future__ import annotations

from pathlib import Path

from nexmark.generator import Kind
from nexmark.topics import SCHEMAS, TIME, WATERMARK_S, topic_of

_BID_COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT"
_SINKS = {
    "q0": f"{_BID_COLUMNS}, `dateTime` TIMESTAMP(3), extra STRING",
    "q1": "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` TIMESTAMP(3), extra STRING",
    "q2": "auction BIGINT, price BIGINT",
    "q3": "name STRING, city STRING, state STRING, id BIGINT",
    "q5": "auction BIGINT, num BIGINT, endtime TIMESTAMP(3)",
    "q7": f"{_BID_COLUMNS}, `dateTime` TIMESTAMP(3), extra STRING",
    "q8": "id BIGINT, name STRING, starttime TIMESTAMP(3)",
    "q11": "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)",
    "q13": f"{_BID_COLUMNS}, `dateTime` TIMESTAMP(3), `value` STRING",
    "q18": f"{_BID_COLUMNS}, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING, "
    "PRIMARY KEY (bidder, auction) NOT ENFORCED",
    "q20": f"{_BID_COLUMNS}, channel STRING, url STRING, bid_dateTime TIMESTAMP(3), bid_extra STRING, "
    "itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, auction_dateTime TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, auction_extra STRING",
}
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_COUNTED = (
    f"SELECT auction, count(*) AS num, window_start, window_end FROM {_HOP} "
    "GROUP BY auction, window_start, window_end"
)
_QUERIES = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id "
    "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
    "q5": f"SELECT B.auction, B.num, B.window_end FROM ({_COUNTED}) AS B JOIN ("
    f"SELECT max(num) AS most, window_start, window_end FROM ({_COUNTED}) GROUP BY window_start, window_end) AS M "
    "ON B.window_start = M.window_start AND B.window_end = M.window_end AND B.num >= M.most",
    "q7": "SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra FROM bid AS B JOIN ("
    "SELECT max(price) AS price, window_end AS ends "
    "FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
    ") AS M ON B.price = M.price WHERE B.`dateTime` BETWEEN M.ends - INTERVAL '10' SECOND AND M.ends",
    "q8": "SELECT P.id, P.name, P.window_start FROM ("
    "SELECT id, name, window_start, window_end "
    "FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) "
    "GROUP BY id, name, window_start, window_end) AS P JOIN ("
    "SELECT seller, window_start, window_end "
    "FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) "
    "GROUP BY seller, window_start, window_end) AS A "
    "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end",
    "q11": "SELECT bidder, count(*), window_start, window_end "
    "FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) "
    "GROUP BY bidder, window_start, window_end",
    "q13": "SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value` FROM bid AS B "
    "JOIN side_input FOR SYSTEM_TIME AS OF B.`dateTime` AS S ON MOD(B.auction, 10000) = S.key",
    "q18": "SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM ("
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place FROM bid) "
    "WHERE place <= 1",
    "q20": "SELECT B.auction, bidder, price, channel, url, B.`dateTime`, B.extra, itemName, description, initialBid, "
    "reserve, A.`dateTime`, expires, seller, category, A.extra FROM bid AS B JOIN auction AS A ON B.auction = A.id "
    "WHERE A.category = 10",
}


def is_updated(query: str) -> bool:
    """Whether a query's rows are updated: they go to a topic, as files cannot be."""
    return "PRIMARY KEY" in _SINKS[query]


def tables_sql(query: str, address: str, side: Path, result: Path, topic: str) -> list[str]:
    """The statements before a query: settings, and the tables that it reads and writes.

    Args:
        query: Its name.
        address: The broker.
        side: The file of q13's side input.
        result: The folder of the rows.
        topic: Their topic, where they are updated.
    """
    if is_updated(query):
        options = {"connector": "upsert-kafka", "topic": topic, "properties.bootstrap.servers": address}
        options |= {"key.format": "json", "value.format": "json"}
        options |= {"value.json.timestamp-format.standard": "ISO-8601"}
    else:
        options = _files(result)
    sink = f"CREATE TABLE written ({_SINKS[query]}) WITH ({_options(options)})"
    settings = _set({"table.dml-sync": "true", "table.local-time-zone": "UTC", "pipeline.name": query})
    return [*settings, *(_source(kind, address) for kind in SCHEMAS), _side(side), sink]


def query_sql(query: str) -> str:
    """The statement that runs a query."""
    return f"INSERT INTO written {_QUERIES[query]}"


def passing(address: str, topic: str, result: Path) -> list[str]:
    """q0 over another topic of bids, without an end, with the records' timestamps."""
    source = _source("bid", address, topic, more="`timestamp` TIMESTAMP_LTZ(3) METADATA, ")
    source = source.replace(", 'scan.bounded.mode' = 'latest-offset'", "")
    columns = _SINKS["q0"] + ", `timestamp` TIMESTAMP_LTZ(3)"
    sink = f"CREATE TABLE written ({columns}) WITH ({_options(_files(result))})"
    insert = f"INSERT INTO written {_QUERIES['q0'].replace(' FROM', ', `timestamp` FROM')}"
    return [*_set({"table.local-time-zone": "UTC", "pipeline.name": "passing"}), source, sink, insert]


def _set(settings: dict[str, str]) -> list[str]:
    return [f"SET '{name}' = '{value}'" for name, value in settings.items()]


def _files(result: Path) -> dict[str, str]:
    return {
        "connector": "filesystem",
        "path": result.as_uri(),
        "format": "parquet",
        "parquet.utc-timezone": "true",
        "parquet.write.int64.timestamp": "true",
        "parquet.timestamp.time.unit": "millis",
    }


def _source(kind: Kind, address: str, topic: str | None = None, *, more: str = "") -> str:
    columns = SCHEMAS[kind].replace("TIMESTAMP", "TIMESTAMP(3)").replace(TIME, f"`{TIME}`")
    watermark = f"WATERMARK FOR `{TIME}` AS `{TIME}` - INTERVAL '{WATERMARK_S}' SECOND"
    options = {
        "connector": "kafka",
        "topic": topic or topic_of(kind),
        "properties.bootstrap.servers": address,
        "properties.group.id": f"nexmark-{kind}",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    return f"CREATE TABLE {kind} ({columns}, {more}{watermark}) WITH ({_options(options)})"


def _side(path: Path) -> str:
    columns = "key BIGINT, `value` STRING, since TIMESTAMP(3), PRIMARY KEY (key) NOT ENFORCED"
    options = {"connector": "filesystem", "path": path.as_uri(), "format": "csv"}
    return f"CREATE TABLE side_input ({columns}, WATERMARK FOR since AS since) WITH ({_options(options)})"


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
