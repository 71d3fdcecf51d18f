"""Kafka clients of one principal: the console's own, or those of a person who logged in with a Kafka user."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kafkapy.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfigDef
from kafkapy.config.consumer import CONSUMER
from kafkapy.config.producer import PRODUCER
from kafkapy.errors import ConfigError
from kafkapy_console.services.cache import Cache

__all__ = ["Clients"]

DEFAULTS: Mapping[str, object] = {
    "client.id": "kafkapy-console",
    "bootstrap.timeout.ms": 5000,
    "default.api.timeout.ms": 8_000,
    "request.timeout.ms": 8_000,
}
"""A person waits: a page says after seconds that the cluster is away."""
READER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.max.bytes": 8 << 20,
    "max.partition.fetch.bytes": 1 << 20,
    "fetch.max.wait.ms": 200,
    "allow.auto.create.topics": False,
}


class Clients:
    """Clients that start at their first use. Used on one loop."""

    def __init__(self, keys: Mapping[str, object]) -> None:
        self._keys = {**DEFAULTS, **keys}
        self._admin: AIOKafkaAdminClient | None = None
        self._producer: AIOKafkaProducer | None = None
        self._starting = Cache()
        self.cache = Cache()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that the clients begin with."""
        return str(self._keys["bootstrap.servers"])

    async def admin(self) -> AIOKafkaAdminClient:
        """The admin client, started. NoBrokersAvailableError, AuthenticationFailedError."""
        if self._admin is None:
            # All who wait share one attempt: a cluster that is away makes nobody wait for the attempts of others.
            await self._starting.get("admin", 0, self._start_admin)
        assert self._admin is not None
        return self._admin

    async def _start_admin(self) -> None:
        admin = AIOKafkaAdminClient(_keys_of(ADMIN, self._keys))
        await admin.start()
        self._admin = admin

    async def producer(self) -> AIOKafkaProducer:
        """The producer, started."""
        if self._producer is None:
            await self._starting.get("producer", 0, self._start_producer)
        assert self._producer is not None
        return self._producer

    async def _start_producer(self) -> None:
        wait, request = (int(str(self._keys[name])) for name in ("default.api.timeout.ms", "request.timeout.ms"))
        keys = {
            **_keys_of(PRODUCER, self._keys),
            "linger.ms": 5,
            "max.block.ms": max(10_000, wait),
            # It must be longer than a request and the linger, whatever the settings say of the former.
            "delivery.timeout.ms": max(20_000, wait + request),
        }
        producer = AIOKafkaProducer(configs=keys)
        await producer.start()
        self._producer = producer

    @asynccontextmanager
    async def consumer(self, **keys: object) -> AsyncIterator[AIOKafkaConsumer]:
        """A consumer without a group, for one read. Keys with underscores for dots."""
        given = {name.replace("_", "."): value for name, value in keys.items()}
        consumer = AIOKafkaConsumer(configs={**_keys_of(CONSUMER, self._keys), **READER, **given})
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    async def close(self) -> None:
        """Close the clients."""
        admin, self._admin = self._admin, None
        producer, self._producer = self._producer, None
        self.cache.drop()
        with contextlib.suppress(Exception):
            if producer is not None:
                await producer.stop()
        with contextlib.suppress(Exception):
            if admin is not None:
                await admin.close()


def _keys_of(definition: ClientConfigDef, keys: Mapping[str, object]) -> dict[str, Any]:
    """The keys that a client has. A console has one set of keys for all its clients."""
    chosen: dict[str, Any] = {}
    for name, value in keys.items():
        with contextlib.suppress(ConfigError):
            definition.key_of(name)
            chosen[name] = value
    return chosen
