"""The authorizer of a broker without ACLs: it allows every action.

It is registered as ``allow_all``, and an empty authorizer.class.name selects it.
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
    """Allows every action to every principal.

    It answers ACL requests with SECURITY_DISABLED, as Kafka without an authorizer does. It has no state, so any thread
    may call it.
    """

    @property
    def decisions_epoch(self) -> int:
        """ALLOW_ALL_EPOCH: the data plane never asks this authorizer."""
        return ALLOW_ALL_EPOCH

    def configure(self, config: BrokerConfig) -> None:
        """Reads no configuration."""

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        """ALLOWED for each action."""
        return [AuthorizationResult.ALLOWED] * len(actions)

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """True: every resource type allows every operation."""
        return True

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[KafkaError | None]:
        """SECURITY_DISABLED for each ACL."""
        return [error_for(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)] * len(bindings)

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[AclDeleteResult]:
        """SECURITY_DISABLED for each filter."""
        return [AclDeleteResult(error=error_for(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))] * len(filters)

    def acls(self, acl_filter: AclBindingFilter) -> Iterable[AclBinding]:
        """Raises SecurityDisabledError: this authorizer keeps no ACLs."""
        raise error_for(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)

    def close(self) -> None:
        """Releases nothing."""


@hookimpl
def register_authorizers() -> Mapping[str, Callable[[], Authorizer]]:
    """The factory of this authorizer, by its registered name."""
    return {"allow_all": AllowAllAuthorizer}
