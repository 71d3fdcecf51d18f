"""A client of etcd's JSON gateway: HTTP/1.1 over asyncio streams.

    call:   POST /v3/kv/txn {...}       -> one JSON object
    stream: POST /v3/watch {...}        -> JSON objects, one a line, for as long as the connection lives

Keys and values are base64, 64-bit numbers are texts, absent fields have the protocol's defaults. Every etcd from 3.4 on
serves this gateway on its client port. It needs no library: the ones for asyncio connect to one endpoint, have no
comparisons of ranges, or bring gRPC with its threads into each process. Source: etcd's api_grpc_gateway page and
etcdserver/etcdserverpb/rpc.proto.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from ssl import SSLContext, SSLError
from typing import Any, Final

__all__ = ["EtcdClient", "EtcdRefusedError", "EtcdUnavailableError", "decoded", "encoded"]

logger = logging.getLogger("kafkapy.metadata.etcd")

CONNECTIONS: Final = 16
"""Calls at the same time; others wait for a connection."""
PAUSE_S: Final = 0.2
"""Pause in seconds after every endpoint has failed once."""
CHUNK_LIMIT: Final = 512 * 1024 * 1024
"""Bytes of an answer; etcd's own database has at most 8 GB, and one answer holds the children of one node."""
DEADLINE_EXCEEDED, UNAVAILABLE, UNAUTHENTICATED, INVALID_ARGUMENT, NOT_FOUND = 4, 14, 16, 3, 5
"""Status codes of gRPC."""


class EtcdRefusedError(Exception):
    """etcd answered with an error. `code` is gRPC's status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def unauthenticated(self) -> bool:
        """Whether a new login may help."""
        return self.code == UNAUTHENTICATED or (self.code == INVALID_ARGUMENT and "auth" in str(self))

    @property
    def temporary(self) -> bool:
        """Whether another endpoint, or the same one later, may serve the request."""
        return self.code in (DEADLINE_EXCEEDED, UNAVAILABLE)


class EtcdUnavailableError(Exception):
    """No endpoint answered in time. The outcome of a write is unknown."""


class _HttpError(Exception):
    """The peer does not speak etcd's HTTP."""


class _Connection:
    """One connection to one endpoint. Used by one call or stream at a time."""

    def __init__(self, endpoint: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self.used = False
        """Whether request bytes may have reached the server."""

    @classmethod
    async def open(cls, endpoint: str, context: SSLContext | None) -> _Connection:
        """Connect. OSError."""
        scheme, host, port = split_endpoint(endpoint)
        if scheme == "https":
            reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
        else:
            reader, writer = await asyncio.open_connection(host, port)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return cls(endpoint, reader, writer)

    @property
    def alive(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def send(self, path: str, body: bytes, token: str | None) -> tuple[int, dict[str, str]]:
        """Send one request; returns the status and the headers of the answer."""
        _, host, port = split_endpoint(self.endpoint)
        name = f"[{host}]" if ":" in host else host
        head = f"POST {path} HTTP/1.1\r\nHost: {name}:{port}\r\nContent-Type: application/json\r\n"
        if token is not None:
            head += f"Authorization: {token}\r\n"
        self.used = True
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await self._writer.drain()
        status = (await self._line()).split(" ", 2)
        if len(status) < 2 or not status[0].startswith("HTTP/1.") or not status[1].isdecimal():
            raise _HttpError("the endpoint does not answer with HTTP")
        headers: dict[str, str] = {}
        while line := await self._line():
            key, _, value = line.partition(":")
            headers[key.strip().lower()] = value.strip()
        return int(status[1]), headers

    async def body(self, headers: Mapping[str, str]) -> bytes:
        """The whole body of an answer."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while part := await self.chunk():
                parts.append(part)
            return b"".join(parts)
        return await self._reader.readexactly(_length(headers.get("content-length", "0"), 10))

    async def chunk(self) -> bytes:
        """The next chunk, empty at the end of the body and its trailers."""
        size = _length((await self._line()).partition(";")[0], 16)
        if size == 0:
            while await self._line():
                pass
            return b""
        return (await self._reader.readexactly(size + 2))[:-2]

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise asyncio.IncompleteReadError(line, None)
        return line.decode("latin-1").rstrip("\r\n")

    def close(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()


class EtcdClient:
    """Calls of one etcd cluster, through the endpoint that answered last.

    Owned by an EtcdStore; used on the control loop. An endpoint that fails is left for the next one, with all its
    connections: a member that is frozen, or has no leader, would keep calls waiting and streams silent. The call that
    finds out is the regular one that renews the session. `connect_s` is the time in seconds for a connection.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        connect_s: float,
        *,
        context: SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self._endpoints = list(endpoints)
        self._current = 0
        self._connect_s = connect_s
        self._context = context
        self._user = user
        self._password = password
        self._token: str | None = None
        self._closed = False
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._login = asyncio.Lock()

    def close(self) -> None:
        """Drop all connections; calls that wait fail."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        path: str,
        message: Mapping[str, Any],
        *,
        timeout_s: float,
        repeatable: bool,
        attempt_s: float | None = None,
    ) -> dict[str, Any]:
        """The answer to one request.

        EtcdUnavailableError after `timeout_s`; at once when the outcome of a request that is not `repeatable` is
        unknown. EtcdRefusedError for errors of the request. `attempt_s` is the time that one endpoint has to answer.
        """
        loop = asyncio.get_running_loop()
        body = json.dumps(message).encode()
        deadline = loop.time() + timeout_s
        failures, logins, said = 0, 0, ""
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise EtcdUnavailableError("earlier requests have no answer yet") from None
        try:
            while True:
                endpoint = self._endpoints[self._current]
                attempt = _Attempt()
                problem: Exception
                try:
                    left = max(0.0, deadline - loop.time())
                    async with asyncio.timeout(left if attempt_s is None else min(attempt_s, left)):
                        return await self._once(endpoint, path, body, attempt)
                except EtcdRefusedError as error:
                    if error.unauthenticated and self._user is not None and logins < 2:
                        logins += 1
                        self._token = None
                        continue
                    if not error.temporary:
                        raise
                    problem = error
                except TimeoutError:
                    problem = TimeoutError("no answer in time")
                except (OSError, EOFError, _HttpError) as error:
                    problem = error
                self._leave(endpoint)
                failures += 1
                if not said or not isinstance(problem, TimeoutError):  # the deadline tells less than an error before it
                    said = f"{endpoint}: {_reason(problem)}"
                if attempt.sent and not repeatable:
                    raise EtcdUnavailableError(f"the answer is missing ({said})") from None
                if self._closed or loop.time() >= deadline:
                    raise EtcdUnavailableError(said) from None
                if failures % len(self._endpoints) == 0:
                    await asyncio.sleep(min(PAUSE_S, max(0.0, deadline - loop.time())))
        finally:
            self._slots.release()

    async def _once(self, endpoint: str, path: str, body: bytes, attempt: _Attempt) -> dict[str, Any]:
        if self._user is not None and self._token is None:
            await self._authenticate(endpoint)
        connection = await self._connection(endpoint)
        self._busy.add(connection)
        try:
            attempt.sent = True
            status, headers = await connection.send(path, body, self._token)
            answer = _parsed(await connection.body(headers), status)
        except BaseException as error:
            # An error of etcd leaves a connection behind that can be used; all else leaves it in the middle of bytes.
            if isinstance(error, EtcdRefusedError):
                self._keep(connection, endpoint)
            else:
                connection.close()
            raise
        finally:
            self._busy.discard(connection)
        self._keep(connection, endpoint)
        return answer

    async def _authenticate(self, endpoint: str) -> None:
        async with self._login:
            if self._token is not None:
                return  # another call was faster
            connection = await self._connection(endpoint)
            try:
                body = json.dumps({"name": self._user, "password": self._password or ""}).encode()
                status, headers = await connection.send("/v3/auth/authenticate", body, None)
                self._token = _parsed(await connection.body(headers), status)["token"]
            except KeyError:
                raise _HttpError("the login gave no token") from None
            except EtcdRefusedError as error:
                if error.temporary:
                    raise
                raise EtcdRefusedError(NOT_FOUND, f"the user {self._user} is refused: {error}") from None
            finally:
                connection.close()

    async def _connection(self, endpoint: str) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.endpoint == endpoint and connection.alive:
                return connection
            connection.close()
        try:
            async with asyncio.timeout(self._connect_s):
                return await _Connection.open(endpoint, self._context)
        except TimeoutError:
            raise ConnectionError("no connection in time") from None

    def _keep(self, connection: _Connection, endpoint: str) -> None:
        if connection.alive and endpoint == self._endpoints[self._current] and len(self._idle) < CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.close()

    def _leave(self, endpoint: str) -> None:
        """Use the next endpoint, unless another call has done so already."""
        if endpoint != self._endpoints[self._current]:
            return
        self._current = (self._current + 1) % len(self._endpoints)
        if len(self._endpoints) > 1:
            logger.warning(
                "The endpoint %s of etcd does not answer; the next one is %s", endpoint, self._endpoints[self._current]
            )
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    # --- streams ------------------------------------------------------------------------------------------------------

    async def stream(self, path: str, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The results of a streaming call, until the consumer ends it.

        EtcdUnavailableError when the stream breaks, EtcdRefusedError for an error that etcd reports.
        """
        endpoint = self._endpoints[self._current]
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._connect_s):
                if self._user is not None and self._token is None:
                    await self._authenticate(endpoint)
                connection = await _Connection.open(endpoint, self._context)
                self._busy.add(connection)
                status, headers = await connection.send(path, json.dumps(message).encode(), self._token)
                if status != 200:
                    _parsed(await connection.body(headers), status)
            pending = b""
            while part := await connection.chunk():
                *lines, pending = (pending + part).split(b"\n")
                for line in filter(None, lines):
                    yield _parsed(line, status)["result"]
            raise EtcdUnavailableError(f"{endpoint}: the stream has ended")
        except EtcdRefusedError as error:
            if error.unauthenticated:
                self._token = None
            if error.temporary:
                raise EtcdUnavailableError(f"{endpoint}: {error}") from None
            raise
        except (OSError, EOFError, _HttpError, KeyError, TypeError) as error:
            self._leave(endpoint)
            raise EtcdUnavailableError(f"{endpoint}: {_reason(error)}") from None
        finally:
            if connection is not None:
                self._busy.discard(connection)
                connection.close()


class _Attempt:
    """Whether a request may have reached etcd."""

    sent = False


def split_endpoint(endpoint: str) -> tuple[str, str, int]:
    """Scheme, host and port of http://host:port. ValueError."""
    scheme, separator, rest = endpoint.rstrip("/").partition("://")
    if not separator:
        scheme, rest = "http", scheme
    host, separator, port = rest.rpartition(":")
    if scheme not in ("http", "https") or not separator or not host or not port.isdecimal():
        raise ValueError("must be host:port, http://host:port or https://host:port")
    return scheme, host.removeprefix("[").removesuffix("]"), int(port)


def encoded(data: bytes | str) -> str:
    """Bytes, or a key, in the gateway's form."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def decoded(text: str) -> bytes:
    """Bytes from the gateway's form. ValueError."""
    return base64.b64decode(text, validate=True)


def _length(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        raise _HttpError("the answer has no length") from None
    if not 0 <= size <= CHUNK_LIMIT:
        raise _HttpError(f"the answer has {size} bytes")
    return size


def _parsed(body: bytes, status: int) -> dict[str, Any]:
    answer: Any = None
    with contextlib.suppress(ValueError):
        answer = json.loads(body)
    if status == 404 and (not isinstance(answer, dict) or "code" not in answer):
        raise _HttpError("the endpoint has no JSON gateway at /v3; etcd 3.4 or newer is needed, with its gRPC gateway")
    if not isinstance(answer, dict):
        raise _HttpError(f"the endpoint answers with HTTP status {status} and no JSON")
    error = answer.get("error")
    if error is not None or status != 200:
        described = error if isinstance(error, dict) else answer
        code = described.get("code", described.get("grpc_code", UNAVAILABLE))
        message = described.get("message") or (error if isinstance(error, str) else f"HTTP status {status}")
        raise EtcdRefusedError(code if isinstance(code, int) else UNAVAILABLE, str(message))
    return answer


def _reason(problem: Exception) -> str:
    if isinstance(problem, SSLError):
        return f"TLS fails: {problem.reason or problem}"
    if isinstance(problem, EOFError):
        return "the connection was closed"
    if isinstance(problem, ConnectionRefusedError):
        return "the connection is refused"
    return str(problem) or type(problem).__name__
