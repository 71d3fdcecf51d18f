"""The coordinator of one group, and the lookup of a new one.

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
"""Errors of a broker that is not the coordinator, or not now."""


class GroupCoordinator:
    """The coordinator of one group. On the loop's thread."""

    def __init__(self, network: NetworkClient, group_id: str, metrics: CoordinatorMetrics) -> None:
        self._network = network
        self._metrics = metrics
        self._group_id = group_id
        self._lookup = CoordinatorLookup(network)
        self.known = False
        """Whether the coordinator is known."""

    async def node(self) -> int:
        """The coordinator's node id.

        GroupAuthorizationFailedError, or a retriable error when the lookup times out.
        """
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
        """The coordinator's response; the caller checks its error codes.

        Errors as in `node` and NetworkClient.send.
        """
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
        """Forgets the coordinator; the next request looks it up again."""
        if self.known:
            logger.info("Looking up the coordinator of group %s again: %s", self._group_id, reason)
        self.known = False
        self._lookup.invalidate(self._group_id, CoordinatorType.GROUP)

    def answered(self, code: ErrorCode) -> None:
        """Checks an error code of a response; some mean another coordinator."""
        if code in NOT_IT:
            self.lost(code.name)
