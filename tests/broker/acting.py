"""A broker with ACLs whose clients say in their client id who they are, and from where: "User:alice@10.1.1.1".

It lets a test act as any principal from any host. Without a host it is the connection's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from broker.conftest import Client
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.errors import ErrorCode
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.security.authorizer.acl import AclAuthorizer
from kafkapy.security.authorizer.base import AclBinding, Action, AuthorizationResult
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

ADMIN = "User:admin"
"""The super user of these brokers."""
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


class _Acting:
    """A request's context with the principal and host of its client id."""

    def __init__(self, context: Any) -> None:
        self._context = context
        who, _, host = (context.client_id or ADMIN).partition("@")
        self.principal = KafkaPrincipal.parse(who)
        self.client_address = host or context.client_address

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class ActingAuthorizer(AclAuthorizer):
    """The authorizer under test, with other eyes for who asks."""

    def authorize(self, context: Any, actions: Sequence[Action]) -> list[AuthorizationResult]:
        return super().authorize(_Acting(context), actions)

    def authorize_by_resource_type(self, context: Any, operation: Any, resource_type: Any) -> bool:
        return super().authorize_by_resource_type(_Acting(context), operation, resource_type)


class _Plugin:
    @hookimpl
    def register_authorizers(self) -> Any:
        return {"acting": ActingAuthorizer}


def acl_broker(directory: Path, **keys: str) -> KafkaServer:
    """A broker with ACLs, not started; keys are written with underscores for dots."""
    values = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "num.network.threads": "1",
        "log.initial.task.delay.ms": "600000",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": "acting",
        "super.users": ADMIN,
    } | {key.replace("_", "."): value for key, value in keys.items()}
    plugins = PluginManager.load()
    plugins.register(_Plugin(), "acting")
    config = BrokerConfig.from_properties(Properties().override([f"{key}={value}" for key, value in values.items()]))
    return KafkaServer(config, plugins)


class ActingClient(Client):
    """A connection of one principal."""

    def __init__(self, host: str, port: int, who: str = ADMIN) -> None:
        super().__init__(host, port)
        self._place = (host, port)
        self.who = who

    def __call__(self, request: Any, version: int, client_id: str | None = None) -> Any:
        return super().__call__(request, version, client_id or self.who)

    def again(self, who: str | None = None) -> ActingClient:
        """Another connection to the same broker."""
        return ActingClient(*self._place, who or self.who)

    def coordinate(self, group: str) -> None:
        """Have the broker coordinate the group: its topic is created, and its partition is loaded."""

        def coordinated() -> bool:
            if self(FindCoordinatorRequest(key=group, key_type=0), 1).error_code != ErrorCode.NONE:
                return False
            fetched = self(OffsetFetchRequest(group_id=group, topics=None), 7)
            return bool(fetched.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        wait_until(coordinated, f"group {group} is coordinated")

    def append(self, topic: str, version: int = 9, acks: int = -1, transactional_id: str | None = None) -> ErrorCode:
        """The error of a Produce with one record for partition 0."""
        builder = RecordBatchBuilder()
        builder.append(1, None, b"x")
        data = ProduceRequest.Topic.Partition(index=0, records=builder.build())
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])],
        )
        return ErrorCode(self(request, version).responses[0].partition_responses[0].error_code)

    # --- ACLs ---------------------------------------------------------------------------------------------------------

    def add(self, *bindings: AclBinding) -> None:
        """Create ACLs; each has to succeed."""
        response = self(CreateAclsRequest(creations=[creation(each) for each in bindings]), 3)
        assert [ErrorCode(each.error_code) for each in response.results] == [ErrorCode.NONE] * len(bindings)

    def acls(self, **filters: Any) -> set[AclBinding]:
        """The ACLs that match."""
        response = self(DescribeAclsRequest(**ANY_FILTER | filters), 3)
        assert response.error_code == ErrorCode.NONE, response.error_message
        return {
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                each.principal,
                each.host,
                AclOperation(each.operation),
                AclPermissionType(each.permission_type),
            )
            for resource in response.resources
            for each in resource.acls
        }

    def remove_all(self) -> None:
        """Delete every ACL."""
        response = self(DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**ANY_FILTER)]), 3)
        assert response.filter_results[0].error_code == ErrorCode.NONE


ANY_FILTER: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermissionType.ANY,
}


def binding(
    resource_type: ResourceType,
    name: str,
    operation: AclOperation,
    principal: str = "User:alice",
    *,
    host: str = "*",
    permission: AclPermissionType = ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    """An ACL, short."""
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def creation(each: AclBinding) -> CreateAclsRequest.Creation:
    """The ACL as an entry of a request."""
    return CreateAclsRequest.Creation(
        resource_type=each.resource_type,
        resource_name=each.resource_name,
        resource_pattern_type=each.pattern_type,
        principal=each.principal,
        host=each.host,
        operation=each.operation,
        permission_type=each.permission_type,
    )


def connected(server: KafkaServer, who: str = ADMIN) -> ActingClient:
    """A connection to a running broker."""
    endpoint = server.endpoints[0]
    return ActingClient(endpoint.host, endpoint.port, who)


def names(bindings: Iterable[AclBinding]) -> set[str]:
    """Their resource names."""
    return {each.resource_name for each in bindings}
