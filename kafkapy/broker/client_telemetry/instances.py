"""Client instances and their subscriptions. Source: org.apache.kafka.server.ClientMetricsManager.

A client asks which metrics to push (GetTelemetrySubscriptions) and pushes them (PushTelemetry). The broker keeps an
instance for each client that did one of these lately: at most INSTANCES, the least recently seen makes room.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kafkapy._speedups.base.crc32c import crc32c
from kafkapy.config.client_metrics import DEFAULT_INTERVAL_MS, ClientMetricsSubscription
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.types import CompressionType, uuid_to_string

__all__ = ["ACCEPTED_COMPRESSION", "Client", "ClientInstances", "Instance"]

logger = logging.getLogger("kafka.server.ClientMetricsManager")

INSTANCES: Final = 16_384
LEAST_EXPIRY_MS: Final = 60_000
EXPIRY_INTERVALS: Final = 3
ALL: Final = "*"
ACCEPTED_COMPRESSION: Final = (
    CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY,
)  # fmt: skip
"""In the order in which clients should choose."""
CHANGED: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client asks at once."""


class Client(NamedTuple):
    """The properties of a client that subscriptions match and readers see."""

    instance_id: UUID
    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: int

    def selectors(self) -> Mapping[str, str]:
        """The values by the names of SELECTORS."""
        return {
            "client_instance_id": id_text(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.source_address,
            "client_source_port": str(self.source_port),
        }


@dataclass(slots=True)
class Instance:
    """One client instance. On the control loop."""

    client: Client
    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int
    version: int
    """Of the subscriptions that these were chosen from."""
    last_get_ms: int = -1
    last_push_ms: int = -1
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def expires_at_ms(self) -> int:
        """The time at which the instance is forgotten unless it is seen again."""
        seen = max(self.last_get_ms, self.last_push_ms)
        return seen + max(LEAST_EXPIRY_MS, EXPIRY_INTERVALS * self.interval_ms)


class ClientInstances:
    """Owns subscriptions and instances. Used on the control loop.

    `forgotten` is called with the id of every instance that goes.
    """

    def __init__(
        self,
        max_bytes: Callable[[], int],
        forgotten: Callable[[UUID], None] = lambda _: None,
        *,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        most: int = INSTANCES,
    ) -> None:
        self._max_bytes = max_bytes
        self._forgotten = forgotten
        self._clock_ms = clock_ms
        self._most = most
        self._subscriptions: dict[str, ClientMetricsSubscription] = {}
        self._version = 0
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        """The least recently seen come first."""
        self.unknown_subscriptions = self.throttled = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, name: str, subscription: ClientMetricsSubscription | None) -> None:
        """A subscription as it is now, None when it was deleted. A SubscriptionListener."""
        if subscription is None:
            self._subscriptions.pop(name, None)
        else:
            self._subscriptions[name] = subscription
        self._version += 1

    # --- requests -----------------------------------------------------------------------------------------------------

    def get(self, client: Client) -> Instance:
        """GetTelemetrySubscriptions. KafkaError: THROTTLING_QUOTA_EXCEEDED before the next push is due.

        A client asks earlier when its subscription is not known any more.
        """
        now_ms = self._clock_ms()
        instance = self._instance(client, now_ms)
        last = max(instance.last_get_ms, instance.last_push_ms)
        if last >= 0 and now_ms - last < instance.interval_ms and instance.last_error not in CHANGED:
            self.throttled += 1
            instance.last_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _early(client))
        instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, client: Client, subscription_id: int, terminating: bool, compression: int, size: int) -> Instance:
        """PushTelemetry, before its metrics are read. KafkaError.

        INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE or
        TELEMETRY_TOO_LARGE.
        """
        if is_reserved(client.instance_id):
            raise error_for(ErrorCode.INVALID_REQUEST, f"Client instance id {id_text(client.instance_id)} is reserved")
        now_ms = self._clock_ms()
        instance = self._instance(client, now_ms)
        try:
            self._check_push(instance, now_ms, subscription_id, terminating, compression, size)
        except KafkaError as error:
            instance.last_error = ErrorCode(error.code)
            self.throttled += instance.last_error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            self.unknown_subscriptions += instance.last_error is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            raise
        instance.terminating = terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def _check_push(
        self, instance: Instance, now_ms: int, subscription_id: int, terminating: bool, compression: int, size: int
    ) -> None:
        client = instance.client
        if instance.terminating:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"Client {id_text(client.instance_id)} has sent its last push; no other may follow",
            )
        # One push right after a get is free: a client spreads its first push over the interval. So is the last one.
        is_due = instance.last_get_ms > instance.last_push_ms or now_ms - instance.last_push_ms >= instance.interval_ms
        if instance.last_push_ms >= 0 and not is_due and not terminating:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _early(client))
        instance.last_push_ms = now_ms
        if subscription_id != instance.subscription_id:
            raise error_for(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                f"Subscription id {subscription_id} is not the present one, {instance.subscription_id}",
            )
        if compression != CompressionType.NONE and compression not in ACCEPTED_COMPRESSION:
            raise error_for(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression type {compression} is not known")
        if size > self._max_bytes():
            raise error_for(
                ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes of metrics exceed telemetry.max.bytes={self._max_bytes()}"
            )

    # --- instances ----------------------------------------------------------------------------------------------------

    def __contains__(self, instance_id: UUID) -> bool:
        """Whether the instance is kept."""
        return instance_id in self._instances

    def _instance(self, client: Client, now_ms: int) -> Instance:
        """The client's instance with its present subscription."""
        self._expire(now_ms)
        instance = self._instances.get(client.instance_id)
        if instance is None:
            instance = self._choose(client)
            while len(self._instances) >= self._most:
                gone, _ = self._instances.popitem(last=False)
                self._forgotten(gone)
            self._instances[client.instance_id] = instance
        else:
            self._instances.move_to_end(client.instance_id)
            if instance.version != self._version or instance.client != client:
                fresh = self._choose(client)
                if fresh.subscription_id != instance.subscription_id:
                    fresh.last_error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID  # the client may ask at once
                else:
                    fresh.last_error = instance.last_error
                fresh.last_get_ms, fresh.last_push_ms = instance.last_get_ms, instance.last_push_ms
                fresh.terminating = instance.terminating
                instance = self._instances[client.instance_id] = fresh
        return instance

    def _expire(self, now_ms: int) -> None:
        """Forget the oldest instances that are due; two at a time keep up with every new one."""
        for _ in range(2):
            oldest = next(iter(self._instances.values()), None)
            if oldest is None or oldest.expires_at_ms() > now_ms:
                return
            self._instances.popitem(last=False)
            self._forgotten(oldest.client.instance_id)

    def _choose(self, client: Client) -> Instance:
        """The metrics and the smallest interval of the subscriptions that match."""
        selectors = client.selectors()
        metrics: dict[str, None] = {}
        interval_ms: int | None = None
        for subscription in self._subscriptions.values():
            if subscription.matches(selectors):
                metrics.update(dict.fromkeys(subscription.metrics))
                interval_ms = min(interval_ms or subscription.interval_ms, subscription.interval_ms)
        chosen = (ALL,) if ALL in metrics else tuple(metrics)
        interval = DEFAULT_INTERVAL_MS if interval_ms is None else interval_ms
        checksum = crc32c(f"{','.join(sorted(chosen))}|{interval}".encode()) ^ (hash(client.instance_id) & 0xFFFFFFFF)
        signed = checksum - (1 << 32) if checksum >> 31 else checksum
        return Instance(client, signed, chosen, interval, self._version)


def id_text(instance_id: UUID) -> str:
    """The id as Kafka writes it: base 64 without padding."""
    return uuid_to_string(instance_id)


def is_reserved(instance_id: UUID) -> bool:
    """Whether the id is reserved: zero, one, or text that begins with a dash."""
    return instance_id.int in (0, 1) or id_text(instance_id).startswith("-")


def _early(client: Client) -> str:
    return f"Request from the client {id_text(client.instance_id)} arrived before the next push interval time"
