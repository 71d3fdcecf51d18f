"""The arguments of a handler: the broker's parts (`BrokerContext`) and one request (`RequestContext`).

Source: kafka.server.AuthHelper for the authorization questions, kafka.network.RequestChannel.Request for the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkapy.broker.finalized_features import FinalizedFeatures
from kafkapy.errors import PluginError, error_for
from kafkapy.security.authorizer.base import ALLOW_ALL_EPOCH, Action, AuthorizationResult
from kafkapy.security.authorizer.bindings import SUPPORTED_OPERATIONS
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.slices import CHUNK, in_chunks
from kafkapy.types import AclOperation, ResourceType, SecurityProtocol

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy.broker.authentication import Authentication
    from kafkapy.broker.auto_topics import AutoTopicCreation
    from kafkapy.broker.client_quotas import ClientQuotas
    from kafkapy.broker.client_telemetry.telemetry import ClientTelemetry
    from kafkapy.broker.coordinators import Coordinators
    from kafkapy.broker.dynamic_config import DynamicConfig
    from kafkapy.broker.logins import Logins
    from kafkapy.broker.mutation_quotas import MutationQuota
    from kafkapy.broker.producer_ids import ProducerIdManager
    from kafkapy.broker.scheduler import KafkaScheduler
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.controller.controller import KafkaController
    from kafkapy.controller.topic_admin import TopicAdmin
    from kafkapy.log.log_manager import LogManager
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.policies import AlterConfigPolicy
    from kafkapy.replica.replica_manager import ReplicaManager
    from kafkapy.security.authorizer.base import AuthorizableRequestContext, Authorizer

CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource name of resource type CLUSTER."""

DECISIONS: Final = 250
"""A number of decisions that an authorizer makes, and writes into its log, within a slice of the control loop."""

NO_AUTHORIZED_OPERATIONS: Final = -(2**31)
"""The value of an authorized-operations field that was not asked for."""


@dataclass(slots=True)
class BrokerContext:
    """The parts of one running broker that handlers call.

    Built by KafkaServer at start; used on the control loop only.
    """

    node_id: int
    cluster_id: str
    store: MetadataStore
    metadata_cache: MetadataCache
    controller: KafkaController
    topic_admin: TopicAdmin
    log_manager: LogManager
    replica_manager: ReplicaManager
    scheduler: KafkaScheduler
    dynamic_config: DynamicConfig
    authorizer: Authorizer
    producer_ids: ProducerIdManager
    auto_topics: AutoTopicCreation
    coordinators: Coordinators
    logins: Logins
    client_quotas: ClientQuotas
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    alter_config_policy: AlterConfigPolicy | None = None
    telemetry: ClientTelemetry | None = None
    """None where nobody reads clients' metrics."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it is now, dynamic layers included."""
        return self.dynamic_config.config

    @property
    def client_telemetry(self) -> ClientTelemetry:
        """Clients' metrics. Only its APIs ask for it."""
        assert self.telemetry is not None
        return self.telemetry

    @property
    def authentication(self) -> Authentication:
        """SASL of the listeners.

        Only requests of SASL listeners ask for it.
        """
        authentication = self.logins.authentication
        assert authentication is not None
        return authentication


class NetworkContext:
    """The client and the connection of a request, for an authorizer.

    Immutable in use; one for each request that needs one, on the control loop's thread. Rarely used attributes are read
    when they are asked for.
    """

    __slots__ = (
        "api_version",
        "request",
    )

    def __init__(self, request: NetworkRequest) -> None:
        self.request = request
        self.api_version = request.api_version

    @property
    def api_key(self) -> int:
        """The API."""
        return self.request.api_key

    @property
    def correlation_id(self) -> int:
        """The client's number for the request."""
        return self.request.correlation_id

    @property
    def client_id(self) -> str | None:
        """None when the client gave none."""
        return self.request.client_id

    @property
    def connection_id(self) -> int:
        """Unique in this broker process."""
        return self.request.connection_id

    @property
    def client_address(self) -> str:
        """The peer's IP address."""
        return self.request.client_address

    @property
    def listener_name(self) -> str:
        """The listener that the connection came by."""
        return self.request.listener_name

    @property
    def security_protocol(self) -> SecurityProtocol:
        """That of the listener."""
        protocol: SecurityProtocol = self.request.security_protocol
        return protocol

    @property
    def principal(self) -> KafkaPrincipal:
        """The principal of the connection; it cannot change while the request is served."""
        return _principal(self.request.principal, self.request.token_authenticated)


class RequestContext(NetworkContext):
    """One decoded request on its way through a handler.

    Made by KafkaApis for each request; lives on the control loop's thread.
    """

    __slots__ = ("broker", "leftovers", "send", "throttle_ms")

    def __init__(self, broker: BrokerContext, request: NetworkRequest) -> None:
        super().__init__(request)
        self.broker = broker
        self.leftovers: list[object] | None = None
        """A handler's large objects, let go of bit by bit after the answer."""
        self.send: Callable[[bytes], None] | None = None
        """How the encoded response leaves, where that is not `request.reply`."""
        self.throttle_ms = 0
        """The throttle time of a violated quota of controller mutations."""

    @property
    def allows_all(self) -> bool:
        """Whether no authorizer decides: everybody may do everything."""
        return self.broker.authorizer.decisions_epoch == ALLOW_ALL_EPOCH

    def mutation_quota(self, strict_since: int) -> MutationQuota:
        """The client's quota of controller mutations; strict from that version of the API on."""
        quotas = self.broker.client_quotas
        return quotas.mutation_quota(self.principal, self.client_id or "", self.api_version >= strict_since)

    def leave(self, *things: object) -> None:
        """Let go of these bit by bit after the answer, on another thread."""
        if self.leftovers is None:
            self.leftovers = []
        self.leftovers.extend(things)

    async def authorized_names_in_slices(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, log_if_denied: bool = True
    ) -> set[str]:
        """See authorized_names; for as many names as a client likes."""
        allowed: set[str] = set()
        # An authorizer with ACLs writes a line about each denial, which takes more time than the decision.
        size = CHUNK if self.allows_all else DECISIONS
        async for chunk in in_chunks(names, size):
            allowed |= self.authorized_names(operation, resource_type, chunk, log_if_denied=log_if_denied)
        self.leave(allowed)
        return allowed

    def authorize(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Whether the connection's principal may do `operation` on one resource."""
        if self.allows_all:
            return True
        return self._decide([(operation, resource_type, name)], log_if_denied)[0]

    def authorize_cluster(self, operation: AclOperation) -> None:
        """Raises ClusterAuthorizationFailedError unless the principal may do `operation` on the cluster."""
        if not self.authorize(operation, ResourceType.CLUSTER):
            raise error_for(31, f"{operation.name} on the cluster is not allowed for {self.principal}")

    def authorized_names(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, log_if_denied: bool = True
    ) -> set[str]:
        """The `names` on which the principal may do `operation`."""
        if self.allows_all:
            return set(names)
        asked = list(dict.fromkeys(names))
        if not asked:
            return set()
        answers = self._decide([(operation, resource_type, name) for name in asked], log_if_denied)
        return {name for name, allowed in zip(asked, answers, strict=True) if allowed}

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """A bit field of the principal's operations on a resource (KIP-430).

        Bit n is AclOperation code n.
        """
        operations = SUPPORTED_OPERATIONS[resource_type]
        answers = self._decide([(operation, resource_type, name) for operation in operations], False)
        return sum(1 << operation for operation, allowed in zip(operations, answers, strict=True) if allowed)

    def authorize_by_resource_type(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the principal may do `operation` on any resource of the type (KIP-679)."""
        allowed: bool = self.broker.authorizer.authorize_by_resource_type(self, operation, resource_type)
        return allowed

    def _decide(self, questions: Sequence[tuple[AclOperation, ResourceType, str]], log_if_denied: bool) -> list[bool]:
        return decide(self.broker.authorizer, self, questions, log_if_denied)


def decide(
    authorizer: Authorizer,
    context: AuthorizableRequestContext,
    questions: Sequence[tuple[AclOperation, ResourceType, str]],
    log_if_denied: bool,
) -> list[bool]:
    """The authorizer's answers to (operation, resource type, name) questions, in their order.

    True is allowed.
    """
    if authorizer.decisions_epoch == ALLOW_ALL_EPOCH:
        return [True] * len(questions)
    actions = [Action(operation, kind, name, log_if_denied=log_if_denied) for operation, kind, name in questions]
    answers = authorizer.authorize(context, actions)
    if not isinstance(answers, list) or len(answers) != len(actions):
        count = f"{len(answers)} answers" if isinstance(answers, list) else f"{answers!r}"
        raise PluginError(
            f"authorizer {type(authorizer).__name__}: authorize gave {count} to {len(actions)} actions, "
            "and has to give a list with one for each"
        )
    return [answer is AuthorizationResult.ALLOWED for answer in answers]


@lru_cache(1000)
def _principal(text: str, token_authenticated: bool) -> KafkaPrincipal:
    """The principal behind a connection's "Type:name"; few differ, so they are made once."""
    principal = KafkaPrincipal.parse(text)
    return replace(principal, token_authenticated=True) if token_authenticated else principal
