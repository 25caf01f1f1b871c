"""Topics whose clusters are asked once whether they answer, for who looks at many topics and runs none of them."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from headwater_streams.base.errors import RefusedError, StreamsError, UnavailableError
from headwater_streams.base.topics import cluster_of
from headwater_streams.sources.reader import RecordSource


class AskedOnce:
    """A source of topics. All clusters are asked at the same time, when something is first asked of one, so that the
    longest wait for one that is away is the only one; each topic of each job would be waited for otherwise.

    It is a `RecordSource`: what is not named here is the source's own.
    """

    def __init__(self, source: RecordSource, topics: Iterable[str]) -> None:
        """Args: the source; the topics that may be asked for, of which one stands for its cluster."""
        self._source = source
        self._firsts = {cluster_of(topic): topic for topic in topics}

    def topic_id(self, topic: str) -> str | None:
        """See `RecordSource`."""
        return None if self._fault(topic) is not None else self._source.topic_id(topic)

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """See `RecordSource`."""
        fault = self._fault(topic)
        if fault is not None:
            raise fault
        return self._source.partitions(topic)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def _fault(self, topic: str) -> StreamsError | None:
        return self._faults.get(cluster_of(topic))

    @cached_property
    def _faults(self) -> dict[str, StreamsError | None]:
        with ThreadPoolExecutor(max(1, len(self._firsts))) as threads:
            return dict(zip(self._firsts, threads.map(self._why_away, self._firsts.values()), strict=True))

    def _why_away(self, topic: str) -> StreamsError | None:
        try:
            self._source.partitions(topic)
        except UnavailableError as error:
            return error
        except RefusedError as error:
            return None if error.topic else error  # the cluster answers, and other topics may be read
        except StreamsError:  # it has no such topic
            return None
        return None
