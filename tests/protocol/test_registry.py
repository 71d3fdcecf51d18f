"""The table of APIs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.protocol.registry import ApiKeys, api


def test_found_by_key_and_by_name():
    assert ApiKeys(2) is ApiKeys["LIST_OFFSETS"] is ApiKeys.LIST_OFFSETS
    assert ApiKeys.LIST_OFFSETS.title == "ListOffsets"
    assert ApiKeys.LIST_OFFSETS.request is ListOffsetsRequest
    assert ApiKeys.LIST_OFFSETS.response is ListOffsetsResponse
    assert str(ApiKeys.LIST_OFFSETS.versions) == "0-11"
    assert str(ApiKeys.LIST_OFFSETS.flexible) == "6+"
    assert api(2).request is ListOffsetsRequest


def test_an_unknown_key_is_a_value_error():
    with pytest.raises(ValueError, match="9999"):
        api(9999)
    with pytest.raises(ValueError, match="52"):
        ApiKeys(52)


@pytest.mark.parametrize(
    ("key", "versions", "flexible"),
    [
        (ApiKeys.PRODUCE, "0-13", "9+"),
        (ApiKeys.FETCH, "0-18", "12+"),
        (ApiKeys.METADATA, "0-13", "9+"),
        (ApiKeys.LEADER_AND_ISR, "0-7", "4+"),
        (ApiKeys.UPDATE_METADATA, "0-8", "6+"),
        (ApiKeys.OFFSET_COMMIT, "0-10", "8+"),
        (ApiKeys.OFFSET_FETCH, "0-10", "6+"),
        (ApiKeys.JOIN_GROUP, "0-9", "6+"),
        (ApiKeys.SASL_HANDSHAKE, "0-1", "none"),
        (ApiKeys.INIT_PRODUCER_ID, "0-6", "2+"),
        (ApiKeys.CONSUMER_GROUP_HEARTBEAT, "0-1", "0+"),
        (ApiKeys.DESCRIBE_CLUSTER, "0-2", "0+"),
    ],
)
def test_versions_reach_from_the_oldest_of_3_9_to_the_newest_of_4(key, versions, flexible):
    assert (str(key.versions), str(key.flexible)) == (versions, flexible)


def test_importing_the_registry_and_the_headers_imports_no_messages():
    program = (
        "import sys, kafkapy.protocol.registry, kafkapy.protocol.header\n"
        "print([name for name in sys.modules if name.startswith('kafkapy.protocol.messages.')])\n"
        "kafkapy.protocol.registry.ApiKeys.HEARTBEAT.request\n"
        "print([name for name in sys.modules if name.startswith('kafkapy.protocol.messages.')])\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]", "['kafkapy.protocol.messages.heartbeat']"]
