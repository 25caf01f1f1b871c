"""The registry as clients of other languages speak to it: requests as bytes, and what comes back on the connection."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from headwater.registry.serving import running_registry
from headwater_broker.testing import RunningBroker, broker


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def address(shared: RunningBroker) -> Iterator[tuple[str, int]]:
    with running_registry({"bootstrap.servers": shared.bootstrap, "log_level": 0}) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


def test_a_connection_that_is_kept_is_as_fast_as_a_new_one(address: tuple[str, int]) -> None:
    """Nagle's algorithm and a delayed acknowledgement made each answer but the first of one take 44 ms."""

    def seconds(connection: http.client.HTTPConnection) -> float:
        begin = time.perf_counter()
        connection.request("GET", "/subjects")
        connection.getresponse().read()
        return time.perf_counter() - begin

    new = []
    for _ in range(30):
        with closing(http.client.HTTPConnection(*address)) as connection:
            new.append(seconds(connection))
    with closing(http.client.HTTPConnection(*address)) as connection:
        kept = [seconds(connection) for _ in range(30)]
    # The first answers of a connection are acknowledged at once. The least is what the machine's load adds least to.
    assert min(kept[15:]) < 5 * min(new)


def test_a_connection_outlives_the_five_seconds_that_clients_keep_one(address: tuple[str, int]) -> None:
    """Node's, httpx's and Java's: one that the registry closes at that moment is a request that fails."""
    with closing(http.client.HTTPConnection(*address, timeout=20)) as connection:
        connection.auto_open = 0
        connection.connect()
        for pause_s in (6, 0):
            connection.request("GET", "/subjects")
            assert connection.getresponse().read().startswith(b"[")
            time.sleep(pause_s)


def asked(
    address: tuple[str, int], method: str, path: str, body: object = None, **headers: str
) -> tuple[int, str | None, str]:
    """The status, the media type and the text of an answer."""
    with closing(http.client.HTTPConnection(*address, timeout=20)) as connection:
        sent = None if body is None else json.dumps(body)
        connection.request(
            method, path, sent, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type"), answer.read().decode()


def test_the_text_of_a_schema_alone_is_not_quoted(address: tuple[str, int]) -> None:
    """A client takes the body for the schema: of Protobuf it got a text of JSON, with its quotation marks."""
    text = 'syntax = "proto3";\n\nmessage Pie {\n  string a = 1;\n}\n'
    registered = asked(address, "POST", "/subjects/pie/versions", {"schema": text, "schemaType": "PROTOBUF"})
    number = json.loads(registered[2])["id"]
    for path in ("/subjects/pie/versions/latest/schema", f"/schemas/ids/{number}/schema"):
        assert asked(address, "GET", path)[2] == text
    words = '{"title":"Zürich","type":"object"}'
    asked(address, "POST", "/subjects/words/versions", {"schema": words, "schemaType": "JSON"})
    assert asked(address, "GET", "/subjects/words/versions/1/schema")[2] == words


V1, NEWEST, JSON = (
    *("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json"),
    "application/json",
)


# What a server of Jersey 3.1.11 with the media types of Confluent's resources answers.
@pytest.mark.parametrize(
    ("accepted", "kind"),
    [
        ("", V1),
        ("*/*", V1),
        ("*", V1),
        ("application/*", V1),
        ("*/json", JSON),
        (f"{JSON}, text/plain, */*", V1),
        (JSON, JSON),
        ("Application/JSON; charset=utf-8", JSON),
        (f"{NEWEST}, {JSON}", NEWEST),
        (f"{JSON}, {V1}; q=0.5", JSON),
        (f"{JSON};q=0.5, {V1};q=0.1", JSON),
        (f"{JSON}, */*;q=0.1", JSON),
        (f"{NEWEST};q=0.5, */*;q=0.5", V1),
        (f"{JSON};q=0, */*", V1),
        (f"{JSON};q=0", JSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", V1),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", V1),
        (f"application/vnd.schema_registry.v1+json, application/vnd.schema_registry+json, {JSON}", JSON),
    ],
)
def test_the_media_type_is_one_that_was_asked_for(accepted: str, kind: str, address: tuple[str, int]) -> None:
    assert asked(address, "GET", "/subjects", Accept=accepted)[:2] == (200, kind)
    assert asked(address, "GET", "/nothing", Accept=accepted)[:2] == (404, kind)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((V1, NEWEST, JSON), V1),  # as the client of Spring Cloud Stream sends them
        (("application/json, application/*+json",), JSON),  # as Spring's RestTemplate does by itself
        (("text/html", JSON), JSON),
    ],
)
def test_accepted_types_may_stand_in_several_headers(
    lines: tuple[str, ...], kind: str, address: tuple[str, int]
) -> None:
    with closing(http.client.HTTPConnection(*address, timeout=20)) as connection:
        connection.putrequest("GET", "/subjects")
        for each in lines:
            connection.putheader("Accept", each)
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, kind)


@pytest.mark.parametrize("accepted", ["text/html", "text/*", "application/xml", "json", "application/*+json"])
def test_an_answer_that_the_client_does_not_take_is_not_made(accepted: str, address: tuple[str, int]) -> None:
    asked(address, "POST", "/subjects/kept/versions", {"schema": '"int"'})
    for method, path in (("DELETE", "/subjects/kept"), ("GET", "/subjects/kept/versions"), ("GET", "/")):
        status, kind, text = asked(address, method, path, Accept=accepted)
        assert (status, kind, json.loads(text)["error_code"]) == (406, V1, 406)
        assert f"send Accept: {V1}" in json.loads(text)["message"]
    assert asked(address, "GET", "/subjects/kept/versions")[::2] == (200, "[1]")
    assert asked(address, "GET", "/nothing", Accept=accepted)[0] == 404  # what is not there comes first
    assert asked(address, "PUT", "/subjects", Accept=accepted)[0] == 405


def test_a_body_of_another_media_type_is_not_read(address: tuple[str, int]) -> None:
    """`curl -d` says a form if it is told nothing else; Confluent's registry refuses that, too."""
    body = {"schema": '"int"'}
    for number, kind in enumerate(
        ("application/x-www-form-urlencoded", "text/plain", "application/vnd.kafka.v2+json", "nothing")
    ):
        for method, path in (
            ("POST", f"/subjects/form{number}/versions"),
            ("PUT", "/config"),
            ("GET", "/subjects"),
        ):
            status, answered, text = asked(address, method, path, body, Content_Type=kind, Accept="text/html")
            assert (status, answered, json.loads(text)["error_code"]) == (415, V1, 415)
            assert f"send Content-Type: {V1}, not {kind}" in json.loads(text)["message"]
        assert asked(address, "GET", f"/subjects/form{number}/versions")[0] == 404
    for kind in (
        *(
            V1,
            NEWEST,
            JSON,
            "application/octet-stream",
            f"{JSON}; charset=utf-8",
            "APPLICATION/JSON",
            "*/*",
            "",
        ),
    ):
        assert asked(address, "POST", "/subjects/taken/versions", body, Content_Type=kind)[0] == 200


def test_a_context_that_is_deleted_has_no_answer_and_the_connection_goes_on(address: tuple[str, int]) -> None:
    with closing(http.client.HTTPConnection(*address, timeout=20)) as connection:
        for method, path, body in (
            ("POST", "/subjects/:.gone:s/versions", '{"schema":"\\"int\\""}'),
            ("DELETE", "/subjects/:.gone:s", None),
            ("DELETE", "/subjects/:.gone:s?permanent=true", None),
            ("DELETE", "/contexts/.gone", None),
            ("GET", "/contexts", None),
        ):
            connection.request(method, path, body)
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (
                (204, False) if path == "/contexts/.gone" else (200, True)
            )
