"""The dispatcher: what is not served, what cannot be decoded, what fails inside."""

from __future__ import annotations

import logging
import pkgutil
import queue
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import config

from kafkapy.broker import handlers
from kafkapy.broker.apis import error_response
from kafkapy.broker.handlers import BETWEEN_BROKERS, NOT_WITH_ZOOKEEPER, SERVED, served_apis
from kafkapy.broker.server import KafkaServer
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.registry import ApiKeys


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", api_key, version, 1, 4) + b"test" + body


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("a key that does not exist", frame(999, 0)),
        ("an API that is not served", frame(76, 0)),
        ("a version that is too new", frame(3, 99)),
        ("a truncated body", encode_request(3, 12, 1, "test", MetadataRequest(topics=None))[:-2]),
        ("bytes behind the body", encode_request(60, 1, 1, "test", DescribeClusterRequest()) + b"\x00"),
        ("a Produce version that is shown but not served", frame(0, 2)),
    ],
)
def test_what_cannot_be_served_closes_its_connection_only(connect: Any, what: str, data: bytes) -> None:
    bad, good = connect(), connect()
    bad.send_frame(data)
    assert bad.is_closed(), what
    assert good(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_a_handler_that_cannot_be_imported_closes_its_connection_only(
    connect: Any, broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(broker.apis._handlers, ApiKeys.DESCRIBE_CLUSTER, raising=False)
    monkeypatch.setitem(sys.modules, "kafkapy.broker.handlers.describe_cluster", None)
    bad, good = connect(), connect()
    with caplog.at_level(logging.CRITICAL, "kafka.server.KafkaApis"):
        bad.send_frame(encode_request(60, 1, 1, "test", DescribeClusterRequest()))
        assert bad.is_closed()
    assert good(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_pipelined_requests_are_answered_in_order(client: Any) -> None:
    for correlation in range(20):
        request = MetadataRequest(topics=None) if correlation % 2 else ApiVersionsRequest()
        version = 9 if correlation % 2 else 0
        client.send_frame(encode_request(request.API_KEY, version, correlation, "test", request))
    answered = [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in range(20)]
    assert answered == list(range(20))


def test_a_handler_that_fails_is_answered_in_its_own_shape(
    client: Any, broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(context: Any, request: Any) -> Any:
        raise RuntimeError("a secret of the broker")

    for key in (ApiKeys.DESCRIBE_CLUSTER, ApiKeys.METADATA):
        monkeypatch.setattr(broker.apis.handler(key), "handle", fail)
    with caplog.at_level(logging.ERROR, "kafka.server.KafkaApis"):
        cluster = client(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        topics = client(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 9).topics
    assert cluster.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "secret" not in (cluster.error_message or "")
    assert [(each.name, each.error_code) for each in topics] == [("orders", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert "a secret of the broker" in caplog.text, "the log has the traceback"


def on_loop(broker: Any, call: Callable[[], object]) -> None:
    """Call on the control loop, where replies belong."""

    async def do() -> None:
        call()

    broker.call(do())


class Waits:
    """A handler without a task: its answers come when the test says so."""

    def __init__(self, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asked: queue.SimpleQueue[Later[Any]] = queue.SimpleQueue()
        monkeypatch.setattr(broker.apis.handler(ApiKeys.DESCRIBE_CLUSTER), "handle", self.handle)

    def handle(self, context: Any, request: Any) -> Later[Any]:
        del context, request
        later: Later[Any] = Later()
        self._asked.put(later)
        return later

    def ask(self, client: Any) -> Later[Any]:
        """Send a request that waits; its answer."""
        client.send_frame(encode_request(60, 1, 7, "test", DescribeClusterRequest()))
        return self._asked.get(timeout=10)


def test_a_handler_without_a_task_is_answered_when_its_reply_is_there(
    connect: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, other = connect(), connect()
    later = Waits(broker, monkeypatch).ask(waiting)
    assert other(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE, "nobody else waits for it"
    on_loop(broker, lambda: later.set(DescribeClusterResponse(cluster_id="later")))
    assert decode_response(60, 1, waiting.receive_frame())[1].cluster_id == "later"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (error_for(ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
        (RuntimeError("a secret of the broker"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (None, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_reply_that_fails_or_cannot_be_encoded_is_an_error_for_the_client(
    client: Any, broker: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: ErrorCode
) -> None:
    monkeypatch.setattr(logging.getLogger("kafka.server.KafkaApis"), "disabled", True)
    later = Waits(broker, monkeypatch).ask(client)
    no_text: Any = 5
    unfit = DescribeClusterResponse(cluster_id=no_text)
    on_loop(broker, lambda: later.set(unfit) if error is None else later.fail(error))
    response = decode_response(60, 1, client.receive_frame())[1]
    assert response.error_code == code
    assert "secret" not in (response.error_message or "")


def test_a_large_request_that_comes_while_the_broker_stops_closes_its_connection(
    connect: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [MetadataRequest.Topic(name=f"topic-{number:06}") for number in range(10_000)]
    with KafkaServer(config(tmp_path)) as server:
        late, after = connect(server), connect(server)
        on_loop(server, server.apis.close)
        late.send_frame(encode_request(3, 9, 1, "test", MetadataRequest(topics=names)))
        assert late.is_closed()
        assert after(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    assert [each for each in caplog.records if each.name == "asyncio"] == []


def test_what_is_not_answered_when_the_broker_stops_closes_its_connection(
    connect: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, after = connect(), connect()
    later = Waits(broker, monkeypatch).ask(waiting)
    broker.call(broker.apis.drain(0.02))
    assert waiting.is_closed()
    on_loop(broker, lambda: later.set(DescribeClusterResponse()))
    assert after(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE, "an answer that comes too late harms nobody"


def test_the_request_log_shows_requests_and_at_trace_their_content(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> Any:
        client(MetadataRequest(topics=[]), 9)
        # The line is written after the answer has gone out; a second answer says that the first line is there.
        client(ApiVersionsRequest(), 0)
        return next(each for each in caplog.records if getattr(each, "api", "") == "Metadata")

    with caplog.at_level(logging.DEBUG, "kafka.request.logger"):
        record = logged()
    assert (record.api, record.version, record.client, record.listener) == ("Metadata", 9, "test", "PLAINTEXT")
    assert not hasattr(record, "request")
    caplog.clear()
    with caplog.at_level(5, "kafka.request.logger"):
        record = logged()
    assert "MetadataRequest" in str(record.request)
    assert "MetadataResponse" in str(record.response)


@pytest.mark.parametrize("key", SERVED)
def test_every_handler_is_served_as_its_messages_say_and_can_say_an_error(broker: Any, key: ApiKeys) -> None:
    served, handler = SERVED[key], broker.apis.handler(key)
    assert handler.REQUEST is key.request
    assert handler.RESPONSE is key.response
    assert key.versions.low <= served.low <= served.high <= key.versions.high
    assert served.first_flexible == (key.flexible.low if key.flexible.low <= key.flexible.high else None)
    assert f"API key {int(key)}: version" in handler.__doc__
    response = error_response(handler, handler.REQUEST(), error_for(ErrorCode.INVALID_REQUEST))
    assert isinstance(response, handler.RESPONSE)
    if key is not ApiKeys.FIND_COORDINATOR:  # which has two places for an error, and no keys here to choose by
        for version in range(served.low, served.high + 1):
            response.encode(version)


def test_every_module_of_handlers_is_served() -> None:
    modules = {each.name for each in pkgutil.iter_modules(handlers.__path__)}
    assert modules == {key.module for key in SERVED}


@pytest.mark.parametrize("key", sorted(BETWEEN_BROKERS))
def test_a_broker_that_can_have_no_other_serves_no_request_of_brokers(client: Any, key: ApiKeys) -> None:
    offered = {each.api_key for each in client(ApiVersionsRequest(), 3).api_keys}
    assert key not in offered
    with pytest.raises(ConnectionError):
        client(key.request(), SERVED[key].high)


def test_a_broker_with_zookeeper_offers_nothing_of_kraft_clusters() -> None:
    assert SERVED.keys() - served_apis(True, True, True).keys() == NOT_WITH_ZOOKEEPER - DATA_PLANE_APIS.keys()
    assert served_apis(True, False, True) == SERVED
