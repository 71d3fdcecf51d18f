"""ClientTelemetry: from the payload of a push to its readers.

A separate thread decompresses, decodes and passes on, one push after the other, so that neither the control loop nor
the data plane does. Decompressed metrics may be DECOMPRESSED times as large as telemetry.max.bytes; a payload that
would become larger costs no more than that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy.broker.client_telemetry.decoding import DecodeError, decode
from kafkapy.broker.client_telemetry.instances import Client, ClientInstances, id_text
from kafkapy.broker.client_telemetry.series import ClientSeries
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.records.compression import decompress

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["ClientTelemetry", "ClientTelemetryReceiver"]

logger = logging.getLogger("kafka.server.ClientMetricsManager")

DECOMPRESSED: Final = 4


class ClientTelemetryReceiver(Protocol):
    """A plugin that gets every push. `receive` runs on the telemetry thread."""

    def receive(self, client: Client, metrics: Any) -> None:
        """Take one push: an `opentelemetry.proto.metrics.v1.metrics_pb2.MetricsData`.

        An exception makes the client's error INVALID_RECORD.
        """

    def close(self) -> None:
        """The broker stops."""


class ClientTelemetry:
    """Owns the instances, the series and the receivers.

    The broker's control part makes it, on the control loop.
    """

    def __init__(
        self, config: Callable[[], BrokerConfig], receivers: Mapping[str, ClientTelemetryReceiver] | None = None
    ) -> None:
        self._config = config
        self._receivers = dict(receivers or {})
        self.series = ClientSeries(config().get_int("kafkapy.client.telemetry.max.series"))
        self.instances = ClientInstances(self.max_bytes, self.series.forget)
        self.exports = self.export_errors = 0
        """Pushes that receivers took, and that they refused."""
        self.export_ms = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-client-telemetry")

    def max_bytes(self) -> int:
        """telemetry.max.bytes."""
        return self._config().get_int("telemetry.max.bytes")

    async def push(
        self, client: Client, subscription_id: int, terminating: bool, compression: int, payload: memoryview | bytes
    ) -> None:
        """One PushTelemetry. KafkaError as ClientInstances.push, and INVALID_RECORD."""
        self.instances.push(client, subscription_id, terminating, compression, len(payload))
        if len(payload):
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._read, client, compression, bytes(payload), DECOMPRESSED * self.max_bytes()
                )
            finally:
                if client.instance_id not in self.instances:
                    # Others took its place while the push waited: nobody else forgets its series.
                    self.series.forget(client.instance_id)

    def _read(self, client: Client, compression: int, payload: bytes, most: int) -> None:
        try:
            metrics = decode(bytes(decompress(compression, payload, max_bytes=most)), most)
        except (KafkaError, DecodeError) as error:
            raise error_for(ErrorCode.INVALID_RECORD, f"The metrics cannot be read: {error}") from None
        self.series.take(client, metrics)
        for name, receiver in self._receivers.items():
            began_s = time.perf_counter()
            try:
                receiver.receive(client, metrics)
                self.exports += 1
                self.export_ms += (time.perf_counter() - began_s) * 1000
            except Exception as error:
                self.export_errors += 1
                logger.exception(
                    "The client telemetry receiver %s failed for client %s", name, id_text(client.instance_id)
                )
                raise error_for(ErrorCode.INVALID_RECORD, f"The receiver {name} failed") from error

    def close(self) -> None:
        """End the thread and the receivers."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        for name, receiver in self._receivers.items():
            try:
                receiver.close()
            except Exception:
                logger.exception("The client telemetry receiver %s failed to close", name)
