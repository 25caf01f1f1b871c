"""What a producer adds to its own code, so that an audit can say that nothing of what it sent was lost.

    from confluent_kafka import Producer
    from headwater_client import counted

    producer = counted(Producer({"bootstrap.servers": "localhost:9092"}), name="web-1")
    producer.produce("clicks", b"...")
    producer.flush()

The wrapped producer is used as before. Beside what it sends it publishes to the topic `__headwater_counts` how many
records of each topic the brokers acknowledged, by the minute of the records' timestamps, and at which offsets.
`headwater audit --counts` compares these with what the brokers hold and with what each table has.

The package needs confluent-kafka alone. It imports nothing of the rest of Headwater, and no Spark.
"""

from headwater_client.events import (
    BUCKET_MS,
    COUNTS_TOPIC,
    Appended,
    Counts,
    Event,
    EventError,
    Source,
    TopicTotals,
    bucket_of,
    event_from_json,
)
from headwater_client.producer import CountedProducer, counted

__all__ = [
    "BUCKET_MS",
    "COUNTS_TOPIC",
    "Appended",
    "CountedProducer",
    "Counts",
    "Event",
    "EventError",
    "Source",
    "TopicTotals",
    "bucket_of",
    "counted",
    "event_from_json",
]
