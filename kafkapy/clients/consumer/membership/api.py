"""The interfaces between the consumer's core, its membership, and commits."""

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
        """Commits the positions that changed since the last commit.

        A failure is logged.
        """

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the last commits of partitions that another member owned."""


class GroupCore(Protocol):
    """The part of ConsumerCore that belongs to a group.

    On the loop's thread.
    """

    @property
    def config(self) -> ClientConfig:
        """The consumer's configuration."""

    @property
    def network(self) -> NetworkClient:
        """The consumer's connections."""

    @property
    def subscription(self) -> SubscriptionState:
        """Topics and assigned partitions."""

    @property
    def committer(self) -> Committer | None:
        """The group's commits, None for a consumer without a group."""

    @property
    def membership(self) -> Membership | None:
        """The membership, None for a consumer without a group."""

    @property
    def auto_commit(self) -> bool:
        """Whether positions are committed automatically."""

    @property
    def tells_every_rebalance(self) -> bool:
        """Whether a rebalance that revokes nothing calls listeners, as in aiokafka."""

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that earlier polls returned."""

    async def prepare_revocation(self, partitions: set[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Stops the records of these partitions while the user is in poll().

        Waits for the user's thread, and returns the positions to commit for them.
        """

    async def run_listener(self, kind: Literal["revoked", "assigned", "lost"], partitions: set[TopicPartition]) -> None:
        """Calls the listener on the user's thread, and waits for it.

        poll() raises the listener's errors.
        """

    def group_topics_changed(self, topics: Iterable[str]) -> None:
        """Sets the topics of the group while this member leads it.

        A leader needs the metadata of all of them. No topics: the member no longer leads.
        """

    def report(self, error: Exception) -> None:
        """Makes the next poll raise this error."""

    def need_poll(self) -> None:
        """Makes the user's thread enter poll() after a change."""

    def wake_fetcher(self) -> None:
        """Wakes the fetcher after a change."""


class Membership(Protocol):
    """A consumer's membership in its group. On the loop's thread."""

    @property
    def error(self) -> Exception | None:
        """The fatal error of this member, which every poll raises, or None."""

    @property
    def ready(self) -> bool:
        """Whether the member has an assignment and knows of no rebalance.

        The listener has returned for the assignment.
        """

    async def start(self) -> None:
        """Joins with the current subscription, and stays.

        May be called again after `leave`.
        """

    async def leave(self, reason: str) -> None:
        """Commits (with auto commit), calls the listener, and leaves the group.

        It waits for the user's thread and the broker.
        """

    async def stop(self) -> None:
        """Ends the member's tasks without leaving the group.

        For a consumer without time for `leave`, or one that must not leave.
        """

    def poll_called(self) -> None:
        """Records that the user called poll(), or waits in it."""

    def subscription_changed(self) -> None:
        """Handles a changed subscription, or changed matches of its pattern."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member's identity, which a transactional producer sends with offsets."""

    def commit_identity(self) -> ConsumerGroupMetadata:
        """The member's identity for a commit.

        CommitFailedError, RebalanceInProgressError when a commit would fail now.
        """

    def fetch_identity(self) -> ConsumerGroupMetadata | None:
        """The member's identity for OffsetFetch, or None.

        None: the protocol does not send it.
        """

    def commit_refused(self, code: ErrorCode, sent: ConsumerGroupMetadata) -> KafkaError:
        """The error of a commit by `sent`, refused because of its identity."""
