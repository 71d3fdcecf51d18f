"""The contract of an authorizer: may this principal do that to this resource? Source: KIP-504.

An authorizer is called on the control loop and answers at once, from memory. The data plane caches its answers for each
connection and drops them when `decisions_epoch` changes; so a produce or fetch asks once per topic, not each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaError
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType, SecurityProtocol

ALLOW_ALL_EPOCH: Final = -1
"""The `decisions_epoch` of an authorizer that never denies anything: the data plane does not ask it at all."""



class AuthorizationResult(Enum):
    """An authorizer's answer."""

    ALLOWED = "allowed"
    DENIED = "denied"


class Action(NamedTuple):
    """One question: an operation on one resource.

    `log_if_allowed` and `log_if_denied` say whether the answer belongs into the authorizer's log; filtering a list for
    what a client may see is not worth a line.
    """

    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    log_if_allowed: bool = True
    log_if_denied: bool = True


class AuthorizableRequestContext(Protocol):
    """What an authorizer may know of a request. The broker's `RequestContext` is one."""

    @property
    def principal(self) -> Any:
        """The `KafkaPrincipal` of the connection."""

    @property
    def client_address(self) -> str:
        """The peer's IP address, as text."""

    @property
    def listener_name(self) -> str:
        """The listener the connection came in on."""

    @property
    def security_protocol(self) -> SecurityProtocol:
        """That listener's protocol."""

    @property
    def api_key(self) -> int:
        """The request's API."""

    @property
    def api_version(self) -> int:
        """The request's version."""

    @property
    def client_id(self) -> str | None:
        """The client id of the request's header."""

    @property
    def correlation_id(self) -> int:
        """The correlation id of the request's header."""


class AclBinding(NamedTuple):
    """One ACL: on which resources, for whom, from where, what, allowed or denied. `host` is an address or ``*``."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBindingFilter(NamedTuple):
    """Which ACLs are meant. None, ANY, and MATCH as pattern type, stand for "whatever"."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY


class AclDeleteResult(NamedTuple):
    """What one filter deleted, or the error that kept it from deleting."""

    deleted: tuple[AclBinding, ...] = ()
    error: KafkaError | None = None


@runtime_checkable
class Authorizer(Protocol):
    """Decides what principals may do. Made by the factory a plugin registers; owned by the broker.

    Called on the control loop only. `authorize` must not block: ACLs live in memory.
    """

    @property
    def decisions_epoch(self) -> int:
        """Grows whenever any answer may have become different. `ALLOW_ALL_EPOCH` when nothing is ever denied."""

    def configure(self, config: BrokerConfig) -> None:
        """Called once before anything else. ConfigError stops the broker's start."""

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> list[AuthorizationResult]:
        """One answer for each action, in order."""

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there is any resource of the type on which the operation is allowed (KIP-679)."""

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[KafkaError | None]:
        """Add ACLs; one result for each, in order. SECURITY_DISABLED when this authorizer keeps no ACLs."""

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[AclDeleteResult]:
        """Delete the ACLs that match; one result for each filter, in order."""

    def acls(self, acl_filter: AclBindingFilter) -> Iterable[AclBinding]:
        """The ACLs that match. SecurityDisabledError when this authorizer keeps no ACLs."""

    def close(self) -> None:
        """Called once at the broker's stop."""
