"""Requests about topics: create, delete, add partitions (kafka.server.ZkAdminManager).

Each request is one event of the controller. A request is answered when its effect is visible (the metadata cache has
the leaders, the topic is gone) or with REQUEST_TIMED_OUT after its timeout; the work itself goes on. Results are by
topic; an error is a value there, so that one bad topic does not spoil the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from kafkapy import errors
from kafkapy.controller.admin_requests import CreatedTopic, NewPartitions, NewTopic
from kafkapy.controller.topic_validation import MAX_PARTITIONS_PER_REQUEST, TopicPlan, plan_partitions, plan_topic
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.store import Create, NodeExistsError
from kafkapy.metadata.znodes import CONFIG_TOPICS, TopicAssignment, encode_topic, topic_path
from kafkapy.policies import RequestedTopic, check_topic
from kafkapy.slices import in_slices
from kafkapy.types import ZERO_UUID, TopicPartition, random_uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.controller.controller import KafkaController
    from kafkapy.policies import CreateTopicPolicy

logger = logging.getLogger("kafka.server.ZkAdminManager")

LOGGED_AT_MOST: Final = 100
"""Most failed topics of one request that are logged."""

MIN_DECISION_S: Final = 10.0
"""Seconds that a request waits for the controller's decision, even with a shorter timeout."""

K = TypeVar("K")
V = TypeVar("V")


RecordMutation = Callable[[int], None]
"""Counts partitions in a client's quota before they are created or deleted. A KafkaError refuses them."""


def _unlimited(partitions: int) -> None:
    """The quota of a client without one."""


class TopicAdmin:
    """Topic requests on top of one KafkaController.

    Handlers use it on the control loop. Every method raises NOT_CONTROLLER for the whole request when this broker is
    not the controller.
    """

    def __init__(self, controller: KafkaController, policy: CreateTopicPolicy | None = None) -> None:
        self._controller = controller
        self._policy = policy
        self._running: set[asyncio.Task[None]] = set()

    # --- create -------------------------------------------------------------------------------------------------------

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        validate_only: bool = False,
        timeout_ms: int = 30_000,
        record: RecordMutation = _unlimited,
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; one result for each.

        See plan_topic for the errors of a topic; REQUEST_TIMED_OUT.
        """
        done: dict[str, CreatedTopic | KafkaError] = {}

        made: dict[str, CreatedTopic] = {}

        async def decide() -> None:
            await self._controller.submit(
                "CreateTopics", lambda: self._create(topics, validate_only, done, made, record)
            )
            if validate_only:
                done.update(made)

        async def settle() -> None:
            await self._in_cache({name: topic.num_partitions for name, topic in made.items()})
            done.update(made)

        return await self._finish([topic.name for topic in topics], done, decide, settle, timeout_ms)

    async def _create(
        self,
        topics: Sequence[NewTopic],
        validate_only: bool,
        failed: dict[str, CreatedTopic | KafkaError],
        made: dict[str, CreatedTopic],
        record: RecordMutation,
    ) -> None:
        budget = MAX_PARTITIONS_PER_REQUEST
        logged = 0
        async for topic in in_slices(topics):
            try:
                plan = plan_topic(topic, self._controller.context, self._controller.config, budget)
                check_topic(self._policy, _requested(topic, plan))
                budget -= len(plan.assignments)
                if not validate_only:
                    record(len(plan.assignments))
                topic_id = ZERO_UUID if validate_only else await self._write(plan)
            except KafkaError as error:
                if logged < LOGGED_AT_MOST:
                    is_throttled = error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
                    level = logging.DEBUG if is_throttled else logging.INFO
                    logger.log(level, "Topic %r is not created: %s", topic.name, error)
                logged += 1
                failed[topic.name] = error.with_traceback(None)  # else it holds this frame, and so itself
                continue
            made[plan.name] = CreatedTopic(
                plan.name, topic_id, len(plan.assignments), plan.replication_factor, plan.configs
            )
        if made and not validate_only:
            await self._controller.current.topics_created(list(made))

    async def _write(self, plan: TopicPlan) -> UUID:
        """Write settings and topic in one transaction.

        After this write the topic exists, even when later steps fail.
        """
        controller = self._controller
        topic_id = random_uuid()
        assignment = TopicAssignment(topic_id, plan.assignments)
        logger.info(
            "Topic %s is created with %d partitions and configuration %s",
            plan.name,
            len(plan.assignments),
            dict(plan.configs),
        )
        operations = [
            await controller.configs.write_operation(CONFIG_TOPICS, plan.name, plan.configs),
            Create(topic_path(plan.name), encode_topic(assignment)),
        ]
        try:
            await controller.store.commit(operations)
        except NodeExistsError:
            raise errors.TopicAlreadyExistsError(f"Topic '{plan.name}' already exists.") from None
        controller.context.put_topic(plan.name, topic_id, assignment)
        return topic_id

    async def _in_cache(self, topics: Mapping[str, int]) -> None:
        """Return when the metadata cache shows every partition with a leader.

        `topics` maps a name to its number of partitions. An earlier topic of the same name does not count.
        """
        cache, ids = self._controller.metadata_cache, self._controller.context.topic_ids
        waiting = dict(topics)
        while True:
            seen = cache.snapshot
            async for name, count in in_slices(list(waiting.items())):
                topic = cache.topic(name)
                if topic is None or topic.topic_id != ids.get(name, topic.topic_id):
                    continue
                if sum(p.leader >= 0 for p in topic.partitions.values()) >= count:
                    del waiting[name]
            if not waiting:
                return
            if cache.snapshot is seen:
                await cache.wait_for_change()

    # --- delete -------------------------------------------------------------------------------------------------------

    async def delete_topics(
        self, topics: Sequence[str | UUID], timeout_ms: int = 30_000, record: RecordMutation = _unlimited
    ) -> dict[str | UUID, KafkaError | None]:
        """Delete topics by name or id; returns each one's error, or None.

        UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT. For a topic that is
        being deleted already, the request waits too.
        """
        done: dict[str | UUID, KafkaError | None] = {}
        waiters: dict[str | UUID, asyncio.Future[None]] = {}

        answered = False

        async def give_up() -> None:
            async for waiter in in_slices(list(waiters.values())):
                waiter.cancel()

        async def decide() -> None:
            await self._controller.submit("DeleteTopics", lambda: self._delete(topics, done, waiters, record))
            if answered:
                await give_up()

        async def settle() -> None:
            async for topic, waiter in in_slices(waiters.items()):
                await waiter
                done[topic] = None

        try:
            return await self._finish(list(topics), done, decide, settle, timeout_ms)
        finally:
            answered = True
            await give_up()

    async def _delete(
        self,
        topics: Sequence[str | UUID],
        failed: dict[str | UUID, KafkaError | None],
        waiters: dict[str | UUID, asyncio.Future[None]],
        record: RecordMutation,
    ) -> None:
        controller = self._controller
        context = controller.context
        names: dict[str, None] = {}
        async for topic in in_slices(topics):
            name = topic if isinstance(topic, str) else context.topics_by_id.get(topic)
            if not controller.config.get_bool("delete.topic.enable"):
                failed[topic] = errors.TopicDeletionDisabledError()
            elif name is None or name not in context.assignments:
                if isinstance(topic, UUID):
                    failed[topic] = errors.UnknownTopicIdError(f"No topic has the id {uuid_to_string(topic)}.")
                else:
                    failed[topic] = errors.UnknownTopicOrPartitionError(f"Topic `{topic}` to delete does not exist")
            else:
                if name not in context.topics_to_delete:
                    try:
                        record(len(context.assignments[name]))
                    except KafkaError as error:
                        failed[topic] = error.with_traceback(None)
                        continue
                    names[name] = None
                waiters[topic] = controller.current.topic_deletion(name)
        if names:
            try:
                await controller.store.mark_for_deletion(list(names))
            except NodeExistsError:
                pass  # marked by a foreign tool a moment ago
            await controller.current.deletion.enqueue(list(names))

    # --- partitions ---------------------------------------------------------------------------------------------------

    async def create_partitions(
        self,
        requests: Sequence[NewPartitions],
        validate_only: bool = False,
        timeout_ms: int = 30_000,
        record: RecordMutation = _unlimited,
    ) -> dict[str, KafkaError | None]:
        """Add partitions to topics; returns each one's error, or None.

        See plan_partitions for the errors.
        """
        done: dict[str, KafkaError | None] = {}

        counts: dict[str, int] = {}

        async def decide() -> None:
            await self._controller.submit(
                "CreatePartitions", lambda: self._add(requests, validate_only, done, counts, record)
            )
            if validate_only:
                done.update(dict.fromkeys(counts))

        async def settle() -> None:
            await self._in_cache(counts)
            done.update(dict.fromkeys(counts))

        return await self._finish([request.name for request in requests], done, decide, settle, timeout_ms)

    async def _add(
        self,
        requests: Sequence[NewPartitions],
        validate_only: bool,
        failed: dict[str, KafkaError | None],
        counts: dict[str, int],
        record: RecordMutation,
    ) -> None:
        context = self._controller.context
        budget = MAX_PARTITIONS_PER_REQUEST
        partitions: list[TopicPartition] = []
        async for request in in_slices(requests):
            try:
                added = plan_partitions(request, context, budget)
                if not validate_only:
                    record(len(added))
            except KafkaError as error:
                failed[request.name] = error.with_traceback(None)
                continue
            budget -= len(added)
            counts[request.name] = request.count
            if validate_only:
                continue
            name = request.name
            existing = (await self._controller.store.topic_assignments([name]))[name]
            assignment = TopicAssignment(context.topic_ids[name], {**context.assignments[name], **added})
            await self._controller.store.set_topic(name, assignment, existing[1].version)
            context.put_topic(name, context.topic_ids[name], assignment)
            partitions += [TopicPartition(name, number) for number in added]
            logger.info("Topic %s gets %d more partitions", name, len(added))
        if partitions:
            await self._controller.current.partitions_created(partitions)

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _finish(
        self,
        keys: Sequence[K],
        done: dict[K, V],
        decide: Callable[[], Awaitable[None]],
        settle: Callable[[], Awaitable[None]],
        timeout_ms: int,
    ) -> dict[K, V]:
        """Let the controller decide, then wait until the effect is visible.

        Both take at most `timeout_ms`. `done` holds the controller's refusals before any wait, so a request without a
        timeout still gets its errors.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        decision_limit = max(timeout_ms / 1000, MIN_DECISION_S)
        decided = await self._within(decision_limit, decide)
        if decided and len(done) < len(keys) and deadline > loop.time():
            # No caller needs a result that arrives after this request's time.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await settle()
        timed_out: Any = errors.RequestTimedOutError
        return {key: done[key] if key in done else timed_out() async for key in in_slices(keys)}

    async def _within(self, seconds: float, run: Callable[[], Awaitable[None]]) -> bool:
        """Whether the work finished in time.

        Late work goes on by itself and its error is logged.
        """

        async def work() -> None:
            await run()

        task = asyncio.get_running_loop().create_task(work())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        finished, _ = await asyncio.wait({task}, timeout=seconds)
        if finished:
            task.result()
            return True
        task.add_done_callback(_log_late_error)
        return False


def _log_late_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("An administrative request failed after its timeout", exc_info=task.exception())


def _requested(topic: NewTopic, plan: TopicPlan) -> RequestedTopic:
    if topic.assignments:
        return RequestedTopic(plan.name, None, None, topic.assignments, plan.configs)
    return RequestedTopic(plan.name, len(plan.assignments), plan.replication_factor, None, plan.configs)
