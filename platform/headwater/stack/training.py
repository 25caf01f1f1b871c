"""Makes a session's JVM load what jobs, backfills and queries need; see `headwater.stack.classes`.

`python -m headwater.stack.training HOME BASE ARCHIVE` runs a job over a few records, reads its table and leaves; the
JVM then writes the archive.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.stack.classes import training_options
from headwater.stack.session import spark_session
from headwater_streams.spark.jvm_process import end_in_good_order
from headwater_streams.testing import JobDriver

clicks = hw.topic(
    "clicks",
    schema="user STRING, clicked_at TIMESTAMP, n INT",
    event_time="clicked_at",
    watermark="1 minute",
    max_ahead="1 day",
)


@hw.job(
    target=hw.delta("gold.clicks", keys=["user", "window_start"], mode="update"),
    dedup=hw.by_offset(origin=True),
)
@hw.check("positive", "n > 0")
def clicks_by_hour(clicks: DataFrame) -> DataFrame:
    """Everything that most jobs do: values parsed and checked, a table of rows, windows folded into another."""
    return hw.tumbling(clicks, "clicked_at", "1 hour", by=["user"]).agg(F.sum("n").alias("n"))


def _do_a_little_of_everything(session: SparkSession, home: Path) -> None:
    driver = JobDriver(session, home, [clicks_by_hour])
    for hour in range(3):
        values = [{"user": "a", "clicked_at": f"2013-01-01T{hour:02}:00:00Z", "n": n} for n in range(3)]
        driver.send("clicks", *values)
        driver.run()
    table = session.read.format("delta").load(str(driver.home.table("gold.clicks")))
    table.join(table.groupBy("user").agg(F.max("n").alias("most")), "user").orderBy("window_start").collect()


def main(home: Path, base: Path, archive: Path) -> None:
    """Does the training run."""
    writing = {
        "spark.driver.defaultJavaOptions": f"-XX:TieredStopAtLevel=1 {training_options(base, archive)}"
    }
    session = spark_session(home, app_name="headwater setup", extra=writing)
    session.sparkContext.setLogLevel("ERROR")
    _do_a_little_of_everything(session, home)
    end_in_good_order(session)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
