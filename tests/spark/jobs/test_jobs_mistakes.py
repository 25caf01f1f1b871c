"""What is easily got wrong in a job's function is refused when the job is planned, in a sentence, and not by Spark in a
batch: there it would be a stack trace, or a column that nobody finds again."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing import JobDriver

clicks = hw.topic(
    "clicks",
    schema="k STRING, at TIMESTAMP, tags MAP<STRING, INT>",
    event_time="at",
    watermark="1 hour",
)
buys = hw.topic(
    "buys",
    schema="k INT, bought_at TIMESTAMP, tags MAP<STRING, INT>",
    event_time="bought_at",
    watermark="1 hour",
)
prices = hw.lookup("dim.prices")
BY_MAP = hw.delta("gold.counts", keys=["tags"], mode="update")


@hw.job(target=BY_MAP)
def grouped_by_map(clicks: DataFrame) -> DataFrame:
    return hw.grouped(clicks, by=["tags"], state="unbounded").agg(F.count("*").alias("n"))


@hw.job(target=BY_MAP)
def windows_by_map(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "1 hour", by=["tags"]).agg(F.count("*").alias("n"))


@hw.job(target=hw.delta("gold.pairs"))
def joined_by_map(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    return hw.join(
        clicks, buys.drop("k"), on=["tags"], left_time="at", right_time="bought_at", within="1 hour"
    )


@hw.job(target=hw.delta("gold.pairs"))
def joined_across_types(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    buys = buys.drop("tags")
    return hw.join(clicks, buys, on=["k"], left_time="at", right_time="bought_at", within="1 hour")


@hw.job(target=hw.delta("gold.pairs"))
def as_of_across_types(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    return hw.as_of(clicks, buys.drop("tags"), by=["k"], left_time="at", right_time="bought_at")


@hw.job(target=hw.delta("gold.pairs"))
def joined_with_itself(clicks: DataFrame) -> DataFrame:
    other = clicks.withColumnRenamed("at", "then").drop("tags")
    return hw.join(clicks, other, on=["k"], left_time="at", right_time="then", within="1 hour")


@hw.job(targets={"first": hw.delta("gold.first"), "second": hw.delta("gold.second")})
def windows_among_several(clicks: DataFrame) -> dict[str, DataFrame]:
    hourly = hw.tumbling(clicks, "at", "1 hour", by=["k"]).agg(F.count("*").alias("n"))
    return {"first": clicks, "second": hourly}


@hw.job(target=hw.delta("silver.clicks"))
def enriched_across_types(clicks: DataFrame, prices: DataFrame) -> DataFrame:
    return hw.enrich(clicks, prices, on={"k": "code"})


@hw.job(target=hw.delta("silver.clicks"))
def reserved_name(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("_batch", F.lit(1))


twice = hw.topic("twice", schema="Id INT, id INT")


@hw.job(target=hw.delta("silver.twice"))
def two_names(twice: DataFrame) -> DataFrame:
    return twice


@hw.job(target=hw.delta("silver.clicks"))
def own_offset(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("_offset", F.lit(1))


@hw.job(target=hw.delta("silver.clicks"))
def one_name_to_spark(clicks: DataFrame) -> DataFrame:
    return clicks.select("k", F.upper("k").alias("K"))


@hw.job(target=BY_MAP)
def reserved_name_on_the_way(clicks: DataFrame) -> DataFrame:
    marked = clicks.withColumn("_offset", F.lit(1))
    return hw.tumbling(marked, "at", "1 hour", by=["k"]).agg(F.sum("_offset").alias("n"))


@hw.job(target=BY_MAP)
def windows_by_their_own_name(clicks: DataFrame) -> DataFrame:
    named = clicks.withColumn("Window_Start", F.lit(1))
    return hw.tumbling(named, "at", "1 hour", by=["Window_Start"]).agg(F.count("*").alias("n"))


hidden = hw.topic("hidden", schema="_id STRING")


@hw.job(target=hw.delta("silver.hidden"))
def reserved_field(hidden: DataFrame) -> DataFrame:
    return hidden


@hw.job(target=hw.delta("silver.clicks", keys=["k"], mode="update"))
def rows_by_key(clicks: DataFrame) -> DataFrame:
    return clicks


def without_case(rows: DataFrame) -> DataFrame:
    return rows.withColumn("k", F.collate(F.col("k").cast("string"), "UTF8_LCASE"))


@hw.job(target=hw.delta("gold.counts"))
def windows_without_case(clicks: DataFrame) -> DataFrame:
    windows = hw.tumbling(without_case(clicks), "at", "1 hour", by=["k"]).agg(F.count("*").alias("n"))
    return windows.withColumn("k", F.col("k").cast("string"))


@hw.job(target=hw.delta("gold.pairs"))
def joined_without_case(clicks: DataFrame, buys: DataFrame) -> DataFrame:
    rows = (without_case(side).drop("tags") for side in (clicks, buys))
    return hw.join(*rows, on=["k"], left_time="at", right_time="bought_at", within="1 hour")


@hw.job(target=hw.scd1("dim.clicks", keys=["k"], sequence_by="at"))
def dimension_without_case(clicks: DataFrame) -> DataFrame:
    return without_case(clicks)


padded = hw.topic("padded", schema="tags ARRAY<CHAR(5)>")


by_day = hw.topic("by_day", schema="counts STRUCT<days: MAP<DATE, INT>>")


@hw.job(target=hw.delta("silver.by_day"))
def names_that_are_days(by_day: DataFrame) -> DataFrame:
    return by_day


@hw.job(target=hw.delta("silver.padded"))
def padded_texts(padded: DataFrame) -> DataFrame:
    return padded


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (grouped_by_map, "grouped: 'tags' holds a map, and maps cannot be compared"),
        (windows_by_map, "tumbling: 'tags' holds a map, and maps cannot be compared"),
        (joined_by_map, "join: 'tags' holds a map, and maps cannot be compared"),
        (joined_across_types, "join: 'k' is STRING on the left side, and 'k' is INT on the right; cast"),
        (as_of_across_types, "as_of: 'k' is STRING on the left side, and 'k' is INT on the right; cast"),
        (
            joined_with_itself,
            "hw.join takes two inputs, and the job has clicks; a side that is the other",
        ),
        (windows_among_several, "only a row-by-row function has targets={...}; write one job for each table"),
        (enriched_across_types, "enrich: 'k' is STRING on the left side, and 'code' is INT on the right"),
        (reserved_name, "the column '_batch' of the result begins with '_', which is reserved; rename it"),
        (
            rows_by_key,
            "a row-by-row function adds rows, and its target's mode is 'append'; for the newest row",
        ),
        (own_offset, "the column '_offset' of the result begins with '_', which is reserved; rename it"),
        (one_name_to_spark, "the result has two columns named 'K'; rename one"),
        (
            reserved_name_on_the_way,
            "the column '_offset' of rows on their way to a window or a join begins with '_', which is reserved",
        ),
        (
            windows_by_their_own_name,
            "tumbling: by= names 'Window_Start', and a column that the windows add is called so; rename it before",
        ),
        (
            reserved_field,
            "topic 'hidden': the column '_id' begins with '_', which is reserved; leave it out of",
        ),
        (windows_without_case, "tumbling: 'k' is STRING COLLATE UTF8_LCASE, and neither Spark's state nor"),
        (
            joined_without_case,
            "join: the key 'k' is STRING COLLATE UTF8_LCASE, and neither Spark's state nor",
        ),
        (
            dimension_without_case,
            "dim.clicks: the key 'k' is STRING COLLATE UTF8_LCASE, and neither Spark's state nor",
        ),
        (
            names_that_are_days,
            "topic 'by_day': the column 'counts' is MAP<DATE, INT>, and the names in an object of JSON are texts",
        ),
        (padded_texts, "topic 'padded': the column 'tags' is CHAR(5), which Spark writes into no table"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_jobs_mistakes_are_told_when_planned(
    drive: Callable[..., JobDriver], job: Callable[..., DataFrame], message: str
) -> None:
    driver = drive()  # no topic is made for it: planning asks for none
    if job is enriched_across_types:
        driver.put("dim.prices", "code INT, price DOUBLE", (1, 2.0))
    with pytest.raises(JobDefinitionError) as error:
        plan_jobs(driver.context, [bind(job)])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def shortened(frame: DataFrame, column: str) -> DataFrame:
    return frame.select(F.substring(column, 1, 3))


@hw.job(target=hw.delta("gold.short"))
def column_that_is_not_there(clicks: DataFrame) -> DataFrame:
    return clicks.select(
        F.col("who"),
    )


@hw.job(target=hw.delta("gold.short"))
def column_that_a_helper_does_not_find(clicks: DataFrame) -> DataFrame:
    return shortened(clicks, "who")


@hw.job(target=hw.delta("gold.short", keys=["window_start"]))
def window_of_no_length(clicks: DataFrame) -> DataFrame:
    return hw.tumbling(clicks, "at", "an hour").agg(F.count("*").alias("n"))


@pytest.mark.story
@pytest.mark.parametrize(
    ("job", "made_by", "message"),
    [
        (column_that_is_not_there, "return clicks.select(", "with name `who` cannot be resolved"),
        (
            column_that_a_helper_does_not_find,
            "return frame.select(F.substring(column, 1, 3))",
            "with name `who` cannot be resolved",
        ),
        (
            window_of_no_length,
            'return hw.tumbling(clicks, "at", "an hour").agg(F.count("*").alias("n"))',
            "'an hour'",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistake_is_told_with_the_line_that_made_it(
    drive: Callable[..., JobDriver], job: Callable[..., DataFrame], made_by: str, message: str
) -> None:
    with pytest.raises(JobDefinitionError) as error:
        plan_jobs(drive().context, [bind(job)])
    said = str(error.value)
    found = re.match(rf"job '{job.__name__}': {re.escape(__file__)}, line (\d+): (.*)", said)
    assert found, said
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[int(found[1]) - 1]
    assert line.strip() == made_by
    assert message in found[2]


def doubled(batches: Iterator[Any]) -> Iterator[Any]:
    return (batch for batch in batches for _ in range(2))


ALONE: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "drop_duplicates": (lambda clicks: clicks.dropDuplicates(["k"]), "cannot use dropDuplicates; use dedup="),
    "limit": (lambda clicks: clicks.limit(1), "cannot use limit"),
    "offset": (lambda clicks: clicks.offset(1), "cannot use offset"),
    "order_by": (lambda clicks: clicks.orderBy("k"), "cannot use sort"),
    "sample": (lambda clicks: clicks.sample(0.5, seed=1), "cannot use sample, which takes other rows"),
    "over": (
        lambda clicks: clicks.selectExpr("*", "row_number() OVER (ORDER BY k)"),
        "cannot use a window f",
    ),
    "map_in_pandas": (lambda clicks: clicks.mapInPandas(doubled, clicks.schema), "mapInPandas"),
    "map_in_arrow": (lambda clicks: clicks.mapInArrow(doubled, clicks.schema), "mapInA"),
    "apply_in_pandas": (
        lambda clicks: clicks.groupBy("k").applyInPandas(lambda rows: rows[:1], clicks.schema),
        "InPandas",
    ),
}
"""What looks at several rows, or makes rows of its own: in batches it gives what depends on where they end."""


@pytest.mark.parametrize("way", ["row", "window", "join"])
@pytest.mark.parametrize("name", ALONE)
def test_rows_are_looked_at_each_by_itself(drive: Callable[..., JobDriver], name: str, way: str) -> None:
    make, message = ALONE[name]

    @hw.job(target=hw.delta("gold.made"))
    def row(clicks: DataFrame) -> DataFrame:
        return make(clicks)

    @hw.job(target=hw.delta("gold.made", keys=["k", "window_start"], mode="update"))
    def window(clicks: DataFrame) -> DataFrame:
        return hw.tumbling(make(clicks), "at", "1 hour", by=["k"]).count()

    @hw.job(target=hw.delta("gold.made"))
    def join(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        rows, others = make(clicks).drop("tags"), buys.selectExpr("CAST(k AS STRING) AS k", "bought_at")
        return hw.join(rows, others, on=["k"], left_time="at", right_time="bought_at", within="1 hour")

    with pytest.raises(JobDefinitionError) as error:
        plan_jobs(drive().context, [bind({"row": row, "window": window, "join": join}[way])])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def keyed(keys: list[str], *columns: str, windows: str = "tumbling") -> Callable[..., DataFrame]:
    @hw.job(target=hw.delta("gold.counts", keys=keys, mode="update"))
    def counts(clicks: DataFrame) -> DataFrame:
        if windows == "grouped":
            made = hw.grouped(clicks.withColumn("ks", F.array("k")), by=["k", "ks"], state="unbounded")
        elif windows == "cumulative":
            made = hw.cumulative(clicks, "at", "1 hour", "10 minutes", by=["k"])
        else:
            made = hw.tumbling(clicks, "at", "1 hour", by=["k"])
        return made.agg(F.max("at").alias("newest"), F.count("*").alias("n")).selectExpr(*columns or "*")

    return counts


@pytest.mark.story
@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            keyed(["k"]),
            "the keys k do not name a row: there is one for each window_start, too; add window_start",
        ),
        (
            keyed(["k"], "k", "window_start AS hour", "n"),
            "there is one for each window_start, too; add hour to the keys",
        ),
        (
            keyed(["window_end"], "k AS who", "window_end"),
            "there is one for each k, too; add who to the keys",
        ),
        (
            keyed(["k", "n"], "k", "n"),
            "there is one for each window_start, too; give it in the result, and add it to the keys",
        ),
        (keyed(["k", "window_start"], windows="cumulative"), "there is one for each window_end, too"),
        (keyed(["k", "ks"], windows="grouped"), "the key 'ks' is array<string>, which cannot name a row"),
    ],
)
def test_keys_that_do_not_name_a_row_are_told_when_planned(
    drive: Callable[..., JobDriver], job: Callable[..., DataFrame], message: str
) -> None:
    driver, jobs = drive(), [bind(job)]
    for refused in (
        lambda: plan_jobs(driver.context, jobs),
        lambda: JobRunner(driver.context, jobs, progress_every_s=None).run_once(),
    ):
        with pytest.raises(JobDefinitionError) as error:
            refused()
        assert message in str(error.value)
    assert driver.home.tables() == []


@pytest.mark.parametrize(
    "job",
    [
        keyed(["k", "window_end"]),
        keyed(["window_end", "k"], windows="cumulative"),
        keyed(["who", "day"], "upper(k) AS who", "date_trunc('hour', window_start) AS day", "n"),
        keyed(["newest", "window_start"], "newest", "window_start"),  # may stand for k
    ],
)
def test_keys_that_may_name_a_row_are_planned(
    drive: Callable[..., JobDriver], job: Callable[..., DataFrame]
) -> None:
    plan_jobs(drive().context, [bind(job)])


@pytest.mark.story
def test_job_may_name_the_coordinates_as_they_came(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.clicks"))
    def named(clicks: DataFrame) -> DataFrame:
        return clicks.select("k", "_offset", F.col("_offset").alias("place"))

    driver = drive(named)
    driver.send("clicks", {"k": "a", "at": "2013-01-01T10:00:00Z"}, timestamp="2013-01-01T10:00:00Z")
    driver.run()
    assert driver.rows("silver.clicks", "k", "place", "_offset") == [("a", 0, 0)]


def test_schema_with_one_name_to_spark_is_told_when_planned(drive: Callable[..., JobDriver]) -> None:
    with pytest.raises(
        JobDefinitionError, match=r"topic 'twice': the schema has two columns named 'id'; rename one"
    ):
        plan_jobs(drive().context, [bind(two_names)])
