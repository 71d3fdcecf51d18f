"""Two requests of a controller at one broker at the same time: one on its way in a lost connection, and a later one."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from simulation import clock
from simulation.cluster import SimulatedCluster, simulate

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkapy.types import random_uuid

VERSION = 8
TOPICS = 6
CONTROLLER_EPOCH = 100
STEPS = range(120)
"""Turns of the loop between the arrivals."""
OLD, NEW = 0, 2


def update(leader: int, topics: int, broker_epoch: int) -> UpdateMetadataRequest:
    """Topics t0, t1, ... with this leader."""
    states = [
        UpdateMetadataRequest.TopicState(
            topic_name=f"t{number}",
            topic_id=random_uuid(),
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=0,
                    controller_epoch=CONTROLLER_EPOCH,
                    leader=leader,
                    leader_epoch=1,
                    isr=[OLD, NEW],
                    zk_version=1,
                    replicas=[OLD, NEW],
                    offline_replicas=[],
                )
            ],
        )
        for number in range(topics)
    ]
    return UpdateMetadataRequest(
        controller_id=NEW,
        controller_epoch=CONTROLLER_EPOCH,
        broker_epoch=broker_epoch,
        topic_states=states,
        live_brokers=[],
    )


@pytest.mark.parametrize("ends", [1.0, 0.3])
def test_a_long_request_is_not_applied_behind_a_later_one(ends: float) -> None:
    """Whatever the later one meets: the long request in any of its slices."""
    seen: set[ErrorCode] = set()

    async def scenario(cluster: SimulatedCluster) -> None:
        broker = cluster[1]
        epoch = broker.controller.broker_epoch
        for number, steps in enumerate(STEPS):
            early, later = 2 * number, 2 * number + 1
            long = broker.loop.create_task(
                broker.serve(update(OLD, TOPICS, epoch), VERSION, early), context=broker.context
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            short = broker.loop.create_task(broker.serve(update(NEW, 1, epoch), VERSION, later), context=broker.context)
            assert (await short).error_code == ErrorCode.NONE
            seen.add(ErrorCode((await long).error_code))
            known = broker.cache.partition("t0", 0)
            assert known is not None and known.leader == NEW, steps

    with patch.object(clock, "SLICE_ENDS", ends):
        simulate(scenario)
    assert seen == {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH}
