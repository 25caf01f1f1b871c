"""`headwater topics`, `produce`, `consume` and `groups` against a running stack."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.config import load_settings
from headwater.stack.local import data_dir, running_stack
from headwater.stack.spec import stack_spec

pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The home of a stack that the tests of this module share; each keeps to topics of its own."""
    folder: Path = tmp_path_factory.mktemp("home")
    flags = {"stack.port": 0, "stack.coordinator": "memory"}
    spec = stack_spec(load_settings({}, flags).settings, data_dir(folder))
    with running_stack(spec):
        yield str(folder)


@pytest.fixture
def run(headwater: Any, home: str) -> Any:
    """Runs a verb over that home and returns its standard output; it has to succeed."""

    def run_well(*arguments: str, stdin: str = "") -> str:
        done = headwater(*arguments, "--home", home, stdin=stdin)
        assert done.returncode == 0, done.stderr
        output: str = done.stdout
        return output

    return run_well


@pytest.fixture
def fail(headwater: Any, home: str) -> Any:
    """Runs a verb that has to fail with one sentence; returns its exit status and that sentence."""

    def run_badly(*arguments: str, stdin: str = "") -> tuple[int, str]:
        done = headwater(*arguments, "--home", home, stdin=stdin)
        assert done.returncode != 0
        assert done.stderr.startswith("headwater: ")
        assert done.stderr.count("\n") == 1
        return done.returncode, done.stderr.removeprefix("headwater: ").rstrip()

    return run_badly


def test_topics_live_from_creation_to_deletion(run: Any) -> None:
    run("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=-1")
    listed = json.loads(run("topics", "list", "--json"))
    assert {"topic": "life", "partitions": 2, "replicas": 1} in listed
    run("topics", "alter", "life", "--partitions", "3")
    described = json.loads(run("topics", "describe", "life", "--json"))
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert described["configs"] == {"retention.ms": "-1"}
    assert json.loads(run("topics", "delete", "life", "--json")) == {"deleted": ["life"]}
    assert "life" not in run("topics", "list")


def test_topics_describe_of_a_misspelt_topic_names_the_nearest_and_makes_none(run: Any, fail: Any) -> None:
    run("topics", "create", "departures")
    assert fail("topics", "describe", "departure") == (
        2,
        "there is no topic departure: did you mean departures?",
    )
    names = [each["topic"] for each in json.loads(run("topics", "list", "--json"))]
    assert "departure" not in names


def test_topics_create_twice_fails(run: Any, fail: Any) -> None:
    run("topics", "create", "twice")
    status, sentence = fail("topics", "create", "twice")
    assert status == 1
    assert sentence.startswith("topic twice ")


@pytest.mark.parametrize(
    "verb", [("create", "--partitions"), ("alter", "--partitions"), ("create", "--replication-factor")]
)
def test_topics_counts_beyond_what_a_client_takes_are_bad_usage(fail: Any, verb: tuple[str, str]) -> None:
    status, sentence = fail("topics", verb[0], "vast", verb[1], "1000000")
    assert status == 2
    assert sentence.startswith(f"Invalid value for '{verb[1]}': Input should be less than or equal to ")


def test_topics_alter_that_sets_and_unsets_a_property_is_bad_usage(fail: Any) -> None:
    status, sentence = fail(
        "topics", "alter", "life", "--config", "retention.ms=6", "--unset", "retention.ms"
    )
    assert status == 2
    assert sentence.startswith("--config sets retention.ms, and --unset gives it back its default")


def test_topics_alter_without_a_change_is_bad_usage(fail: Any) -> None:
    status, sentence = fail("topics", "alter", "whatever")
    assert (status, sentence.partition(":")[0]) == (2, "say what to change")


def test_produce_then_consume_gives_back_keys_values_and_headers(
    run: Any, headwater_process: Any, home: str
) -> None:
    run("topics", "create", "round-trip")
    sent = headwater_process(
        *("produce", "round-trip", "--key-separator", "=", "--null", "NULL", "--header", "origin=e2e"),
        *("--compression", "zstd", "--json", "--home", home),
        stdin="a=1\nb=x=y\nc=NULL\nd=\n",
    )
    assert (sent.returncode, sent.stderr) == (0, "")
    assert json.loads(sent.stdout) == {
        "topic": "round-trip",
        "sent": 4,
        "partitions": [{"partition": 0, "first": 0, "last": 3}],
    }
    read = headwater_process("consume", "round-trip", "--json", "--home", home)
    assert (read.returncode, read.stderr) == (0, "")
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert [(each["offset"], each["key"], each["value"]) for each in records] == [
        (0, "a", "1"),
        (1, "b", "x=y"),
        (2, "c", None),
        (3, "d", ""),
    ]
    assert all(each["headers"] == [["origin", "e2e"]] for each in records)
    assert all(each["timestamp_type"] == "create" for each in records)


def test_produce_from_a_file_to_a_partition(run: Any, tmp_path: Path) -> None:
    run("topics", "create", "from-file", "--partitions", "3")
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    run("produce", "from-file", "--file", str(tmp_path / "lines.txt"), "--partition", "2")
    assert run("consume", "from-file", "--partition", "2") == "one\ntwo\n"
    assert run("consume", "from-file", "--partition", "0") == ""


def test_produce_a_line_without_its_separator_names_the_line_and_keeps_the_others(
    run: Any, fail: Any
) -> None:
    run("topics", "create", "broken-line")
    status, sentence = fail("produce", "broken-line", "--key-separator", ":", stdin="a:1\nb:2\nc\n")
    assert (status, sentence) == (1, "line 3 has no ':' to end its key; the lines before it were sent")
    assert run("consume", "broken-line", "--key-separator", ":") == "a:1\nb:2\n"


def test_produce_a_record_that_is_too_large_says_so(run: Any, fail: Any) -> None:
    run("topics", "create", "small", "--config", "max.message.bytes=1000")
    status, sentence = fail("produce", "small", stdin="x" * 5000 + "\n")
    assert status == 1
    assert sentence == (
        "topic small (0 records were sent): a record is larger than the topic takes: headwater topics alter TOPIC "
        "--config max.message.bytes=N raises that"
    )


def test_produce_a_record_that_only_the_topic_lets_be_so_large_arrives(run: Any) -> None:
    run("topics", "create", "large", "--config", "max.message.bytes=5000000")
    run("produce", "large", stdin="x" * 2_000_000 + "\n")
    assert run("consume", "large") == "x" * 2_000_000 + "\n"


def test_produce_to_a_partition_that_is_not_there_says_how_many_there_are(run: Any, fail: Any) -> None:
    run("topics", "create", "single")
    status, sentence = fail("produce", "single", "--partition", "4", stdin="hello\n")
    assert (status, sentence) == (1, "topic single has no partition 4: it has 1, from 0")


def test_consume_from_and_to_take_offsets_and_times(run: Any) -> None:
    run("topics", "create", "places")
    run("produce", "places", stdin="".join(f"{number}\n" for number in range(10)))
    assert run("consume", "places", "--from", "3", "--to", "6") == "3\n4\n5\n"
    assert run("consume", "places", "--from", "8") == "8\n9\n"
    assert run("consume", "places", "--count", "2") == "0\n1\n"
    assert run("consume", "places", "--from", "latest") == ""
    assert run("consume", "places", "--from", "2013-01-01T10:00:00Z", "--count", "1") == "0\n"
    assert run("consume", "places", "--to", "2013-01-01") == ""
    assert run("consume", "places", "--from", "2100-01-01") == ""


def test_consume_bytes_that_are_not_text_appear_as_base64(run: Any, tmp_path: Path) -> None:
    run("topics", "create", "binary")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    run("produce", "binary", "--file", str(tmp_path / "bytes"))
    assert json.loads(run("consume", "binary", "--json"))["value"] == {"base64": "//4="}


def test_consume_a_topic_that_is_not_there_fails(fail: Any) -> None:
    assert fail("consume", "no-such-topic") == (
        2,
        "there is no topic no-such-topic: see headwater topics list",
    )


def test_consume_from_nowhere_is_bad_usage(run: Any, fail: Any) -> None:
    run("topics", "create", "somewhere")
    status, sentence = fail("consume", "somewhere", "--from", "the-start")
    assert (status, sentence.partition(":")[0]) == (2, "the-start is no place in a topic")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--raw", "--json"], "--raw and --json exclude each other"),
        (["--isolation", "strict"], "--isolation strict is none of read_committed, read_uncommitted"),
    ],
)
def test_consume_flags_that_do_not_go_together_are_bad_usage(fail: Any, flags: list[str], told: str) -> None:
    status, sentence = fail("consume", "lines", *flags)
    assert status == 2
    assert told in sentence


def test_groups_show_lag_and_reset_it(run: Any, fail: Any, home: str) -> None:
    run("topics", "create", "lagging")
    run("produce", "lagging", stdin="1\n2\n3\n4\n5\n")
    bootstrap = json.loads(run("status", "--json"))["bootstrap"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 4)], asynchronous=False)
    consumer.close()

    assert "readers" in [each["group"] for each in json.loads(run("groups", "list", "--json"))]
    described = json.loads(run("groups", "describe", "readers", "--json"))
    assert described["lag"] == 1
    assert [(each["committed"], each["latest"]) for each in described["partitions"]] == [(4, 5)]

    tried = json.loads(
        run("groups", "reset", "readers", "--all-topics", "--to-earliest", "--dry-run", "--json")
    )
    assert tried["partitions"] == [{"topic": "lagging", "partition": 0, "from": 4, "to": 0}]
    assert json.loads(run("groups", "describe", "readers", "--json"))["lag"] == 1

    for place, lag in (
        (["--to-earliest"], 5),
        (["--to-offset", "2"], 3),
        (["--to-latest"], 0),
        (["--to-timestamp", "2013-01-01T00:00:00Z"], 5),
    ):
        run("groups", "reset", "readers", "--topic", "lagging", *place)
        assert json.loads(run("groups", "describe", "readers", "--json"))["lag"] == lag

    assert fail("groups", "delete", "readers", "nobody", "readers")[0] == 2
    assert "readers" not in run("groups", "list")
    status, sentence = fail("groups", "reset", "readers", "--topic", "lagging:7", "--to-latest")
    assert (status, sentence) == (1, "--topic lagging:7: topic lagging has no partition 7")


def test_groups_reset_of_a_mistyped_group_makes_none(run: Any, fail: Any) -> None:
    run("topics", "create", "mistyped")
    bootstrap = json.loads(run("status", "--json"))["bootstrap"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "silver-readers", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("mistyped", 0, 0)], asynchronous=False)
    consumer.close()
    reset = ("groups", "reset", "silvr-readers", "--topic", "mistyped", "--to-latest")
    for more in ([], ["--dry-run"]):
        assert fail(*reset, *more) == (
            2,
            "there is no group silvr-readers: did you mean silver-readers?; --new makes it",
        )
    assert "silvr-readers" not in run("groups", "list")
    assert "reset 1 partition" in run(*reset, "--new")
    assert "silvr-readers" in run("groups", "list")
    run("groups", "delete", "silver-readers", "silvr-readers")


def test_groups_reset_is_refused_while_a_member_runs(run: Any, fail: Any) -> None:
    run("topics", "create", "busy")
    bootstrap = json.loads(run("status", "--json"))["bootstrap"]
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "busy-group", "client.id": "me", "log_level": 0}
    )
    assigned: list[Any] = []
    consumer.subscribe(["busy"], on_assign=lambda _, partitions: assigned.extend(partitions))
    try:
        for _ in range(100):
            consumer.poll(0.2)
            if assigned:
                break
        assert assigned
        assert fail("groups", "reset", "busy-group", "--topic", "busy", "--to-latest") == (
            1,
            "group busy-group has 1 running member (me): stop them first",
        )
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "flags",
    [[], ["--topic", "t"], ["--all-topics"], ["--all-topics", "--to-latest", "--to-earliest"]],
)
def test_groups_reset_that_does_not_say_what_is_bad_usage(fail: Any, flags: list[str]) -> None:
    assert fail("groups", "reset", "any", *flags)[0] == 2


@pytest.mark.parametrize(
    "verb", [("describe", ""), ("delete", "a", ""), ("reset", "", "--topic", "t", "--to-latest")]
)
def test_groups_without_a_name_are_bad_usage(fail: Any, verb: tuple[str, ...]) -> None:
    assert fail("groups", *verb) == (2, "a group's name is empty: headwater groups list shows them")


def test_produce_to_a_partition_beyond_any_is_bad_usage(fail: Any) -> None:
    status, sentence = fail("produce", "single", "--partition", "99999999999", stdin="hello\n")
    assert status == 2
    assert sentence.startswith("Invalid value for '--partition': ")


def test_groups_describe_of_no_group_says_so(fail: Any) -> None:
    assert fail("groups", "describe", "nobody") == (
        2,
        "there is no group nobody: headwater groups list shows them",
    )


@pytest.mark.parametrize("verb", [["topics", "list"], ["groups", "list"], ["consume", "t"]])
def test_verbs_without_a_stack_say_what_to_do(headwater_process: Any, verb: list[str]) -> None:
    done = headwater_process(*verb, "--home", "empty")
    assert (done.returncode, done.stderr) == (
        1,
        "headwater: no stack runs over empty: start one with headwater up, or give --bootstrap HOST:PORT\n",
    )


def test_topics_of_which_some_cannot_be_made_or_deleted_are_told_apart(headwater: Any, home: str) -> None:
    made = headwater("topics", "create", "apart", "bad!", "apart", "too", "--home", home)
    assert made.returncode == 1
    assert made.stdout == "created apart, too\n"
    assert "bad!" in made.stderr
    gone = headwater("topics", "delete", "apart", "nosuch", "too", "too", "--home", home)
    assert gone.returncode == 2
    assert gone.stdout == "deleted apart, too\n"
    assert "topic nosuch" in gone.stderr


def test_topics_alter_unset_of_no_property_names_the_nearest(run: Any, fail: Any) -> None:
    run("topics", "create", "unset", "--config", "retention.ms=1000")
    assert fail("topics", "alter", "unset", "--unset", "retention_ms") == (
        2,
        "--unset retention_ms: a topic has no such property: did you mean retention.ms?",
    )
    run("topics", "alter", "unset", "--unset", "retention.ms", "--unset", "cleanup.policy")
    assert json.loads(run("topics", "describe", "unset", "--json"))["configs"] == {}
