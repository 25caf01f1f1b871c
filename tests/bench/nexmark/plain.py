"""The queries in plain PySpark Structured Streaming, as anybody would write them, into Delta.

`same_writes=False` reads the topics and writes the result, no more. `same_writes=True` writes what the library writes:
row-by-row queries keep the record's coordinates, stateful ones read tables that a query before them fills from the
topics, as with `late="table"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater_streams.sources.inputs import OFFSETS_PER_BATCH
from nexmark.generator import BID_WITHIN_S, SELLER_WITHIN_S, Kind
from nexmark.jobs import (
    HOP,
    WINDOW,
    euros,
    highest_bid,
    hottest,
    local_sellers,
    most_frequent,
    new_users,
    offers_of_category,
    sellers_of_windows,
    wide_bids,
    wide_offers,
)
from nexmark.topics import SCHEMAS, SIDE_ROWS, TIME, WATERMARK_S, topic_of

COORDINATES = ("topic", "partition", "offset", "timestamp")
_ALL_FILES = 2**31 - 1


@dataclass(frozen=True)
class Query:
    """A query: its inputs, what it makes of them, and whether it keeps state.

    Attributes:
        inputs: The kinds of events that it reads.
        make: Its result, from its inputs and a look-up's folder.
        stateful: Whether its inputs have watermarks.
        keys: Of a result that is updated, the columns that name a row.
    """

    inputs: tuple[Kind, ...]
    make: Callable[[Mapping[Kind, DataFrame], Path], DataFrame]
    stateful: bool = True
    keys: tuple[str, ...] = ()


def _q0(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    return _kept(rows["bid"], "auction", "bidder", "price", TIME, "extra")


def _q1(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    return _kept(rows["bid"], "auction", "bidder", euros(), TIME, "extra")


def _q2(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    return _kept(rows["bid"].filter("auction % 123 = 0"), "auction", "price")


def _q3(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    sellers, offers = local_sellers(rows["person"]).alias("l"), offers_of_category(rows["auction"]).alias("r")
    same = F.expr(f"l.seller = r.seller AND {_after('registered', 'opened', f'{SELLER_WITHIN_S} seconds')}")
    return sellers.join(offers, same).select("name", "city", "state", "id")


def _q5(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    counted = rows["bid"].groupBy(F.window(TIME, WINDOW, HOP)).agg(most_frequent())
    return counted.select(F.col("window.end").alias("endtime"), hottest())


def _q7(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    return rows["bid"].groupBy(F.window(TIME, WINDOW)).agg(highest_bid()).select("highest.*")


def _q8(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    users, sellers = new_users(rows["person"]).alias("l"), sellers_of_windows(rows["auction"]).alias("r")
    same = "l.id = r.id AND l.starttime = r.starttime"
    joined = users.join(sellers, F.expr(f"{same} AND {_after('registered', 'opened', WINDOW)}"), "left_semi")
    return joined.select("id", "name", "starttime")


def _q11(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    sessions = rows["bid"].groupBy("bidder", F.session_window(TIME, WINDOW)).agg(F.count(F.lit(1)).alias("n"))
    bounds = [F.col("session_window.start").alias("starttime"), F.col("session_window.end").alias("endtime")]
    return sessions.select("bidder", F.col("n").alias("bid_count"), *bounds)


def _q13(rows: Mapping[Kind, DataFrame], side: Path) -> DataFrame:
    bids = rows["bid"].withColumn("key", F.col("auction") % SIDE_ROWS)
    table = bids.sparkSession.read.format("delta").load(str(side))
    return _kept(bids.join(table, "key"), "auction", "bidder", "price", TIME, "value")


def _q18(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    others = [name for name in rows["bid"].columns if name not in ("bidder", "auction", TIME, *COORDINATES)]
    newest = F.max(F.struct(TIME, *others)).alias("newest")
    return rows["bid"].groupBy("bidder", "auction").agg(newest).select("bidder", "auction", "newest.*")


def _q20(rows: Mapping[Kind, DataFrame], _: Path) -> DataFrame:
    offers, bids = wide_offers(rows["auction"]).alias("l"), wide_bids(rows["bid"]).alias("r")
    near = _after("auction_dateTime", "bid_dateTime", f"{BID_WITHIN_S} seconds")
    joined = offers.join(bids, F.expr(f"l.auction = r.auction AND {near}"))
    apart = {"auction", *COORDINATES}
    right = [F.col(f"r.{name}") for name in bids.columns if name not in apart]
    return joined.select(*[F.col(f"l.{n}") for n in offers.columns if n not in COORDINATES], *right)


QUERIES: dict[str, Query] = {
    "q0": Query(("bid",), _q0, stateful=False),
    "q1": Query(("bid",), _q1, stateful=False),
    "q2": Query(("bid",), _q2, stateful=False),
    "q3": Query(("person", "auction"), _q3),
    "q5": Query(("bid",), _q5),
    "q7": Query(("bid",), _q7),
    "q8": Query(("person", "auction"), _q8),
    "q11": Query(("bid",), _q11),
    "q13": Query(("bid",), _q13, stateful=False),
    "q18": Query(("bid",), _q18, keys=("bidder", "auction")),
    "q20": Query(("auction", "bid"), _q20),
}


def run(
    spark: SparkSession, address: str, folder: Path, name: str, side: Path, *, same_writes: bool
) -> list[dict[str, Any]]:
    """Runs a query over what the topics hold into `<folder>/result`; gives Spark's account of its batches."""
    query, told = QUERIES[name], []
    rows: dict[Kind, DataFrame] = {}
    for kind in query.inputs:
        coordinates = COORDINATES if same_writes else ()
        frame = _records(spark, address, kind, coordinates)
        if same_writes and query.stateful:
            told += _end(frame.writeStream.format("delta"), folder / f"ingest-{kind}", folder / kind)
            reader = spark.readStream.format("delta").option("maxFilesPerTrigger", _ALL_FILES)
            frame = reader.load(str(folder / kind))
        rows[kind] = frame.withWatermark(TIME, f"{WATERMARK_S} seconds") if query.stateful else frame
    result = query.make(rows, side)
    if query.keys:
        merged = _merge(spark, result, folder / "result", query.keys)
        writer = result.writeStream.outputMode("update").foreachBatch(merged)
        return told + _end(writer, folder / "checkpoint", None)
    writer = result.writeStream.format("delta").outputMode("append")
    return told + _end(writer, folder / "checkpoint", folder / "result")


def passing(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """q0 over another topic of bids, with the records' coordinates."""
    return _q0({"bid": _records(spark, address, "bid", COORDINATES, topic)}, Path())


def _records(
    spark: SparkSession, address: str, kind: Kind, coordinates: tuple[str, ...], topic: str | None = None
) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topic or topic_of(kind)).option("startingOffsets", "earliest")
    parsed = F.from_json(F.col("value").cast("string"), SCHEMAS[kind]).alias("v")
    found = reader.option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH).load().select(parsed, *coordinates)
    return found.select("v.*", *coordinates)


def _kept(rows: DataFrame, *columns: str | Column) -> DataFrame:
    return rows.select(*columns, *[name for name in COORDINATES if name in rows.columns])


def _after(left: str, right: str, within: str) -> str:
    return f"{right} >= {left} AND {right} <= {left} + INTERVAL {within}"


def _merge(
    spark: SparkSession, result: DataFrame, table: Path, keys: tuple[str, ...]
) -> Callable[[DataFrame, int], None]:
    DeltaTable.create(spark).location(str(table)).addColumns(result.schema).execute()

    def merge(batch: DataFrame, _: int) -> None:
        same = " AND ".join(f"t.{name} = s.{name}" for name in keys)
        into = DeltaTable.forPath(batch.sparkSession, str(table)).alias("t")
        into.merge(batch.alias("s"), same).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return merge


def _end(writer: Any, checkpoint: Path, table: Path | None) -> list[dict[str, Any]]:
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query: StreamingQuery = writer.start(str(table)) if table else writer.start()
    query.awaitTermination()
    return [dict(progress) for progress in query.recentProgress]
