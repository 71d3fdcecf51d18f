"""Headers, and whole requests and responses without their 4-byte frame size.

A flexible request version has header version 2, other versions have 1 (0 only for ControlledShutdown version 0). A
flexible response version has header version 1, other versions have 0. The response of ApiVersions always has header
version 0, because a client that does not know the broker's versions must be able to read it (KIP-511).
"""

from __future__ import annotations

from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.errors import ErrorCode
from kafkapy.protocol.registry import ApiKeys, api
from kafkapy.protocol.schema import DecodeError, Message, Request, Response, int16, int32, string

_CONTROLLED_SHUTDOWN = ApiKeys.CONTROLLED_SHUTDOWN.value
_API_VERSIONS = ApiKeys.API_VERSIONS.value
_NO_TAGS = b"\x00"
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """The header of a request: API key, version, correlation id, client id."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string("1+", nullable="1+", default=None, ignorable=True, compactable=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of a response: the correlation id of its request."""

    correlation_id: int = int32()


def request_header_version(api_key: int, version: int) -> int:
    """Header version of a request. Raises ValueError for an unknown API key."""
    if version == 0 and api_key == _CONTROLLED_SHUTDOWN:
        return 0
    return 2 if version >= api(api_key).first_flexible else 1


def response_header_version(api_key: int, version: int) -> int:
    """Header version of a response. Raises ValueError for an unknown API key."""
    if api_key == _API_VERSIONS:
        return 0
    return 1 if version >= api(api_key).first_flexible else 0


def decode_request_header(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, int]:
    """(header, offset of the body) of a request without its frame size.

    DecodeError, also for an unknown API key. An ApiVersions request in a version that is too new is read with header
    version 2, which all clients of such versions send; the broker can then answer with UNSUPPORTED_VERSION.
    """
    if len(frame) < 8:
        raise DecodeError(f"a request of {len(frame)} bytes cannot hold a header")
    api_key = int.from_bytes(frame[:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    try:
        header_version = request_header_version(api_key, version)
    except ValueError:
        raise DecodeError(f"unknown API key {api_key}") from None
    return RequestHeader.decode_from(frame, 0, header_version)


def decode_request_body(api_key: int, version: int, body: bytes | bytearray | memoryview) -> Request:
    """The request after its header; no byte may be left over.

    DecodeError, also for an unknown API key.
    """
    try:
        request = api(api_key).request
    except ValueError:
        raise DecodeError(f"unknown API key {api_key}") from None
    return request.decode(body, version)


def decode_request(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, Request]:
    """(header, request) of a request without its frame size. Raises DecodeError."""
    header, offset = decode_request_header(frame)
    body = memoryview(frame)[offset:]
    return header, decode_request_body(header.request_api_key, header.request_api_version, body)


def encode_response(api_key: int, version: int, correlation_id: int, response: Response) -> bytes:
    """Response header and body, without the 4-byte frame size.

    EncodeError; ValueError for an unknown API key.
    """
    prefix = correlation_id.to_bytes(4, "big", signed=True)
    if response_header_version(api_key, version) == 1:
        prefix += _NO_TAGS
    return encode_message(response, version, prefix)


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Request) -> bytes:
    """Request header and body, without the 4-byte frame size.

    EncodeError; ValueError for an unknown API key.
    """
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode_message(request, version, header.encode(request_header_version(api_key, version)))


def decode_response(
    api_key: int, version: int, frame: bytes | bytearray | memoryview, *, exact: bool = True
) -> tuple[int, Response]:
    """(correlation id, response) of a response without its frame size.

    DecodeError; ValueError for an unknown API key. A broker that does not know the version of an ApiVersions request
    answers in version 0 with UNSUPPORTED_VERSION; such a response is read in version 0.
    """
    header, offset = ResponseHeader.decode_from(frame, 0, response_header_version(api_key, version))
    body = memoryview(frame)[offset:]
    if api_key == _API_VERSIONS and body[:2] == _UNSUPPORTED_VERSION:
        version = 0
    return header.correlation_id, api(api_key).response.decode(body, version, exact=exact)
