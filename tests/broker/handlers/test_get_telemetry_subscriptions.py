"""GetTelemetrySubscriptions and ApiVersions as a client sees them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.telemetry_pushes import get, subscribe
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.types import ZERO_UUID

pytest.importorskip("opentelemetry.proto", reason="the extra telemetry is not installed")


@pytest.fixture
def asking(tmp_path: Path, make_config: Any, connect: Any) -> Iterator[Any]:
    with KafkaServer(make_config(tmp_path, metrics_listeners="127.0.0.1:0", telemetry_max_bytes="12345")) as server:
        yield connect(server)


def offered(client: Any) -> set[int]:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.2")
    return {each.api_key for each in client(request, 3).api_keys}


def test_the_apis_are_offered_only_where_somebody_reads(client: Any, asking: Any) -> None:
    assert not offered(client) & {71, 72}
    assert offered(asking) >= {71, 72}
    with pytest.raises(ConnectionError):
        get(client)


def test_a_new_client_gets_an_id_and_what_matches_it(asking: Any) -> None:
    offered(asking)
    first = get(asking)
    assert (first.error_code, first.requested_metrics, first.push_interval_ms) == (0, [], 300_000)
    assert first.client_instance_id.version == 4
    matching = "client_software_version=1.2"
    subscribe(asking, "all", metrics="org.apache.kafka.producer.", interval_ms="5000", match=matching)
    subscribe(asking, "none", metrics="*", match="client_id=somebody")
    wait_until(lambda: get(asking).requested_metrics == ["org.apache.kafka.producer."], "the subscription is known")
    mine = uuid.uuid4()
    found = get(asking, mine)
    assert (found.client_instance_id, found.push_interval_ms) == (mine, 5000)
    assert found.accepted_compression_types == [4, 3, 1, 2]
    assert (found.telemetry_max_bytes, found.delta_temporality) == (12345, True)
    again = get(asking, mine)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert again.client_instance_id == ZERO_UUID
    assert get(asking, client_id="somebody").requested_metrics == ["*"]
