"""The coordinator of one group: found when it is needed, and looked for again when it is gone or is another broker.

Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator and CoordinatorRequestManager.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from kafkapy.clients.consumer.membership.metrics import CoordinatorMetrics
from kafkapy.clients.coordinator_lookup import CoordinatorLookup
from kafkapy.clients.network_client import RequestOf
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.schema import Request
from kafkapy.types import CoordinatorType

if TYPE_CHECKING:
    from kafkapy.clients.network_client import NetworkClient

__all__ = ["GroupCoordinator"]

logger = logging.getLogger("kafkapy.clients.consumer.membership")

NOT_IT = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Answers of a broker that is not the coordinator, or not now."""


class GroupCoordinator:
    """On the loop's thread."""

    def __init__(self, network: NetworkClient, group_id: str, metrics: CoordinatorMetrics) -> None:
        self._network = network
        self._metrics = metrics
        self._group_id = group_id
        self._lookup = CoordinatorLookup(network)
        self.known = False
        """Whether there is one, as far as is known."""

    async def node(self) -> int:
        """Its node id. GroupAuthorizationFailedError, or a retriable error when it was not found in time."""
        node_id = await self._lookup.find(self._group_id, CoordinatorType.GROUP)
        self.known = True
        return node_id

    async def send(
        self,
        request: Request | RequestOf,
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """Its response; the error codes in it are the caller's. As `node`, and what NetworkClient.send raises."""
        node_id = await self.node()
        began = time.monotonic()
        try:
            response = await self._network.send(
                node_id, request, timeout_ms=timeout_ms, min_version=min_version, max_version=max_version
            )
        except KafkaError as error:
            if error.retriable:
                self.lost(str(error))
            raise
        kind = request.kind if isinstance(request, RequestOf) else request
        self._metrics.answered(kind.API_KEY, time.monotonic() - began)
        return response

    def lost(self, reason: str) -> None:
        """It is looked for again before the next request."""
        if self.known:
            logger.info("The coordinator of group %s is looked for again: %s", self._group_id, reason)
        self.known = False
        self._lookup.invalidate(self._group_id, CoordinatorType.GROUP)

    def answered(self, code: ErrorCode) -> None:
        """Looks at an error code of a response: some mean that it is not the coordinator."""
        if code in NOT_IT:
            self.lost(code.name)
