"""The shop's tutorial over Apache Kafka's newest, with TLS and passwords: every command and figure of the page.

Over our own broker `test_pages.py` runs the page, as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doc_pages import PageRun
from secured import certificates
from support import apache_kafka
from support.processes import free_port
from tutorial_shop import broker_properties, page_for


@contextmanager
def _apache_kafka(directory: Path, certificate: Path) -> Iterator[str]:
    """Its broker with the properties that the page gives to ours, and its own listeners; gives the address."""
    secured = f"127.0.0.1:{free_port()}"
    own = {
        name: value for name, value in broker_properties().items() if name not in ("listeners", "log.dirs")
    }
    settings = {
        **own,
        "ssl.keystore.location": str(certificate),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    apache_kafka.require_jars(apache_kafka.NEWEST)
    with apache_kafka.running_kafka(
        directory, settings, heap="512m", version=apache_kafka.NEWEST, listeners=f"SASL_SSL://{secured}"
    ):
        yield secured


@pytest.mark.timeout(1800)
def test_tutorial_of_the_shop_is_the_same_over_apache_kafka(tmp_path: Path) -> None:
    for name in ("certificates", "kafka", "page", "work"):
        (tmp_path / name).mkdir()
    folder = certificates(tmp_path / "certificates")
    with _apache_kafka(tmp_path / "kafka", folder / "broker.pem") as bootstrap:
        page = tmp_path / "tutorial-shop.md"
        page.write_text(page_for(bootstrap, folder / "ca.pem"), encoding="utf-8")
        PageRun(tmp_path / "page", tmp_path / "work").run(page)
