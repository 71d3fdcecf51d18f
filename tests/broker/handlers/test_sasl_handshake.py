"""SaslHandshake as a client sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker.sasl_broker import handshake, log_in_plain, token

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest

ENABLED = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.mark.parametrize("version", range(2))
def test_a_listener_without_sasl_has_no_mechanisms(client: Any, version: int) -> None:
    response = client(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert client.topic_id("nothing").int == 0  # the connection goes on


@pytest.mark.parametrize("version", range(2))
def test_the_mechanisms_of_the_listener_are_listed(sasl_connect: Callable[..., Any], version: int) -> None:
    response = handshake(sasl_connect(), "SCRAM-SHA-256", version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.NONE, ENABLED)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "SCRAM-SHA-1"])
def test_another_mechanism_is_refused_and_the_connection_closes(
    sasl_connect: Callable[..., Any], version: int, mechanism: str
) -> None:
    client = sasl_connect()
    response = handshake(client, mechanism, version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ENABLED)
    assert client.is_closed()


def test_tokens_without_header_follow_version_0(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    handshake(client, "PLAIN", 0)
    client.send_frame(b"\0alice\0wonder")
    assert client.receive_frame() == b""
    assert client(MetadataRequest(topics=None), 12).cluster_id


def test_a_wrong_token_without_header_closes_the_connection(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    handshake(client, "PLAIN", 0)
    client.send_frame(b"\0alice\0wrong")
    assert client.is_closed()


def test_versions_are_asked_once_before_the_handshake(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    assert client(VERSIONS, 4).error_code == ErrorCode.NONE
    client.send_frame(b"\0\x12\0\0\0\0\0\x09\xff\xff")
    assert client.is_closed()


def test_versions_that_are_not_served_may_be_asked_and_then_others(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    for _ in range(2):
        client.send_frame(b"\0\x12\x7f\xff\0\0\0\x09\xff\xff\0")
        assert client.receive_frame()[:6] == b"\0\0\0\x09\0\x23"
    assert client(VERSIONS, 4).error_code == ErrorCode.NONE
    assert log_in_plain(client).error_code == ErrorCode.NONE
    assert client(VERSIONS, 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\x03\0\0\0\0\0\x09\xff\xff\0\0\0\0",  # Metadata
        b"\0\0\0\x09\0\0\0\x09\xff\xff",  # Produce
        b"\0\x01\0\x04\0\0\0\x09\xff\xff",  # Fetch
        b"\0\x24\0\0\0\0\0\x09\xff\xff\0\0\0\x01x",  # SaslAuthenticate
        b"\0\x11\0\x05\0\0\0\x09\xff\xff\0\x05PLAIN",  # a version that is not served
        b"\0\x11\0\x01\0\0\0\x09\xff\xff\0\x7fPLAIN",  # a string that is cut off
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
        b"\0",
    ],
)
def test_any_other_request_closes_the_connection(sasl_connect: Callable[..., Any], frame: bytes) -> None:
    client = sasl_connect()
    client.send_frame(frame)
    assert client.is_closed()


def test_a_frame_above_the_limit_closes_the_connection(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    client.socket.sendall((524_289).to_bytes(4, "big") + b"\0\x11\0\x01")
    assert client.is_closed()


def test_a_second_handshake_during_the_exchange_is_illegal(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    handshake(client, "SCRAM-SHA-256")
    response = handshake(client, "SCRAM-SHA-256")
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert client.is_closed()


def test_versions_during_the_exchange_are_illegal(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    handshake(client, "SCRAM-SHA-256")
    assert client(VERSIONS, 4).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed()


def test_a_handshake_after_the_login_is_illegal_and_the_connection_goes_on(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect("alice")
    response = handshake(client, "PLAIN")
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert token(client, b"\0alice\0wonder").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client(MetadataRequest(topics=None), 12).cluster_id
