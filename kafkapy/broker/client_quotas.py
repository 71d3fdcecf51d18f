"""The quotas of this broker's clients.

There are sensors for the data plane, buckets of controller mutations, and rates of addresses.

The metadata store has the quotas (metadata/quota_entities.py), a policy decides whom they bound (quota_callback.py),
and the data plane counts (_speedups/requests/client_quotas.pxd). The data plane asks once for each connection, client
id and epoch; a change of any quota is a new epoch. Without quotas the epoch is -1, and no request costs anything.
Source: kafka.server.QuotaFactory and kafka.server.ClientQuotaManager.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from kafkapy._speedups.requests.client_quotas import QuotaSensor
from kafkapy.broker.mutation_quotas import BucketQuota, MutationQuota, TokenBucket, Unlimited
from kafkapy.broker.quota_callback import DefaultQuotaCallback, QuotaType
from kafkapy.config.config_def import MAX_LONG
from kafkapy.metadata.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    QUOTA_TYPES,
    USER,
    QuotaEntity,
    entity_of_node,
    quota_values,
)
from kafkapy.network.addresses import addresses_of
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.slices import in_slices

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy._speedups.requests.data_plane import DataPlane
    from kafkapy.broker.quota_callback import ClientQuotaCallback
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.metadata.config_repository import ConfigRepository

__all__ = ["ClientQuotas", "QuotaReading", "QuotaWindows"]

logger = logging.getLogger("kafka.server.ClientQuotaManager")

OFF: Final = -1
SENSORS: Final = 10_000
"""Sensors, and buckets, that are kept; of more, those without a connection are forgotten."""
FORGET_AFTER_S: Final = 3600.0
"""Seconds after which an idle sensor or bucket is forgotten, as in Kafka; its metrics go with it."""
FORGET_EVERY_S: Final = 60.0
LOOK_S: Final = 0.5
"""Seconds between two questions to a policy of a plugin whether its quotas changed."""
NO_QUOTAS: Final[Mapping[str, float]] = {}
UNLIMITED: Final = float(MAX_LONG)
"""The limit of clients without a quota, as in Kafka: they are measured while others have one."""

Key = tuple[QuotaType, tuple[tuple[str, str], ...]]
V = TypeVar("V")


class QuotaWindows(NamedTuple):
    """The windows of a measured rate."""

    samples: int
    seconds: int

    @classmethod
    def of_clients(cls, config: BrokerConfig) -> QuotaWindows:
        """The windows of client quotas and connection rates."""
        return cls(config.get_int("quota.window.num"), config.get_int("quota.window.size.seconds"))

    @classmethod
    def of_mutations(cls, config: BrokerConfig) -> QuotaWindows:
        """The windows of controller mutations."""
        return cls(
            config.get_int("controller.quota.window.num"), config.get_int("controller.quota.window.size.seconds")
        )


class QuotaReading(NamedTuple):
    """The state of one quota, for the metrics."""

    quota_type: QuotaType
    tags: Mapping[str, str]
    rate: float
    throttle_time_ms: float | None
    tokens: float | None
    """Of controller mutations with a quota."""


class SetAddressRates(Protocol):
    """Puts the connection rates of addresses into force."""

    def __call__(self, default: float = ..., rates: dict[str, float] | None = ...) -> None: ...


class ClientQuotas:
    """Owns the sensors and buckets of clients.

    Made by the broker at its start; lives on the control loop. Any thread may call `readings`.
    """

    def __init__(
        self,
        plane: DataPlane,
        callback: ClientQuotaCallback,
        windows: QuotaWindows,
        mutation_windows: QuotaWindows,
    ) -> None:
        self._plane: DataPlane | None = plane
        self._callback = callback
        self._is_custom = type(callback) is not DefaultQuotaCallback
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._entities: dict[QuotaEntity, dict[str, float]] = {}
        self._in_use: dict[QuotaType, int] = dict.fromkeys(QuotaType, 0)
        """Entities with a quota of the type."""
        self._sensors: dict[Key, QuotaSensor] = {}
        self._buckets: dict[Key, TokenBucket] = {}
        self._most = {QuotaSensor: SENSORS, TokenBucket: SENSORS}
        self._idle_since: dict[Key, float] = {}
        """Of sensors, by the time that the broker found them idle."""
        self._exempt = QuotaSensor(math.inf, windows.samples, windows.seconds * 1000)
        self._epoch = 0
        self._set_address_rates: SetAddressRates | None = None
        self._address_task: asyncio.Task[None] | None = None
        self._addresses_changed = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None
        self._forget_task: asyncio.Task[None] | None = None
        self._publish()

    # --- quotas of the metadata store -------------------------------------------------------------------------------

    def follow(self, repository: ConfigRepository) -> None:
        """Take over the store's quotas, and each change of them.

        The repository has read their entity types."""
        for entity_type in QUOTA_TYPES:
            for name, config in repository.entities(entity_type).items():
                self._take(entity_type, name, config)

            async def changed(name: str, config: Mapping[str, str], entity_type: str = entity_type) -> None:
                self._take(entity_type, name, config)

            repository.listen(entity_type, changed)

    def _take(self, entity_type: str, name: str, config: Mapping[str, str]) -> None:
        entity = entity_of_node(entity_type, name)
        if entity is not None:
            self.apply(entity, quota_values(config))

    def apply(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """Put all quotas of an entity into force."""
        values = {key: value for key, value in values.items() if value > 0}
        before = self._entities.pop(entity, NO_QUOTAS)
        if values:
            self._entities[entity] = values
        if values == before:
            return
        if entity[0][0] == IP:
            self._addresses_changed.set()
            return
        for quota_type in QuotaType:
            old, new = before.get(quota_type.value), values.get(quota_type.value)
            self._in_use[quota_type] += (new is not None) - (old is not None)
            if new is not None and new != old:
                self._callback.update_quota(quota_type, dict(entity), new)
            elif old is not None and new is None:
                self._callback.remove_quota(quota_type, dict(entity))
        self._publish()

    @property
    def entities(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """All quotas of the metadata store that this broker has read."""
        return self._entities

    def _publish(self) -> None:
        """Begin a new epoch: the data plane asks again."""
        self._epoch += 1
        is_on = self._is_custom or any(self._in_use.values())
        if self._plane is not None:
            self._plane.quota_epoch = self._epoch if is_on else OFF

    # --- decisions --------------------------------------------------------------------------------------------------

    def answer(self, request: NetworkRequest) -> None:
        """Give a connection its sensors. Never raises."""
        principal, client_id = KafkaPrincipal.parse(request.principal), request.client_id or ""
        produce, fetch, of_time = (
            self._sensor(quota_type, principal, client_id)
            for quota_type in (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST)
        )
        counts_time = self._in_use[QuotaType.REQUEST] or self._is_custom
        request.set_quotas(self._epoch, produce, fetch, of_time, self._exempt if counts_time else None)

    def mutation_quota(self, principal: KafkaPrincipal, client_id: str, strict: bool) -> MutationQuota:
        """The quota of a request that creates or deletes partitions.

        A strict one refuses what exceeds it.
        """
        if not self._in_use[QuotaType.CONTROLLER_MUTATION] and not self._is_custom:
            return Unlimited()
        found = self._limit(QuotaType.CONTROLLER_MUTATION, principal, client_id)
        if found is None:
            return Unlimited()
        key, limit = found
        bucket = self._buckets.get(key)
        now_s = time.monotonic()
        if bucket is None:
            self._make_room(self._buckets, TokenBucket, lambda each: each.is_full(now_s), lambda each: False)
            bucket = self._buckets[key] = TokenBucket(limit, *self._mutation_windows, now_s)
        bucket.set_limit(limit, now_s)
        return BucketQuota(bucket, strict, time.monotonic)

    def _sensor(self, quota_type: QuotaType, principal: KafkaPrincipal, client_id: str) -> QuotaSensor | None:
        if not self._in_use[quota_type] and not self._is_custom:
            return None
        found = self._limit(quota_type, principal, client_id)
        if found is None:
            return None
        key, limit = found
        sensor = self._sensors.get(key)
        if sensor is None:
            self._make_room(self._sensors, QuotaSensor, QuotaSensor.is_idle, QuotaSensor.is_shared)
            window_ms = self._windows.seconds * 1000
            # As Kafka: time is throttled for at most a window, bytes for as long as they need.
            most_ms = window_ms if quota_type is QuotaType.REQUEST else 0
            sensor = self._sensors[key] = QuotaSensor(limit, self._windows.samples, window_ms, most_ms)
        if sensor.bound != limit:
            sensor.bound = limit
        return sensor

    def _limit(self, quota_type: QuotaType, principal: KafkaPrincipal, client_id: str) -> tuple[Key, float] | None:
        """The key and limit of the client's sensor; None when the policy fails."""
        try:
            tags = self._callback.quota_metric_tags(quota_type, principal, client_id)
            limit = self._callback.quota_limit(quota_type, tags)
            if limit is None:
                limit = UNLIMITED
            if not limit > 0:
                raise ValueError(f"{limit} is no quota")
            return (quota_type, tuple(sorted(tags.items()))), float(limit)
        except Exception:
            # A plugin is foreign code: its clients go on without a quota.
            logger.exception("The quota policy failed for %s; the client has no quota", principal)
            return None

    def _make_room(
        self, table: dict[Key, V], kind: type[V], is_unused: Callable[[V], bool], is_shared: Callable[[V], bool]
    ) -> None:
        """Forget what a new one would equal; when that is not half of all, whatever no connection holds."""
        most = self._most[kind]
        if len(table) < most:
            return
        for key in [key for key, each in table.items() if is_unused(each)]:
            del table[key]
        if len(table) > most // 2:
            for key in [key for key, each in table.items() if not is_shared(each)]:
                del table[key]
        self._most[kind] = max(SENSORS, 2 * len(table))

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(FORGET_EVERY_S)
            await self.forget_idle(time.monotonic())

    async def forget_idle(self, now_s: float) -> None:
        """Forget the sensors and buckets that nobody has used for an hour."""
        idle: dict[Key, float] = {}
        async for key, sensor in in_slices(list(self._sensors.items())):
            if not sensor.is_idle():
                continue
            since_s = self._idle_since.get(key, now_s)
            if now_s - since_s < FORGET_AFTER_S:
                idle[key] = since_s
            elif self._sensors.get(key) is sensor:
                del self._sensors[key]
        self._idle_since = idle
        async for key, bucket in in_slices(list(self._buckets.items())):
            if now_s - bucket.used_s >= FORGET_AFTER_S and bucket.is_full(now_s) and self._buckets.get(key) is bucket:
                del self._buckets[key]

    # --- policies of plugins ----------------------------------------------------------------------------------------

    def start(self, cache: MetadataCache) -> None:
        """Begin to ask a plugin's policy, to resolve addresses and to forget idle clients."""
        loop = asyncio.get_running_loop()
        if self._is_custom:
            self._follow_task = loop.create_task(self._follow_policy(cache), name="quota-policy")
        self._address_task = loop.create_task(self._follow_addresses(), name="address-quotas")
        self._forget_task = loop.create_task(self._forget(), name="idle-quotas")

    async def stop(self) -> None:
        """Ask no more, and close the policy.

        The data plane's descriptors are closed with its last reference, at once.
        """
        self._plane = None
        tasks = [task for task in (self._follow_task, self._address_task, self._forget_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            self._callback.close()
        except Exception:  # a plugin is foreign code: the broker stops all the same
            logger.exception("The quota policy cannot be closed")

    async def _follow_policy(self, cache: MetadataCache) -> None:
        seen = None
        while True:
            try:
                # All types are asked: a policy may keep a flag for each.
                resets = [self._callback.quota_reset_required(quota_type) for quota_type in QuotaType]
                changed = any(resets)
                if cache.snapshot is not seen:
                    seen = cache.snapshot
                    changed = self._callback.update_cluster_metadata(seen) or changed
                if changed:
                    self._publish()
            except Exception:  # a plugin is foreign code: it is asked again
                logger.exception("The quota policy cannot be asked for changes")
            await asyncio.sleep(LOOK_S)

    # --- addresses --------------------------------------------------------------------------------------------------

    def bound_addresses(self, set_address_rates: SetAddressRates) -> None:
        """Put the connection rates of addresses into force by this function."""
        self._set_address_rates = set_address_rates
        self._addresses_changed.set()

    async def _follow_addresses(self) -> None:
        while True:
            await self._addresses_changed.wait()
            self._addresses_changed.clear()
            if self._set_address_rates is None:
                continue
            default, rates = 0.0, dict[str, float]()
            for entity, values in list(self._entities.items()):
                rate = values.get(CONNECTION_CREATION_RATE)
                if rate is None or entity[0][0] != IP:
                    continue
                name = entity[0][1]
                if name is None:
                    default = rate
                    continue
                for address in await addresses_of(name):
                    rates[address] = rate
            self._set_address_rates(default, rates)

    # --- metrics ----------------------------------------------------------------------------------------------------

    def readings(self) -> Iterator[QuotaReading]:
        """The state of all quotas, those that were made last before others."""
        for (quota_type, tags), sensor in reversed(list(self._sensors.items())):
            yield QuotaReading(quota_type, _labels(tags), sensor.measure(), sensor.throttle_time_ms(), None)
        now_s = time.monotonic()
        for (quota_type, tags), bucket in reversed(list(self._buckets.items())):
            mean = bucket.throttled_ms / bucket.throttled if bucket.throttled else None
            tokens = bucket.tokens(now_s) if bucket.limit < UNLIMITED else None
            yield QuotaReading(quota_type, _labels(tags), bucket.mutations, mean, tokens)

    @property
    def exempt_time(self) -> float:
        """Thread time of requests that no quota bounds, in percent of one thread."""
        return self._exempt.measure()


def _labels(tags: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    labels = dict(tags)
    return {USER: labels.get(USER, ""), CLIENT_ID: labels.get(CLIENT_ID, "")}
