"""The controlled shutdown: the controller moves this broker's leaderships away before the broker stops.

Clients then find the next leaders at once, instead of after this broker's session. Source:
kafka.server.KafkaServer.controlledShutdown.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of
from kafkapy.errors import ErrorCode, KafkaError, NotControllerError, error_for
from kafkapy.metadata.metadata_version import IBP, MetadataVersion
from kafkapy.metadata.store import MetadataStoreError
from kafkapy.metadata.znodes import BROKER_IDS
from kafkapy.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.broker.context import BrokerContext

logger = logging.getLogger("kafka.server.KafkaServer")


class ControlledShutdown:
    """Asks the controller, as often as controlled.shutdown.max.retries says.

    Used once, on the control loop.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._config = context.config
        self._timeout_ms = self._config.get_int("controller.socket.timeout.ms")
        self._client: InterBrokerClient | None = None

    async def run(self) -> bool:
        """Whether this broker leads no replicated partition any more.

        Each attempt takes controller.socket.timeout.ms at most.
        """
        config = self._config
        if not config.get_bool("controlled.shutdown.enable") or self._context.controller.broker_epoch == -1:
            return True
        retries = config.get_int("controlled.shutdown.max.retries")
        try:
            for attempt in range(1, retries + 1):
                if self._context.controller.is_active and not self._context.store.is_connected:
                    logger.warning("This broker's controller cannot move partitions: it has lost the metadata store")
                    break
                if await self._is_alone():
                    logger.info("No other broker is registered that partitions could move to")
                    return False
                if await self._attempt():
                    return True
                if attempt < retries:
                    await asyncio.sleep(config.get_int("controlled.shutdown.retry.backoff.ms") / 1000)
        finally:
            if self._client is not None:
                await self._client.close()
        logger.warning("The broker stops although it still leads partitions")
        return False

    async def _is_alone(self) -> bool:
        """Whether no other broker of a shared store is registered: nobody could take a leadership over."""
        store = self._context.store
        if not store.is_shared:
            return False
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return set(await store.children(BROKER_IDS)) <= {str(self._context.node_id)}
        except (TimeoutError, MetadataStoreError):
            return False

    async def _attempt(self) -> bool:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                left = await self._ask()
        except TimeoutError:
            logger.warning("The controller did not answer the controlled shutdown within %d ms", self._timeout_ms)
        except (KafkaError, MetadataStoreError) as error:
            logger.warning("The controlled shutdown failed: %s", error)
        else:
            if not left:
                return True
            logger.info("The controlled shutdown must still move %d partitions", len(left))
        return False

    async def _ask(self) -> set[TopicPartition]:
        """The partitions that this broker still leads, by this broker's controller or by another one."""
        context = self._context
        controller = context.controller
        if controller.is_active:
            return await controller.controlled_shutdown(context.node_id, controller.broker_epoch)
        controller_id = controller.active_controller_id
        if controller_id in (-1, context.node_id):
            raise NotControllerError("the cluster has no controller at the moment")
        if self._client is None:
            endpoint_of = endpoints_of(context.metadata_cache, self._config.inter_broker_listener_name)
            self._client = InterBrokerClient(self._config, context.node_id, "controlled-shutdown", endpoint_of)
        response = await self._client.send(
            controller_id,
            ControlledShutdownRequest(broker_id=context.node_id, broker_epoch=controller.broker_epoch),
            version=MetadataVersion.parse(self._config.get_str(IBP)).controlled_shutdown_version,
        )
        if response.error_code:
            raise error_for(response.error_code, f"the controller answered {ErrorCode.of(response.error_code).name}")
        return {TopicPartition(each.topic_name, each.partition_index) for each in response.remaining_partitions}
