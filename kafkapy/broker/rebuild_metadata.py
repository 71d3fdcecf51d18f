"""`kafkapy-server --rebuild-metadata`: topics from the log directories into the metadata store.

Names and partitions are those of the directories, ids stand in `partition.metadata`; logs that an earlier start has set
aside count too. Where the store and the directories differ, the directories win: this is for a store that was lost or
restored from a backup. No directory has the topics' settings. So records are kept for ever until somebody sets
`retention.ms`, and Kafka's own topics get the settings that they are created with.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkapy.broker.auto_topics import automatic_topic
from kafkapy.broker.meta_properties import StartupError
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.log.dir_scan import DELETE_SUFFIX, METADATA_TOPIC, parse_directory_name
from kafkapy.log.loader import read_topic_id
from kafkapy.log.log_dir import LogDir
from kafkapy.log.stray_logs import parse_stray_name
from kafkapy.metadata.store import Create, MetadataStore, Operation, SetData
from kafkapy.metadata.topic_names import is_internal
from kafkapy.metadata.znodes import (
    CONFIG_TOPICS,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    encode_config,
    encode_topic,
    topic_path,
)
from kafkapy.types import ZERO_UUID, TopicPartition, random_uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.log.backends.base import StorageBackend
    from kafkapy.log.log_manager import LogManager

logger = logging.getLogger("kafka.server.KafkaServer")

KEEP_EVERYTHING: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
"""Settings of a topic whose own ones are lost: nothing is deleted until somebody says so."""


class DiskLog(NamedTuple):
    """A partition's directory."""

    log_dir: LogDir
    backend: StorageBackend
    name: str
    topic_id: UUID
    stray: bool
    """It was set aside by an earlier start."""
    changed_ns: int


@dataclass(slots=True)
class RebuiltTopic:
    """A topic as the log directories have it."""

    topic_id: UUID
    partitions: dict[int, DiskLog] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """Partitions below the highest one that are in no directory."""
        return sorted(set(range(max(self.partitions) + 1)) - self.partitions.keys())


async def rebuild_metadata(
    config: BrokerConfig, store: MetadataStore, log_manager: LogManager, node_id: int
) -> list[str]:
    """Write the topics; their names. Called before the logs are loaded.

    StartupError when not all directories can be read: topics in the others would be missing for ever.
    """
    for log_dir in log_manager.offline_dirs:
        raise StartupError(
            f"The metadata cannot be rebuilt without the log directory {log_dir.path}: {log_dir.failure}"
        )
    try:
        found = await asyncio.to_thread(logs_on_disk, log_manager)
        controller_store = ControllerStore(store)
        await controller_store.ensure_paths()
        known = {name: each for name, (each, _) in (await controller_store.topic_assignments(list(found))).items()}
        topics = {}
        for name, logs in sorted(found.items()):
            before = known.get(name)
            topics[name] = choose(logs, None if before is None else before.topic_id)
        await asyncio.to_thread(_take_back, topics)
    except OSError as error:
        raise StartupError(f"The metadata cannot be rebuilt: {error.filename}: {error.strerror}") from error
    changed = []
    for name, topic in topics.items():
        if await _write(config, store, node_id, name, topic, known.get(name)):
            changed.append(name)
    logger.warning(
        "The metadata of %d topics was rebuilt from the log directories: %s", len(changed), ", ".join(changed)
    )
    return changed


def logs_on_disk(log_manager: LogManager) -> dict[str, list[tuple[int, DiskLog]]]:
    """By topic, every partition's directory, also those that were set aside. OSError. Blocking."""
    found: dict[str, list[tuple[int, DiskLog]]] = {}
    for log_dir in log_manager.live_dirs:
        for backend in log_manager.persistent_backends:
            for name in backend.list_logs(log_dir.path):
                partition, stray = parse_directory_name(name), False
                if partition is None and not name.endswith(DELETE_SUFFIX):
                    partition, stray = parse_stray_name(name), True
                if partition is None or partition.topic == METADATA_TOPIC:
                    continue
                storage = backend.open_log(log_dir.path, name, create=False)
                try:
                    topic_id = read_topic_id(storage)
                except ValueError as error:
                    logger.warning("Log %s has an unreadable topic id: %s", log_dir.path / name, error)
                    topic_id = ZERO_UUID
                changed_ns = _changed_ns(storage.directory)
                log = DiskLog(log_dir, backend, name, topic_id, stray, changed_ns)
                found.setdefault(partition.topic, []).append((partition.partition, log))
    return found


def _changed_ns(directory: str) -> int:
    """When a file of the directory was changed last."""
    if not directory:
        return 0
    with os.scandir(directory) as entries:
        return max((entry.stat().st_mtime_ns for entry in entries), default=0)


def choose(logs: Iterable[tuple[int, DiskLog]], known_id: UUID | None) -> RebuiltTopic:
    """The directories that make the topic, without those of earlier topics.

    The id is the one in the store if a directory has it, else that of most directories that were not set aside, else
    that of most others; of two with as many, the one that was changed last.
    """
    logs = list(logs)
    regular = [log for _, log in logs if not log.stray and log.topic_id != ZERO_UUID]
    aside = [log for _, log in logs if log.stray and log.topic_id != ZERO_UUID]
    if known_id is not None and (not regular or any(log.topic_id == known_id for log in regular)):
        topic_id = known_id
    elif regular or aside:
        candidates = regular or aside
        counts = Counter(log.topic_id for log in candidates)
        newest = {log.topic_id: 0 for log in candidates}
        for log in candidates:
            newest[log.topic_id] = max(newest[log.topic_id], log.changed_ns)
        topic_id = max(counts, key=lambda each: (counts[each], newest[each]))
    else:
        topic_id = random_uuid()
    topic = RebuiltTopic(topic_id)
    taken = [(number, log) for number, log in logs if log.topic_id in (topic_id, ZERO_UUID)]
    # Those that were not set aside come last, and so win; of others the one that was changed last.
    for number, log in sorted(taken, key=lambda each: (not each[1].stray, each[1].changed_ns)):
        topic.partitions[number] = log
    return topic


def _take_back(topics: Mapping[str, RebuiltTopic]) -> None:
    """Give the logs that were set aside their names again. OSError. Blocking."""
    for name, topic in topics.items():
        for number, log in topic.partitions.items():
            if log.stray:
                # The directory's mark of a clean stop may be of a stop after this log was set aside.
                log.log_dir.take_clean_shutdown_marker()
                log.backend.rename_log(log.log_dir.path, log.name, str(TopicPartition(name, number)))
                logger.info("Log %s is a partition of topic %s again", log.log_dir.path / log.name, name)


async def _write(
    config: BrokerConfig,
    store: MetadataStore,
    node_id: int,
    name: str,
    topic: RebuiltTopic,
    before: TopicAssignment | None,
) -> bool:
    """Write one topic; False when the store has it already as it is."""
    assigned = {} if before is None else dict(before.partitions)
    count = _count(config, name, topic, len(assigned))
    added = [number for number in range(count) if number not in assigned]
    if before is not None and before.topic_id == topic.topic_id and not added:
        return False
    for number in added:
        assigned[number] = ReplicaAssignment((node_id,))
    if topic.missing:
        logger.warning("Partitions %s of topic %s are in no log directory and begin empty", topic.missing, name)
    if before is not None and before.topic_id not in (None, topic.topic_id):
        logger.warning("Topic %s takes the topic id %s of its logs", name, uuid_to_string(topic.topic_id))
    value = encode_topic(TopicAssignment(topic.topic_id, assigned))
    path, settings = topic_path(name), config_path(CONFIG_TOPICS, name)
    operations: list[Operation] = [SetData(path, value) if before is not None else Create(path, value)]
    if await store.exists(settings) is None:
        own = automatic_topic(name, config).configs if is_internal(name) else KEEP_EVERYTHING
        given = {key: setting for key, setting in own.items() if setting is not None}
        operations.append(Create(settings, encode_config(given)))
    await store.commit(operations)
    return True


def _count(config: BrokerConfig, name: str, topic: RebuiltTopic, known: int) -> int:
    found = max(topic.partitions, default=-1) + 1
    if is_internal(name) and topic.missing:
        # Keys would be looked for in other partitions: what is configured is more likely than what is left.
        found = max(found, automatic_topic(name, config).num_partitions)
    return max(found, known)
