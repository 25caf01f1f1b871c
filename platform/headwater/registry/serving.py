"""The registry's process: HTTP on an address, over a topic, until it is stopped."""

import asyncio
import errno
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from headwater.errors import DependencyError, PortInUseError, UserError, reason
from headwater.registry.app import application
from headwater.registry.guard import Guard
from headwater.registry.service import Service
from headwater.registry.store import TOPIC, TopicStore

DEFAULT_PORT = 8081
_STOP_TIMEOUT_S = 5
_KEEP_ALIVE_S = 120
"""Longer than clients keep a connection that they do not use (Go's and Rust's 90 s, .NET's 60 s), so that they are who
closes it: what is sent in the moment in which the registry does is lost, and not every client sends a POST again."""


@contextmanager
def running_registry(
    properties: Mapping[str, Any],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    topic: str = TOPIC,
    timeout_s: float = 15.0,
    guard: Guard | None = None,
) -> Iterator[str]:
    """Serves a registry from a thread while the block lasts.

    Args:
        properties: The properties of every client of the cluster.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        topic: The registry's topic.
        timeout_s: How long the brokers may take for one request.
        guard: What it asks of its clients; by default nothing, over HTTP.

    Yields:
        Its URL.

    Raises:
        UserError: It cannot listen there, cannot use the topic or the files of `guard`.
    """
    guard = guard or Guard()
    guard.check_files()
    with closing(_listening(host, port)) as listener:
        service = Service(partial(_store, properties, topic, timeout_s))
        service.store.start()
        try:
            with _served(service, listener, guard):
                bound_host, bound_port = listener.getsockname()[:2]
                name = f"[{bound_host}]" if ":" in bound_host else bound_host
                yield f"{'http' if guard.certificate is None else 'https'}://{name}:{bound_port}"
        finally:
            service.store.stop()


def _store(
    properties: Mapping[str, Any], topic: str, timeout_s: float, apply: Callable[..., None]
) -> TopicStore:
    return TopicStore(properties, topic=topic, timeout_s=timeout_s, apply=apply)


@contextmanager
def _served(service: Service, listener: socket.socket, guard: Guard) -> Iterator[None]:
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"the registry needs {error.name}: run pip install 'headwater[registry]'"
        ) from error

    config = uvicorn.Config(
        application(service, guard),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
        ssl_certfile=guard.certificate,
        ssl_keyfile=guard.key,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])), name="registry-http", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: asyncio sets TCP_NODELAY on such alone, and an answer of two writes waits 40 ms without it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"another process listens on {host}:{port}: stop it, or choose another port"
            ) from error
        raise UserError(
            f"cannot listen on {host}:{port} ({reason(error)}): give an address of this machine"
        ) from error
    return listener
