"""Which ids a subject has, as the broker knows it of a registry, without one; and a batch that is judged by them."""

import base64
import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headwater_broker.log import InvalidBatchError, SchemasUnavailableError
from headwater_broker.log.batch import HEADER
from headwater_broker.log.schema_ids import check_schema_ids
from headwater_broker.server.errors import UsageError
from headwater_broker.server.schema_ids import RegistryIds
from headwater_broker.testing.batches import build_batch


class Registry:
    """A registry that answers when it is told to."""

    def __init__(self) -> None:
        self.subjects: dict[int | str, list[str]] = {}
        self.is_away = False
        self.asked: list[int | str] = []
        self.may_answer = threading.Semaphore(0)
        self.now_s = 100.0
        self.ids = RegistryIds("http://registry", ask=self._ask, now_s=lambda: self.now_s)

    def _ask(self, name: int | str) -> list[str]:
        self.may_answer.acquire()
        self.asked.append(name)
        if self.is_away:
            raise OSError("refused")
        return self.subjects.get(name, [])

    def answer(self) -> None:
        """Lets it answer the question that was asked last, and waits until the answer is known."""
        self.may_answer.release()
        self.ids._beside.submit(lambda: None).result()


def test_an_id_is_asked_for_once_and_beside() -> None:
    registry = Registry()
    registry.subjects[7] = ["a-value", "b-value"]
    assert registry.ids.has("a-value", 7) is None
    assert registry.ids.has("a-value", 7) is None
    registry.answer()
    assert registry.ids.has("a-value", 7) is True
    assert registry.ids.has("b-value", 7) is True
    assert registry.asked == [7]


def test_a_subject_that_took_a_known_schema_since_is_not_refused_by_an_older_answer() -> None:
    registry = Registry()
    registry.subjects[7] = ["a-value"]
    assert registry.ids.has("a-value", 7) is None
    registry.answer()
    assert registry.ids.has("a-value", 7) is True
    registry.subjects[7].append("b-value")
    assert registry.ids.has("b-value", 7) is None
    registry.answer()
    assert registry.ids.has("b-value", 7) is True
    assert registry.ids.has("c-value", 7) is None
    registry.answer()
    assert registry.ids.has("c-value", 7) is False


def test_ids_at_random_do_not_pile_up() -> None:
    registry = Registry()
    for number in range(5_000):
        assert registry.ids.has("a-value", number) is None
    for _ in range(5_000):
        registry.may_answer.release()
    registry.ids._beside.submit(lambda: None).result()
    assert len(registry.asked) == 1_000


def test_a_lack_is_believed_for_two_seconds() -> None:
    registry = Registry()
    assert registry.ids.has("a-value", 8) is None
    registry.answer()
    assert registry.ids.has("a-value", 8) is False
    registry.subjects[8] = ["a-value"]
    registry.now_s += 2
    assert registry.ids.has("a-value", 8) is None
    registry.answer()
    assert registry.ids.has("a-value", 8) is True


def test_a_registry_that_is_away_is_asked_again_after_a_pause() -> None:
    registry = Registry()
    registry.is_away = True
    assert registry.ids.has("a-value", 9) is None
    registry.answer()
    assert registry.ids.has("a-value", 9) is None
    assert registry.asked == [9]
    registry.is_away, registry.subjects[9] = False, ["a-value"]
    registry.now_s += 0.5
    assert registry.ids.has("a-value", 9) is None
    registry.answer()
    assert registry.ids.has("a-value", 9) is True


@pytest.mark.parametrize(
    ("url", "more", "why"),
    [
        ("127.0.0.1:8081", {}, "confluent.schema.registry.url: 127.0.0.1:8081 is no http"),
        ("ftp://user:secret@registry", {}, "confluent.schema.registry.url: registry is no http"),
        (
            "https://registry",
            {"ca_location": "none.pem"},
            "confluent.ssl.truststore.location: none.pem: No such file",
        ),
    ],
)
def test_settings_that_are_wrong_are_named(url: str, more: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        RegistryIds(url, **more)


@pytest.mark.parametrize(
    ("status", "body", "known"),
    [
        (200, b'["a-value"]', True),
        (404, b'{"error_code":40403,"message":"Schema 7 not found"}', False),
        (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}', None),
        (404, b"<html>", None),
        (401, b'{"error_code":401,"message":"Unauthorized"}', None),
        (404, b'["error_code"]', None),
        (429, b"", None),
        (200, b'{"a-value":1}', None),
        (200, b"7", None),
        (200, b"[" * 100_000, None),
    ],
)
def test_only_a_registrys_own_words_say_that_there_is_none(
    status: int, body: bytes, known: bool | None
) -> None:
    with answering(status, body) as (url, came):
        ids = RegistryIds(url.replace("://", "://a:b%20c@") + "/", user_info="unused")
        assert ids.has("a-value", 7) is None
        ids._beside.submit(lambda: None).result()
        assert ids.has("a-value", 7) is known
        assert not ids._asked  # so it is asked again
    assert came[0] == ("/schemas/ids/7/subjects", f"Basic {base64.b64encode(b'a:b c').decode()}")


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that answers all requests alike; their paths and logins."""
    came: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Known:
    """Ids and GUIDs that are known, as `{(subject, id): whether it has it}`."""

    def __init__(self, known: dict[tuple[str, int | str], bool]) -> None:
        self._known = known

    def has(self, subject: str, name: int | str) -> bool | None:
        return self._known.get((subject, name))


def judge(
    values: list[bytes | None],
    known: dict[tuple[str, int | str], bool],
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    subjects: tuple[str | None, str | None] = (None, "t-value"),
) -> None:
    records = memoryview(build_batch(values, keys=values, headers=headers))
    check_schema_ids(records, HEADER.unpack_from(records), subjects, Known(known))


def test_a_batch_is_judged_by_the_ids_of_its_values() -> None:
    judge([b"\0\0\0\0\7x", None, b"\0\0\0\0\7"], {("t-value", 7): True})
    with pytest.raises(InvalidBatchError, match="record 1: subject t-value has no schema of id 8"):
        judge([b"\0\0\0\0\7x", b"\0\0\0\0\x08x"], {("t-value", 7): True, ("t-value", 8): False})
    with pytest.raises(InvalidBatchError, match="does not begin with the id"):
        judge([b"{}"], {})
    with pytest.raises(SchemasUnavailableError, match="not said yet whether t-value has a schema of id 9"):
        judge([b"\0\0\0\0\x09"], {})


GUID = uuid.UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
VALUE_HEADER = b"__value_schema_id"


def test_a_header_goes_before_what_a_value_begins_with() -> None:
    named = [(b"trace", b"x"), (VALUE_HEADER, b"\1" + GUID.bytes)]
    judge([b"{}", None, b"\0\0\0\0\x08"], {("t-value", str(GUID)): True}, named)
    with pytest.raises(InvalidBatchError, match=f"record 0: subject t-value has no schema of id {GUID}"):
        judge([b"\0\0\0\0\7"], {("t-value", str(GUID)): False, ("t-value", 7): True}, named)
    with pytest.raises(SchemasUnavailableError, match=str(GUID)):
        judge([b"{}"], {}, named)
    # Of Protobuf the message's place in the schema follows; and a header may have the id as a value has it.
    judge([b"{}"], {("t-value", str(GUID)): True}, [(VALUE_HEADER, b"\1" + GUID.bytes + b"\2\0")])
    judge([b"{}"], {("t-value", 7): True}, [(VALUE_HEADER, b"\0\0\0\0\7\0")])


def test_of_several_headers_the_last_counts_and_one_without_a_value_does_not() -> None:
    first, last = (VALUE_HEADER, b"\1" + b"\0" * 16), (VALUE_HEADER, b"\1" + GUID.bytes)
    judge([b"{}"], {("t-value", str(GUID)): True}, [first, last])
    judge([b"\0\0\0\0\7"], {("t-value", 7): True}, [(VALUE_HEADER, None)])
    with pytest.raises(InvalidBatchError, match="does not begin with the id"):
        judge([b"{}"], {}, [(VALUE_HEADER, None)])


def test_keys_have_a_header_of_their_own() -> None:
    named = [(VALUE_HEADER, b"\1" + GUID.bytes), (b"__key_schema_id", b"\0\0\0\0\7")]
    known: dict[tuple[str, int | str], bool] = {("t-key", 7): True, ("t-value", str(GUID)): True}
    judge([b"{}"], known, named, ("t-key", "t-value"))
    with pytest.raises(InvalidBatchError, match="1 records are refused: record 0: it does not begin with"):
        judge([b"{}"], known, named[:1], ("t-key", "t-value"))


@pytest.mark.parametrize("content", [b"", b"\1", b"\1" + b"x" * 15, b"\0\0\0\7", b"\2" + b"x" * 16])
def test_a_header_that_has_neither_an_id_nor_a_guid_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidBatchError, match="its header does not have the id of a schema"):
        judge([b"\0\0\0\0\7"], {("t-value", 7): True}, [(VALUE_HEADER, content)])


@pytest.mark.parametrize(
    ("ids", "then", "known"),
    [
        ([{"context": ".", "id": 7}, {"context": ".web", "id": 3}], ["/schemas/ids/7/subjects"], False),
        ([{"context": ".web", "id": 3}], [], False),
        ([], [], False),
        ([7], [], None),
        ([{"id": 7}], [], None),
    ],
)
def test_a_guid_is_asked_for_by_its_id_in_the_default_context(
    ids: list[object], then: list[str], known: bool | None
) -> None:
    with answering(200, json.dumps(ids).encode()) as (url, came):
        registry = RegistryIds(url)
        assert registry.has("a-value", str(GUID)) is None
        registry._beside.submit(lambda: None).result()
        assert [path for path, _ in came] == [f"/schemas/guids/{GUID}/ids", *then]
        assert registry.has("a-value", str(GUID)) is known
