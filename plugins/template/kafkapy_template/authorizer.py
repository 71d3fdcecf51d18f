"""An authorizer that denies topics whose name begins with a prefix, and allows everything else."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.config.broker import BrokerConfig
from kafkapy.security.authorizer.allow_all import AllowAllAuthorizer
from kafkapy.security.authorizer.base import Action, AuthorizableRequestContext, AuthorizationResult
from kafkapy.types import AclOperation, ResourceType

PREFIX_KEY = "template.deny.prefix"


class DenyPrefixAuthorizer(AllowAllAuthorizer):
    """Denies every operation on topics that begin with `template.deny.prefix`. It keeps no ACLs.

    Made by the broker at start and called on its control loop. The prefix never changes, so neither does the epoch.
    """

    def __init__(self) -> None:
        self._prefix = ""

    @property
    def decisions_epoch(self) -> int:
        """Constant, and not ALLOW_ALL_EPOCH: the data plane has to ask."""
        return 1

    def configure(self, config: BrokerConfig) -> None:
        """Read the prefix."""
        self._prefix = config.get_str(PREFIX_KEY)

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        """DENIED for topics with the prefix."""
        answers = {True: AuthorizationResult.DENIED, False: AuthorizationResult.ALLOWED}
        return [answers[self._denies(action)] for action in actions]

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Some topic is always allowed, unless the prefix is empty."""
        return resource_type is not ResourceType.TOPIC or self._prefix != ""

    def _denies(self, action: Action) -> bool:
        return action.resource_type is ResourceType.TOPIC and action.resource_name.startswith(self._prefix)
