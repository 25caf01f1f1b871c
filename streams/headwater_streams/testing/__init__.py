'''Testing a job without a broker, on real Spark and real Delta tables, crashed where a test wants it.

A page that tests one job from nothing. The job, in a file of its own, `delays.py`:

    """How late each carrier's flights leave, hour by hour."""

    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    import headwater as hw

    departures = hw.topic(
        "departures",
        schema="carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
        event_time="departed_at",
        watermark="30 minutes",
        max_ahead="1 day",
    )


    @hw.job(
        target=hw.delta("gold.delays", keys=["carrier", "window_start"], mode="update"),
        dedup=hw.by_offset(origin=True),
    )
    @hw.check("has_carrier", "carrier IS NOT NULL")
    def delays(departures: DataFrame) -> DataFrame:
        return hw.tumbling(departures, "departed_at", "1 hour", by=["carrier"]).agg(
            F.count("*").alias("departures"), F.avg("delay_minutes").alias("avg_delay")
        )

Its tests stand beside it, in `test_delays.py`. `spark` is a session for all of them, `drive` makes a driver over jobs,
with tables of the test's own:

    import datetime

    import pytest
    from delays import delays

    from headwater_streams.testing import STEPS, SimulatedCrash

    NOON = "2013-01-01T12:00:00+00:00"  # when the records arrive


    def left(carrier, at, delay):
        return {"carrier": carrier, "departed_at": f"2013-01-01T{at}:00Z", "delay_minutes": delay}


    def test_the_function_is_a_function(spark):
        rows = [("UA", datetime.datetime(2013, 1, 1, 10, 7), 4)]
        frame = spark.createDataFrame(rows, "carrier STRING, departed_at TIMESTAMP, delay_minutes INT")
        assert delays(frame).select("carrier", "departures").collect() == [("UA", 1)]


    def test_departures_are_counted_by_the_hour(drive):
        driver = drive(delays)
        events = left("UA", "10:00", 4), left("UA", "10:59", 6), left("DL", "11:00", 0)
        driver.send("departures", *events, timestamp=NOON)
        driver.run()
        assert driver.rows("gold.delays", "carrier", "departures", "avg_delay") == [("DL", 1, 0.0), ("UA", 2, 5.0)]
        assert driver.accounting("gold.delays") == {"read": 3, "folded": 3}


    def test_an_hour_that_is_still_open_is_added_to(drive):
        driver = drive(delays)
        for minute in ("10:00", "10:30"):
            driver.send("departures", left("UA", minute, 4), timestamp=NOON)
            driver.run()
        assert driver.rows("gold.delays", "carrier", "departures") == [("UA", 2)]


    def test_what_is_sent_again_counts_once(drive):
        driver = drive(delays)
        driver.send("departures", left("UA", "10:00", 4), timestamp=NOON, origin=("east", "departures", 0, 17))
        driver.resend("departures", 0, as_new=True)  # a producer that did not hear of its success
        driver.run()
        driver.resend("departures", 0)  # a broker that was rewound
        driver.run()
        assert driver.rows("gold.delays", "departures") == [(1,)]
        assert driver.accounting("gold.delays__ingest_departures")["duplicate"] == 2


    def test_what_comes_after_its_hour_has_closed_is_late(drive):
        driver = drive(delays)
        driver.send("departures", left("UA", "10:00", 4), timestamp=NOON)
        driver.advance("departures", "2013-01-01T11:31:00Z", carrier="DL")  # 30 minutes after 11:00, and one more
        driver.run()
        driver.send("departures", left("UA", "10:30", 4), left("UA", "11:00", 4), timestamp=NOON)
        driver.run()
        assert driver.late("gold.delays", "carrier", "_offset") == [("UA", 2)]
        assert driver.rows("gold.delays", "carrier", "departures") == [("DL", 1), ("UA", 1), ("UA", 1)]


    def test_bad_records_are_in_quarantine_with_their_bytes(drive):
        driver = drive(delays)
        bad = b"{", left("UA", "10:00", "late"), left(None, "10:00", 4)
        driver.send("departures", *bad, left("UA", "10:00", 4), timestamp=NOON)
        driver.run()
        assert [reason for reason, _ in driver.quarantined("gold.delays")] == [
            "the value is not one JSON object",
            'delay_minutes is not INT: "late"',
            "has_carrier: carrier IS NOT NULL",
        ]
        assert driver.quarantined("gold.delays")[0][1] == b"{"
        assert driver.rows("gold.delays", "departures") == [(1,)]


    @pytest.mark.parametrize("step", ["start", "before late", "before commit", "after commit", "end"])
    def test_a_crash_changes_nothing(drive, step):
        assert step in STEPS
        driver = drive(delays)
        driver.send("departures", left("UA", "10:00", 4), left("UA", "13:00", 4), timestamp=NOON)
        driver.run()
        driver.send("departures", left("UA", "10:30", 4), left("UA", "13:30", 4), timestamp=NOON)
        driver.crash_at(step, "delays")
        with pytest.raises(SimulatedCrash):
            driver.run()
        driver.run()  # as after a restart
        assert driver.rows("gold.delays", "departures") == [(1,), (2,)]
        assert driver.late("gold.delays", "_offset") == [(2,)]
        assert driver.audit() == []  # every offset once, and no row of nobody

`headwater jobs test delays.py` runs them: it finds `test_delays.py` beside the job or in a folder `tests` there, and
gives the tests the two fixtures. With plain pytest they come from
`pytest_plugins = ["headwater.running.pytest_plugin"]` in the topmost `conftest.py`.

The jobs of a `.sql` file are tested the same way. Beside `carriers.sql`,

    CREATE STREAMING TABLE silver.carriers AS SELECT upper(carrier) AS carrier
    FROM topic('departures', schema => 'carrier STRING');

stands `test_carriers.py`, which loads them, and `headwater jobs test carriers.sql` finds it:

    from pathlib import Path

    from headwater_streams.streaming_sql import load_sql


    def test_carriers_are_in_capitals(drive):
        driver = drive(*load_sql(Path(__file__).with_name("carriers.sql")))
        driver.send("departures", {"carrier": "ua"})
        driver.run()
        assert driver.rows("silver.carriers", "carrier") == [("UA",)]

A driver takes several jobs, which run in the order of their tables, and jobs that read several topics or write several
tables; see `JobDriver`.
'''

from headwater_streams.testing.driver import STEPS, JobDriver, SimulatedCrash
from headwater_streams.testing.record_log import RecordLog

__all__ = ["STEPS", "JobDriver", "RecordLog", "SimulatedCrash"]
