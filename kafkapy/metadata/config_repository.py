"""The settings of topics, brokers, clients and users in the metadata store.

A change is two writes in one transaction: the entity's node, and a sequential node under /config/changes that names the
entity to all brokers. Every broker keeps a copy of the settings it has read and calls its listeners after a change.
Source: kafka.server.DynamicConfigManager and kafka.server.ZkConfigRepository.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from kafkapy.metadata.change_notifications import ChangeNotifications
from kafkapy.metadata.store import (
    STORE_FAILED,
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    StoreUnavailableError,
    parent_of,
)
from kafkapy.metadata.znodes import (
    CONFIG,
    CONFIG_BROKERS,
    CONFIG_CHANGE,
    CONFIG_CHANGES,
    CONFIG_CLIENT_METRICS,
    CONFIG_CLIENTS,
    CONFIG_GROUPS,
    CONFIG_TOPICS,
    CONFIG_USERS,
    DEFAULT_ENTITY,
    config_path,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)

logger = logging.getLogger("kafka.server.DynamicConfigManager")

MOST_ATTEMPTS: Final = 20
"""Most attempts to write a change whose entity other writers keep changing."""

READ_AT_START: Final = (CONFIG_BROKERS, CONFIG_GROUPS, CONFIG_CLIENT_METRICS)
"""Entity types that every broker follows."""

CONFIG_DEPTH: Final = 2
"""Slashes in the path of an entity type, which stays without entities."""

ConfigEdit = Callable[[dict[str, str]], Mapping[str, str]]
"""Makes an entity's new settings from its present ones.

An error that it raises prevents the write. It may be called again.
"""


class EntityChange(NamedTuple):
    """A change of one entity's settings."""

    entity_type: str
    name: str
    edit: ConfigEdit


ConfigListener = Callable[[str, Mapping[str, str]], Awaitable[None]]
"""Called with the entity's name and all its settings after a change."""


class ConfigRepository:
    """A copy of the settings in the store.

    Owned by the broker; used on the control loop. Topics are read on demand (`load_topics`), because only the topics
    hosted here matter; the copy of a topic is then kept up to date. Other entity types are read at the start.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._config: dict[tuple[str, str], dict[str, str]] = {}
        self._listeners: dict[str, list[ConfigListener]] = {}
        self._changes = ChangeNotifications(store, CONFIG_CHANGES, CONFIG_CHANGE, self._changed, logger=logger)
        self._orders: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """A lock per entity: each change begins with the settings that the one before has written."""
        self.topics_read: Callable[[Mapping[str, Mapping[str, str]]], None] | None = None
        """Called with the settings of topics that were just read."""

    async def start(self, entity_types: Iterable[str] = READ_AT_START) -> None:
        """Read the settings of these entity types, and begin to follow changes."""
        await self._changes.start()
        for entity_type in entity_types:
            await self.load_all(entity_type)

    async def load_all(self, entity_type: str) -> None:
        """Read the settings of every entity of a type, and follow them."""
        try:
            entities = await self._store.children(f"{CONFIG}/{entity_type}")
        except NoNodeError:
            return
        await self._load(entity_type, entities)
        if entity_type == CONFIG_USERS:
            await self._load(entity_type, await self._clients_of_users(entities))

    async def _clients_of_users(self, users: Sequence[str]) -> list[str]:
        """The client ids of users with quotas, as names below the entity type."""
        paths = [f"{user}/{CONFIG_CLIENTS}" for user in users]
        found = await self._store.get_many([config_path(CONFIG_USERS, path) for path in paths])
        names: list[str] = []
        for path, each in zip(paths, found, strict=True):
            if each is not None:
                names += [f"{path}/{name}" for name in await self._store.children(config_path(CONFIG_USERS, path))]
        return names

    async def stop(self) -> None:
        """Stop following changes."""
        await self._changes.stop()

    def listen(self, entity_type: str, listener: ConfigListener) -> None:
        """Call `listener` after each change of an entity of that type."""
        self._listeners.setdefault(entity_type, []).append(listener)

    # --- reading ------------------------------------------------------------------------------------------------------

    def topic(self, topic: str) -> Mapping[str, str]:
        """The topic's own settings, as last read; empty for an unloaded topic."""
        return self._config.get((CONFIG_TOPICS, topic), {})

    def broker(self, broker_id: int) -> Mapping[str, str]:
        """The settings of one broker."""
        return self._config.get((CONFIG_BROKERS, str(broker_id)), {})

    def broker_defaults(self) -> Mapping[str, str]:
        """The settings of all brokers together."""
        return self._config.get((CONFIG_BROKERS, DEFAULT_ENTITY), {})

    def entity(self, entity_type: str, name: str) -> Mapping[str, str]:
        """The settings of any entity, as last read."""
        return self._config.get((entity_type, name), {})

    async def fetch(self, entity_type: str, name: str) -> dict[str, str]:
        """The settings of an entity, read from the store."""
        found = (await self._store.get_many([config_path(entity_type, name)]))[0]
        return {} if found is None else decode_config(found[0])

    async def load_topics(self, topics: Iterable[str]) -> None:
        """Read the settings of topics that the copy does not have yet."""
        await self._load(CONFIG_TOPICS, [topic for topic in topics if (CONFIG_TOPICS, topic) not in self._config])

    async def reload_topics(self, topics: Iterable[str]) -> None:
        """Read the settings of topics again, after their creation or deletion."""
        await self._load(CONFIG_TOPICS, list(topics))

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic from the copy."""
        if self._config.pop((CONFIG_TOPICS, topic), None) and self.topics_read is not None:
            self.topics_read({topic: {}})

    async def _load(self, entity_type: str, names: list[str]) -> None:
        found = await self._store.get_many([config_path(entity_type, name) for name in names])
        for name, each in zip(names, found, strict=True):
            self._config[entity_type, name] = {} if each is None else decode_config(each[0])
        if entity_type == CONFIG_TOPICS and self.topics_read is not None:
            self.topics_read({name: self._config[entity_type, name] for name in names})

    def entities(self, entity_type: str) -> dict[str, Mapping[str, str]]:
        """Entity name to settings, for an entity type read at the start."""
        return {name: config for (kind, name), config in self._config.items() if kind == entity_type}

    # --- writing ------------------------------------------------------------------------------------------------------

    async def change(self, entity_type: str, name: str, edit: ConfigEdit) -> None:
        """Replace an entity's settings with the result of `edit`, and tell all brokers.

        Changes of an entity run one after the other. Returns when this broker's listeners have run.

        Raises the errors of `edit`; StoreUnavailableError, also when the change was written but could not be read.
        """
        path = config_path(entity_type, name)
        announcement = self._changes.announcement(encode_config_change(f"{entity_type}/{name}"))
        order = self._orders.setdefault((entity_type, name), asyncio.Lock())
        async with order:
            for attempt in range(MOST_ATTEMPTS):
                found = (await self._store.get_many([path]))[0]
                value = encode_config(edit({} if found is None else decode_config(found[0])))
                write = Create(path, value) if found is None else SetData(path, value, found[1].version)
                try:
                    await self._store.commit([write, announcement])
                    break
                except (BadVersionError, NodeExistsError, NoNodeError) as error:
                    # Another broker or a tool of Kafka has written it meanwhile.
                    if attempt == MOST_ATTEMPTS - 1:
                        raise StoreUnavailableError(path, f"others keep changing {path}") from error
        try:
            await self.process_changes()
        except STORE_FAILED:
            self._changes.look()
            raise

    async def change_entities(self, changes: Sequence[EntityChange]) -> None:
        """Change several entities in one transaction, each at most once.

        An entity without settings is removed. Errors as of `change`. The caller bounds the size of the transaction.
        """
        paths = [config_path(change.entity_type, change.name) for change in changes]
        parents = {parent_of(path) for path in paths}
        await self._store.ensure_paths(parents)
        for attempt in range(MOST_ATTEMPTS):
            found = await self._store.get_many(paths)
            operations: list[Operation] = []
            removed: list[str] = []
            for change, path, each in zip(changes, paths, found, strict=True):
                before = {} if each is None else decode_config(each[0])
                after = dict(change.edit(dict(before)))
                if after == before:
                    continue
                if each is None:
                    operations.append(Create(path, encode_config(after)))
                else:
                    operations.append(SetData(path, encode_config(after), each[1].version))
                if not after:
                    removed.append(path)
                operations.append(
                    self._changes.announcement(encode_config_change(f"{change.entity_type}/{change.name}"))
                )
            try:
                if operations:
                    await self._store.commit(operations)
                break
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                if attempt == MOST_ATTEMPTS - 1:
                    raise StoreUnavailableError(paths[0], "others keep changing the same entities") from error
                await self._store.ensure_paths(parents)
        try:
            await self.process_changes()
        except STORE_FAILED:
            self._changes.look()
            raise
        for path in removed:
            await self._remove_empty(path)

    async def _remove_empty(self, path: str) -> None:
        """Remove an entity's node without settings, and its parents below the entity type that held only it."""
        while path.count("/") > CONFIG_DEPTH:
            try:
                data, stat = await self._store.get(path)
                if decode_config(data):
                    return
                await self._store.delete(path, stat.version)
            except (BadVersionError, NoNodeError, NotEmptyError):
                return
            path = parent_of(path)

    async def write_operation(self, entity_type: str, name: str, config: Mapping[str, str]) -> Operation:
        """The operation that writes an entity's settings, with or without its node."""
        path = config_path(entity_type, name)
        exists = await self._store.exists(path) is not None
        return SetData(path, encode_config(config)) if exists else Create(path, encode_config(config))

    # --- following changes --------------------------------------------------------------------------------------------

    async def process_changes(self) -> None:
        """Apply the announced changes, then remove old announcements.

        StoreUnavailableError: the next call begins with the same changes.
        """
        await self._changes.process()

    async def _changed(self, values: list[bytes]) -> None:
        entities: dict[str, None] = {}
        for value in values:
            try:
                entities[decode_config_change(value)] = None
            except ValueError as error:
                logger.error("The broker ignores a malformed configuration change: %s", error)
        for entity_path in entities:
            await self._apply(*entity_path.partition("/")[::2])

    async def _apply(self, entity_type: str, name: str) -> None:
        key = (entity_type, name)
        if entity_type == CONFIG_TOPICS and key not in self._config:
            return  # not hosted here; read when it is
        config = await self.fetch(entity_type, name)
        if config or entity_type == CONFIG_TOPICS:
            self._config[key] = config
        else:
            self._config.pop(key, None)
        if entity_type == CONFIG_TOPICS and self.topics_read is not None:
            self.topics_read({name: config})
        logger.info("The configuration of %s %s changed; it sets: %s", entity_type, name, ", ".join(sorted(config)))
        for listener in self._listeners.get(entity_type, ()):
            try:
                await listener(name, config)
            except Exception:
                logger.exception("The configuration of %s %s cannot be applied", entity_type, name)
