"""What the exactly-once sink asks brokers for and makes of their answers, without a broker."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from kafkapy_spark import control_topic
from kafkapy_spark.control_topic import CONFIGS, ControlTopic
from kafkapy_spark.decisions import Decision, Handle, SinkState
from kafkapy_spark.sink_errors import SinkError
from kafkapy_spark.sink_plan import Meaning, TaskResult
from kafkapy_spark.transactions import OpenTransaction, TransactionClient, is_forgotten, is_over
from kafkapy_spark.two_phase_commit import SinkDriver, _is_of, _replayed

from kafkapy.clients.admin.transactions import TransactionDescription, TransactionState
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import (
    ErrorCode,
    InvalidTransactionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafkapy.types import TopicPartition

T = TypeVar("T")
LONG_MS = 3_600_000
STATE = PreparedTxnState(7, 3, 2)
OPEN = OpenTransaction("id", STATE)
PARTITION = TopicPartition("t", 0)


class Left:
    """A deadline with the times left that it is told, the last one for ever."""

    def __init__(self, *left_ms: int) -> None:
        self.told = list(left_ms)

    @property
    def left_ms(self) -> int:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


def run(work: Callable[[TransactionClient], Coroutine[Any, Any, T]], **methods: Any) -> T:
    """What work with a client gives, of which some methods are others."""

    async def scenario() -> T:
        client = TransactionClient({"bootstrap.servers": "127.0.0.1:1"})
        for name, method in {"deadline": lambda *_: Left(LONG_MS), **methods}.items():
            setattr(client, name, method)
        return await work(client)

    return asyncio.run(scenario())


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses in ms, none of which is made."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def no_sleep(delay_s: float) -> None:
        pauses.append(round(delay_s * 1000, 3))
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    return pauses


# --- asking -----------------------------------------------------------------------------------------------------------


def failing(times: int, error: KafkaError) -> Callable[[Any], Coroutine[Any, Any, int]]:
    """An attempt that succeeds after so many."""
    left = iter(range(times))

    async def attempt(deadline: Any) -> int:
        if next(left, None) is not None:
            raise error
        return 5

    return attempt


def test_what_is_retriable_is_tried_again_after_longer_and_longer_pauses(slept: list[float]) -> None:
    attempt = failing(9, NotLeaderOrFollowerError())
    assert run(lambda client: client.settled(attempt)) == 5
    assert slept == [5, 10, 20, 40, 80, 160, 320, 500, 500]


def test_what_is_not_retriable_is_raised(slept: list[float]) -> None:
    with pytest.raises(TopicAuthorizationFailedError):
        run(lambda client: client.settled(failing(1, TopicAuthorizationFailedError())))
    assert slept == []


@pytest.mark.parametrize(("left_ms", "pauses"), [([5], []), ([6, 10], [5]), ([6, 11, 20], [5, 10]), ([0], [])])
def test_no_attempt_is_made_for_which_no_time_is_left(
    slept: list[float], left_ms: list[int], pauses: list[float]
) -> None:
    with pytest.raises(NotLeaderOrFollowerError):
        run(
            lambda client: client.settled(failing(9, NotLeaderOrFollowerError())),
            deadline=lambda: Left(*left_ms),
        )
    assert slept == pauses


def test_what_is_said_of_transactions_that_are_not_there_any_more() -> None:
    forgotten = {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
    over = {
        ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID,
    }  # fmt: skip
    errors = {code: error_for(code) for code in ErrorCode if code is not ErrorCode.NONE}
    assert {code for code, error in errors.items() if is_forgotten(error)} == forgotten
    assert {code for code, error in errors.items() if is_over(error)} == over | forgotten


def test_of_a_producers_settings_those_of_an_admin_client_are_taken() -> None:
    given = {"bootstrap.servers": "h:1", "linger.ms": "5", "request.timeout.ms": "7000"}
    config = TransactionClient(given).config
    assert (config["request.timeout.ms"], config["default.api.timeout.ms"]) == (7000, 120_000)
    assert TransactionClient({**given, "default.api.timeout.ms": "9000"}).config["default.api.timeout.ms"] == 9000


# --- transactions -----------------------------------------------------------------------------------------------------


class Coordinator:
    """Remembers what it is asked, and gives always the same answer."""

    def __init__(self, **response: Any) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.response = SimpleNamespace(error_code=0, producer_id=8, producer_epoch=4, **response)

    async def __call__(self, name: str, request: Any, low: int = 0, high: int | None = None) -> tuple[Any, int]:
        self.asked.append((name, request, low, high))
        return self.response, 1


@pytest.mark.parametrize(("finalized", "version"), [(-1, 0), (0, 0), (1, 0), (2, 2), (3, 2)])
def test_which_protocol_a_new_producer_has(finalized: int, version: int) -> None:
    network = SimpleNamespace(finalized_feature=lambda node, name: finalized if name == "transaction.version" else 0)
    coordinator = Coordinator()

    async def work(client: TransactionClient) -> list[PreparedTxnState]:
        return [await client.initialize("id", 1234, expected) for expected in (None, STATE)]

    assert run(work, network=network, _ask_coordinator=coordinator) == [PreparedTxnState(8, 4, version)] * 2
    asked = [
        (request.transaction_timeout_ms, request.producer_id, request.producer_epoch, low, high)
        for _, request, low, high in coordinator.asked
    ]
    assert asked == [(1234, -1, -1, 0, 5), (1234, 7, 3, 3, 5)]
    described = TransactionDescription(1, TransactionState.ONGOING, 7, 3, 1, 1, set())
    assert run(_version_of(described), network=network) == version


def _version_of(found: TransactionDescription) -> Callable[[TransactionClient], Coroutine[Any, Any, int]]:
    async def work(client: TransactionClient) -> int:
        return client._version_of(found)

    return work


@pytest.mark.parametrize(
    ("version", "low", "high", "after"),
    [(0, 0, 4, (7, 3, 0)), (1, 0, 4, (7, 3, 1)), (2, 5, None, (8, 4, 2))],
)
@pytest.mark.parametrize("committed", [False, True])
def test_the_request_that_ends_a_transaction(
    version: int, low: int, high: int | None, after: tuple[int, int, int], committed: bool
) -> None:
    coordinator = Coordinator()
    transaction = OpenTransaction("id", STATE._replace(transaction_version=version))
    ended = run(lambda client: client.end(transaction, committed=committed), _ask_coordinator=coordinator)
    assert ended == after
    [(name, request, *versions)] = coordinator.asked
    assert (name, versions) == ("id", [low, high])
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("id", 7, 3)
    assert request.committed is committed


def test_of_many_ends_those_that_are_over_are_told_and_others_raised() -> None:
    ones = [OpenTransaction(name, STATE) for name in "abc"]
    outcomes: dict[str, Any] = {"b": error_for(ErrorCode.PRODUCER_FENCED)}

    async def end(transaction: OpenTransaction, *, committed: bool) -> PreparedTxnState:
        if (outcome := outcomes.get(transaction.transactional_id)) is not None:
            raise outcome
        return STATE

    assert run(lambda client: client.end_all(ones, committed=True), _end=end) == {ones[1]: outcomes["b"]}
    assert run(lambda client: client.end(ones[1], committed=True), _end=end) is None
    for error in (TopicAuthorizationFailedError(), ValueError("a defect"), asyncio.CancelledError()):
        outcomes["c"] = error
        with pytest.raises(type(error)):
            run(lambda client: client.end_all(ones, committed=True), _end=end)
        with pytest.raises(type(error)):
            run(lambda client: client.end(ones[2], committed=True), _end=end)


DESCRIBED = TransactionDescription(1, TransactionState.ONGOING, 7, 3, 60_000, 1, set())


@pytest.mark.parametrize(
    ("found", "is_open"),
    [
        (DESCRIBED, True),
        (DESCRIBED._replace(producer_id=6), False),
        (DESCRIBED._replace(producer_epoch=4), False),
        *((DESCRIBED._replace(state=state), state is TransactionState.ONGOING) for state in TransactionState),
    ],
)
def test_which_transactions_are_open(found: TransactionDescription, is_open: bool) -> None:
    async def describe(names: set[str]) -> dict[str, Any]:
        return dict.fromkeys(names, found)

    assert run(lambda client: client.open_descriptions([OPEN]), _describe=describe) == (
        {OPEN: found} if is_open else {}
    )
    assert run(lambda client: client.described("id"), _describe=describe) is found
    assert run(lambda client: client.current("id"), _describe=describe) == (found.producer_id, found.producer_epoch)


@pytest.mark.parametrize("code", [each for each in ErrorCode if each is not ErrorCode.NONE])
def test_an_id_that_is_not_found_is_not_known_and_other_errors_are_raised(code: ErrorCode) -> None:
    async def describe(names: set[str]) -> dict[str, Any]:
        return dict.fromkeys(names, error_for(code))

    asked: list[tuple[Callable[[TransactionClient], Coroutine[Any, Any, Any]], Any]] = [
        (lambda client: client.open_descriptions([OPEN]), {}),
        (lambda client: client.described("id"), None),
        (lambda client: client.current("id"), None),
    ]
    for work, nothing in asked:
        if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            assert run(work, _describe=describe) == nothing
        else:
            with pytest.raises(type(error_for(code))):
                run(work, _describe=describe)


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "low", "high", "added"),
    [(None, 0, 12, False), (0, 3, 11, True), (1, 3, 11, True), (2, 12, 12, False)],
)
def test_the_request_that_appends(version: int | None, low: int, high: int, added: bool) -> None:
    transaction = None if version is None else OpenTransaction("id", STATE._replace(transaction_version=version))
    steps: list[Any] = []

    async def add(given: OpenTransaction, partition: TopicPartition) -> None:
        steps.append((given, partition))

    async def leader(partition: TopicPartition, deadline: Any) -> int:
        return 4

    async def send(node: int, request: Any, deadline: Any, *, low: int, high: int) -> Any:
        steps.append((node, request.transactional_id, request.acks, low, high))
        [entry] = request.topic_data[0].partition_data
        assert (request.topic_data[0].name, entry.index) == PARTITION
        result = SimpleNamespace(error_code=0, error_message=None, base_offset=17)
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[result])])

    def work(client: TransactionClient) -> Coroutine[Any, Any, int]:
        return client.append(PARTITION, {b"k": b"v"}, transaction)

    assert run(work, add_partition=add, leader=leader, send=send) == 17
    name = None if transaction is None else "id"
    assert steps == [*[(transaction, PARTITION)] * added, (4, name, -1, low, high)]

    async def empty(*_request: Any, **_versions: Any) -> Any:
        return SimpleNamespace(responses=[])

    with pytest.raises(KafkaError, match=r"the answer to a request to write to t-0 has no result for it"):
        run(work, add_partition=add, leader=leader, send=empty)


# --- the control topic ------------------------------------------------------------------------------------------------


def decision(batch: int = 0, *handles: Handle, tasks: int = 2) -> Decision:
    return Decision("q", batch, 7, 3, tasks, handles, time_ms=5)


class Records:
    """What a fetch gives: records, and where the next one begins."""

    def __init__(self, next_offset: int, *records: tuple[bytes | None, bytes | None]) -> None:
        self.next_offset = next_offset
        self.records = [SimpleNamespace(key=key, value=value) for key, value in records]

    def take(self, most: int) -> list[Any]:
        assert most == 10_000
        return self.records


def read(end: int, fetched: list[Any], *, first: int = 0, left_ms: int = LONG_MS) -> tuple[SinkState, list[int]]:
    """What is read of a sink, and from where."""
    offsets: list[int] = []

    async def listed(wanted: dict[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        return {each: SimpleNamespace(offset=end if not offsets else first) for each in wanted}

    async def fetch(partition: TopicPartition, offset: int, deadline: Any) -> Any:
        offsets.append(offset)
        found = fetched.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def work(client: TransactionClient) -> SinkState:
        control = ControlTopic(client)
        control._count = 1
        control._fetch_once = fetch  # type: ignore[method-assign]
        return await control.read("s")

    state = run(work, list_partition_offsets=listed, deadline=lambda: Left(left_ms))
    assert fetched == []
    return state, offsets


def test_the_control_topic_is_read_to_its_end(slept: list[float]) -> None:
    first, second = decision(0), decision(1)
    state, offsets = read(
        5,
        [
            Records(1, (b"s", first.to_json()), (None, b"no key"), (b"", b"none"), (b"other", second.to_json())),
            NotLeaderOrFollowerError(),
            Records(1),
            Records(4, (b"\0s", b'["q",0,7,3]'), (b"s", second.to_json())),
            Records(5, (b"\0s", None)),
        ],
    )
    assert state == SinkState(decision=second, done=None)
    assert offsets == [0, 1, 1, 1, 4]
    assert slept == [20, 20], "a leader that has moved, and a transaction that is open"


def test_what_the_control_topic_held_below_its_first_offset_is_forgotten(slept: list[float]) -> None:
    kept = decision(3)
    lost = Records(2, (b"s", decision(2).to_json()), (b"\0s", b'["q",2,7,3]'))
    state, offsets = read(9, [lost, OffsetOutOfRangeError(), Records(9, (b"s", kept.to_json()))], first=6)
    assert state == SinkState(decision=kept)
    assert (offsets, slept) == ([0, 2, 6], [])


def test_nothing_is_known_of_a_sink_of_which_everything_is_taken_away() -> None:
    gone = [(b"s", decision().to_json()), (b"\0s", b'["q",0,7,3]'), (b"s", None), (b"\0s", None)]
    assert read(4, [Records(4, *gone)]) == (SinkState(), [0])
    assert read(0, []) == (SinkState(), [])


def test_a_control_topic_that_cannot_be_read_in_time() -> None:
    with pytest.raises(
        KafkaTimeoutError, match="sinks-0 cannot be read from offset 2 to 5: transactions are open there"
    ):
        read(5, [Records(2), Records(2)], left_ms=0)
    with pytest.raises(NotLeaderOrFollowerError):
        read(5, [NotLeaderOrFollowerError()], left_ms=0)
    with pytest.raises(TopicAuthorizationFailedError):
        read(5, [TopicAuthorizationFailedError()])


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
@pytest.mark.parametrize("raced", [False, True])
def test_the_control_topic_is_made_for_as_many_brokers_as_there_are(brokers: int, replicas: int, raced: bool) -> None:
    made: list[Any] = []
    waited: list[list[str]] = []

    async def create(topics: dict[str, Any], *, wait_for_metadata: bool) -> None:
        made.append((topics, wait_for_metadata))
        if raced:
            raise TopicAlreadyExistsError

    async def wait(topics: list[str]) -> None:
        waited.append(topics)

    async def metadata(topics: set[str], deadline: Any) -> dict[str, Any]:
        code = 0 if made else UnknownTopicOrPartitionError.code
        return {"c": SimpleNamespace(error_code=code, topic_id="id", partitions=[0] * 16)}

    async def nodes() -> list[int]:
        return list(range(brokers))

    async def described(resources: list[Any], *, config_filter: str) -> dict[str, Any]:
        return {"topic": {"c": {"cleanup.policy": {"value": "compact"}}}}

    run(
        lambda client: ControlTopic(client, "c").ensure(),
        create_topics=create,
        wait_for_topics=wait,
        topic_metadata=metadata,
        brokers=nodes,
        describe_configs=described,
    )
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.bytes": "4194304",
        "max.message.bytes": "8388608",
        "compression.type": "producer",
    }
    if replicas == 3:
        configs["min.insync.replicas"] = "2"
    assert made == [({"c": {"num_partitions": 16, "replication_factor": replicas, "configs": configs}}, True)]
    assert waited == [["c"]] * raced


def test_a_fetch_takes_the_largest_record_of_the_control_topic() -> None:
    assert str(control_topic.FETCH_BYTES) == CONFIGS["max.message.bytes"]


@pytest.mark.parametrize("retriable", [False, True])
def test_a_control_topic_whose_settings_are_secret(retriable: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It is used; one whose broker is away is not."""
    error = NotLeaderOrFollowerError() if retriable else TopicAuthorizationFailedError("may not")

    async def described(resources: list[Any], *, config_filter: str) -> dict[str, Any]:
        raise error

    async def work(client: TransactionClient) -> None:
        await ControlTopic(client, "c")._require_compaction()

    if retriable:
        with pytest.raises(NotLeaderOrFollowerError):
            run(work, describe_configs=described)
        return
    run(work, describe_configs=described)
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.WARNING, "The cleanup.policy of c cannot be checked, compact is needed: may not")
    ]


# --- the driver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meaning", list(Meaning))
@pytest.mark.parametrize(
    ("change", "same", "driver"),
    [
        ({}, True, True),
        ({"query": "other"}, False, True),
        ({"batch": 1}, False, True),
        ({"driver": STATE._replace(producer_id=6)}, True, False),
        ({"driver": STATE._replace(producer_epoch=4)}, True, False),
    ],
)
def test_whose_decision_it_is(meaning: Meaning, change: dict[str, Any], same: bool, driver: bool) -> None:
    """A batch that may have been decided before counts as this one's only if this driver has decided it."""
    given: dict[str, Any] = {"query": "q", "batch": 0, "partition": 0, "driver": STATE, "meaning": meaning, **change}
    wanted = same and (driver or meaning in (Meaning.NEW, Meaning.SKIPPED))
    assert _is_of(decision(0), TaskResult(**given)) is wanted


def handle(partition: int, name: str = "x", rows: int = 2, checksum: int = 9) -> Handle:
    return Handle(f"{name}-{partition}", partition, 7, 8, 2, rows, checksum)


def result(partition: int, rows: int = 2, checksum: int = 9, written: Handle | None = None) -> TaskResult:
    return TaskResult("q", 0, partition, STATE, rows=rows, checksum=checksum, handle=written)


def test_lost_partitions_take_the_place_of_what_was_decided() -> None:
    previous = decision(0, handle(0), handle(1), tasks=3)
    again = handle(1, "again")
    results = [result(2, 0, 0), result(1, written=again), result(0)]
    assert _replayed("s", previous, results) == (handle(0), again)


@pytest.mark.parametrize(
    "results",
    [
        [result(0), result(1)],
        [result(0), result(1), result(1)],
        [result(0), result(1), result(2, 1, 0)],
        [result(0), result(1), result(2, 0, 1)],
        [result(0), result(1, 3), result(2, 0, 0)],
        [result(0), result(1, 2, 8), result(2, 0, 0)],
        [result(0), result(2, 0, 0), result(3, 0, 0)],
        [result(0), result(1), result(2, 0, 0), result(3, 0, 0)],
    ],
)
def test_a_batch_that_is_divided_in_another_way_replaces_nothing(results: list[TaskResult]) -> None:
    with pytest.raises(SinkError, match="batch 0 of q was read again .* same partitions .* The sink s has lost"):
        _replayed("s", decision(0, handle(0), handle(1), tasks=3), results)


def test_a_driver_whose_transactions_may_not_last_so_long() -> None:
    async def refused(*_producer: Any) -> PreparedTxnState:
        raise InvalidTransactionTimeoutError

    async def work(client: TransactionClient) -> None:
        await SinkDriver(ControlTopic(client), "s")._initialize(1500)

    with pytest.raises(SinkError, match=r"less than 1500 ms only \(transaction.max.timeout.ms\)"):
        run(work, initialize=refused)
