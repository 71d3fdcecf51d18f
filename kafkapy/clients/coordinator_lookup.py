"""The lookup of the coordinator of a group or a transactional id.

A group's coordinator gets a separate connection, as in Kafka's consumer: a waiting fetch at the same broker would delay
the heartbeats behind it. The node of this connection has the id GROUP_CONNECTIONS - broker id. Source:
AbstractCoordinator.lookupCoordinator, TransactionManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from kafkapy.clients.backoff import Backoff
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.network_client import NetworkClient, RequestOf
from kafkapy.clients.shared_task import outcome_of
from kafkapy.errors import ErrorCode, KafkaError, KafkaTimeoutError, error_for
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.types import CoordinatorType

__all__ = ["GROUP_CONNECTIONS", "CoordinatorLookup"]

log = logging.getLogger(__name__)

GROUP_CONNECTIONS: Final = 2**31 - 1
TRANSACTIONS_LOW: Final = 1
"""The first version with coordinators of transactional ids."""

BATCHES_LOW: Final = 4
"""The first version with several keys per request (KIP-699)."""

Key = tuple[str, CoordinatorType]


class CoordinatorLookup:
    """Caches coordinators until they are invalidated. Used on the client's loop."""

    def __init__(self, network: NetworkClient, *, own_connections: bool = True) -> None:
        """own_connections: whether coordinators of groups get a separate connection.

        Admin clients need none.
        """
        self._network = network
        self._own_connections = own_connections
        self._backoff = Backoff(network.config["retry.backoff.ms"], network.config["retry.backoff.max.ms"])
        self._known: dict[Key, int] = {}
        self._asking: dict[Key, asyncio.Task[int]] = {}

    def known(self, key: str, kind: CoordinatorType) -> int | None:
        """The coordinator's node id, if it is cached."""
        return self._known.get((key, kind))

    def invalidate(self, key: str, kind: CoordinatorType) -> None:
        """Forgets a coordinator that moved or is unreachable.

        The next `find` asks again.
        """
        if self._known.pop((key, kind), None) is not None:
            log.debug("The coordinator of %s %r is looked up again", kind.name.lower(), key)

    async def find(self, key: str, kind: CoordinatorType, timeout_ms: int | None = None) -> int:
        """The node id of the coordinator, for `NetworkClient.send`.

        It retries until the coordinator is known; concurrent callers share one lookup. KafkaTimeoutError after
        `timeout_ms`; errors that are not retriable (GroupAuthorizationFailedError,
        TransactionalIdAuthorizationFailedError, InvalidGroupIdError, AuthenticationError).
        """
        place = (key, CoordinatorType(kind))
        found = self._known.get(place)
        if found is not None:
            return found
        task = self._asking.get(place)
        if task is None:
            task = self._asking[place] = asyncio.ensure_future(self._find(place))
            task.add_done_callback(lambda done: self._found(place, done))
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await outcome_of(task)
        except TimeoutError:
            raise KafkaTimeoutError(
                f"the coordinator of {place[1].name.lower()} {key!r} was not found within {timeout_ms} ms"
            ) from None

    def close(self) -> None:
        """Ends running lookups."""
        for task in self._asking.values():
            task.cancel()

    def _found(self, place: Key, task: asyncio.Task[int]) -> None:
        del self._asking[place]
        if not task.cancelled() and task.exception() is None:
            self._known[place] = task.result()

    async def _find(self, place: Key) -> int:
        attempts = 0
        while True:
            try:
                coordinator = await self._ask(place)
                break
            except KafkaError as error:
                if not error.retriable or self._network.closed:
                    raise
                log.debug("The coordinator of %s %r is not known yet: %s", place[1].name.lower(), place[0], error)
            await asyncio.sleep(self._backoff.delay_s(attempts))
            attempts += 1
        own = self._own_connections and place[1] is CoordinatorType.GROUP
        node_id = GROUP_CONNECTIONS - coordinator.node_id if own else coordinator.node_id
        self._network.cluster.add_node(BrokerNode(node_id, coordinator.host, coordinator.port))
        log.debug("The coordinator of %s %r is broker %d", place[1].name.lower(), place[0], coordinator.node_id)
        return int(node_id)

    async def _ask(self, place: Key) -> Any:
        """The coordinator, with node_id, host and port; raises the response's error."""
        key, kind = place

        def build(version: int) -> FindCoordinatorRequest:
            if version >= BATCHES_LOW:
                return FindCoordinatorRequest(key_type=kind.value, coordinator_keys=[key])
            return FindCoordinatorRequest(key=key, key_type=kind.value)

        low = None if kind is CoordinatorType.GROUP else TRANSACTIONS_LOW
        response = await self._network.send_any(RequestOf(FindCoordinatorRequest, build), min_version=low)
        answer = response.coordinators[0] if response.coordinators else response
        if answer.error_code:
            message = answer.error_message or f"{ErrorCode.of(answer.error_code).message} ({kind.name.lower()} {key!r})"
            raise error_for(answer.error_code, message)
        return answer
