"""A suite over a pinned version of a Delta table: verdicts, what it shows, what it stores, pages without a network."""

import json
import re
import socket
from html.parser import HTMLParser
from urllib.parse import urlparse

import pytest

from headwater_streams.quality import Check, stored_results
from headwater_streams.quality.run import SuiteError, run_suite
from headwater_streams.storage.damage import DamagedFileError


@pytest.fixture(scope="module")
def home(spark, tmp_path_factory):
    """`silver.departures`: version 0 is sound; version 1 adds a repeated key, a null carrier and a long delay."""
    folder = tmp_path_factory.mktemp("home")
    path = str(folder / "tables/silver/departures")
    columns = "flight_id STRING, carrier STRING, delay INT, _topic STRING, _offset BIGINT, _raw BINARY"
    sound = [("UA-1", "UA", 5, "departures", 0, b"{}"), ("AA-2", "AA", 10, "departures", 1, b"\xff")]
    spark.createDataFrame(sound, columns).write.format("delta").save(path)
    broken = [("UA-1", None, 4000, "departures", 2, None)]
    spark.createDataFrame(broken, columns).write.format("delta").mode("append").save(path)
    return folder


LOCAL = {"127.0.0.1", "::1", "localhost"}
CHECKS = (
    Check("has_carrier", "carrier IS NOT NULL"),
    Check("delay_sane", "avg(delay) < 600 AND count(*) > 0", level="batch", action="fail"),
    Check("no_tag", "flight_id <> '{x} <b> $y'", action="warn"),
    Check("gate", "gate <> ''"),
)


def by_name(result):
    return {outcome.name: outcome for outcome in result.outcomes}


@pytest.fixture(scope="module", autouse=True)
def addresses():
    """What this process connects to while suites run; an address of another machine is refused."""
    connect, found = socket.socket.connect, []

    def note(self, address):
        found.append(address[0])
        assert address[0] in LOCAL, f"a suite connected to {address}"
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", note)
        yield found


@pytest.fixture(scope="module")
def judged(spark, home, addresses):
    """The newest version, judged."""
    return run_suite(spark, home, "silver.departures", checks=CHECKS, keys=["flight_id"])


@pytest.fixture(scope="module")
def sound(spark, home, addresses):
    """The version that is sound, judged."""
    return run_suite(spark, home, "silver.departures", checks=CHECKS, keys=["flight_id"], version=0)


@pytest.fixture(scope="module")
def by_own_expectations(spark, home, sound):
    """The version that is sound, judged by great-expectations' own."""

    def expectations():
        import great_expectations.expectations as gxe

        return [
            gxe.ExpectColumnValuesToBeBetween(column="delay", min_value=0, max_value=7),
            gxe.ExpectColumnValuesToNotBeNull(column="nope"),
            gxe.ExpectColumnQuantileValuesToBeBetween(
                column="delay", quantile_ranges={"quantiles": [0.5], "value_ranges": [[0, 100]]}
            ),
        ]

    return run_suite(spark, home, "silver.departures", extra=expectations, version=0)


@pytest.fixture(scope="module")
def again(spark, home, by_own_expectations):
    """The version that is sound, judged last by a warning and another key: what the runs before stored is replaced."""
    (by_own_expectations.folder / "left-over").touch()
    warns = [Check("short", "delay < 1", action="warn")]
    return run_suite(spark, home, "silver.departures", checks=warns, keys=["carrier"], version=0)


@pytest.mark.story
def test_suite_passes_the_version_that_is_sound(sound):
    assert (sound.passed, sound.version, sound.rows) == (True, 0, 2)
    assert all(outcome.passed for outcome in sound.outcomes)
    assert by_name(sound)["delay_sane"].observed == "avg(delay) = 7.5, count(*) = 2"


def test_suite_fails_the_newest_version_and_shows_why(judged):
    found = by_name(judged)
    assert (judged.passed, judged.version, judged.rows) == (False, 1, 3)
    assert [name for name, outcome in found.items() if not outcome.passed] == [
        "has_carrier",
        "delay_sane",
        "keys_unique",
    ]
    assert found["has_carrier"].observed == "1 of 3 rows unexpected"
    assert json.loads(found["has_carrier"].unexpected_sample[0])["_offset"] == 2
    assert found["delay_sane"].observed == "avg(delay) = 1338.33, count(*) = 3"
    assert found["keys_unique"].observed == "1 key more than once"
    assert found["keys_unique"].unexpected_sample == ('{"flight_id":"UA-1","rows":2}',)
    assert {"coordinates_present", "keys_present"} <= set(found)


def test_suite_leaves_out_what_the_table_cannot_answer(judged):
    (skipped,) = judged.skipped
    assert skipped.name == "gate"
    assert "`gate` cannot be resolved" in skipped.reason


@pytest.mark.story
def test_suite_with_a_violated_warning_passes(again):
    assert (again.passed, [each.name for each in again.warnings]) == (True, ["short"])


@pytest.mark.story
def test_suite_judges_a_persons_own_expectations(by_own_expectations):
    found = by_name(by_own_expectations)
    assert found["expect_column_values_to_be_between"].observed == "1 of 2 rows unexpected"
    assert found["expect_column_values_to_be_between"].unexpected_sample == ("10",)
    assert "nope" in found["expect_column_values_to_not_be_null"].error
    assert found["expect_column_quantile_values_to_be_between"].passed
    assert not by_own_expectations.passed


@pytest.mark.story
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"table": "silver.nothing"}, "there is no table silver.nothing"),
        ({"version": 7}, "silver.departures has no version 7; its newest is 1"),
        ({"keys": ["tail"]}, "silver.departures has no column 'tail'; its columns are flight_id"),
        ({"checks": [Check("c", "delay >", action="fail")]}, "check 'c' is not SQL"),
        ({"checks": [Check("c", "speed > 0", action="fail")]}, "`speed` cannot be resolved"),
        ({"checks": [Check("c", "avg(delay) > 0", action="fail")]}, "check 'c' does not fit the table"),
        (
            {"checks": [Check("c", "delay > 0"), Check("c", "delay > 1")]},
            "departures are named 'c'; call the",
        ),
        ({"checks": [Check("keys_unique", "delay > 0")], "keys": ["flight_id"]}, "are named 'keys_unique'"),
    ],
)
def test_suite_that_cannot_be_run_is_refused_in_a_sentence(spark, home, arguments, said):
    with pytest.raises(SuiteError) as refusal:
        run_suite(spark, home, **({"table": "silver.departures"} | arguments))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_suite_over_a_broken_log_says_so(spark, home):
    log = home / "tables/silver/broken/_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    with pytest.raises(
        DamagedFileError, match=r"^silver\.broken: .*0000\.json is no commit of a Delta"
    ) as refusal:
        run_suite(spark, home, "silver.broken", checks=CHECKS)
    assert "\n" not in str(refusal.value)


def test_suite_with_nothing_to_expect_is_refused(spark, home):
    spark.range(3).write.format("delta").save(str(home / "tables/silver/plain"))
    with pytest.raises(SuiteError, match=r"nothing to expect of silver\.plain"):
        run_suite(spark, home, "silver.plain")


def test_suite_writes_nothing_into_the_table(home, judged):
    assert judged.version == 1
    assert len(list((home / "tables/silver/departures/_delta_log").glob("*.json"))) == 2


def test_stored_result_is_what_was_returned_and_is_replaced_as_a_whole(home, by_own_expectations, again):
    assert again.folder == by_own_expectations.folder
    assert [each for each in stored_results(home, "silver.departures") if each.version == 0] == [again]
    assert sorted(path.name for path in again.folder.iterdir()) == [
        "great-expectations.json",
        "index.html",
        "result.json",
    ]
    assert not list(again.folder.parent.glob(".writing-*"))


class References(HTMLParser):
    """Every address that a page names."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [
            (tag, value) for name, value in attrs if name in ("src", "href", "action", "data", "srcset")
        ]


def test_data_docs_need_no_network(home, judged):
    for page in (judged.docs, home / "quality/index.html"):
        text = page.read_text(encoding="utf-8")
        references = References()
        references.feed(text)
        assert [each for each in references.found if urlparse(each[1]).scheme not in ("", "data")] == []
        assert not re.search(r"https?://|@import|url\(", text)
        links = [value for tag, value in references.found if tag == "a" and not value.startswith("#")]
        assert links
        assert all((page.parent / link).resolve().is_file() for link in links)


def test_data_docs_show_conditions_as_text_not_as_markup(judged):
    text = judged.docs.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "has_carrier: every row: carrier IS NOT NULL" in text


def test_data_docs_show_what_records_hold_as_text(spark, home):
    """Whoever writes to a topic writes these values: in samples, in what an aggregate came to, in Spark's errors."""
    hostile = "<img src=x onerror=alert(1)> $who {x} &amp;"
    path = str(home / "tables/silver/hostile")
    spark.createDataFrame([(hostile,), (hostile,)], "who STRING").write.format("delta").save(path)

    def own():
        import great_expectations.expectations as gxe

        return [gxe.ExpectColumnValuesToBeInSet(column="who", value_set=["x"])]

    checks = [
        Check("most", "max(who) = ''", level="batch", action="fail"),
        Check("row", "who = ''", action="fail"),
        Check("cast", "CAST(who AS INT) > 0", action="fail"),
    ]
    result = run_suite(spark, home, "silver.hostile", checks=checks, keys=["who"], extra=own)
    assert by_name(result)["most"].observed == f"max(who) = {hostile}"
    page = result.docs.read_text(encoding="utf-8")
    assert "<img" not in page
    # What the aggregate came to, a sample row of each of two checks, why one cannot be worked out, a value of our own.
    assert page.count("&lt;img src=x onerror=alert(1)&gt; $who {x} &amp;amp;") == 5


def test_suite_calls_nobody(addresses, judged, sound, again):
    assert set(addresses) <= LOCAL
