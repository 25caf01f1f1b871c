"""Audits from Python, in a notebook or a program; they start no Spark session.

    for topic in hw.audit.counts():
        print(topic.topic, topic.ok, *topic.findings)

`counts` is `headwater audit --counts`: it compares topics, by time bucket, with what their producers counted and with
what tables hold.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from headwater.home import home_folder
from headwater.running.clusters import Clusters
from headwater.running.counts import CountsAudit, TopicAudit
from headwater_streams.base.durations import parse_duration
from headwater_streams.storage.home import Home

__all__ = ["TopicAudit", "counts"]


def counts(
    topics: Sequence[str] = (),
    *,
    bucket: str = "1 minute",
    grace: str = "1 minute",
    home: Path | str | None = None,
    bootstrap: str | None = None,
    mirrors: Sequence[str] = (),
    whole: bool = False,
) -> list[TopicAudit]:
    """Compares topics with what their producers counted and with what tables hold, and keeps it in `audit.counts`.

    Args:
        topics: The topics; by default all that a producer counts or a job of the home reads.
        bucket: How wide a bucket is.
        grace: How long after its end a bucket counts as open.
        home: The home; by default `$HEADWATER_HOME`, else `.headwater`.
        bootstrap: The brokers, or a cluster of the settings; by default those of the home's running stack.
        mirrors: Clusters that topics are mirrored into, by their names in the settings or as brokers; their topics are
            audited, too.
        whole: Whether topics are read from their beginning, and not from where the last audit ended: that finds what
            was lost since.

    Raises:
        JobDefinitionError: `bucket` or `grace` is no duration.
        UsageError: There is no such topic or cluster, or a topic was counted in buckets of another width.
        UserError: No brokers are known.
        RefusedError: The brokers and this client do not come together.
        UnavailableError: The brokers do not answer.
    """
    folder = home_folder(home)
    clusters = Clusters(folder, bootstrap)
    audit = CountsAudit(
        Home(folder),
        clusters.require_default(),
        bucket_ms=round(parse_duration(bucket).total_seconds() * 1000),
        grace_ms=round(parse_duration(grace).total_seconds() * 1000),
        now_ms=lambda: round(time.time() * 1000),
        mirrors=[clusters.of_mirror(each) for each in mirrors],
        whole=whole,
    )
    return audit.run(topics)
