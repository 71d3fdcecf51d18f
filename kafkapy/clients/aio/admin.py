"""AIOKafkaAdminClient: administration of a cluster by coroutines, on the user's loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack

from kafkapy.clients.admin.core import AdminCore
from kafkapy.clients.aio.lifecycle import drop_old_keywords
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfig
from kafkapy.types import CoordinatorType, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.options import AIOAdminOptions

__all__ = ["AIO_ADMIN", "AIOKafkaAdminClient", "RecordsToDelete"]

AIO_ADMIN: Final = ADMIN.with_keys((), without_effect=("loop",))
"""The keys of an admin client. Keywords that only aiokafka has have no effect."""


@dataclass(frozen=True)
class RecordsToDelete:
    """Deletes the records below this offset."""

    before_offset: int


class AIOKafkaAdminClient(AdminCore):
    """Administers a cluster: every method of `KafkaAdminClient` as a coroutine.

    aiokafka's names for some of them exist, too. Results are KafkaAdminClient's.

        async with AIOKafkaAdminClient(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=6, replication_factor=1)])

    Configuration comes as keywords, or with Kafka's names in a dict called `configs`. ConfigError. All methods run on
    the loop of `start`.
    """

    def __init__(self, configs: Mapping[str, object] | None = None, /, **keywords: Unpack[AIOAdminOptions]) -> None:
        drop_old_keywords(keywords)
        super().__init__(ClientConfig(AIO_ADMIN, configs, **keywords))

    async def __aenter__(self) -> AIOKafkaAdminClient:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- names and arguments of aiokafka ----------------------------------------------------------------------------

    async def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """(group, protocol type) of the groups of all brokers, or of these."""
        return [(group["group_id"], group["protocol_type"]) for group in await self.list_groups(broker_ids)]

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, of all partitions or of these.

        Of these: offset -1 without a committed offset.
        """
        del group_coordinator_id  # the lookup finds it
        chosen = None if partitions is None else list(partitions)
        return (await self.list_group_offsets({group_id: chosen}))[group_id]

    async def find_coordinator(self, group_id: str, coordinator_type: int = CoordinatorType.GROUP) -> int:
        """The broker id of the coordinator of a group, or transactional id.

        Type 1 is for transactional ids.
        """
        return await self.lookup.find(
            group_id, CoordinatorType(coordinator_type), self.config["default.api.timeout.ms"]
        )

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int] | Mapping[TopicPartition, RecordsToDelete],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """As AdminCore.delete_records; offsets may also be RecordsToDelete objects."""
        offsets = {
            partition: each.before_offset if isinstance(each, RecordsToDelete) else each
            for partition, each in records_to_delete.items()
        }
        return await super().delete_records(offsets, timeout_ms, partition_leader_id)
