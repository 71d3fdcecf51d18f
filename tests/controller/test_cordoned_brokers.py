"""A cordoned broker keeps its replicas and gets no new ones (KIP-1066)."""

from __future__ import annotations

import asyncio
from typing import Any

from controller.several import SeveralBrokers, run_several
from controller.test_several_brokers import create
from waiting import WAIT_S

from kafkapy import errors
from kafkapy.controller.admin_requests import NewPartitions, NewTopic
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import BrokerRegistration, decode_broker, encode_broker
from kafkapy.types import Endpoint, TopicPartition


async def cordon(cluster: SeveralBrokers, *brokers: int, cordoned: bool = True) -> None:
    for broker in brokers:
        controller = cluster[broker].controller
        assert controller.registration is not None
        await controller.update_registration(controller.registration.endpoints, cordoned)
    await cluster.settled()


def code(outcome: Any) -> ErrorCode | None:
    return outcome.code if isinstance(outcome, errors.KafkaError) else None


async def created(cluster: SeveralBrokers, name: str, *numbers: int, **assignment: Any) -> ErrorCode | None:
    return code((await cluster.active.admin.create_topics([NewTopic(name, *numbers, **assignment)]))[name])


async def grown(cluster: SeveralBrokers, request: NewPartitions) -> ErrorCode | None:
    return code((await cluster.active.admin.create_partitions([request]))[request.name])


def replicas(cluster: SeveralBrokers, topic: str) -> set[int]:
    return {broker for each in cluster.context.assignments[topic].values() for broker in each.replicas}


def test_new_partitions_go_to_other_brokers() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        await cordon(cluster, 1)
        assert await created(cluster, "placed", 12, 2) is None
        assert replicas(cluster, "placed") == {0, 2}
        assert await grown(cluster, NewPartitions("t", 7)) is None
        assert cluster.context.assignments["t"][0].replicas == (1, 2), "what is there stays"
        assert {broker for n in range(1, 7) for broker in cluster.context.assignments["t"][n].replicas} == {0, 2}
        assert await created(cluster, "wide", 1, 3) is ErrorCode.INVALID_REPLICATION_FACTOR
        await cordon(cluster, 1, cordoned=False)
        assert await created(cluster, "wide", 1, 3) is None

    run_several(test)


def test_no_assignment_names_a_cordoned_broker() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        partition = TopicPartition("t", 0)
        await create(cluster, {0: [1, 0]})
        await cordon(cluster, 1, 2)
        refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await created(cluster, "named", assignments={0: [0, 1]}) is refused
        assert await grown(cluster, NewPartitions("t", 2, [[0, 2]])) is refused

        async def reassigned(*target: int) -> ErrorCode | None:
            outcomes = await cluster.active.controller.alter_reassignments({partition: list(target)})
            await cluster.settled()
            return code(outcomes[partition])

        assert await reassigned(0, 2) is refused
        assert await reassigned(1, 0) is None, "the partition is there already"
        assert await reassigned(0) is None, "away from it"
        assert await reassigned(0, 1) is refused, "and not back"

    run_several(test)


def test_a_cluster_without_another_broker_makes_no_topic() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0]})
        await cordon(cluster, 0, 1, 2)
        assert await created(cluster, "new", 1, 1) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await grown(cluster, NewPartitions("t", 2)) is ErrorCode.INVALID_REPLICATION_FACTOR

    run_several(test)


def test_the_next_controller_and_a_new_session_know_it() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await cordon(cluster, 2)
        await cluster.kill(cluster.active.id)
        await cluster.controlled()
        await cluster.settled()
        assert await created(cluster, "placed", 6, 1) is None
        assert replicas(cluster, "placed") == {1}

    run_several(test)


def test_a_registration_is_written_in_the_order_of_events() -> None:
    """A session that ended is registered again by an event: another registration must not come in between."""

    async def test(cluster: SeveralBrokers) -> None:
        controller = cluster[1].controller
        assert controller.registration is not None
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def event() -> None:
            begun.set()
            await goes_on.wait()

        controller._events.put("event", event)
        await begun.wait()
        written = asyncio.ensure_future(controller.update_registration(controller.registration.endpoints, True))
        await asyncio.sleep(0)
        assert not (await cluster[1].controller.store.live_brokers())[1].cordoned
        goes_on.set()
        await written
        assert (await cluster[1].controller.store.live_brokers())[1].cordoned

    run_several(test)


def test_a_stopped_controller_writes_no_registration() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        controller = cluster[1].controller
        assert controller.registration is not None
        endpoints = controller.registration.endpoints
        await cluster.kill(1)
        await asyncio.wait_for(controller.update_registration(endpoints, True), WAIT_S)
        assert not controller.registration.cordoned

    run_several(test)


def test_a_registration_says_so_only_when_it_is_cordoned() -> None:
    known = BrokerRegistration(1, (Endpoint("PLAINTEXT", "h", 9092),), features=(("group.version", 0, 1),))
    assert b"cordoned" not in encode_broker(known)
    for each in (known, known._replace(cordoned=True)):
        assert decode_broker(1, encode_broker(each)) == each
