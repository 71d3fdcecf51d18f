"""The topics in the log directories, before the logs are loaded.

And which of them the metadata store knows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kafkapy.controller.controller_store import ControllerStore
from kafkapy.log.dir_scan import METADATA_TOPIC, future_of, parse_directory_name
from kafkapy.log.stray_logs import KnownTopic, StrayLogs

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.log.log_manager import LogManager
    from kafkapy.metadata.store import MetadataStore


async def know_topics(
    config: BrokerConfig, store: MetadataStore, log_manager: LogManager, node_id: int, *, rebuild: bool
) -> list[str]:
    """The topics of partitions in the log directories. StartupError.

    The log manager learns which of them the store knows, and sets the others aside. With `rebuild` they are written
    into the store before.
    """
    if rebuild:
        from kafkapy.broker.rebuild_metadata import rebuild_metadata

        await rebuild_metadata(config, store, log_manager, node_id)
    topics = topics_on_disk(log_manager)
    known = await ControllerStore(store).topic_assignments(topics)
    log_manager.strays = StrayLogs(
        {topic: KnownTopic(found.topic_id, found.partitions.keys()) for topic, (found, _) in known.items()}
    )
    return topics


def topics_on_disk(log_manager: LogManager) -> list[str]:
    """The topics of all logs and future logs in the log directories.

    Wherever their storage backend keeps them.
    """
    topics: dict[str, None] = {}
    for log_dir in log_manager.live_dirs:
        for backend in log_manager.persistent_backends:
            # A directory that cannot be listed goes offline when its logs are loaded.
            with suppress(OSError):
                for name in backend.list_logs(log_dir.path):
                    partition = parse_directory_name(name) or future_of(name)
                    if partition is not None and partition.topic != METADATA_TOPIC:
                        topics[partition.topic] = None
    return list(topics)
