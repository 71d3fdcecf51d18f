"""A broker with ACLs, and clients that log in as anybody, from any loopback address.

The principals are real: SASL/PLAIN gives them, and the authorizer is the one under test. The host of an ACL is the
address that a client connects from.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker.conftest import Client
from broker.sasl_broker import log_in_plain, sasl_config
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.security.authorizer.base import AclBinding
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

ADMIN = "admin"
"""The super user of these brokers."""
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def acl_broker(directory: Path, **keys: str) -> KafkaServer:
    """A broker with ACLs, not started; keys are written with underscores for dots."""
    values = {
        "log.initial.task.delay.ms": "600000",
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    } | {key.replace("_", "."): value for key, value in keys.items()}
    return KafkaServer(sasl_config(directory, values))


class ActingClient(Client):
    """A connection of one user, from one address."""

    def __init__(self, host: str, port: int, user: str = ADMIN, address: str = "127.0.0.1") -> None:
        super().__init__(host, port)
        self.socket.close()
        self.socket = socket.create_connection((host, port), timeout=30, source_address=(address, 0))
        self._place = (host, port)
        self.user = user
        assert log_in_plain(self, user).error_code == ErrorCode.NONE

    def again(self, user: str | None = None, address: str = "127.0.0.1") -> ActingClient:
        """Another connection to the same broker."""
        return ActingClient(*self._place, user or self.user, address)

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


def connected(server: KafkaServer, user: str = ADMIN, address: str = "127.0.0.1") -> ActingClient:
    """A connection to a running broker."""
    endpoint = server.endpoints[0]
    return ActingClient(endpoint.host, endpoint.port, user, address)


def names(bindings: Iterable[AclBinding]) -> set[str]:
    """Their resource names."""
    return {each.resource_name for each in bindings}
