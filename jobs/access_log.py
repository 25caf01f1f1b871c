"""Access logs of web servers: requests, errors and bytes by minute, who are bots, which paths are slow.

    access (topic) -> parse_requests -> silver.requests -+-> traffic_by_minute -> gold.traffic_by_minute
                            |                            +-> slow_paths --------> gold.slow_paths
                            +-> silver.requests__quarantine: lines that are no access log, with their bytes

Lines come from `headwater ship /var/log/nginx/access.log --topic access`, at least once; the coordinates that the
shipper gives each line tell what was sent again. Common and combined formats, with the seconds that a request took
where the server logs them.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw

access = hw.topic("access", format="access", event_time="time")
requests = hw.table("silver.requests", event_time="time", watermark="10 minutes")

_BOTS = r"(?i)bot\b|crawl|spider|slurp|curl/|wget/|python-requests|go-http-client|headless|scanner|nmap|masscan|zgrab"


def _is_bot(agent: Column) -> Column:
    """Clients that say so, and those that say nothing at all."""
    return F.coalesce(agent.rlike(_BOTS), F.lit(True))


@hw.job(target=hw.delta("silver.requests"), dedup=hw.by_offset(origin=True))
@hw.check("status_is_http", "status BETWEEN 100 AND 599")
@hw.check("mostly_served", "avg(CAST(status >= 500 AS INT)) < 0.5", on="input", level="batch", action="warn")
def parse_requests(access: DataFrame) -> DataFrame:
    """Each request once. `path` is null where a scanner sent what is no request; `is_bot` is what its agent says."""
    return access.select(
        "time",
        "host",
        "method",
        "path",
        "status",
        "bytes",
        "took_s",
        "agent",
        _is_bot(F.col("agent")).alias("is_bot"),
    )


@hw.job(
    target=hw.delta("gold.traffic_by_minute", keys=["status", "is_bot", "window_start"], mode="update"),
    late="table",
)
def traffic_by_minute(requests: DataFrame) -> DataFrame:
    """Requests, errors and bytes of each minute, by status, people apart from bots."""
    return hw.tumbling(requests, "time", "1 minute", by=["status", "is_bot"]).agg(
        F.count("*").alias("requests"),
        F.count_if(F.col("status") >= 500).alias("errors"),
        F.sum("bytes").alias("bytes"),
    )


@hw.job(target=hw.delta("gold.slow_paths", keys=["path", "window_start"], mode="update"), late="table")
def slow_paths(requests: DataFrame) -> DataFrame:
    """How long each path's requests took, hour by hour: `ORDER BY seconds DESC` shows where the time goes."""
    timed = requests.filter("took_s IS NOT NULL AND path IS NOT NULL")
    return hw.tumbling(timed, "time", "1 hour", by=["path"]).agg(
        F.count("*").alias("requests"),
        F.sum("took_s").alias("seconds"),
        F.max("took_s").alias("slowest_s"),
        F.sum("bytes").alias("bytes"),
    )
