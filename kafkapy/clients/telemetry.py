"""A client's pushes of its metrics to the brokers (KIP-714), off the hot path.

The client asks a broker which metrics to push and how often, and pushes them until it closes; then once more. Nothing
happens with brokers that do not serve the API, without the extra `telemetry`, or with enable.metrics.push=false.
Source: org.apache.kafka.common.telemetry.internals.ClientTelemetryReporter.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafkapy.errors import ErrorCode, IllegalStateError, KafkaError, UnsupportedVersionError
from kafkapy.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kafkapy.protocol.messages.push_telemetry import PushTelemetryRequest
from kafkapy.records.compression import compress
from kafkapy.types import ZERO_UUID, CompressionType

if TYPE_CHECKING:
    from kafkapy.clients.network_client import NetworkClient

__all__ = ["CLOSE_S", "NEGATIVE", "TelemetryReporter", "check_enabled"]

logger = logging.getLogger("kafkapy.telemetry")

PREFIX: Final = "org.apache.kafka."
ALL: Final = "*"
RETRY_S: Final = 300.0
"""The pause after an error that says nothing about the next attempt, as Kafka's clients have it."""
FIRST_S: Final = (0.5, 1.5)
"""The first push comes at a random part of the interval, so that clients that start together spread."""
CLOSE_S: Final = 1.0
"""Time for the last push."""
ASK_AGAIN: Final = frozenset((
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.TELEMETRY_TOO_LARGE,
))  # fmt: skip
FOR_GOOD: Final = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION))
"""Errors after which the client pushes no more."""
KNOWN_CODECS: Final = frozenset(int(codec) for codec in CompressionType)
_PARTITION: Final = re.compile(r"(.+)-(\d+)")

NEGATIVE: Final = "The timeout cannot be negative."

Groups = Mapping[str, Mapping[str, Any]]


class Number(NamedTuple):
    """One metric in Kafka's telemetry name."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_total: bool


class TelemetryReporter:
    """Pushes one client's metrics. On the client's loop.

    `read` gives the metrics by group and name, `resource` the attributes that the client has now.
    """

    def __init__(
        self, network: NetworkClient, read: Callable[[], Groups], resource: Callable[[], Mapping[str, str | None]]
    ) -> None:
        self._network = network
        self._read = read
        self._resource = resource
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._instance_id = ZERO_UUID
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """Whether a broker gave the client its id, or none will."""
        self._started_ns = self._pushed_ns = time.time_ns()
        self._totals: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.pushes = 0

    async def client_instance_id(self, timeout_s: float) -> UUID | None:
        """The id that a broker gave this client, the same for all its life.

        None when no broker gives one within `timeout_s`. IllegalStateError with enable.metrics.push=false or without
        the extra `telemetry`; ValueError for a negative timeout.
        """
        check_enabled(bool(self._network.config["enable.metrics.push"]))
        if not can_encode():
            raise IllegalStateError("Telemetry needs the extra `telemetry`: pip install kafkapy[telemetry]")
        if timeout_s < 0:
            raise ValueError(NEGATIVE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        return self._instance_id if self._instance_id.int else None

    def start(self) -> None:
        """Begin, where the client may push and can."""
        if self._network.config["enable.metrics.push"] and can_encode():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="telemetry")
            self._task.add_done_callback(lambda _: self._settled.set())

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Push the last time, and end. At most about `timeout_s`."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if self._subscription is not None and self._subscription.requested_metrics and not self._network.closed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._push(self._subscription, terminating=True)
            except Exception as error:  # nothing of this may keep a client from closing
                logger.debug("The last push of metrics failed: %s", error)

    async def _run(self) -> None:
        pause_s: float | None = 0.0
        while pause_s is not None:
            await asyncio.sleep(pause_s)
            try:
                pause_s = await self._step()
            except UnsupportedVersionError:
                return
            except KafkaError as error:
                logger.debug("Telemetry cannot be exchanged with a broker: %s", error)
                self._subscription, pause_s = None, self._interval_s()
            except Exception:
                logger.exception("The client pushes no more metrics after an unexpected error")
                return

    async def _step(self) -> float | None:
        """Ask or push. Returns the seconds until the next step, None to end."""
        if self._subscription is None:
            return await self._ask()
        if not self._subscription.requested_metrics:
            self._subscription = None
            return 0.0
        code = await self._push(self._subscription, terminating=False)
        if code == ErrorCode.NONE:
            return self._interval_s()
        logger.debug("A broker refused pushed metrics: %s", ErrorCode(code).name)
        interval_s = self._interval_s()
        if code in FOR_GOOD:
            return None
        if code in ASK_AGAIN:
            self._subscription = None
            return 0.0 if code != ErrorCode.TELEMETRY_TOO_LARGE else interval_s
        return interval_s

    async def _ask(self) -> float | None:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
        response: GetTelemetrySubscriptionsResponse = await self._network.send_any(request)
        if response.error_code:
            logger.debug("A broker refused to subscribe to metrics: %s", ErrorCode(response.error_code).name)
            return None if response.error_code in FOR_GOOD else RETRY_S
        self._instance_id = response.client_instance_id
        self._settled.set()
        first = self._subscription is None and self.pushes == 0
        self._subscription = response
        interval_s = self._interval_s()
        return interval_s * random.uniform(*FIRST_S) if first and response.requested_metrics else interval_s

    def _interval_s(self) -> float:
        return RETRY_S if self._subscription is None else max(self._subscription.push_interval_ms, 1) / 1000

    async def _push(self, subscription: GetTelemetrySubscriptionsResponse, terminating: bool) -> int:
        numbers = list(chosen(numbers_of(self._read()), subscription.requested_metrics))
        values = self._since_the_last_push(numbers, subscription.delta_temporality)
        now_ns = time.time_ns()
        began_ns = self._pushed_ns if subscription.delta_temporality else self._started_ns
        codec, payload = await asyncio.get_running_loop().run_in_executor(
            None,
            encode,
            values,
            {name: text for name, text in self._resource().items() if text},
            began_ns,
            now_ns,
            subscription.delta_temporality,
            subscription.accepted_compression_types,
        )
        request = PushTelemetryRequest(
            client_instance_id=self._instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=payload,
        )
        response = await self._network.send_any(request)
        if response.error_code == ErrorCode.NONE:
            self.pushes += 1
            self._pushed_ns = now_ns
            self._totals = {(each.name, each.attributes): each.value for each in numbers if each.is_total}
        code: int = response.error_code
        return code

    def _since_the_last_push(self, numbers: Iterable[Number], delta: bool) -> list[Number]:
        if not delta:
            return list(numbers)
        return [
            each._replace(value=max(each.value - self._totals.get((each.name, each.attributes), 0.0), 0.0))
            if each.is_total
            else each
            for each in numbers
        ]


def check_enabled(enabled: bool) -> None:
    """IllegalStateError where enable.metrics.push is false."""
    if not enabled:
        raise IllegalStateError("Telemetry is not enabled. Set config `enable.metrics.push` to `true`.")


def can_encode() -> bool:
    """Whether the extra `telemetry` is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.metrics.v1") is not None
    except ModuleNotFoundError:
        return False


def numbers_of(groups: Groups) -> Iterable[Number]:
    """The metrics in the names of KIP-714.

    record-queue-time-avg of producer-metrics is org.apache.kafka.producer.record.queue.time.avg.
    """
    for group, values in groups.items():
        kind, _, detail = group.partition(".")
        kind = kind.removesuffix("-metrics").replace("-", ".")
        attributes = _attributes(detail)
        for name, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                dotted = name.replace("-", ".")
                yield Number(f"{PREFIX}{kind}.{dotted}", attributes, float(value), name.endswith("-total"))


def _attributes(detail: str) -> tuple[tuple[str, str], ...]:
    if detail.startswith("node-"):
        return (("node_id", detail.removeprefix("node-")),)
    found = _PARTITION.fullmatch(detail)
    return () if found is None else (("topic", found[1]), ("partition", found[2]))


def chosen(numbers: Iterable[Number], prefixes: Sequence[str]) -> Iterable[Number]:
    """The numbers that the subscription names."""
    wanted = tuple("" if prefix == ALL else prefix for prefix in prefixes)
    return (each for each in numbers if each.name.startswith(wanted))


def encode(
    numbers: Iterable[Number],
    resource: Mapping[str, str],
    began_ns: int,
    now_ns: int,
    delta: bool,
    accepted: Sequence[int],
) -> tuple[int, bytes]:
    """(compression type, MetricsData of OTLP). On another thread.

    The first push imports the library.
    """
    from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

    data = otlp.MetricsData()
    resource_metrics = data.resource_metrics.add()
    for key, text in resource.items():
        resource_metrics.resource.attributes.add(key=key).value.string_value = text
    scope = resource_metrics.scope_metrics.add()
    metrics: dict[str, Any] = {}
    for number in numbers:
        metric = metrics.get(number.name)
        if metric is None:
            metric = metrics[number.name] = scope.metrics.add(name=number.name)
            if number.is_total:
                metric.sum.is_monotonic = True
                metric.sum.aggregation_temporality = (
                    otlp.AGGREGATION_TEMPORALITY_DELTA if delta else otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
                )
        points = metric.sum.data_points if number.is_total else metric.gauge.data_points
        point = points.add(time_unix_nano=now_ns, as_double=number.value)
        if number.is_total:
            point.start_time_unix_nano = began_ns
        for key, text in number.attributes:
            point.attributes.add(key=key).value.string_value = text
    payload = data.SerializeToString()
    known = [codec for codec in accepted if codec in KNOWN_CODECS]
    if not known:
        return CompressionType.NONE, payload
    return known[0], bytes(compress(known[0], payload))
