"""Logs that the metadata store does not know.

They are of no topic, of an earlier topic of the name, or beyond its partitions.

The store was lost, or is older than the logs. Such a log would keep a topic of its name from ever being led here, so a
start renames it to `orders-0.<32 hex digits>-stray` and goes on, as Apache Kafka does with KRaft. Nothing in it is
changed: `kafkapy-server --rebuild-metadata` (kafkapy/broker/rebuild_metadata.py) makes a topic of it again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple
from uuid import UUID

from kafkapy.log.dir_scan import MAX_NAME, Place, parse_directory_name
from kafkapy.types import ZERO_UUID, TopicPartition, uuid_to_string

__all__ = ["STRAY_SUFFIX", "KnownTopic", "StrayLogs", "parse_stray_name", "stray_name"]

logger = logging.getLogger("kafka.log.LogManager")

STRAY_SUFFIX: Final = "-stray"


class KnownTopic(NamedTuple):
    """A topic as the metadata store has it."""

    topic_id: UUID | None
    """None for a topic of a broker that knew no ids."""
    partitions: AbstractSet[int]


def stray_name(tp: TopicPartition) -> str:
    """A new name for a log that is set aside (UnifiedLog.logStrayDirName).

    It is cut so that a long topic name still fits.
    """
    suffix = f".{uuid.uuid4().hex}{STRAY_SUFFIX}"
    return f"{str(tp)[: MAX_NAME - len(suffix)]}{suffix}"


def parse_stray_name(name: str) -> TopicPartition | None:
    """The partition of a log that was set aside, by its name.

    None when the name is no such log's, or was cut.
    """
    stem, _, _ = name.removesuffix(STRAY_SUFFIX).rpartition(".")
    return parse_directory_name(stem) if name.endswith(STRAY_SUFFIX) else None


class StrayLogs:
    """Sets logs aside whose topics the store does not know.

    Used by the recovery threads of a start.
    """

    def __init__(self, topics: Mapping[str, KnownTopic]) -> None:
        """`topics`: those of the store that the log directories have logs of, at least."""
        self._topics = topics
        self.set_aside: list[TopicPartition] = []

    def reason(self, tp: TopicPartition, topic_id: UUID) -> str | None:
        """Why a log is stray, None when it is not."""
        topic = self._topics.get(tp.topic)
        if topic is None:
            return f"there is no topic {tp.topic}"
        if topic.topic_id is not None and topic_id not in (ZERO_UUID, topic.topic_id):
            known, found = uuid_to_string(topic.topic_id), uuid_to_string(topic_id)
            return f"topic {tp.topic} has the id {known}, and the log is of {found}"
        if tp.partition not in topic.partitions:
            return f"topic {tp.topic} has {len(topic.partitions)} partitions"
        return None

    def rename(self, tp: TopicPartition, place: Place, reason: str) -> None:
        """Set a log aside that nobody has opened. OSError."""
        renamed = stray_name(tp)
        place.backend.rename_log(place.log_dir.path, place.name, renamed)
        self.set_aside.append(tp)
        logger.warning(
            "Stray partition %s is set aside as %s: %s in the metadata store",
            tp,
            place.log_dir.path / renamed,
            reason,
        )

    def summarize(self) -> None:
        """Tell the operator what to do."""
        if self.set_aside:
            logger.error(
                "The broker set %d partitions aside, which the metadata store does not know: the store was lost or "
                "is older than the logs. `kafkapy-server --rebuild-metadata` restores their topics",
                len(self.set_aside),
            )
