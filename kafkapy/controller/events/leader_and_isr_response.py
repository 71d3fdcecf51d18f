"""LeaderAndIsrResponseReceived: a broker has begun to lead and follow.

Source: processLeaderAndIsrResponseReceived.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.context import Replica
from kafkapy.controller.controllership import Controllership
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerResponse, LeaderAndIsr

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "LeaderAndIsrResponseReceived"


async def run(controllership: Controllership, broker_id: int, request: LeaderAndIsr, response: BrokerResponse) -> None:
    """Take partitions with a failed log directory offline."""
    if response.error is not ErrorCode.NONE:
        return
    before = controllership.context.offline_dir_partitions.get(broker_id, set())
    offline = {p for p, e in response.partition_errors.items() if e is ErrorCode.KAFKA_STORAGE_ERROR}
    online = {p for p in request.partitions if p not in response.partition_errors}
    now = (before - online) | offline
    controllership.context.offline_dir_partitions[broker_id] = now
    newly = now - before
    if newly:
        logger.info("%d replicas on broker %d are offline: storage error", len(newly), broker_id)
        await controllership.replicas_offline([Replica(partition, broker_id) for partition in newly])
