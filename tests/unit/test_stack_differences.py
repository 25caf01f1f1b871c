"""What is said of a stack that runs and is asked to be another."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.config import Settings, StackSettings
from headwater.stack.local import absent_brokers, differences, other_properties
from headwater.stack.spec import stack_spec
from headwater.stack.state import Member, StackState

EMBEDDED = Member("zookeeper", None, "127.0.0.1:2181", 1, 1)
# A broker that was started again stands behind the others.
BROKERS = (Member("broker", 2, "127.0.0.1:9093", 1, 1), Member("broker", 1, "127.0.0.1:9092", 1, 1))
RUNNING = StackState(1, 1, True, 1, "zookeeper", "127.0.0.1:2181", (EMBEDDED, *BROKERS))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"brokers": 2, "port": 9092}, []),
        ({"brokers": 2, "port": 0}, []),
        ({"brokers": 3, "port": 9092}, [("stack.brokers", 3, "2 brokers")]),
        ({"brokers": 1, "port": 9092}, [("stack.brokers", 1, "2 brokers")]),
        ({"brokers": 2, "port": 9093}, [("stack.port", 9093, "its first broker at 127.0.0.1:9092")]),
        (
            {"brokers": 2, "zookeeper": "127.0.0.1:2181"},
            [("stack.zookeeper", "127.0.0.1:2181", "ZooKeeper at 127.0.0.1:2181")],
        ),
        (
            {"brokers": 1, "coordinator": "memory"},
            [
                ("stack.brokers", 1, "2 brokers"),
                ("stack.coordinator", "memory", "the coordinator zookeeper"),
            ],
        ),
    ],
)
def test_stack_that_is_asked_to_be_another_says_what_it_is(
    asked: dict[str, object], expected: list[tuple[str, object, str]]
) -> None:
    spec = stack_spec(Settings(stack=StackSettings.model_validate({"port": 0, **asked})), Path("data"))
    assert differences(spec, RUNNING) == expected


def test_stack_with_an_ensemble_of_others_is_asked_for_no_other() -> None:
    running = replace(RUNNING, members=BROKERS)
    settings = Settings(
        stack=StackSettings.model_validate({"brokers": 2, "port": 0, "zookeeper": "127.0.0.1:2181"})
    )
    assert differences(stack_spec(settings, Path("data")), running) == []


def test_stack_on_another_address_says_which_it_has() -> None:
    running = replace(RUNNING, host="127.0.0.1")
    spec = stack_spec(Settings(stack=StackSettings(brokers=2, port=0, host="0.0.0.0")), Path("data"))
    assert differences(spec, running) == [("stack.host", "0.0.0.0", "the address 127.0.0.1")]
    assert differences(spec, RUNNING) == []  # an older version did not write it down


def test_stack_with_other_broker_properties_says_which_it_has() -> None:
    running = replace(RUNNING, properties={"num.partitions": "6", "log.retention.hours": "24"})
    asked = ("num.partitions=4", "log.retention.hours=24", "auto.create.topics.enable=false")
    spec = stack_spec(Settings(), Path("data"), asked)
    assert other_properties(spec, running) == [
        ("auto.create.topics.enable", "false", "its default"),
        ("num.partitions", "4", "6"),
    ]
    assert other_properties(spec, RUNNING) == []


@pytest.mark.parametrize(
    ("there", "running", "told"),
    [
        ([], [1], ""),
        ([1, 2, 3], [1, 2, 3], ""),
        ([1], [1, 2], ""),
        ([1, 2, 3], [], ""),
        ([1, 2, 3], [1], "brokers 2, 3, too, .* headwater down, then headwater up --brokers 3, starts all"),
        ([1, 2], [1], "broker 2, too, .* headwater up --brokers 2, starts"),
        ([5, 6], [5], "broker 6, too, .* headwater up --brokers 2 --set broker.id=5, starts"),
        ([1, 7], [7], "broker 1, too, .* headwater up --brokers 7, starts"),
    ],
)
def test_brokers_whose_data_is_there_and_that_do_not_run_are_told(
    tmp_path: Path, there: list[int], running: list[int], told: str
) -> None:
    for number in there:
        folder = tmp_path / f"broker-{number}" / "log"
        folder.mkdir(parents=True)
        (folder / "meta.properties").write_text("version=0\n")
    (tmp_path / "broker-9" / "log").mkdir(parents=True)  # it never started
    assert re.search(told, absent_brokers(tmp_path, running))
    assert bool(told) is bool(absent_brokers(tmp_path, running))
