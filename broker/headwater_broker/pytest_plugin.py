"""The fixture `broker` for anybody's tests of Kafka code; pytest finds it where headwater is installed.

See `headwater_broker.testing`. Everything else is imported when a test first asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater_broker.testing import RunningBroker

_MARKER = "broker(**options): options of headwater_broker.testing.broker for the fixture `broker`"


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known, for `--strict-markers`."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A Kafka broker of this test's own, empty, in this process, ready in some milliseconds.

    `@pytest.mark.broker(properties={"num.partitions": "3"})` gives it other options.
    """
    from headwater_broker.testing import broker as run

    marker = request.node.get_closest_marker("broker")
    with run(**(marker.kwargs if marker is not None else {})) as running:
        yield running
