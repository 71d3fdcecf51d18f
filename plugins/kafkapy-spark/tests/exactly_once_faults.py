"""Spark's side of an exactly-once sink without Spark: queries whose drivers and tasks die, stop and go on at any
request.

Everything below that is real: SinkDriver, ControlTopic, TransactionClient, and a broker. Only a task's records are sent
by one request instead of a producer.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kafkapy_spark.control_topic import ControlTopic
from kafkapy_spark.decisions import Handle
from kafkapy_spark.sink_plan import Meaning
from kafkapy_spark.task_ids import TaskIds
from kafkapy_spark.transactions import OpenTransaction, TransactionClient
from kafkapy_spark.two_phase_commit import (
    LostTransactionError,
    SinkDriver,
    SinkPlan,
    TaskResult,
    require_current,
)

from kafkapy import KafkaAdminClient, KafkaConsumer
from kafkapy.clients.background import BackgroundLoop
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import KafkaConnectionError, KafkaError
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.types import ListOffsetsTimestamp, TopicPartition

PARTITIONS = 2
TIMEOUT_MS = 900_000
MARKERS_S = 15
"""Most time for the markers of transactions that were ended."""


Fault = Callable[[str, bool], Awaitable[None]]
"""(request, whether it has been answered) -> may raise, or wait."""


class Crash(Exception):
    """The process has died."""


class FailedQueryError(Exception):
    """Spark has ended the query with an error; it is started again."""


async def no_fault(_request: str, _answered: bool) -> None:
    """Nothing happens."""


class At:
    """One fault: before the request of a number is sent, or when the answer of a number has come."""

    def __init__(self, number: int, answered: bool, error: Exception) -> None:
        self.left, self.answered, self.error = number, answered, error
        self.hit = ""
        self.dead = False

    async def __call__(self, request: str, answered: bool) -> None:
        if self.dead:
            raise self.error
        if self.hit or answered != self.answered:
            return
        if self.left:
            self.left -= 1
            return
        self.hit = request
        self.dead = isinstance(self.error, Crash)
        raise self.error


class Actor(TransactionClient):
    """A process with faults, on the connections of another client."""

    def __init__(self, shared: TransactionClient, fault: Fault = no_fault) -> None:
        self.config, self.network, self.lookup = shared.config, shared.network, shared.lookup
        self._started = True
        self.fault = fault

    async def send_built(self, node: int, api: Any, *arguments: Any, **keywords: Any) -> Any:
        name = api.__name__.removesuffix("Request")
        await self.fault(name, False)
        response = await super().send_built(node, api, *arguments, **keywords)
        await self.fault(name, True)
        return response


    async def initialize_task(self, transactional_id: str, timeout_ms: int, two_phase: bool) -> PreparedTxnState:
        """As a task's producer does, which has no timeout with `two_phase` (KIP-939)."""
        if not two_phase:
            return await self.initialize(transactional_id, timeout_ms)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, enable2_pc=True
        )
        response, node = await self._ask_coordinator(transactional_id, request, low=6)
        level = self.network.finalized_feature(node, "transaction.version")
        return PreparedTxnState(response.producer_id, response.producer_epoch, 2 if level >= 2 else 0)


class Query:
    """A streaming query on one sink, its checkpoint and its rows. `random` decides on what Spark may do either way."""

    two_phase = False
    """Whether the tasks' transactions have no timeout."""

    def __init__(self, client: TransactionClient, topic: str, partitions: int, sink: str, batches: int, seed: int):
        self.client, self.topic, self.partitions, self.sink = client, topic, partitions, sink
        self.name = f"query-of-{sink}"
        self.random = random.Random(seed)
        self.rows = {
            batch: [f"{sink}:{batch}:{number}".encode() for number in range(self.random.randint(1, 5))]
            for batch in range(batches)
        }
        self.done = 0
        """Batches that Spark knows to be done."""
        self.failures = 0
        self.idle: list[TaskIds] = []
        """Workers that have run tasks, by the ids that they have."""

    @property
    def expected(self) -> set[bytes]:
        """What a reader is to see once."""
        return {row for rows in self.rows.values() for row in rows}

    def driver(self, fault: Fault = no_fault, *, replay: bool = False, **keywords: Any) -> SinkDriver:
        """A process of the driver's."""
        return SinkDriver(ControlTopic(Actor(self.client, fault)), self.sink, replay=replay, **keywords)

    def divided(self, batch: int) -> list[list[bytes]]:
        """A batch's rows in partitions, in another way each time."""
        parts: list[list[bytes]] = [[] for _ in range(self.random.randint(1, 3))]
        for row in self.rows[batch]:
            self.random.choice(parts).append(row)
        return parts

    async def task(
        self, plan: SinkPlan, batch: int, partition: int, rows: list[bytes], fault: Fault = no_fault
    ) -> TaskResult:
        """An attempt of a task, in a worker that is idle or new. One that does not come back is never used again."""
        result = plan.result(self.name, batch, partition)
        if result.meaning in (Meaning.SKIPPED, Meaning.REFUSED) or not rows:
            return result
        result = replace(result, rows=len(rows), checksum=sum(map(zlib.crc32, rows)))
        if result.meaning is Meaning.COMPARED or (result.replayed and partition not in plan.lost):
            return result
        client = Actor(self.client, fault)
        worker = self.idle.pop() if self.idle else TaskIds()
        with worker.lent(self.sink, plan.driver, reuse=not plan.lost) as name:
            state = await client.initialize_task(f"{self.sink}-{name}", plan.timeout_ms, self.two_phase)
            await require_current(client, plan)
            records: Mapping[bytes, bytes | None] = {row: row for row in rows}
            place = TopicPartition(self.topic, self.random.randrange(self.partitions))
            offset = await client.append(place, records, OpenTransaction(f"{self.sink}-{name}", state))
        self.idle.append(worker)
        handle = Handle(name, partition, *state, result.rows, result.checksum, *place, offset)
        return replace(result, handle=handle)

    async def batch(self, fault: Fault = no_fault, *, commit_fails: Fault = no_fault, abort: Fault = no_fault) -> None:
        """A micro-batch: Crash, or FailedQueryError after Spark has called abort."""
        batch = self.done
        plan = await self.driver(fault).begin(TIMEOUT_MS)
        results: list[TaskResult | None] = []
        for partition, rows in enumerate(self.divided(batch)):
            results.append(await self.task(plan, batch, partition, rows))
        await self.finish(results, fault, commit_fails, abort)
        self.done += 1

    async def finish(self, results: list[TaskResult | None], fault: Fault, commit_fails: Fault, abort: Fault) -> None:
        """What Spark does when all tasks are over."""

        async def either(request: str, answered: bool) -> None:
            await fault(request, answered)
            await commit_fails(request, answered)

        try:
            if None in results:
                raise RuntimeError("a task has failed four times")
            await self.driver(either).commit([each for each in results if each is not None])
        except (KafkaError, RuntimeError) as error:
            last = error
            try:
                await self.driver(abort if abort is not no_fault else fault).abort(results)
            except (KafkaError, RuntimeError) as again:
                last = again
            if isinstance(last, LostTransactionError):
                raise last from None
            raise FailedQueryError from last

    async def run_on(self) -> None:
        """Starts the query again until all is written, and a last time to see that nothing is left open."""
        while self.done < len(self.rows):
            await self.batch()
        await self.driver().begin(TIMEOUT_MS)
        assert await self.driver().find_open() == []


class Process:
    """Faults of one process by chance."""

    crash = 0.008
    lost = 0.02
    stop = 0.01
    timeout = 0.02

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.dead = False
        self.stops: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __call__(self, _request: str, _answered: bool) -> None:
        rnd, stopped = self.schedule.random, self.schedule.stopped
        if stopped and rnd.random() < 0.2:
            stopped.pop(rnd.randrange(len(stopped))).set()
        if self.dead or rnd.random() < self.crash:
            self.dead = True
            raise Crash
        if self.schedule.times_out and rnd.random() < self.timeout:
            await self.schedule.time_out()
        if rnd.random() < self.lost:
            raise KafkaConnectionError("lost")
        if not self.stops.done() and rnd.random() < self.stop:
            goes_on = asyncio.Event()
            stopped.append(goes_on)
            self.stops.set_result(None)
            await goes_on.wait()


class Schedule(Query):
    """A query with faults by chance: crashes at any request, lost answers, tasks that are tried again, run twice or go
    on when nobody waits for them, and drivers that go on after they were replaced.

    In some schedules transactions time out as well. Then records may be lost, and somebody goes on without them.
    """

    times_out = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stopped: list[asyncio.Event] = []
        """Of processes that wait to go on."""
        self.zombies: set[asyncio.Task[Any]] = set()
        self.lost: Counter[int] = Counter()
        """Rows that were reported to be lost, by batch."""

    async def leave(self, work: Awaitable[Any], process: Process) -> Any:
        """Waits for work, unless its process stops: then it goes on some time or other, and nobody waits for it."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task, process.stops}, return_when=asyncio.FIRST_COMPLETED)
            if process.stops.done() and not task.done():
                task.add_done_callback(asyncio.Task.exception)
                self.zombies.add(task)
                raise Crash
        process.stops.cancel()
        return task.result()

    async def attempt(self, plan: SinkPlan, batch: int, partition: int, rows: list[bytes]) -> TaskResult:
        process = Process(self)
        found: TaskResult = await self.leave(self.task(plan, batch, partition, rows, process), process)
        return found

    async def attempts(self, plan: SinkPlan, batch: int, partition: int, rows: list[bytes]) -> TaskResult | None:
        """Four attempts of a task, some of them twice at once."""
        for _ in range(4):
            both = range(2) if self.random.random() < 0.15 else range(1)
            results = await asyncio.gather(
                *(self.attempt(plan, batch, partition, rows) for _ in both), return_exceptions=True
            )
            for result in results:
                if isinstance(result, TaskResult):
                    return result
                if not isinstance(result, (Crash, KafkaError)):
                    raise result
        return None

    async def random_batch(self) -> None:
        batch = self.done
        process = Process(self)
        plan = await self.leave(self.driver(process).begin(TIMEOUT_MS), process)
        results: list[TaskResult | None] = []
        for partition, rows in enumerate(self.divided(batch)):
            results.append(await self.attempts(plan, batch, partition, rows))
        process = Process(self)
        await self.leave(self.finish(results, process, self.failing(), no_fault), process)
        self.done += 1

    async def go_on_without(self, error: LostTransactionError) -> None:
        """What `kafkapy-spark txn commit --accept-loss` does."""
        driver = self.driver()
        await driver.control.find()
        unfinished = (await driver.control.read(self.sink)).unfinished
        if unfinished is not None and unfinished.identity == error.decision.identity:
            outcome = await driver.finish(unfinished, accept_loss=True)
            assert outcome.unknown == []
            self.lost[unfinished.batch] += sum(each.rows for each in outcome.lost)

    async def time_out(self) -> None:
        """The broker ends some transaction of the sink."""
        found = await self.driver().find_open()
        names = [each.transactional_id for each in found] + [f"{self.sink}-driver"]
        await self.client.initialize(self.random.choice(names), TIMEOUT_MS)

    def failing(self) -> Fault:
        """Errors of commit() that Spark answers by abort()."""

        async def fault(_request: str, answered: bool) -> None:
            if answered and self.random.random() < 0.01:
                raise RuntimeError("commit fails")

        return fault

    async def run(self) -> None:
        """To the end, whatever happens."""
        for _ in range(200):
            if self.done >= len(self.rows):
                break
            try:
                await self.random_batch()
            except LostTransactionError as error:
                assert self.times_out, error
                await self.go_on_without(error)
            except (Crash, FailedQueryError, KafkaError):
                self.failures += 1
        while self.zombies:
            for event in self.stopped:
                event.set()
            self.stopped.clear()
            _, self.zombies = await asyncio.wait(self.zombies, timeout=0.01)
        await self.run_on()


def read_committed(bootstrap: str, topic: str, partitions: int) -> Counter[bytes]:
    """How often a reader of committed records sees each. No transaction is open."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        listed = admin.list_partition_offsets(dict.fromkeys(places, ListOffsetsTimestamp.LATEST))
    ends = {place: each.offset for place, each in listed.items()}
    found: Counter[bytes] = Counter()
    with KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        deadline = time.monotonic() + MARKERS_S
        while consumer.end_offsets(places) != ends:
            assert time.monotonic() < deadline, "transactions are open"
            time.sleep(0.01)
        consumer.seek_to_beginning()
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=100, max_records=10_000).values():
                found.update(record.value for record in records)
    return found


class TimeoutSchedule(Schedule):
    """With transactions that time out."""

    times_out = True


def check(found: Counter[bytes], queries: Iterable[Query]) -> None:
    """Each row of each query exactly once, and nothing else; but for as many of a batch as were reported to be lost."""
    assert {row: count for row, count in found.items() if count > 1} == {}, "written twice"
    expected = set()
    for query in queries:
        for batch, rows in query.rows.items():
            missing = set(rows) - found.keys()
            assert len(missing) == (query.lost[batch] if isinstance(query, Schedule) else 0), f"lost: {missing}"
            expected.update(set(rows) - missing)
    assert found.keys() == expected


class Cluster:
    """A topic, the client that all processes share, and the loop that everything runs on."""

    def __init__(self, bootstrap: str, two_phase: bool = False) -> None:
        self.bootstrap, self.two_phase = bootstrap, two_phase
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self._background = BackgroundLoop()
        self.client = TransactionClient({"bootstrap.servers": bootstrap})
        self.run(self.client.start())
        topic = {self.topic: {"num_partitions": PARTITIONS, "replication_factor": 1}}
        self.run(self.client.create_topics(topic, wait_for_metadata=True))
        self.queries: list[Query] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._background.run(work)

    def query(self, batches: int = 2, seed: int = 0, kind: type[Query] = Query) -> Any:
        """A new one with a sink of its own."""
        sink = f"{self.topic}.{len(self.queries)}"
        query = kind(self.client, self.topic, PARTITIONS, sink, batches, seed)
        query.two_phase = self.two_phase
        self.queries.append(query)
        return query

    def check(self) -> None:
        """What all queries have written."""
        check(read_committed(self.bootstrap, self.topic, PARTITIONS), self.queries)

    def close(self) -> None:
        self.run(self.client.close())
        self._background.stop()
