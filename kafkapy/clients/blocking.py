"""Requests to a broker, one at a time, on a blocking socket: what command-line tools need.

with BlockingConnection("127.0.0.1", 9092) as broker:
    response = broker.call(MetadataRequest(topics=[]))

Plaintext only. The version of each request is the newest that both sides know.
"""

from __future__ import annotations

import socket
from typing import Any

from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.schema import DecodeError, Request
from kafkapy.version import __version__

__all__ = ["BlockingConnection", "BrokerUnreachableError", "connect_to_any", "parse_address"]

MAX_FRAME = 100 << 20
API_VERSIONS_VERSION = 3
CLIENT_ID = "kafkapy"


class BrokerUnreachableError(KafkaError):
    """No broker could be reached, or it does not answer as one; the message is one sentence for the user."""


class BlockingConnection:
    """Owns one socket; every call blocks, at most `timeout_s` between two bytes. Used by one thread."""

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        """BrokerUnreachableError."""
        self.address = f"{host}:{port}"
        self._correlation = 0
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise BrokerUnreachableError(f"Broker {self.address} cannot be reached: {_reason(error)}.") from None
        try:
            self._learn_versions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def call(self, request: Request) -> Any:
        """The response. BrokerUnreachableError; KafkaError when the broker does not know the request at all."""
        key = request.API_KEY
        low, high = self._versions.get(key, (0, -1))
        version = min(high, request.VERSIONS.high)
        if version < max(low, request.VERSIONS.low):
            raise KafkaError(f"Broker {self.address} does not serve {request.NAME} in a version that is known here.")
        return self._exchange(request, version)

    def _learn_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__)
        response = self._exchange(request, API_VERSIONS_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = self._exchange(request, 0)
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def _exchange(self, request: Request, version: int) -> Any:
        self._correlation += 1
        try:
            frame = encode_request(request.API_KEY, version, self._correlation, CLIENT_ID, request)
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
            size = int.from_bytes(self._exactly(4), "big", signed=True)
            if not 4 <= size <= MAX_FRAME:
                raise DecodeError(f"a response of {size} bytes")
            # Newer brokers may have fields behind the ones that are known here.
            correlation, response = decode_response(request.API_KEY, version, self._exactly(size))
            if correlation != self._correlation:
                raise DecodeError(f"the response to request {correlation} instead of {self._correlation}")
        except OSError as error:
            raise BrokerUnreachableError(f"Broker {self.address} does not answer: {_reason(error)}.") from None
        except DecodeError as error:
            raise BrokerUnreachableError(f"{self.address} does not answer as a Kafka broker: {error}.") from None
        return response

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 16))
            if not part:
                raise ConnectionError("it has closed the connection")
            data += part
        return bytes(data)


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of "host:port" or "[::1]:port". KafkaError, one sentence."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise KafkaError(f"{text!r} is no address of a broker: host:port is expected.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def connect_to_any(bootstrap: str, timeout_s: float = 30.0) -> tuple[BlockingConnection, dict[int, tuple[str, int]]]:
    """A connection to the first broker of the comma-separated list that answers, and (host, port) of every broker of
    its cluster by id. KafkaError; BrokerUnreachableError when none answers."""
    addresses = [parse_address(each) for each in bootstrap.split(",")]
    failure: BrokerUnreachableError | None = None
    for host, port in addresses:
        try:
            connection = BlockingConnection(host, port, timeout_s)
            try:
                brokers = connection.call(MetadataRequest(topics=[])).brokers
            except BaseException:
                connection.close()
                raise
            return connection, {each.node_id: (each.host, each.port) for each in brokers}
        except BrokerUnreachableError as error:
            failure = error
    assert failure is not None
    raise failure


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it takes too long"
    return (error.strerror or str(error)).lower()
