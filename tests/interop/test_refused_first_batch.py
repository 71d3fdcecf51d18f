"""The leader has not heard of its partition yet: it refuses a producer's first batch and takes the second one, which is
on its way already. A broker accepts any first sequence number of an unknown producer (KIP-360), so the records of the
first batch can only be lost; a producer must not confirm them.

The refusal comes from a proxy in front of a broker, because the moment passes too soon otherwise. librdkafka 2.x
concludes from the second answer that the first batch is in the log ("implicit ack"), and confirms lost records. So it
does on Apache Kafka: `KAFKAPY_INTEROP_PEER=3.9` runs the same there.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from interop.conftest import make_broker
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.admin import KafkaAdminClient
from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse

TOPIC = "refused"
FIRST, SECOND = [b"0", b"1", b"2"], [b"3", b"4"]


class Refusing:
    """A proxy in front of a broker. It answers the first Produce request itself, with UNKNOWN_TOPIC_OR_PARTITION, as
    soon as the second one has come."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self.first = threading.Event()
        """The first Produce request has come."""
        self.refused = threading.Event()
        self._held: tuple[socket.socket, bytes] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target_port))
                threading.Thread(target=self._requests, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answers, args=(far, near), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError), near.makefile("rb") as source:
            while size := source.read(4):
                frame = source.read(int.from_bytes(size, "big"))
                if not self._is_held(near, frame):
                    far.sendall(size + frame)
        far.close()

    def _is_held(self, near: socket.socket, frame: bytes) -> bool:
        """Whether the request goes no further."""
        if int.from_bytes(frame[:2], "big") != ProduceRequest.API_KEY or self.refused.is_set():
            return False
        with self._lock:
            if self._held is None:
                self._held = near, frame
                self.first.set()
                return True
            client, held = self._held
        header, request = decode_request(held)
        assert isinstance(request, ProduceRequest)
        answer = ProduceResponse(
            responses=[
                ProduceResponse.TopicResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        ProduceResponse.TopicResponse.PartitionResponse(
                            index=partition.index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, base_offset=-1
                        )
                        for partition in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
        body = encode_response(header.request_api_key, header.request_api_version, header.correlation_id, answer)
        client.sendall(len(body).to_bytes(4, "big") + body)
        self.refused.set()
        return False

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                near.sendall(data)
        near.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Refusing]:
    """In front of a broker with one empty partition."""
    made = Refusing()
    broker: Any = make_broker(tmp_path, **{"advertised.listeners": f"PLAINTEXT://127.0.0.1:{made.port}"})
    try:
        broker.start()
        made.target_port = broker.port
        with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{made.port}") as admin:
            admin.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
        yield made
    finally:
        broker.stop()
        broker.remove()
        made.close()


def in_the_log(proxy: Refusing, count: int) -> list[bytes]:
    """The values of the partition; there are at least so many."""
    values: list[bytes] = []
    with KafkaConsumer(TOPIC, bootstrap_servers=f"127.0.0.1:{proxy.port}", auto_offset_reset="earliest") as consumer:

        def more() -> bool:
            for records in consumer.poll(300).values():
                values.extend(record.value for record in records)
            return len(values) >= count

        wait_until(more, "the records are there")
    return values


def test_our_producer_confirms_no_lost_record(proxy: Refusing) -> None:
    confirmed: list[bytes] = []
    with KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{proxy.port}",
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        delivery_timeout_ms=20_000,
        request_timeout_ms=10_000,
        batch_size=1,
    ) as producer:
        futures = {FIRST[0]: producer.send(TOPIC, FIRST[0], partition=0)}
        wait_until(proxy.first.is_set, "the first batch comes")
        futures[SECOND[0]] = producer.send(TOPIC, SECOND[0], partition=0)
        wait_until(proxy.refused.is_set, "the second batch comes")
        for value, future in futures.items():
            with suppress(Exception):
                future.get(60)
                confirmed.append(value)
    assert SECOND[0] in confirmed
    assert set(confirmed) <= set(in_the_log(proxy, len(confirmed)))


def test_librdkafka_confirms_lost_records(proxy: Refusing) -> None:
    confirmed: dict[bytes, int] = {}

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            confirmed[message.value()] = message.offset()

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"127.0.0.1:{proxy.port}", "enable.idempotence": True, "linger.ms": 0}
    )
    for values, sent in ((FIRST, proxy.first), (SECOND, proxy.refused)):
        for value in values:
            producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
        wait_until(sent.is_set, "the batch comes")
    assert producer.flush(60) == 0
    print(confirmed, in_the_log(proxy, 1))
    assert set(confirmed) - set(in_the_log(proxy, 1))
