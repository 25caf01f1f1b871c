"""What the benchmark beside other brokers makes of its rounds, and how it draws and writes that."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from beside_kafka import FETCHED, LOADS, medians, section
from beside_kafka import SECTION as BROKER_SECTION
from queues import rabbitmq, report
from queues.__main__ import SECTION as QUEUES_SECTION
from queues.drawing import Line, draw
from queues.report import CONSUMED, DIRECTIONS, PRODUCED, Contender, Measured
from queues.system import NoContenderError, Run, run_of
from support import maven
from support.pages import BROKER_PAGE, NoSectionError, with_section, write_section

OURS = Contender("headwater", "Headwater 1", 50, "load.c")
THEIRS = Contender("rabbitmq", "RabbitMQ 2", 1, "amqp_load.c")


def run(rate: float, messages: int = 1000) -> Run:
    """A run of four slices, each as fast as the others."""
    slices = tuple((messages * part // 4, messages * part / 4 / rate) for part in range(1, 5))
    return Run(messages, messages / rate, client_cpu_s=0.001, slices=slices)


def rounds(*rates: float) -> dict[str, list[Measured]]:
    return {direction: [Measured(run(rate), broker_cpu_s=0.01) for rate in rates] for direction in DIRECTIONS}


def drawn(*rates: float) -> ET.Element:
    lines = [Line("kafka", f"line {rate:g}", [(0.1, rate), (0.2, rate)], dashed=False) for rate in rates]
    picture = draw(lines, title="A & B", x_label="MB", y_label="messages/s", caption=["Seen <once>."])
    return ET.fromstring(picture)


def texts(picture: ET.Element) -> list[str]:
    return [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]


def test_medians_are_those_of_the_rounds_and_for_each_message() -> None:
    found = report.medians(rounds(100e3, 900e3, 200e3))[PRODUCED]

    assert found["messages_per_s"] == pytest.approx(200e3)
    assert (found["least_messages_per_s"], found["most_messages_per_s"]) == pytest.approx((100e3, 900e3))
    assert found["mb_per_s"] == pytest.approx(40)
    assert (found["broker_cpu_us"], found["client_cpu_us"]) == pytest.approx((10, 1))


def test_slices_have_the_rate_of_each_part_and_not_the_mean_until_then() -> None:
    slow_end = Run(1000, 3.0, 0.0, slices=((500, 1.0), (1000, 3.0)))

    found = report.slice_medians([Measured(slow_end, 0.0)])

    assert found == [(0.1, 500.0), (0.2, 250.0)]


def test_rest_of_a_run_that_is_no_whole_slice_belongs_to_the_one_before_it() -> None:
    seen = {"messages": 250, "seconds": 9.0, "cpu_s": 0.1}

    rest = run_of(seen | {"slices": [[100, 1.0], [200, 2.0], [201, 9.0]]})
    whole = run_of(seen | {"slices": [[100, 1.0], [200, 2.0], [250, 9.0]]})

    assert rest.slices == ((100, 1.0), (201, 9.0))
    assert whole.slices == ((100, 1.0), (200, 2.0), (250, 9.0))


def test_table_has_a_row_for_each_contender() -> None:
    found = {OURS: report.medians(rounds(2e6)), THEIRS: report.medians(rounds(20e3))}

    lines = report.table([OURS, THEIRS], found).splitlines()

    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| Headwater 1 | 50 | 2,000.0 k messages/s (400 MB/s) |")
    assert lines[3].endswith("| 10.00 / 10.00 us | 1.00 / 1.00 us |")


def test_section_shows_both_figures_and_names_who_was_left_out() -> None:
    figures = {
        "versions": {"python": "3.11.7", "java": 'openjdk version "17.0.15" 2025-04-15', "system": "Linux 6"},
        "load_average_before": (0.31, 0, 0),
        "load_average_after": (2.0, 0, 0),
        "messages": 2_000_000,
        "rounds": 3,
        "cores": 2,
        "left_out": {"ActiveMQ": "there is no mvn command to fetch ActiveMQ's jars with"},
    }

    text = report.section(figures, "| a table |")

    assert "2,000,000 messages of 200 bytes" in text
    assert "Load average before: 0.3, after: 2.0." in " ".join(text.split())
    assert "Without ActiveMQ: there is no mvn command" in text
    assert re.findall(r"\]\((.*?)\)", text) == ["figures/broker-producer.svg", "figures/broker-consumer.svg"]


def test_figure_draws_a_line_for_each_contender() -> None:
    seen = {OURS: rounds(2e6), THEIRS: rounds(20e3)}

    picture = report.figure(CONSUMED, [OURS, THEIRS], seen, "Load average before: 0.3.")

    shown = texts(ET.fromstring(picture))
    assert {"Headwater 1, 50 a request", "RabbitMQ 2, 1 a request", "Load average before: 0.3."} <= set(shown)
    assert picture.count("stroke-dasharray") == 1
    assert "prefers-color-scheme:dark" in picture


@pytest.mark.parametrize(
    ("rates", "label", "ticks"),
    [
        ([50e3, 300e3], "messages/s", ["0", "100 k", "200 k", "300 k", "400 k"]),
        ([15e3, 400e3], "messages/s, logarithmic", ["10 k", "20 k", "50 k", "100 k", "200 k", "500 k"]),
        ([20, 3e6], "messages/s, logarithmic", ["10", "100", "1 k", "10 k", "100 k", "1 M", "10 M"]),
    ],
    ids=["linear", "logarithmic", "many decades"],
)
def test_drawing_axis_is_logarithmic_where_rates_are_far_apart(
    rates: list[float], label: str, ticks: list[str]
) -> None:
    shown = texts(drawn(*rates))

    assert label in shown
    assert shown[1 : 1 + len(ticks)] == ticks


def test_drawing_labels_of_lines_do_not_cover_each_other() -> None:
    picture = drawn(1000, 1001, 1002, 999, 20)

    labels = [
        float(element.get("y", "nan"))
        for element in picture.iter("{http://www.w3.org/2000/svg}text")
        if (element.text or "").startswith("line ")
    ]
    apart = sorted(labels)
    assert len(apart) == 5
    assert min(after - before for before, after in pairwise(apart)) >= 16


def test_section_of_a_page_is_replaced_and_nothing_else() -> None:
    page = "before\n<!-- x: begin -->\nold\n<!-- x: end -->\nafter\n"

    assert with_section(page, "x", "new\n") == page.replace("old", "new")
    with pytest.raises(NoSectionError, match="no one section between <!-- y: begin -->"):
        with_section(page, "y", "new")
    with pytest.raises(NoSectionError):
        with_section(page + page, "x", "new")


def test_section_that_is_not_there_leaves_the_page_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")

    with pytest.raises(NoSectionError, match=re.escape(str(page))):
        write_section(page, "x", "new")
    assert page.read_text() == "nothing here\n"


@pytest.mark.parametrize("name", [BROKER_SECTION, QUEUES_SECTION])
def test_page_has_the_sections_that_the_benchmarks_write(name: str) -> None:
    assert "new text" in with_section(BROKER_PAGE.read_text(encoding="utf-8"), name, "new text")


def test_section_of_requests_tells_the_run_and_its_spread() -> None:
    seen = {
        "requests_per_s": 1e5,
        "messages_per_s": 5e6,
        "cpu_us": 2.0,
        "p50_us": 50,
        "p99_us": 90,
        "gb_per_s": 2,
    }
    slow = seen | {"messages_per_s": 1e6}
    all_rounds = {
        load: {"headwater": [slow, seen, seen], "kafka": [seen]}
        for load in [*(each.name for each in LOADS), FETCHED]
    }
    figures = {
        "versions": {"kafka": "9.9.9", "python": "3.11.7", "java": 'openjdk version "17.0.15" 2025-04-15'},
        "rounds": 3,
        "cores": 2,
        "load_average_before": (1.44, 0, 0),
        "medians": medians(all_rounds),
        "all_rounds": all_rounds,
    }

    text = " ".join(section(figures).split())

    assert "Beside Apache Kafka 9.9.9 in the same run" in text
    assert "(load average before: 1.4)" in text
    assert "on Java 17.0.15, warmed up" in text
    assert "ours took 1.00 to 5.00 million messages a second" in text


def test_rabbitmq_that_is_not_installed_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "_SCRIPT", tmp_path / "nowhere")

    with (
        pytest.raises(NoContenderError, match="RabbitMQ is not installed"),
        rabbitmq.running_rabbitmq(tmp_path / "rabbitmq"),
    ):
        pass


def test_jars_without_maven_are_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SOME_JARS", str(tmp_path / "nowhere"))

    with pytest.raises(maven.NoJarsError, match="there is no mvn command to fetch ActiveMQ's jars with"):
        maven.cached_jars("activemq-1", "SOME_JARS", tmp_path / "pom.xml", "ActiveMQ")
