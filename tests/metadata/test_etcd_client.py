"""The client of etcd's JSON gateway, beside a server that answers as it is told."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLError
from typing import Any, TypeVar

import pytest

from kafkapy.metadata import etcd_client
from kafkapy.metadata.etcd_client import (
    EtcdClient,
    EtcdRefusedError,
    EtcdUnavailableError,
    decoded,
    encoded,
    split_endpoint,
)

T = TypeVar("T")
PATIENCE_S = 120.0
"""Longer than anything that a test waits for."""


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def said(message: Mapping[str, Any], status: str = "200 OK") -> bytes:
    return http(json.dumps(message).encode(), status)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    parts = b"".join(f"{len(each):x};name=value\r\n".encode() + each + b"\r\n" for each in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + parts + end


DONE = said({"done": "1"})
WRONG_TOKEN = said({"code": 16, "message": "etcdserver: invalid auth token"}, "401 Unauthorized")


class Server:
    """Gives the answers in turn, and closes the connection instead of those that are empty."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[int, str, str | None, Any]] = []
        """Number of the connection, path, token and message."""
        self._connections = 0

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        try:
            while self.answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(each.split(": ", 1) for each in head[1:] if each)
                body = await reader.readexactly(int(headers["Content-Length"]))
                self.requests.append((number, head[0].split()[1], headers.get("Authorization"), json.loads(body)))
                answer = self.answers.pop(0)
                if not answer:
                    break
                writer.write(answer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


def run(server: Server, work: Callable[[EtcdClient], Awaitable[T]], **how: Any) -> T:
    async def scenario() -> T:
        async with server:
            client = EtcdClient([server.endpoint], PATIENCE_S, **how)
            try:
                return await work(client)
            finally:
                client.close()

    return asyncio.run(scenario())


async def call(client: EtcdClient, repeatable: bool = False) -> dict[str, Any]:
    return await client.call("/v3/kv/range", {"key": "a"}, timeout_s=PATIENCE_S, repeatable=repeatable)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("endpoint", "parts"),
    [
        ("h:1", ("http", "h", 1)),
        ("http://h:2379/", ("http", "h", 2379)),
        ("https://h.example:2", ("https", "h.example", 2)),
        ("http://[::1]:3", ("http", "::1", 3)),
    ],
)
def test_endpoints(endpoint: str, parts: tuple[str, str, int]) -> None:
    assert split_endpoint(endpoint) == parts


@pytest.mark.parametrize("endpoint", ["", "h", "http://h", "ftp://h:1", "http://:1", "h:port", "h:", "h:-1"])
def test_what_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(ValueError, match="must be host:port, http://host:port or https://host:port"):
        split_endpoint(endpoint)


def test_keys_and_values_are_base64() -> None:
    assert encoded("é/a") == encoded("é/a".encode()) == "w6kvYQ=="
    assert decoded("w6kvYQ==") == "é/a".encode()
    with pytest.raises(ValueError, match="base64"):
        decoded("w6k vYQ==")


def test_which_refusals_another_login_or_another_attempt_may_help() -> None:
    """By the status codes of gRPC."""
    errors = [EtcdRefusedError(code, "etcdserver: so it is") for code in range(17)]
    assert [each.code for each in errors if each.unauthenticated] == [16]
    assert [each.code for each in errors if each.temporary] == [4, 14]
    errors = [EtcdRefusedError(code, "etcdserver: revision of auth store is old") for code in range(17)]
    assert [each.code for each in errors if each.unauthenticated] == [3, 16]


def tls_problem() -> SSLError:
    error = SSLError("the handshake")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (tls_problem(), "TLS fails: WRONG_VERSION_NUMBER"),
        (EOFError("partial"), "the connection was closed"),
        (ConnectionRefusedError(111, "x"), "the connection is refused"),
        (OSError("no route"), "no route"),
        (OSError(), "OSError"),
    ],
)
def test_problems_in_words(problem: Exception, reason: str) -> None:
    assert etcd_client._reason(problem) == reason


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [DONE, chunked(b'{"done":', b' "1"}'), chunked(b'{"done": "1"}', end=b"0\r\nTrailer: x\r\n\r\n")]
)
def test_an_answer_comes_whole_or_in_chunks(answer: bytes) -> None:
    """And the connection serves the next call."""
    server = Server(answer, answer)

    async def work(client: EtcdClient) -> list[dict[str, Any]]:
        return [await call(client), await call(client)]

    assert run(server, work) == [{"done": "1"}] * 2
    assert server.requests == [(1, "/v3/kv/range", None, {"key": "a"})] * 2


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (said({"code": 5, "message": "not here", "error": "no"}, "404 Not Found"), 5, "not here"),
        (said({"error": {"grpc_code": 9, "message": "later"}}), 9, "later"),
        (said({"error": "in a word", "code": 3}, "400 Bad Request"), 3, "in a word"),
        (said({"code": 13}, "500 Internal Server Error"), 13, "HTTP status 500"),
    ],
)
def test_a_refusal_has_its_code_and_its_words(answer: bytes, code: int, message: str) -> None:
    """And leaves a connection that can be used."""
    server = Server(answer, DONE)

    async def work(client: EtcdClient) -> dict[str, Any]:
        with pytest.raises(EtcdRefusedError, match=f"^{message}$") as caught:
            await call(client)
        assert caught.value.code == code
        return await call(client)

    assert run(server, work) == {"done": "1"}
    assert [number for number, *_ in server.requests] == [1, 1]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the connection was closed"),
        (b"SSH-2.0\r\n\r\n", "the endpoint does not answer with HTTP"),
        (b"HTTP/1.1 many\r\n\r\n", "the endpoint does not answer with HTTP"),
        (http(b"[1]"), "the endpoint answers with HTTP status 200 and no JSON"),
        (http(b"<html>", "502 Bad Gateway"), "the endpoint answers with HTTP status 502 and no JSON"),
        (http(b"not found", "404 Not Found"), "the endpoint has no JSON gateway at /v3; etcd 3.4 or newer is needed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "the answer has no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "the answer has -1 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 536870913\r\n\r\n", "the answer has 536870913 bytes"),
        (said({"error": "away"}, "503 Service Unavailable"), "away"),
        (said({"code": 14, "message": "no leader"}, "503 Service Unavailable"), "no leader"),
    ],
)
@pytest.mark.parametrize("repeatable", [False, True])
def test_an_answer_that_says_nothing(answer: bytes, reason: str, repeatable: bool) -> None:
    """A request that may have been carried out is sent again only where that does no harm."""
    server = Server(answer, *[DONE] * repeatable)

    async def work(client: EtcdClient) -> dict[str, Any]:
        return await call(client, repeatable)

    if repeatable:
        assert run(server, work) == {"done": "1"}
    else:
        with pytest.raises(EtcdUnavailableError) as caught:
            run(server, work)
        assert str(caught.value).startswith(f"the answer is missing ({server.endpoint}: {reason}")


def test_an_endpoint_that_fails_is_left_for_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    """Also by a request that is not to be repeated, when it was not sent yet."""

    async def scenario() -> tuple[list[dict[str, Any]], list[str]]:
        async with Server(DONE, b"", DONE) as server:
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
                client = EtcdClient([gone, server.endpoint], PATIENCE_S)
                answers = [await call(client)]
                with pytest.raises(EtcdUnavailableError, match="the answer is missing"):
                    await call(client)
                answers.append(await call(client))
                client.close()
                return answers, [gone, server.endpoint]

    answers, (gone, server) = asyncio.run(scenario())
    assert answers == [{"done": "1"}] * 2
    text = "The endpoint %s of etcd does not answer; the next one is %s"
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert found == [text % each for each in ((gone, server), (server, gone), (gone, server))]


def test_a_client_that_is_closed_asks_once() -> None:
    async def work(client: EtcdClient) -> None:
        client.close()
        with pytest.raises(EtcdUnavailableError, match=r"^http://127.0.0.1:\d+: no leader$"):
            await call(client, repeatable=True)

    server = Server(*[said({"code": 14, "message": "no leader"}, "503 Service Unavailable")] * 2)
    run(server, work)
    assert len(server.requests) == 1


# --- logins -----------------------------------------------------------------------------------------------------------

LOGIN = "/v3/auth/authenticate"


def test_a_token_is_asked_for_once_and_again_when_it_is_refused() -> None:
    server = Server(said({"token": "one"}), DONE, DONE, WRONG_TOKEN, said({"token": "two"}), DONE)

    async def work(client: EtcdClient) -> list[dict[str, Any]]:
        return [await call(client) for _ in range(3)]

    assert run(server, work, user="u", password="p") == [{"done": "1"}] * 3
    credentials = {"name": "u", "password": "p"}
    assert [each[1:] for each in server.requests if each[1] == LOGIN] == [(LOGIN, None, credentials)] * 2
    assert [token for _, path, token, _ in server.requests if path != LOGIN] == ["one", "one", "one", "two"]


@pytest.mark.parametrize(("user", "logins", "requests"), [("u", 3, 3), (None, 0, 1)])
def test_a_token_that_is_always_refused(user: str | None, logins: int, requests: int) -> None:
    server = Server(*[said({"token": "t"}), WRONG_TOKEN] * 4 if user else [WRONG_TOKEN] * 4)
    with pytest.raises(EtcdRefusedError, match="invalid auth token"):
        run(server, call, user=user)
    paths = [path for _, path, _, _ in server.requests]
    assert (paths.count(LOGIN), len(paths) - paths.count(LOGIN)) == (logins, requests)


def test_a_login_that_is_refused() -> None:
    refusal = said({"code": 3, "message": "authentication failed, invalid user ID or password"}, "400 Bad Request")
    server = Server(refusal, said({}))
    with pytest.raises(EtcdRefusedError, match="^the user u is refused: authentication failed") as caught:
        run(server, call, user="u")
    assert caught.value.code == etcd_client.NOT_FOUND
    assert server.requests[0][3] == {"name": "u", "password": ""}

    async def streamed(client: EtcdClient) -> None:
        async for _ in client.stream("/v3/watch", {}):
            raise AssertionError("nothing is told")

    with pytest.raises(EtcdUnavailableError, match="the login gave no token"):
        run(Server(said({})), streamed, user="u")


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "results", "error"),
    [
        (chunked(b'{"result": 1}\n'), [1], "the stream has ended"),
        (chunked(b'{"result": 1}\n{"res', b'ult": 2}\n\n', b'{"result": 3}\n{"re'), [1, 2, 3], "the stream has ended"),
        (chunked(b'{"result": 1}\n', b'{"nothing": 1}\n'), [1], "'result'"),
        (chunked(b'{"error": {"grpc_code": 14, "message": "no leader"}}\n'), [], "no leader"),
        (said({"code": 14, "message": "no leader"}, "503 Service Unavailable"), [], "no leader"),
        (b"", [], "the connection was closed"),
    ],
)
def test_the_results_of_a_stream(answer: bytes, results: list[int], error: str) -> None:
    found: list[Any] = []

    async def work(client: EtcdClient) -> None:
        async for each in client.stream("/v3/watch", {"create_request": {}}):
            found.append(each)

    server = Server(answer)
    with pytest.raises(EtcdUnavailableError) as caught:
        run(server, work)
    assert (found, str(caught.value)) == (results, f"{server.endpoint}: {error}")
    assert server.requests == [(1, "/v3/watch", None, {"create_request": {}})]


def test_a_stream_that_is_refused_asks_for_another_token_next_time() -> None:
    server = Server(said({"token": "one"}), WRONG_TOKEN, said({"token": "two"}), chunked(b'{"result": 1}\n'))

    async def work(client: EtcdClient) -> Any:
        with pytest.raises(EtcdRefusedError, match="invalid auth token"):
            await anext(client.stream("/v3/watch", {}))
        stream = client.stream("/v3/watch", {})
        try:
            return await anext(stream)
        finally:
            await stream.aclose()

    assert run(server, work, user="u") == 1
    assert [token for _, path, token, _ in server.requests if path != LOGIN] == ["one", "two"]
