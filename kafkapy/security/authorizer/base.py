"""The contract of an authorizer: principal, operation and resource give an answer.

The broker calls an authorizer on the control loop, and it answers at once, from memory. The data plane caches the
answers for each connection and drops them when `decisions_epoch` changes; so a produce or fetch asks once per topic,
not each time. An authorizer with a method `start` gets the metadata store from it, and announces its changes. Source:
KIP-504.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaError
from kafkapy.security.authorizer.bindings import AclBinding, AclBindingFilter, AclDeleteResult
from kafkapy.types import AclOperation, PatternType, ResourceType, SecurityProtocol

if TYPE_CHECKING:
    from kafkapy.metadata.acl_store import AclStore
    from kafkapy.metadata.store import MetadataStore

__all__ = [
    "ALLOW_ALL_EPOCH",
    "AclBinding",
    "AclBindingFilter",
    "AclDeleteResult",
    "Action",
    "AuthorizableRequestContext",
    "AuthorizationResult",
    "Authorizer",
    "AuthorizerServices",
    "StartsWithServices",
]

ALLOW_ALL_EPOCH: Final = -1
"""The `decisions_epoch` of an authorizer that denies nothing: the data plane never asks it."""


class AuthorizationResult(Enum):
    """An authorizer's answer."""

    ALLOWED = "allowed"
    DENIED = "denied"


class Action(NamedTuple):
    """One question: an operation on one resource.

    `log_if_allowed` and `log_if_denied` say whether the authorizer logs its answer. A list that is filtered for a
    client's permissions logs nothing. `reference_count` is the number of times the request names the resource.
    """

    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    log_if_allowed: bool = True
    log_if_denied: bool = True
    reference_count: int = 1


class AuthorizableRequestContext(Protocol):
    """The part of a request that an authorizer sees.

    The broker's `RequestContext` implements it.
    """

    @property
    def principal(self) -> Any:
        """The `KafkaPrincipal` of the connection."""

    @property
    def client_address(self) -> str:
        """The peer's IP address, as text."""

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted the connection."""

    @property
    def security_protocol(self) -> SecurityProtocol:
        """The security protocol of that listener."""

    @property
    def api_key(self) -> int:
        """The API key of the request."""

    @property
    def api_version(self) -> int:
        """The API version of the request."""

    @property
    def client_id(self) -> str | None:
        """The client id of the request's header."""

    @property
    def correlation_id(self) -> int:
        """The correlation id of the request's header."""


class AuthorizerServices(Protocol):
    """The parts of the broker that an authorizer gets by its `start`.

    Used on the control loop.
    """

    @property
    def node_id(self) -> int:
        """The broker's id."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""

    @property
    def metadata_store(self) -> MetadataStore:
        """The cluster's metadata store, open until the authorizer has been closed."""

    async def acl_store(self) -> AclStore:
        """The ACLs in Kafka's nodes of the metadata store, not loaded yet.

        The broker stops it after the authorizer. StoreUnavailableError when authorizer.zookeeper.url does not answer.
        """

    def decisions_changed(self) -> None:
        """Pass the authorizer's new `decisions_epoch` to the data plane, which drops its cached answers."""


class StartsWithServices(Protocol):
    """The optional method of an authorizer that stores ACLs, or whose answers change."""

    async def start(self, services: AuthorizerServices) -> None:
        """Load the ACLs; the broker calls it once, after `configure`.

        The broker accepts clients afterwards. ConfigError and MetadataStoreError stop the broker's start.
        """


@runtime_checkable
class Authorizer(Protocol):
    """Decides which actions principals may do.

    A plugin registers its factory; the broker owns the authorizer and calls it on the control loop only. `authorize`
    must not block: ACLs live in memory. An authorizer may also have the method `start` of `StartsWithServices`.
    """

    @property
    def decisions_epoch(self) -> int:
        """A number that grows whenever an answer may have changed.

        `ALLOW_ALL_EPOCH` when the authorizer never denies an action. The broker reads it after
        `AuthorizerServices.decisions_changed`; without a `start` it looks every second.
        """

    def configure(self, config: BrokerConfig) -> None:
        """Read the configuration; the broker calls it once, first.

        ConfigError stops the broker's start.
        """

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        """One answer for each action, in order of the actions."""

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether a resource of the type allows the operation (KIP-679)."""

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[KafkaError | None] | Awaitable[list[KafkaError | None]]:
        """Add ACLs; one result for each, in order.

        An authorizer that writes returns an awaitable, and its writes are done when that gives its result.
        SECURITY_DISABLED when this authorizer keeps no ACLs.
        """

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[AclDeleteResult] | Awaitable[list[AclDeleteResult]]:
        """Delete the ACLs that match; one result for each filter, in order."""

    def acls(self, acl_filter: AclBindingFilter) -> Iterable[AclBinding]:
        """The ACLs that match the filter.

        SecurityDisabledError when this authorizer keeps no ACLs.
        """

    def close(self) -> None:
        """Release resources; the broker calls it once, at its stop."""
