"""Run by test_sources_secured: a job over a secured broker in a session that serves its pages and logs its events.

    python secured_pages.py FOLDER BOOTSTRAP

It prints, as its last line, how many pages it looked at, and which hold a secret.
"""

import json
import os
import re
import sys
from html import unescape
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import DataFrame

import headwater as hw
from headwater.running.clusters import Clusters
from headwater.running.environment import record_source
from headwater.stack.session import spark_session
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.storage.home import Home

orders = hw.topic("orders", schema="who STRING, cents INT", format=hw.csv(sep=";"))


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_offset())
def all_orders(orders: DataFrame) -> DataFrame:
    return orders.filter("cents < 100")


def main(folder: Path, bootstrap: str) -> None:
    """Runs the job, and looks at all pages that can be reached from the first."""
    home, events = folder / "home", folder / "events"
    events.mkdir(parents=True)
    extra = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.redaction.regex": "nothing is hidden by its name",
        "spark.sql.ui.explainMode": "extended",
    }
    spark = spark_session(home, extra=extra)
    clusters = Clusters(home, bootstrap)
    context = StageContext(spark, Home(home.resolve()), record_source(clusters.of, home, spark))
    runner = JobRunner(context, [bind(all_orders)])
    runner.run_once()
    runner.stop()
    context.source.read(spark, "orders", {0: (0, 1)}).collect()
    base = spark.sparkContext.uiWebUrl
    assert base is not None
    secret = os.environ["HEADWATER_CLIENT_SASL_PASSWORD"]
    waiting: list[str] = ["/jobs/"]
    seen: set[str] = set()
    secrets: list[str] = []
    while waiting and len(seen) < 60:
        place = waiting.pop(0)
        if place in seen:
            continue
        seen.add(place)
        with urlopen(base + place) as answer:
            page = answer.read().decode("utf-8", "replace")
        secrets += [place] if any(part in page for part in (secret, "correct horse")) else []
        links = map(unescape, re.findall(r'href="(/[^"#]*)"', page))
        waiting += [link for link in links if not link.startswith(("/static", "/api"))]
    spark.stop()
    print(json.dumps({"shown": len(seen), "secrets": secrets}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
