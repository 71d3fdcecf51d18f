"""What a case of the ACL matrix is: its permissions, its answers, and the world that it acts on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from broker.acting import ActingClient
from broker.handlers.share_states import ShareStates
from waiting import wait_until

from kafkapy.broker.handlers import SERVED
from kafkapy.errors import ErrorCode
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import AclOperation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN, USER, TOKEN = ResourceType.TRANSACTIONAL_ID, ResourceType.USER, ResourceType.DELEGATION_TOKEN
READ, WRITE, CREATE, DELETE, ALTER = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
)
DESCRIBE, CLUSTER_ACTION = AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE

OK = 0
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED = 29, 30, 31, 53
UNKNOWN_TOPIC, UNKNOWN_MEMBER, NOT_ATTEMPTED = 3, 25, 55
NO_OPERATIONS = -(2**31)

_numbers = itertools.count(1)


class World:
    """What a case acts on: a topic with one record, a group with one offset, a transactional id, new names."""

    def __init__(self, admin: ActingClient) -> None:
        number = f"{next(_numbers):04d}"
        self.topic, self.new_topic = f"topic-{number}", f"new-{number}"
        self.group, self.new_group = f"group-{number}", f"new-group-{number}"
        self.txn, self.cluster = f"txn-{number}", "kafka-cluster"
        self.topic_id: UUID = admin.create_topic(self.topic)
        wait_until(lambda: admin.append(self.topic) == ErrorCode.NONE, "the topic takes records")
        admin.coordinate(self.group)
        part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="m")
        commit = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequest.Topic(name=self.topic, partitions=[part])]
        )

        def is_committed() -> bool:
            (committed,) = admin(commit, 8).topics
            return [each.error_code for each in committed.partitions] == [OK]

        wait_until(is_committed, "the group takes offsets")
        ShareStates(admin, self.group, self.topic_id).initialize()
        admin.coordinate_transactions(self.txn)
        begun: list[Any] = []

        def has_begun() -> bool:
            asked = InitProducerIdRequest(transactional_id=self.txn, transaction_timeout_ms=900_000)
            begun[:] = [admin(asked, 4)]
            return bool(begun[0].error_code == OK)

        wait_until(has_begun, "the transactional id has a producer")
        self.producer = {"producer_id": begun[0].producer_id, "producer_epoch": begun[0].producer_epoch}
        self.owner = f"User:owner-{number}"
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=self.owner[5:], renewers=[], max_lifetime_ms=-1
        )
        self.token: str = admin(request, 3).token_id

    def name(self, resource: str) -> str:
        """The name behind a permission's resource, such as "topic", "new_group" or "cluster"."""
        found: str = getattr(self, resource)
        return found


class Permission(NamedTuple):
    resource_type: ResourceType
    resource: str
    operation: AclOperation


Ask = Callable[[ActingClient, World, int], Any]


class Case(NamedTuple):
    key: int
    label: str
    needs: Sequence[Sequence[Permission]]
    denied: Sequence[Any]
    allowed: Any
    versions: Sequence[int]
    changes: bool
    carried_out: bool
    ask: Ask


CASES: list[Case] = []


def need(*entries: tuple[ResourceType, str, AclOperation]) -> list[Permission]:
    return [Permission(*each) for each in entries]


def case(
    key: ApiKeys,
    label: str,
    *needs: list[Permission],
    denied: Sequence[Any],
    allowed: Any,
    versions: Sequence[int] | None = None,
    changes: bool = False,
    carried_out: bool = False,
) -> Callable[[Ask], Ask]:
    """`changes`: the request uses its world up when it succeeds.

    `carried_out`: without the last need it is carried out, and the answer leaves something out.
    """
    served = SERVED.get(key) or DATA_PLANE_APIS[key]
    every = range(served.low, served.high + 1)

    def register(ask: Ask) -> Ask:
        chosen = every if versions is None else [each for each in versions if each in every]
        CASES.append(Case(key, f"{key.name}: {label}", needs, denied, allowed, chosen, changes, carried_out, ask))
        return ask

    return register


READ_TOPIC = need((TOPIC, "topic", READ))
WRITE_TOPIC = need((TOPIC, "topic", WRITE))
DESCRIBE_TOPIC = need((TOPIC, "topic", DESCRIBE))
READ_GROUP, DESCRIBE_GROUP = need((GROUP, "group", READ)), need((GROUP, "group", DESCRIBE))
WRITE_TXN, DESCRIBE_TXN = need((TXN, "txn", WRITE)), need((TXN, "txn", DESCRIBE))


def on_cluster(*operations: AclOperation) -> list[Permission]:
    return need(*((CLUSTER, "cluster", each) for each in operations))
