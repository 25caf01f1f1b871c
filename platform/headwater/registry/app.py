"""The REST interface: which request asks what, and how the answer is written. An ASGI application."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote

from headwater.errors import UserError
from headwater.registry import media
from headwater.registry.errors import RegistryError
from headwater.registry.guard import Guard
from headwater.registry.request import Request
from headwater.registry.requests import Text, answer_of
from headwater.registry.service import Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_CHALLENGE = (b"www-authenticate", b'Basic realm="schema-registry"')
_MOST_REQUESTS = 64
_LONGEST_BODY_BYTES = 16 * 1024 * 1024
_log = logging.getLogger(__name__)


def application(service: Service, guard: Guard) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application of a registry."""
    # Requests that wait for brokers that are away must not keep those waiting that are answered without them.
    pool = ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="registry-request")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        accept = _header(scope["headers"], b"accept")
        respond = partial(_respond, send, media.answered_as(accept) or media.ANSWERED[0])
        if not guard.lets_in(scope["headers"]):  # before anything of it is read
            await respond(401, _error(401, "Unauthorized"), _CHALLENGE)
            return
        try:
            body = await _body(receive)
        except RegistryError as error:
            await respond(error.status, _error(error.code, error.message))
            return
        # The path is taken apart before it is decoded: a subject's name may have a slash.
        path = bytes(scope["raw_path"]).partition(b"?")[0].decode("ascii", "replace")
        request = Request(
            method="GET" if scope["method"] == "HEAD" else scope["method"],  # the server leaves the body out
            path=tuple(unquote(each) for each in path.strip("/").split("/") if each),
            query={k: (*v,) for k, v in parse_qs(scope["query_string"].decode("ascii", "replace")).items()},
            body=body,
            content_type=_header(scope["headers"], b"content-type"),
            accept=accept,
        )
        status, content = await asyncio.get_running_loop().run_in_executor(pool, _answered, service, request)
        await respond(status, content)

    return app


def _answered(service: Service, request: Request) -> tuple[int, Any]:
    try:
        content = answer_of(service, request)
        return (204 if content is None else 200), content
    except RegistryError as error:
        return error.status, _error(error.code, error.message)
    except UserError as error:
        return 500, _error(500, str(error))
    except Exception:
        _log.exception("%s /%s", request.method, "/".join(request.path))
        return 500, _error(500, "the registry failed: its log says why")


async def _body(receive: Receive) -> bytes:
    parts, length = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > _LONGEST_BODY_BYTES:
            raise RegistryError(413, f"the request is longer than {_LONGEST_BODY_BYTES} bytes")
        if not message.get("more_body"):
            return b"".join(parts)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    return ",".join(value.decode("latin-1") for each, value in headers if each.lower() == name)


async def _respond(send: Send, kind: str, status: int, content: Any, *more: tuple[bytes, bytes]) -> None:
    text = content if isinstance(content, Text) else json.dumps(content, separators=(",", ":"))
    body = b"" if content is None else text.encode()
    length = [] if content is None else [(b"content-length", str(len(body)).encode())]
    headers = [(b"content-type", kind.encode()), *length, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _error(code: int, message: str) -> Mapping[str, Any]:
    return {"error_code": code, "message": message}
