"""The queries as the library's jobs. Found by `headwater_streams.loader`, like any job module."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw
from nexmark.generator import BID_WITHIN_S, SELLER_WITHIN_S
from nexmark.topics import SCHEMAS, SIDE_ROWS, TIME, WATERMARK_S, topic_of

_WATERMARK = f"{WATERMARK_S} seconds"
WINDOW, HOP = "10 seconds", "2 seconds"
MOST_AUCTIONS = 4096
"""q5: a window's auctions are counted exactly while there are fewer than three quarters of these; it has some 900."""
MOST_TIES = 100

bid = hw.topic(topic_of("bid"), schema=SCHEMAS["bid"], event_time=TIME, watermark=_WATERMARK)
auction = hw.topic(topic_of("auction"), schema=SCHEMAS["auction"], event_time=TIME, watermark=_WATERMARK)
person = hw.topic(topic_of("person"), schema=SCHEMAS["person"], event_time=TIME, watermark=_WATERMARK)
untimed = hw.topic(topic_of("bid"), schema=SCHEMAS["bid"])
"""Bids for what looks at each alone: like their peers, these jobs have no watermark."""
side_input = hw.lookup("nexmark.side_input")


@hw.job(target=hw.delta("nexmark.q0"))
def q0(untimed: DataFrame) -> DataFrame:
    """Pass through."""
    return untimed.select("auction", "bidder", "price", TIME, "extra")


@hw.job(target=hw.delta("nexmark.q1"))
def q1(untimed: DataFrame) -> DataFrame:
    """Currency conversion."""
    return untimed.select("auction", "bidder", euros(), TIME, "extra")


@hw.job(target=hw.delta("nexmark.q2"))
def q2(untimed: DataFrame) -> DataFrame:
    """Selection."""
    return untimed.filter("auction % 123 = 0").select("auction", "price")


@hw.job(target=hw.delta("nexmark.q3"))
def q3(person: DataFrame, auction: DataFrame) -> DataFrame:
    """Local item suggestion."""
    sellers, offers = local_sellers(person), offers_of_category(auction)
    within = f"{SELLER_WITHIN_S} seconds"
    pairs = hw.join(
        sellers, offers, on=["seller"], left_time="registered", right_time="opened", within=within
    )
    return pairs.select("name", "city", "state", "id")


@hw.job(target=hw.delta("nexmark.q5"))
def q5(bid: DataFrame) -> DataFrame:
    """Hot items."""
    counted = hw.hopping(bid, TIME, WINDOW, HOP).agg(most_frequent())
    return counted.select(F.col("window_end").alias("endtime"), hottest())


@hw.job(target=hw.delta("nexmark.q7"))
def q7(bid: DataFrame) -> DataFrame:
    """Highest bid."""
    highest = hw.tumbling(bid, TIME, WINDOW).agg(highest_bid())
    return highest.select(*[f"highest.{name}" for name in ("auction", "bidder", "price", TIME, "extra")])


@hw.job(target=hw.delta("nexmark.q8"))
def q8(person: DataFrame, auction: DataFrame) -> DataFrame:
    """Monitor new users."""
    on = ["id", "starttime"]
    users, sellers = new_users(person), sellers_of_windows(auction)
    within = {"left_time": "registered", "right_time": "opened", "within": WINDOW}
    return hw.join(users, sellers, on=on, how="semi", **within).select("id", "name", "starttime")


@hw.job(target=hw.delta("nexmark.q11"))
def q11(bid: DataFrame) -> DataFrame:
    """User sessions."""
    sessions = hw.session(bid, TIME, WINDOW, by=["bidder"]).agg(F.count(F.lit(1)).alias("bid_count"))
    return sessions.withColumnsRenamed({"window_start": "starttime", "window_end": "endtime"})


@hw.job(target=hw.delta("nexmark.q13"))
def q13(untimed: DataFrame, side_input: DataFrame) -> DataFrame:
    """Bounded side input join."""
    keyed = untimed.withColumn("key", F.col("auction") % SIDE_ROWS)
    found = hw.enrich(keyed, side_input, on=["key"], how="inner")
    return found.select("auction", "bidder", "price", TIME, "value")


@hw.job(target=hw.delta("nexmark.q18", keys=["bidder", "auction"], mode="update"))
def q18(bid: DataFrame) -> DataFrame:
    """Find last bid."""
    return hw.latest(bid, by=["bidder", "auction"], order=TIME, state="unbounded")


@hw.job(target=hw.delta("nexmark.q20"))
def q20(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Expand bid with auction."""
    times = {"left_time": "auction_dateTime", "right_time": "bid_dateTime"}
    on = ["auction"]
    return hw.join(wide_offers(auction), wide_bids(bid), on=on, **times, within=f"{BID_WITHIN_S} seconds")


def euros() -> Column:
    """A bid's price, of dollars."""
    return (F.expr("0.908BD") * F.col("price")).cast("decimal(23, 3)").alias("price")


def local_sellers(persons: DataFrame) -> DataFrame:
    """Persons of three states."""
    near = persons.filter("state IN ('OR', 'ID', 'CA')")
    return near.select(F.col("id").alias("seller"), "name", "city", "state", F.col(TIME).alias("registered"))


def offers_of_category(auctions: DataFrame) -> DataFrame:
    """Auctions of category 10."""
    return auctions.filter("category = 10").select("id", "seller", F.col(TIME).alias("opened"))


def most_frequent() -> Column:
    """The auctions with the most bids, and how many these are."""
    return F.expr(f"approx_top_k(auction, {MOST_TIES}, {MOST_AUCTIONS})").alias("ranked")


def hottest() -> Column:
    """Of `most_frequent` those that nothing exceeds."""
    return F.filter("ranked", lambda found: found["count"] == F.col("ranked")[0]["count"]).alias("hottest")


def highest_bid() -> Column:
    """The bid with the greatest price."""
    return F.max(F.struct("price", "auction", "bidder", TIME, "extra")).alias("highest")


def new_users(persons: DataFrame) -> DataFrame:
    """Persons with the window in which they registered."""
    return persons.select("id", "name", _window_start(), F.col(TIME).alias("registered"))


def sellers_of_windows(auctions: DataFrame) -> DataFrame:
    """Sellers with the window in which they opened an auction."""
    return auctions.select(F.col("seller").alias("id"), _window_start(), F.col(TIME).alias("opened"))


def wide_offers(auctions: DataFrame) -> DataFrame:
    """Auctions of category 10 with their columns named for a join with bids."""
    names = {"id": "auction", TIME: "auction_dateTime", "extra": "auction_extra"}
    return auctions.filter("category = 10").withColumnsRenamed(names)


def wide_bids(bids: DataFrame) -> DataFrame:
    """Bids with their columns named for a join with auctions."""
    return bids.withColumnsRenamed({TIME: "bid_dateTime", "extra": "bid_extra"})


def _window_start() -> Column:
    seconds = F.unix_seconds(F.col(TIME))
    return F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(10))).alias("starttime")
