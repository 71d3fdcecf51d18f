"""Headers, whole requests and whole responses."""

from __future__ import annotations

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import (
    RequestHeader,
    ResponseHeader,
    decode_request,
    decode_request_body,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError


def test_flexible_requests_have_header_version_2_and_others_1():
    assert request_header_version(ApiKeys.METADATA, 8) == 1
    assert request_header_version(ApiKeys.METADATA, 9) == 2
    assert request_header_version(ApiKeys.SASL_HANDSHAKE, 1) == 1
    assert request_header_version(ApiKeys.API_VERSIONS, 3) == 2


def test_controlled_shutdown_version_0_has_no_client_id():
    assert request_header_version(ApiKeys.CONTROLLED_SHUTDOWN, 0) == 0
    assert request_header_version(ApiKeys.CONTROLLED_SHUTDOWN, 1) == 1


def test_flexible_responses_have_header_version_1_except_for_api_versions():
    assert response_header_version(ApiKeys.METADATA, 8) == 0
    assert response_header_version(ApiKeys.METADATA, 9) == 1
    for version in range(5):
        assert response_header_version(ApiKeys.API_VERSIONS, version) == 0


def test_the_client_id_is_never_compact():
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=1, client_id="ab")
    assert header.encode(2) == bytes.fromhex("0012 0003 00000001 0002 6162 00")
    assert header.encode(1) == bytes.fromhex("0012 0003 00000001 0002 6162")
    header.client_id = None
    assert header.encode(2) == bytes.fromhex("0012 0003 00000001 ffff 00")
    assert header.encode(0) == bytes.fromhex("0012 0003 00000001")


def test_unknown_tags_in_a_request_header_are_kept():
    wire = bytes.fromhex("0012 0003 00000001 ffff 01 05 02 aabb")
    header, end = decode_request_header(wire + b"rest")
    assert header._unknown_tags == {5: b"\xaa\xbb"}
    assert end == len(wire)
    assert header.encode(2) == wire


@pytest.mark.parametrize("version", range(5))
def test_requests_and_responses_go_there_and_back(version):
    request = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    frame = encode_request(ApiKeys.HEARTBEAT, version, 99, "me", request)
    header, decoded = decode_request(frame)
    assert (header.request_api_key, header.request_api_version) == (12, version)
    assert (header.correlation_id, header.client_id) == (99, "me")
    assert decoded == request
    response = HeartbeatResponse(error_code=27)
    assert decode_response(12, version, encode_response(12, version, 99, response)) == (99, response)


def test_a_response_is_header_and_body_without_the_frame_size():
    assert encode_response(12, 0, 258, HeartbeatResponse(error_code=27)) == bytes.fromhex("00000102 001b")
    assert encode_response(12, 4, 258, HeartbeatResponse(error_code=27)) == bytes.fromhex("00000102 00 00000000001b 00")
    assert ResponseHeader(correlation_id=258).encode(1) == bytes.fromhex("00000102 00")


def test_an_api_versions_response_has_no_tags_in_its_header():
    response = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=12)])
    assert encode_response(18, 3, 7, response)[:6] == bytes.fromhex("00000007 0000")
    assert decode_response(18, 3, encode_response(18, 3, 7, response)) == (7, response)


def test_an_api_versions_request_that_is_too_new_has_a_readable_header_and_gets_a_readable_answer():
    known = ApiVersionsRequest(client_software_name="future", client_software_version="9")
    frame = bytearray(encode_request(18, 4, 5, "c", known))
    frame[2:4] = (99).to_bytes(2, "big")
    header, _ = decode_request_header(bytes(frame))
    assert (header.request_api_version, header.correlation_id, header.client_id) == (99, 5, "c")
    with pytest.raises(DecodeError, match="no version 99"):
        decode_request(bytes(frame))
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert decode_response(18, 4, encode_response(18, 0, 5, answer)) == (5, answer)


def test_unknown_keys_and_short_frames_are_decode_errors():
    with pytest.raises(DecodeError, match="unknown API key 9999"):
        decode_request_header((9999).to_bytes(2, "big") + bytes(20))
    with pytest.raises(DecodeError, match="unknown API key"):
        decode_request_body(9999, 0, b"")
    for size in range(8):
        with pytest.raises(DecodeError):
            decode_request_header(bytes(size))
    with pytest.raises(DecodeError):
        decode_response(12, 0, b"\x00\x00")


def test_a_body_with_bytes_left_over_is_refused():
    frame = encode_request(12, 4, 1, "c", HeartbeatRequest(group_id="g", generation_id=4, member_id="m"))
    with pytest.raises(DecodeError, match="left over"):
        decode_request(frame + b"\x00")
    _, body = decode_request_header(frame)
    assert decode_request_body(12, 4, memoryview(frame)[body:]).member_id == "m"


def test_every_request_and_response_goes_through_its_header(api_class, versions_of):
    for version in versions_of(api_class):
        message = api_class()
        if api_class.NAME.endswith("Request"):
            header, decoded = decode_request(encode_request(api_class.API_KEY, version, 3, None, message))
            assert header.correlation_id == 3
        else:
            correlation_id, decoded = decode_response(
                api_class.API_KEY, version, encode_response(api_class.API_KEY, version, 3, message)
            )
            assert correlation_id == 3
        assert decoded == message
