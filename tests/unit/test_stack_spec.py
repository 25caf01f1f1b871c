"""What the settings and flags of `headwater up` make of a stack."""

from pathlib import Path

import pytest

from headwater.config import Settings, StackSettings
from headwater.errors import UsageError
from headwater.stack.spec import StackSpec, ensemble_addresses, stack_spec


def _spec(*assignments: str, broker: dict[str, str] | None = None, **stack: object) -> StackSpec:
    settings = Settings(stack=StackSettings.model_validate(stack), broker=broker or {})
    return stack_spec(settings, Path("data"), assignments)


def test_spec_of_three_brokers_numbers_ids_and_ports() -> None:
    spec = _spec("broker.id=5", brokers=3, port=9000)
    assert spec.broker_ids == (5, 6, 7)
    assert [spec.port_of(index) for index in range(3)] == [9000, 9001, 9002]
    assert "broker.id" not in spec.properties


def test_spec_with_port_0_leaves_every_port_to_the_system() -> None:
    assert [_spec(brokers=2, port=0).port_of(index) for index in range(2)] == [0, 0]


def test_spec_set_wins_over_the_settings() -> None:
    spec = _spec("num.partitions=6", "a=b=c", broker={"num.partitions": "3", "log.segment.bytes": "1024"})
    assert spec.properties == {"num.partitions": "6", "log.segment.bytes": "1024", "a": "b=c"}


@pytest.mark.parametrize(
    ("assignments", "stack", "message"),
    [
        (["num.partitions"], {}, "--set num.partitions is not of the form key=value"),
        (["=3"], {}, "--set =3 is not of the form key=value"),
        (["broker.id=first"], {}, "broker.id=first is not a number"),
        ([], {"coordinator": "memory", "brokers": 2}, "2 brokers need ZooKeeper"),
        ([], {"coordinator": "memory", "zookeeper": "zk:2181"}, "exclude each other"),
        ([], {"port": 65535, "brokers": 2}, "would pass port 65535"),
        ([], {"zookeeper": "zk:port"}, "is not of the form host:port"),
        (
            ["listeners=SSL://:9"],
            {},
            "listeners is not for headwater up: .* headwater_broker --set listeners=",
        ),
        (["listener.security.protocol.map=A:SSL"], {}, "one listener is PLAINTEXT"),
        (["log.dirs=/elsewhere"], {}, "log.dirs is not for headwater up: .* --data"),
        (["zookeeper.connect=zk:2181"], {}, "give --zookeeper"),
    ],
)
def test_spec_that_contradicts_itself_is_a_usage_error(
    assignments: list[str], stack: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _spec(*assignments, **stack)


@pytest.mark.parametrize(
    ("zookeeper", "addresses"),
    [
        ("", []),
        ("zk", ["zk:2181"]),
        ("a:1,b:2/chroot/deeper", ["a:1", "b:2"]),
        (" a:1 , b ", ["a:1", "b:2181"]),
    ],
)
def test_ensemble_addresses_are_those_before_the_chroot(zookeeper: str, addresses: list[str]) -> None:
    assert ensemble_addresses(zookeeper) == addresses
