"""Changes of client quotas, and requests that count in them, by a test's client."""

from __future__ import annotations

import time

from broker.conftest import Client

from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType

BYTES = 100_000
Parts = dict[str, str | None]


def alter(client: Client, parts: Parts, client_id: str = "admin", **values: float | None) -> None:
    """Set quotas of an entity, or remove those that are None."""
    Entry = AlterClientQuotasRequest.Entry
    entry = Entry(
        entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[Entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    response = client(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1, client_id)
    assert [each.error_code for each in response.entries] == [0], response


def batch(size: int) -> bytes:
    builder = RecordBatchBuilder(CompressionType.NONE)
    builder.append(int(time.time() * 1000), None, b"x" * size)
    return bytes(builder.build())


def produce_request(topic: str, size: int = BYTES, acks: int = 1) -> ProduceRequest:
    Topic = ProduceRequest.Topic
    partition = Topic.Partition(index=0, records=batch(size))
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[Topic(name=topic, partition_data=[partition])]
    )


def produce(client: Client, topic: str, client_id: str, size: int = BYTES, version: int = 9) -> int:
    """Produce a record of that size; the throttle time in ms."""
    response = client(produce_request(topic, size), version, client_id)
    assert response.responses[0].partition_responses[0].error_code == 0
    throttle_ms: int = response.throttle_time_ms
    return throttle_ms
