"""ApiVersions as a client sees it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.metadata.features import LATEST_LEVELS
from kafkapy.protocol.header import decode_response
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest

NAMED = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_the_served_apis(client: Any, version: int) -> None:
    response = client(NAMED if version >= 3 else ApiVersionsRequest(), version)
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert response.error_code == ErrorCode.NONE
    assert served[0] == (0, 13)
    assert served[1] == (0, 18)
    assert served[3] == (0, 13)
    assert served[18] == (0, 5)
    assert [each.api_key for each in response.api_keys] == sorted(served)
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    assert finalized == (LATEST_LEVELS if version >= 3 else {})
    # Before version 4 a client knows no feature that begins at level 0.
    levels = {
        "metadata.version": (7, 33),
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "share.version": (0, 2),
    }
    assert supported == {name: level for name, level in levels.items() if version >= 4 or (version == 3 and level[0])}
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)


def test_an_unknown_version_is_answered_in_version_0_with_the_list(client: Any) -> None:
    header = struct.pack(">hhih", 18, 99, 7, 4) + b"test" + b"\x00"
    client.send_frame(header + b"\xff\xff garbage that no version knows")
    correlation, response = decode_response(18, 0, client.receive_frame())
    assert (correlation, response.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert {each.api_key for each in response.api_keys} >= {0, 1, 3, 18}
    assert client(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE, "the connection goes on"


@pytest.mark.parametrize("name", ["", "-java", "java-", "ja va", "java!", "a" * 20 + "é"])
def test_a_client_with_a_bad_name_is_refused(client: Any, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    assert client(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster", "node", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("this", 1, ErrorCode.NONE),
        ("this", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("this", -2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("this", -1, ErrorCode.INVALID_REQUEST),
        ("other", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_may_say_which_node_of_which_cluster_it_means(
    client: Any, broker: Any, cluster: str | None, node: int, error: ErrorCode
) -> None:
    cluster_id = broker.context.cluster_id if cluster == "this" else cluster
    request = ApiVersionsRequest(
        client_software_name="tests", client_software_version="1.0", cluster_id=cluster_id, node_id=node
    )
    response = client(request, 5)
    assert response.error_code == error
    assert bool(response.api_keys) == bool(response.finalized_features) == (error == ErrorCode.NONE)


def test_a_client_that_names_itself_is_remembered(client: Any, broker: Any) -> None:
    client(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.6.1"), 3)
    port = client.socket.getsockname()[1]
    found = [each for each in broker.socket_server.connections() if each["peer_port"] == port]
    assert [each["software_name"] for each in found] == ["librdkafka"]
