"""What the full demo judges by: its schemas, its alarms and the results of its checks."""

import json
from pathlib import Path

import pytest

from headwater.cli import main
from headwater.demo.alarms import CHECK, WATCHED, Alarms, outcome_differences
from headwater.demo.events import DEPARTURES, WEATHER, ReplaySpec, plan_replay
from headwater.demo.flights import read_month
from headwater.demo.reports import Reports, schema
from headwater.demo.weather import read_weather
from headwater.errors import EXIT_DEPENDENCY
from headwater_streams.storage.home import Home


def _told(path: Path, *news: tuple[str, str]) -> Alarms:
    lines = [json.dumps({"table": table, "check": CHECK, "state": state}) for table, state in news]
    path.write_text("".join(f"{line}\n" for line in lines))
    return Alarms(Home(path.parent), path)


def test_demo_full_without_the_packages_of_the_registry_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwater.cli.demo.find_spec", lambda _: None)
    assert main(["demo", "--full", "--home", str(tmp_path / "home")]) == EXIT_DEPENDENCY
    assert "needs uvicorn: run pip install 'headwater[registry]'" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_alarms_of_each_check_once_broken_and_once_well_are_as_they_should_be(tmp_path: Path) -> None:
    first, second = WATCHED
    news = (first, "broken"), (second, "broken"), (second, "well"), (first, "well")
    assert _told(tmp_path / "alarms", *news).differences() == []


@pytest.mark.parametrize(
    ("states", "said"),
    [((), "none"), (("broken",), "broken"), (("broken", "broken", "well"), "broken, broken, well")],
)
def test_alarms_that_are_missing_or_twice_are_told(
    tmp_path: Path, states: tuple[str, ...], said: str
) -> None:
    first, second = WATCHED
    news = [(first, state) for state in states] + [(second, "broken"), (second, "well")]
    (sentence,) = _told(tmp_path / "alarms", *news).differences()
    assert sentence == f"{first}: the alarms of the check {CHECK} were {said}, not broken, well"


def test_alarms_are_read_where_the_end_of_a_line_is_missing(tmp_path: Path) -> None:
    (tmp_path / "alarms").write_text('{"table": "t"}{"table": "u"}\n\n{"table": "v"}\n')
    delivered = Alarms(Home(tmp_path), tmp_path / "alarms").delivered()
    assert [each["table"] for each in delivered] == ["t", "u", "v"]


def test_alarms_before_any_came_are_none(tmp_path: Path) -> None:
    assert Alarms(Home(tmp_path), tmp_path / "alarms").delivered() == []


def test_results_one_for_each_batch_held_broken_held_are_as_they_should_be() -> None:
    outcomes = [
        ((1, 0), "held"),
        ((1, 1), "within"),
        ((1, 2), "broken"),
        ((1, 3), "broken"),
        ((1, 4), "held"),
    ]
    assert outcome_differences("t", outcomes, [(1, n) for n in range(5)]) == []


def test_results_that_are_twice_missing_or_never_broken_are_told() -> None:
    outcomes = [((1, 0), "held"), ((1, 0), "held")]
    assert outcome_differences("t", outcomes, [(1, 0), (1, 1)]) == [
        "quality.results has a batch of t twice",
        "quality.results lacks batch 1 of t",
        "t: the check in_time was well, not well, broken, well",
    ]


def test_schema_second_version_reads_the_first_and_the_third_does_not() -> None:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import make_avsc_object

    def reads(reader: int, writer: int) -> bool:
        found = ReaderWriterCompatibilityChecker().get_compatibility(
            make_avsc_object(schema(reader)), make_avsc_object(schema(writer))
        )
        return bool(found.compatibility is SchemaCompatibilityType.compatible)

    assert reads(2, 1)
    assert not reads(3, 2)


def test_report_has_the_version_of_its_chunk_and_may_have_had_either() -> None:
    reports = Reports("http://127.0.0.1:1", until_chunk=0)
    reports._ids = {1: 7, 2: 8}
    flights = read_month(1, 2)[:2]
    plan = plan_replay(ReplaySpec(1, 1, 0, 0, 2), flights, read_weather(1, flights)[:3])
    report = next(e.event for e in plan.emissions if e.event.topic == WEATHER)
    departure = next(e.event for e in plan.emissions if e.event.topic == DEPARTURES)
    assert list(reports.values(departure)) == [departure.value]
    first, second = reports.values(report)
    assert (first[:5], second[:5]) == (b"\0\0\0\0\7", b"\0\0\0\0\10")
    assert (reports.value(report, 0), reports.value(report, 1)) == (first, second)
