"""Creating, growing and deleting topics: what clients are answered, and what is then true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from waiting import until, until_not

from kafkapy import errors
from kafkapy.controller.admin_requests import CreatedTopic, NewPartitions, NewTopic
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.metadata.znodes import delete_topic_path, topic_path
from kafkapy.types import ZERO_UUID, TopicPartition, random_uuid

Runner = Callable[..., None]


def code(outcome: Any) -> ErrorCode:
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


def test_a_created_topic_is_led_and_seen_by_clients_when_the_answer_comes(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        topic = NewTopic("orders", 3, 1, configs={"retention.ms": "1000"})
        result = (await cluster.topic_admin.create_topics([topic]))["orders"]
        assert isinstance(result, CreatedTopic)
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        seen = cluster.cache.topic("orders")
        assert seen.topic_id == result.topic_id != ZERO_UUID
        assert [(p.leader, p.leader_epoch, p.isr) for p in seen.partitions.values()] == [(0, 0, (0,))] * 3
        assert set(cluster.brokers[0].leading) == {TopicPartition("orders", n) for n in range(3)}
        assert cluster.configs.topic("orders") == {"retention.ms": "1000"}

    with_cluster(test)


def test_numbers_left_open_are_the_brokers_defaults(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        result = (await cluster.topic_admin.create_topics([NewTopic("t")]))["t"]
        assert (result.num_partitions, result.replication_factor) == (4, 1)

    with_cluster(test, num_partitions="4")


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (NewTopic("taken", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'taken' already exists."),
        (NewTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string"),
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
        (NewTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
        (NewTopic("a b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        (
            NewTopic("dotted_name", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "collides with existing topics: dotted.name",
        ),
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (NewTopic("t", -5, 1), ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (NewTopic("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
        (
            NewTopic("t", 1, 2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 2 larger than available brokers: 1.",
        ),
        (NewTopic("t", 1, -1, {0: [0]}), ErrorCode.INVALID_REQUEST, "Both numPartitions or replicationFactor"),
        (NewTopic("t", assignments={1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
        (NewTopic("t", assignments={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate replica"),
        (NewTopic("t", assignments={0: [5]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s)"),
        (NewTopic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        (NewTopic("t", assignments={0: [0], 1: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "same number of replicas"),
        (NewTopic("t", 1, 1, configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG, "no.such"),
        (NewTopic("t", 1, 1, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (NewTopic("t", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "Null value not supported"),
    ],
)
def test_a_topic_that_cannot_be_created(with_cluster: Runner, topic: NewTopic, error: ErrorCode, message: str) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("taken", 1, 1), NewTopic("dotted.name", 1, 1)])
        for validate_only in (True, False):
            results = await cluster.topic_admin.create_topics([topic, NewTopic("good", 1, 1)], validate_only)
            assert code(results[topic.name]) is error
            assert message in str(results[topic.name])
        assert code(results["good"]) is ErrorCode.NONE
        assert set(cluster.cache.topics()) == {"taken", "dotted.name", "good"}
        assert await cluster.store.children("/brokers/topics") == ["dotted.name", "good", "taken"]

    with_cluster(test)


def test_validate_only_creates_nothing(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        result = (await cluster.topic_admin.create_topics([NewTopic("t", 2, 1)], validate_only=True))["t"]
        assert (result.num_partitions, result.topic_id) == (2, ZERO_UUID)
        assert await cluster.store.children("/brokers/topics") == []

    with_cluster(test)


def test_without_a_timeout_the_topic_is_created_but_not_waited_for(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        topics = [NewTopic("t", 1, 1), NewTopic("bad name", 1, 1)]
        results = await cluster.topic_admin.create_topics(topics, timeout_ms=0)
        assert code(results["t"]) is ErrorCode.REQUEST_TIMED_OUT
        assert code(results["bad name"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
        await cluster.idle()
        assert cluster.cache.contains("t")

    with_cluster(test)


def test_one_of_two_creations_of_a_name_at_the_same_time_wins(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        results = await asyncio.gather(*(cluster.topic_admin.create_topics([NewTopic("t", 1, 1)]) for _ in range(8)))
        codes = sorted(code(each["t"]) for each in results)
        assert codes == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 7

    with_cluster(test)


def test_a_topic_is_deleted_by_name_or_id_and_can_be_created_again_at_once(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        controller = cluster.controller
        created = await TopicAdmin(controller).create_topics(
            [NewTopic("a", 2, 1, configs={"retention.ms": "5"}), NewTopic("b", 1, 1)]
        )
        by_id = created["b"].topic_id
        assert await TopicAdmin(controller).delete_topics(["a", by_id]) == {"a": None, by_id: None}
        assert not cluster.cache.topics()
        assert not cluster.brokers[0].logs
        for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            assert await cluster.store.children(path) == []
        again = (await TopicAdmin(controller).create_topics([NewTopic("b", 1, 1)]))["b"]
        assert again.topic_id != by_id
        assert cluster.configs.topic("a") == {}

    with_cluster(test)


def test_a_quota_counts_partitions_that_change_and_no_validation(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        admin = cluster.topic_admin
        counted: list[int] = []
        for validate_only in (True, False):
            await admin.create_topics([NewTopic("t", 3, 1)], validate_only, record=counted.append)
            await admin.create_partitions([NewPartitions("t", 5)], validate_only, record=counted.append)
        await admin.delete_topics(["t", "no"], record=counted.append)
        assert counted == [3, 2, 5]

    with_cluster(test)


def test_what_a_quota_refuses_does_not_happen(with_cluster: Runner) -> None:
    def refuse(partitions: int) -> None:
        raise errors.ThrottlingQuotaExceededError()

    async def test(cluster: Any) -> None:
        admin = cluster.topic_admin
        await admin.create_topics([NewTopic("t", 1, 1)])
        refused = [
            *(await admin.create_topics([NewTopic("new", 1, 1)], record=refuse)).values(),
            *(await admin.create_partitions([NewPartitions("t", 5)], record=refuse)).values(),
            *(await admin.delete_topics(["t"], record=refuse)).values(),
        ]
        assert [code(each) for each in refused] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3
        assert {each.name: each.partition_count for each in cluster.cache.topics().values()} == {"t": 1}

    with_cluster(test)


def test_unknown_topics_are_not_deleted(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        unknown = random_uuid()
        results = await cluster.topic_admin.delete_topics(["no", unknown])
        assert code(results["no"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code(results[unknown]) is ErrorCode.UNKNOWN_TOPIC_ID

    with_cluster(test)


def test_deletion_can_be_disabled(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)])
        assert code((await cluster.topic_admin.delete_topics(["t"]))["t"]) is ErrorCode.TOPIC_DELETION_DISABLED
        # A mark that a tool puts there itself is taken away again.
        await cluster.store.create(delete_topic_path("t"))
        await until_not(lambda: cluster.store.children("/admin/delete_topics"), "the mark is gone")
        assert cluster.cache.contains("t")

    with_cluster(test, delete_topic_enable="false")


def test_a_topic_that_is_being_deleted_blocks_its_name_and_two_deletions_both_wait(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        controller = cluster.controller
        await TopicAdmin(controller).create_topics([NewTopic("t", 1, 1)])
        cluster.brokers[0].refuse_deletes = True
        results = await asyncio.gather(*(TopicAdmin(controller).delete_topics(["t"], timeout_ms=50) for _ in range(2)))
        assert [code(each["t"]) for each in results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert not cluster.cache.contains("t")
        refused = (await TopicAdmin(controller).create_topics([NewTopic("t", 1, 1)]))["t"]
        assert code(refused) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert "marked for deletion" in str(refused)

    with_cluster(test)


def test_partitions_are_added(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        controller = cluster.controller
        created = (await TopicAdmin(controller).create_topics([NewTopic("t", 2, 1)]))["t"]
        assert await TopicAdmin(controller).create_partitions([NewPartitions("t", 5)], validate_only=True) == {
            "t": None
        }
        assert cluster.cache.topic("t").partition_count == 2
        assert await TopicAdmin(controller).create_partitions([NewPartitions("t", 5)]) == {"t": None}
        seen = cluster.cache.topic("t")
        assert (list(seen.partitions), seen.topic_id) == ([0, 1, 2, 3, 4], created.topic_id)
        assert len(cluster.brokers[0].leading) == 5
        assert await TopicAdmin(controller).create_partitions([NewPartitions("t", 6, [[0]])]) == {"t": None}

    with_cluster(test)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (NewPartitions("no", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS, "which is higher than the requested 1"),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "already has 2 partitions"),
        (NewPartitions("t", 20_000), ErrorCode.POLICY_VIOLATION, "Excessively large"),
        (NewPartitions("t", 3, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s)"),
        (NewPartitions("t", 3, [[0], [0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "but 2 assignments provided"),
        (NewPartitions("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replication factor of 0"),
        (NewPartitions("t", 3, [[0, 0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate brokers"),
    ],
)
def test_partitions_that_cannot_be_added(
    with_cluster: Runner, request_: NewPartitions, error: ErrorCode, message: str
) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 2, 1)])
        outcome = (await cluster.topic_admin.create_partitions([request_]))[request_.name]
        assert code(outcome) is error
        assert message in str(outcome)
        assert cluster.cache.topic("t").partition_count == 2

    with_cluster(test)


def test_a_topic_written_by_a_tool_is_brought_to_life(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.store.create(topic_path("tool"), b'{"version":1,"partitions":{"0":[0],"1":[0]}}')
        await until(lambda: cluster.cache.contains(TopicPartition("tool", 1)), "clients see the topic")
        assert cluster.cache.topic("tool").topic_id != ZERO_UUID
        await cluster.store.create(delete_topic_path("tool"))
        await until_not(lambda: cluster.store.exists(topic_path("tool")), "the topic is gone")
        assert not cluster.cache.contains("tool")

    with_cluster(test)


def test_a_thousand_partitions_are_created_while_the_loop_stays_responsive(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        longest = 0.0

        async def heartbeat() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0)
                longest = max(longest, time.monotonic() - before)
                await asyncio.sleep(0.001)

        beating = asyncio.create_task(heartbeat())
        result = (await cluster.topic_admin.create_topics([NewTopic("wide", 1000, 1)]))["wide"]
        beating.cancel()
        print(f"longest pause of the loop: {longest * 1000:.1f} ms")
        assert result.num_partitions == 1000
        assert len(cluster.brokers[0].leading) == 1000
        assert await cluster.topic_admin.delete_topics(["wide"]) == {"wide": None}
        assert await cluster.store.children("/brokers/topics") == []

    with_cluster(test)


def test_requests_that_time_out_leave_nothing_behind(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)])
        cluster.brokers[0].refuse_deletes = True
        tasks = len(asyncio.all_tasks())
        for _ in range(50):
            result = (await cluster.topic_admin.delete_topics(["t"], timeout_ms=1))["t"]
            assert result is not None
            assert result.code is ErrorCode.REQUEST_TIMED_OUT
        await cluster.idle()
        assert len(asyncio.all_tasks()) == tasks
        assert not any(cluster.controller.current._deletion_waiters.values())

    with_cluster(test)


def test_the_topics_of_a_request_share_its_number_of_partitions(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        topics = [
            NewTopic("first", 6000, 1),
            NewTopic("bad name", 4000, 1),  # what is refused takes nothing
            NewTopic("too many", 4001, 1),
            NewTopic("assigned", assignments={number: [0] for number in range(4001)}),
            NewTopic("rest", 4000, 1),
            NewTopic("one more", 1, 1),
        ]
        results = await cluster.topic_admin.create_topics(topics, validate_only=True)
        assert {name: code(outcome) for name, outcome in results.items()} == {
            "first": ErrorCode.NONE,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "too many": ErrorCode.POLICY_VIOLATION,
            "assigned": ErrorCode.POLICY_VIOLATION,
            "rest": ErrorCode.NONE,
            "one more": ErrorCode.POLICY_VIOLATION,
        }
        # The next request has a number of its own.
        assert code((await cluster.topic_admin.create_topics(topics[-1:], True))["one more"]) is not (
            ErrorCode.POLICY_VIOLATION
        )

    with_cluster(test)


def test_the_partitions_added_by_a_request_share_its_number(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic(name, 1, 1) for name in "abcd"])
        requests = [NewPartitions("a", 6001), NewPartitions("b", 4002), NewPartitions("c", 4001), NewPartitions("d", 2)]
        results = await cluster.topic_admin.create_partitions(requests, validate_only=True)
        assert {name: code(outcome) for name, outcome in results.items()} == {
            "a": ErrorCode.NONE,
            "b": ErrorCode.POLICY_VIOLATION,
            "c": ErrorCode.NONE,
            "d": ErrorCode.POLICY_VIOLATION,
        }

    with_cluster(test)


@pytest.mark.parametrize("fails", [False, True])
def test_what_becomes_of_a_request_after_its_time_is_said_when_it_fails(
    with_cluster: Runner, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Nobody else hears of it."""
    monkeypatch.setattr("kafkapy.controller.topic_admin.MIN_DECISION_S", 0.0)

    async def test(cluster: Any) -> None:
        gate = asyncio.Event()
        blocking = asyncio.create_task(cluster.controller.submit("Blocking", gate.wait))
        await asyncio.sleep(0)
        result = await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)], timeout_ms=0)
        assert code(result["t"]) is ErrorCode.REQUEST_TIMED_OUT
        if fails:

            async def no_disk(operations: Any) -> Any:
                raise StoreUnavailableError("/", "the disk is full")

            monkeypatch.setattr(cluster.store, "commit", no_disk)
        gate.set()
        await blocking
        await until(lambda: not cluster.topic_admin._running, "the request has ended")
        await asyncio.sleep(0)
        said = [each for each in caplog.records if "failed after its timeout" in each.message]
        assert [str(each.exc_info[1]) for each in said if each.exc_info] == ["the disk is full"] * fails
        monkeypatch.undo()
        assert (await cluster.store.exists(topic_path("t")) is None) == fails

    with_cluster(test)
