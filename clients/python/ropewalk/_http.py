"""Persistent HTTP connections, resending, and streams of lines.

A request takes an idle connection of the pool or opens one, so that threads never share a
connection, and a stream has its connection for itself. A process that was forked opens new ones.

A request is sent again if its repetition has no effect: a read, or a write with an idempotency
key. Every request is sent again if the connection could not be established.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from .errors import ConnectionBroken, Error, ResourceExhausted, TimedOut, Unavailable, from_response

#: Idle connections in the pool; further ones are closed after use.
IDLE_MAX = 64
#: Bounds of the pause before a request is sent again, seconds.
PAUSE_MIN, PAUSE_MAX = 0.02, 1.0
#: Bytes that a stream reads at once.
CHUNK = 1 << 16
NDJSON = "application/x-ndjson"


def segment(name: str) -> str:
    """Returns `name` as one segment of a path."""
    return quote(name, safe="")


def pause(attempt: int) -> float:
    """Returns a random pause before attempt `attempt` (from 1), in seconds."""
    longest = min(PAUSE_MAX, PAUSE_MIN * 2.0 ** min(attempt, 10))
    return longest * (0.5 + random.random() / 2)


@dataclass(frozen=True)
class Reply:
    """A response with its complete body."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """Returns the body as JSON; `None` for an empty body."""
        return json.loads(self.body) if self.body else None


class _NotSent(Exception):
    """The connection could not be established."""


class Transport:
    """Sends requests to one server. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float = 130.0,
        retry_for: float = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL {url!r} is not of the form http://HOST:PORT or https://HOST:PORT")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._timeout = timeout
        self._retry_for = retry_for
        self._is_reached = False
        self._is_closed = False
        self._pid = os.getpid()
        # Appends and pops of a deque are atomic: no lock that a fork could leave locked.
        self._idle: deque[http.client.HTTPConnection] = deque()
        if user is None and parts.username:
            user, password = unquote(parts.username), unquote(parts.password or "")
        self._headers: dict[str, str] = {"User-Agent": "ropewalk-python/0.1.0"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            pair = f"{user}:{password or ''}".encode()
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()

    def close(self) -> None:
        """Closes the idle connections; requests after it fail."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        is_safe: bool | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Sends a request and returns its response.

        `is_safe` says that a repetition has no effect (default: for GET). `timeout` is in seconds.
        Raises the `Error` of the response, or `ConnectionBroken`.
        """
        sent = self._prepare(method, path, body, query, headers, key)
        can_repeat = key is not None or (method == "GET" if is_safe is None else is_safe)
        connection, response = self._repeat(sent, can_repeat, timeout)
        self._put(connection, response)
        return Reply(response.status, response.headers, response.body)

    def pages(self, path: str, entries: str, limit: int | None = None) -> Iterator[Any]:
        """Yields the entries of a list that is sorted by name, `limit` with each request."""
        after = None
        while True:
            page = self.request("GET", path, query={"after": after, "limit": limit}).json()
            yield from page[entries]
            after = page.get("next")
            if after is None:
                return

    def stream(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        is_repeated: bool = True,
    ) -> Lines:
        """Sends a read whose response is NDJSON. Raises as `request`."""
        sent = self._prepare(method, path, body, query, {"Accept": NDJSON}, None)
        connection, response = self._repeat(sent, is_repeated, timeout, is_stream=True)
        return Lines(self, connection, response)

    def _prepare(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        key: str | None,
    ) -> _Sent:
        target = self._base + path
        pairs = [(name, _text(value)) for name, value in (query or {}).items() if value is not None]
        if pairs:
            target += "?" + urlencode(pairs, quote_via=quote)
        every = self._headers | dict(headers or {})
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else dumps(body)
            every.setdefault("Content-Type", "application/json")
        if key is not None:
            every["Idempotency-Key"] = key
        return _Sent(method, target, data, every)

    def _repeat(
        self, sent: _Sent, can_repeat: bool, timeout: float | None, is_stream: bool = False
    ) -> tuple[http.client.HTTPConnection, _Response]:
        end = time.monotonic() + self._retry_for
        attempt = 0
        while True:
            attempt += 1
            wait: float | None = None
            try:
                connection, response = self._exchange(sent, timeout, is_stream)
                if response.status < 400:
                    return connection, response
                self._put(connection, response)
                failed: Error = from_response(response.status, response.body, response.headers.get("Retry-After"))
                wait = failed.retry_after
                # 429 means that the request was not carried out.
                may_repeat = isinstance(failed, ResourceExhausted) or (
                    can_repeat and isinstance(failed, (Unavailable, TimedOut))
                )
            except _NotSent as error:
                failed = ConnectionBroken(f"connect to {self._host}:{self._port}: {error}", is_sent=False)
                may_repeat = self._is_reached
            except (OSError, http.client.HTTPException) as error:
                text = f"{sent.method} {sent.target}: {type(error).__name__}: {error}"
                failed = ConnectionBroken(text, is_sent=True)
                may_repeat = can_repeat
            wait = pause(attempt) if wait is None else wait
            if not may_repeat or time.monotonic() + wait > end:
                raise failed
            time.sleep(wait)

    def _exchange(
        self, sent: _Sent, timeout: float | None, is_stream: bool
    ) -> tuple[http.client.HTTPConnection, _Response]:
        connection = self._take(self._timeout if timeout is None else timeout)
        try:
            connection.request(sent.method, sent.target, sent.data, sent.headers)
            raw = connection.getresponse()
            if raw.length is None and not raw.chunked:
                # Headers that were cut: `http.client` reads them as complete ones. The server sends a length.
                raise http.client.IncompleteRead(b"")
            response = _Response(raw)
            if not is_stream or raw.status >= 400:
                response.body = raw.read()
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if self._pid != os.getpid():
            # The connections belong to the parent process: this closes only copies of its sockets.
            inherited, self._idle, self._pid = self._idle, deque(), os.getpid()
            for connection in inherited:
                connection.close()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if connection.sock is not None and not _is_readable(connection.sock):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        if self._context is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise _NotSent(str(error)) from error
        self._is_reached = True
        return connection

    def _put(self, connection: http.client.HTTPConnection, response: _Response) -> None:
        """Returns a connection whose response was read to its end."""
        is_open = connection.sock is not None and not response.raw.will_close
        if is_open and not self._is_closed and self._pid == os.getpid() and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()


@dataclass(frozen=True)
class _Sent:
    method: str
    target: str
    data: bytes | None
    headers: dict[str, str]


class _Response:
    def __init__(self, raw: http.client.HTTPResponse) -> None:
        self.raw = raw
        self.status = raw.status
        self.headers = raw.headers
        self.body = b""


class Lines:
    """The lines of an NDJSON response. Close it, or read it to its end, to free its connection."""

    def __init__(self, transport: Transport, connection: http.client.HTTPConnection, response: _Response) -> None:
        self._transport = transport
        self._connection = connection
        self._response = response
        self._socket = connection.sock
        self._is_done = False
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.headers = response.headers

    def __iter__(self) -> Iterator[bytes]:
        raw = self._response.raw
        rest = b""
        try:
            while True:
                # `read1` of Python 3.11 does not count the bytes of a body of known length.
                chunk = raw.read1(CHUNK) if raw.chunked else raw.read()
                if not chunk:
                    break
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                yield from lines
                if not raw.chunked:
                    break
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # The last two come from a response that another thread closes.
            self.close()
            raise ConnectionBroken(f"stream: {type(error).__name__}: {error}", is_sent=True) from error
        except GeneratorExit:
            self.close()
            raise
        if rest:
            yield rest
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            if self._is_done:
                return
            self._is_done = True
        self._transport._put(self._connection, self._response)

    def close(self) -> None:
        """Ends the stream. Another thread may call it: a blocked read then fails."""
        with self._lock:
            if self._is_done:
                return
            self._is_done = True
        try:
            # A shutdown in a forked process would end the stream of its parent.
            if self._socket is not None and self._pid == os.getpid():
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()

    def __del__(self) -> None:
        self.close()


def _is_readable(sock: socket.socket) -> bool:
    """Reports whether an idle connection has input: the server closed it."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    return dumps(value).decode()


def dumps(value: Any) -> bytes:
    """Returns compact JSON. NaN and infinities raise `ValueError`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
