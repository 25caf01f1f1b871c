"""What the verbs that speak to brokers share: places in a topic, assignments, and what was done."""

from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from headwater.cli._common import print_json, print_line
from headwater.errors import UsageError, UserError
from headwater.running.cluster import Cluster
from headwater_broker.numbers import is_natural

OFFSET_FORMS = "earliest, latest, an offset, or a time such as 2013-01-01T10:00:00Z"


def report(cluster: Cluster, done: str, kind: str, futures: dict[str, Any], json_output: bool) -> None:
    """Waits for an admin client's answers, and prints what was done, even if some of it was refused.

    The caller must keep a reference to the client.

    Args:
        cluster: The brokers that were asked.
        done: What was requested, such as `created`.
        kind: What the names are of, such as `topic`.
        futures: The answers by name.
        json_output: Whether to print it as JSON.

    Raises:
        UserError: Something was refused.
    """
    well, refused = [], []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            refused.append(cluster.explain(error.args[0], f"{kind} {name}"))
        else:
            well.append(name)
    if well or json_output:
        print_done(done, well, json_output)
    if refused:
        raise UserError("; ".join(map(str, refused)), refused[0].exit_code)


def print_done(done: str, names: list[str], json_output: bool) -> None:
    """Prints what was done, and the names of what it was done to."""
    if json_output:
        print_json({done: names})
    else:
        print_line(f"{done} {', '.join(names)}")


def parse_timestamp_ms(text: str) -> int:
    """Milliseconds since the epoch of an ISO 8601 time; without a zone it is UTC.

    Raises:
        ValueError: If it is not of that form.

    Example:
        >>> parse_timestamp_ms("2013-01-01T10:00:00Z")
        1357034400000
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def resolve_offset(consumer: Any, topic: str, partition: int, place: str, timeout_s: float) -> int:
    """The offset that `earliest`, `latest`, a number or a time means in a partition.

    A time means the first record at or after it, or the end if there is none; a number outside of the
    partition means its nearer end.

    Raises:
        UsageError: If it is none of these.
    """
    at = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(at, timeout=timeout_s)
    if place == "earliest":
        return int(low)
    if place == "latest":
        return int(high)
    if is_natural(place):
        return int(min(max(int(place), low), high))
    try:
        at.offset = parse_timestamp_ms(place)
    except ValueError as error:
        raise UsageError(f"{place} is no place in a topic: give {OFFSET_FORMS}") from error
    offset = consumer.offsets_for_times([at], timeout=timeout_s)[0].offset
    return int(offset) if offset >= 0 else int(high)


def parse_assignments(assignments: list[str] | None, flag: str) -> dict[str, str]:
    """`key=value` texts of a repeatable flag.

    Raises:
        UsageError: If one has no `=`.
    """
    pairs = {}
    for text in assignments or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"{flag} {text} is not of the form key=value")
        pairs[name.strip()] = value
    return pairs
