"""What membership and commits need of the consumer's core, and what the core gets from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Protocol

from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.consumer.membership.group_coordinator import GroupCoordinator
    from kafkapy.clients.consumer.membership.metrics import CoordinatorMetrics
    from kafkapy.clients.consumer.subscription import SubscriptionState
    from kafkapy.clients.network_client import NetworkClient
    from kafkapy.config.clients import ClientConfig

__all__ = ["Committer", "GroupCore", "Membership"]


class Committer(Protocol):
    """The part of OffsetCommitter that memberships use. On the loop's thread."""

    metrics: CoordinatorMetrics
    coordinator: GroupCoordinator

    async def commit_before_rebalance(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int
    ) -> None:
        """Commits the positions that changed since the last commit. A failure is logged."""

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the last commits of partitions that another member owned."""


class GroupCore(Protocol):
    """The part of ConsumerCore that belongs to a group. On the loop's thread."""

    @property
    def config(self) -> ClientConfig:
        """The consumer's."""

    @property
    def network(self) -> NetworkClient:
        """The consumer's connections."""

    @property
    def subscription(self) -> SubscriptionState:
        """Topics and assigned partitions."""

    @property
    def committer(self) -> Committer | None:
        """None in a consumer without a group."""

    @property
    def membership(self) -> Membership | None:
        """None in a consumer without a group."""

    @property
    def auto_commit(self) -> bool:
        """Whether positions are committed without being asked."""

    @property
    def tells_every_rebalance(self) -> bool:
        """Whether listeners hear of a rebalance that takes nothing from them, as aiokafka's do."""

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the user has got by earlier polls."""

    async def prepare_revocation(self, partitions: set[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Waits until the user is in poll(), ends the handing out of records of these partitions, and returns what to
        commit for them.
        """

    async def run_listener(self, kind: Literal["revoked", "assigned", "lost"], partitions: set[TopicPartition]) -> None:
        """Returns when the user's listener has been told, on the user's thread. Its errors are raised by poll()."""

    def group_topics_changed(self, topics: Iterable[str]) -> None:
        """This member leads a group with these topics, and needs metadata of all; or does not any more (no topics)."""

    def report(self, error: Exception) -> None:
        """The next poll raises this."""

    def need_poll(self) -> None:
        """Something has changed that poll() has to look at."""

    def wake_fetcher(self) -> None:
        """There may be something to fetch."""


class Membership(Protocol):
    """A consumer's membership in its group. On the loop's thread."""

    @property
    def error(self) -> Exception | None:
        """Why this consumer cannot be a member any more: every poll raises it."""

    @property
    def ready(self) -> bool:
        """Whether there is an assignment that the listener knows of, and no rebalance that this member knows of."""

    async def start(self) -> None:
        """Joins with the subscription there is, and stays. May be called again after `leave`."""

    async def leave(self, reason: str) -> None:
        """Commits what auto commit would, tells the listener, leaves; waits for the user's thread and the broker."""

    async def stop(self) -> None:
        """Ends its tasks without a word to anybody; for a consumer that has no time for `leave`, or is not to."""

    def poll_called(self) -> None:
        """The user has called poll(), or waits in it."""

    def subscription_changed(self) -> None:
        """The subscription, or what its pattern matches, is another one now."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member is; what a transactional producer sends with offsets."""

    def commit_identity(self) -> ConsumerGroupMetadata:
        """Who commits. CommitFailedError, RebalanceInProgressError when a commit could not be right now."""

    def fetch_identity(self) -> ConsumerGroupMetadata | None:
        """Who asks for committed offsets; None where that is nobody's business."""

    def commit_refused(self, code: ErrorCode, sent: ConsumerGroupMetadata) -> KafkaError:
        """What it means that a commit by `sent` was refused because of who it is."""
