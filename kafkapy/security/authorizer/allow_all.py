"""The authorizer of a broker without one: everything is allowed, and there are no ACLs.

Registered as ``allow_all``, which an empty authorizer.class.name stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.plugins import hookimpl
from kafkapy.security.authorizer.base import (
    ALLOW_ALL_EPOCH,
    AclBinding,
    AclBindingFilter,
    AclDeleteResult,
    Action,
    AuthorizableRequestContext,
    AuthorizationResult,
    Authorizer,
)
from kafkapy.types import AclOperation, ResourceType

_NO_AUTHORIZER = "No authorizer is configured on this broker."


class AllowAllAuthorizer:
    """Allows everything to everybody; answers ACL requests with SECURITY_DISABLED, as Kafka without an authorizer does.

    Has no state, so it may be called on any thread.
    """

    @property
    def decisions_epoch(self) -> int:
        """The epoch that tells the data plane not to ask."""
        return ALLOW_ALL_EPOCH

    def configure(self, config: BrokerConfig) -> None:
        """There is nothing to configure."""

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> list[AuthorizationResult]:
        """ALLOWED for each."""
        return [AuthorizationResult.ALLOWED] * len(actions)

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """True."""
        return True

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[KafkaError | None]:
        """SECURITY_DISABLED for each."""
        return [error_for(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER) for _ in bindings]

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[AclDeleteResult]:
        """SECURITY_DISABLED for each."""
        return [AclDeleteResult(error=error_for(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)) for _ in filters]

    def acls(self, acl_filter: AclBindingFilter) -> Iterable[AclBinding]:
        """Raises SecurityDisabledError: there are no ACLs to list."""
        raise error_for(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)

    def close(self) -> None:
        """There is nothing to close."""


@hookimpl
def register_authorizers() -> Mapping[str, Callable[[], Authorizer]]:
    """The name this authorizer is known by."""
    return {"allow_all": AllowAllAuthorizer}
