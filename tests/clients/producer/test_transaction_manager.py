"""The states of a producer: what may follow what, and what comes of each error of a batch."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.producer.transaction_manager import State, TransactionManager
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    error_for,
)

PRODUCER = (7, 3)
UNKNOWN, OUT_OF_ORDER = ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Bench:
    """A manager in a state, with two partitions; `wakes` counts the passes that it asks for."""

    def __init__(self, state: State | None = None, transactional_id: str | None = "id", *, v2: bool = False) -> None:
        self.wakes = 0
        self.accumulator = RecordAccumulator(1 << 20, 200, 0, 1 << 20, [1])
        self.accumulator.topic("t").update([(1, 0)] * 2)
        self.manager = TransactionManager(self.accumulator, transactional_id, self._wake)
        self.first, self.second = (self.accumulator.queue("t", number) for number in (0, 1))
        if state is not None:
            self.manager.initializing()
            self.manager.initialized(*PRODUCER)
            self.manager.v2 = v2
            self.manager.state = state
            self.manager._publish()
        self.wakes = 0

    def _wake(self) -> None:
        self.wakes += 1

    def flags(self) -> tuple[bool, bool, bool]:
        """What the accumulator was told: whether it takes records, completes what it has, may send."""
        each = self.accumulator
        return bool(each.open), bool(each.completing), bool(each.sending_allowed)


@pytest.mark.parametrize(
    ("state", "flags"),
    [
        (State.UNINITIALIZED, (False, False, True)),
        (State.INITIALIZING, (False, False, True)),
        (State.READY, (False, False, True)),
        (State.IN_TRANSACTION, (True, False, True)),
        (State.PREPARED, (False, True, True)),
        (State.COMMITTING, (False, True, True)),
        (State.ABORTING, (False, True, True)),
        (State.ABORTABLE_ERROR, (False, False, True)),
        (State.FATAL_ERROR, (False, False, False)),
    ],
)
def test_each_state_says_what_becomes_of_records(state: State, flags: tuple[bool, bool, bool]) -> None:
    bench = Bench(state)
    manager = bench.manager
    assert bench.flags() == flags
    ongoing = {State.IN_TRANSACTION, State.PREPARED, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR}
    assert manager.ongoing is (state in ongoing)
    assert manager.completing is (state in (State.COMMITTING, State.ABORTING))
    assert manager.prepared is (state is State.PREPARED)
    assert manager.failed is (state in (State.ABORTABLE_ERROR, State.FATAL_ERROR))


@pytest.mark.parametrize(
    ("state", "flags"), [(State.UNINITIALIZED, True), (State.READY, True), (State.FATAL_ERROR, False)]
)
def test_without_transactions_records_are_taken_until_the_end(state: State, flags: bool) -> None:
    bench = Bench(state, None)
    assert bench.flags() == (flags, False, flags)
    bench.accumulator.closed = True
    bench.manager._publish()
    assert bench.flags() == (False, False, flags)


def test_a_producer_begins_without_an_id() -> None:
    for transactional_id in ("id", None):
        manager = Bench(transactional_id=transactional_id).manager
        assert (manager.state, manager.producer, manager.has_producer) == (State.UNINITIALIZED, (-1, -1), False)
        assert (manager.v2, manager.coordinator_bumps, manager.epoch_bump_required) == (False, False, False)
        assert (manager.started, manager.took_nothing_over, manager.pending) == (False, False, "")
        assert manager.accumulator.idempotent
        assert manager.transactional is manager.accumulator.transactional is (transactional_id is not None)
        assert bool(manager.accumulator.open) is (transactional_id is None)


OPERATIONS: dict[str, tuple[Any, set[State]]] = {
    "initializing": (lambda m: m.initializing(), {State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    "uninitialized": (
        lambda m: m.uninitialized(),
        {State.READY, State.INITIALIZING, State.ABORTABLE_ERROR},
    ),
    "initialized": (lambda m: m.initialized(7, 4), {State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    "begin": (lambda m: m.begin(), {State.READY}),
    "prepare": (lambda m: m.prepare(), {State.IN_TRANSACTION}),
    "took_over": (lambda m: m.took_over(8, 1), {State.READY, State.IN_TRANSACTION}),
    "begin_commit": (lambda m: m.begin_commit(), {State.IN_TRANSACTION, State.PREPARED}),
    "begin_abort": (lambda m: m.begin_abort(), {State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR}),
    "fatal": (lambda m: m.fatal(KafkaError("no")), set(State)),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_may_follow_what(operation: str) -> None:
    work, allowed = OPERATIONS[operation]
    for state in State:
        manager = Bench(state).manager
        manager.last_error = KafkaError("before") if manager.failed else None
        if state in allowed:
            work(manager)
            assert manager.state is not state or state is State.FATAL_ERROR
        else:
            with pytest.raises(KafkaError) as raised:
                work(manager)
            assert manager.state is state
            if raised.type is IllegalStateError and operation != "prepare":
                assert str(raised.value).startswith(
                    f"transactional.id id: the producer cannot change from {state.name} to "
                )


def test_a_producer_without_transactions_has_none() -> None:
    manager = Bench(State.READY, None).manager
    for work in (manager.begin, manager.prepare, manager.begin_commit, manager.begin_abort):
        with pytest.raises(IllegalStateError, match="transactions need a transactional_id"):
            work()
    with pytest.raises(IllegalStateError, match="^the producer cannot change from READY to INITIALIZING"):
        manager.initializing()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            error_for(ErrorCode.PRODUCER_FENCED, "x"),
            ProducerFencedError,
            r"the producer of id \(7, 3\) was fenced: .*x",
        ),
        (
            error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "x"),
            type(error_for(ErrorCode.INVALID_PRODUCER_EPOCH)),
            r"the producer of id \(7, 3\) was fenced: .*x",
        ),
        (error_for(ErrorCode.TRANSACTION_ABORTABLE, "x"), TransactionAbortableError, "the producer has an error: .*x"),
        (KafkaError("x"), KafkaError, "the producer has an error: .*x"),
        (ValueError("x"), KafkaError, "the producer has an error: x"),
    ],
)
def test_the_error_of_a_producer_is_raised_by_what_follows(error: Exception, kind: type[Exception], text: str) -> None:
    bench = Bench(State.READY)
    manager = bench.manager
    manager.fatal(error)
    assert bench.wakes == 1
    with pytest.raises(kind, match=text) as raised:
        manager.begin()
    assert raised.type is kind
    assert raised.value is not error
    assert isinstance(manager.refusal(), kind)
    with pytest.raises(kind):
        manager.add_partition(bench.first)


@pytest.mark.parametrize("operation", ["initializing", "begin", "prepare", "begin_commit", "begin_abort"])
def test_the_error_of_a_producer_comes_before_its_state(operation: str) -> None:
    work, _ = OPERATIONS[operation]
    bench = Bench(State.READY)
    bench.manager.fatal(error_for(ErrorCode.PRODUCER_FENCED, "x"))
    with pytest.raises(ProducerFencedError):
        work(bench.manager)
    with pytest.raises(ProducerFencedError):
        bench.manager.require_open()
    bench = Bench(State.IN_TRANSACTION)
    bench.manager.abortable(error_for(ErrorCode.TRANSACTION_ABORTABLE, "x"))
    if operation == "begin_abort":
        work(bench.manager)
        assert bench.manager.state is State.ABORTING
    else:
        with pytest.raises(TransactionAbortableError):
            work(bench.manager)


def test_a_record_is_refused_with_the_reason() -> None:
    bench = Bench()
    assert "init_transactions() must precede" in str(bench.manager.refusal())
    bench = Bench(State.READY)
    assert "no transaction is open (the producer is READY): call begin_transaction() first" in str(
        bench.manager.refusal()
    )
    with pytest.raises(IllegalStateError, match=r"no transaction is open \(the producer is READY\)"):
        bench.manager.require_open()
    bench.manager.pending = "commit_transaction"
    text = "send is not possible: commit_transaction timed out and must be called again"
    assert text in str(bench.manager.refusal())
    bench.manager.require_no_pending("commit_transaction")
    with pytest.raises(IllegalStateError, match="begin_transaction is not possible: commit_transaction timed out"):
        bench.manager.begin()


@pytest.mark.parametrize("v2", [True, False])
def test_a_partition_joins_with_its_first_record(v2: bool) -> None:
    bench = Bench(State.IN_TRANSACTION, v2=v2)
    manager, queue = bench.manager, bench.first
    manager.add_partition(queue)
    assert (queue.in_transaction, queue.joining) == (v2, not v2)
    assert (manager.partitions, manager.new_partitions) == (({queue}, set()) if v2 else (set(), {queue}))
    assert bench.wakes == (0 if v2 else 1)
    if not v2:
        manager.partitions_added({queue})
        assert manager.started
        assert (queue.in_transaction, queue.joining, bench.wakes) == (True, False, 2)
        assert (manager.partitions, manager.new_partitions) == ({queue}, set())
        manager.add_partition(bench.second)
    manager.begin_abort()
    assert (manager.new_partitions, bench.second.joining) == (set(), False)
    assert not manager.ended()
    assert (manager.partitions, queue.in_transaction, manager.started) == (set(), False, False)
    assert manager.state is State.READY


@pytest.mark.parametrize("bump", [True, False])
@pytest.mark.parametrize("given", [(), (9, 5)])
def test_an_end_may_bring_another_id_and_ask_for_another_epoch(bump: bool, given: tuple[int, ...]) -> None:
    bench = Bench(State.COMMITTING)
    manager = bench.manager
    bench.first.start_sequence(*PRODUCER)
    manager.epoch_bump_required = bump
    manager.ongoing_producer = (8, 1)
    assert manager.ended(*given) is bump
    assert manager.producer == (given or PRODUCER)
    assert bench.first.producer_id == (-1 if given else 7)
    assert (manager.state, manager.epoch_bump_required, manager.ongoing_producer) == (
        State.INITIALIZING if bump else State.READY,
        False,
        None,
    )


@pytest.mark.parametrize("bumped", [True, False])
def test_another_epoch_restarts_the_sequences(bumped: bool) -> None:
    bench = Bench(State.IN_TRANSACTION, v2=True)
    manager, queue = bench.manager, bench.first
    queue.start_sequence(*PRODUCER)
    queue.take_sequence(3)
    manager.mark_unresolved(queue, batch(last_sequence=2))
    manager.state = State.INITIALIZING
    if bumped:
        manager.initialized(7, 4, bumped=True)
    else:
        manager.initialized(7, 4)
    assert (manager.producer, queue.producer_id) == ((7, 4), -1 if bumped else 7)
    assert queue.take_sequence(2) == (0 if bumped else 3)
    assert queue.unresolved_sequence == (-1 if bumped else 3)
    # A sequence that has restarted has nothing that must be resolved.
    manager.state = State.IN_TRANSACTION
    manager.resolve_sequences()
    assert manager.state is (State.IN_TRANSACTION if bumped else State.ABORTABLE_ERROR)


def test_the_end_releases_partitions_that_never_joined() -> None:
    bench = Bench(State.IN_TRANSACTION)
    bench.manager.add_partition(bench.first)
    bench.manager.begin_commit()
    assert bench.manager.new_partitions == {bench.first}
    bench.manager.ended()
    assert (bench.manager.new_partitions, bench.first.joining) == (set(), False)


def test_what_was_prepared_by_another_is_taken_over_or_not_there() -> None:
    manager = Bench(State.READY).manager
    manager.took_over(-1, -1)
    assert (manager.took_nothing_over, manager.state, manager.ongoing_producer) == (True, State.READY, None)
    manager.begin()
    assert not manager.took_nothing_over
    manager = Bench(State.READY).manager
    manager.took_over(0, 1)
    assert (manager.took_nothing_over, manager.started) == (False, True)
    assert (manager.state, manager.ongoing_producer) == (State.PREPARED, (0, 1))


@pytest.mark.parametrize("was", [True, False])
@pytest.mark.parametrize("initially", [True, False])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_new_protocol_needs_another_epoch(was: bool, initially: bool, level: int) -> None:
    manager = Bench(State.READY, v2=was).manager
    manager.use_version(level, initially=initially)
    assert manager.v2 is (level >= 2)
    assert manager.epoch_bump_required is (level >= 2 and not was and not initially)


@pytest.mark.parametrize(
    ("bumps", "v2", "state", "bump"),
    [
        (False, False, State.FATAL_ERROR, False),
        (True, False, State.ABORTABLE_ERROR, True),
        (False, True, State.ABORTABLE_ERROR, False),
        (True, True, State.ABORTABLE_ERROR, False),
    ],
)
def test_an_error_can_be_aborted_if_another_epoch_can_follow(bumps: bool, v2: bool, state: State, bump: bool) -> None:
    bench = Bench(State.IN_TRANSACTION, v2=v2)
    bench.manager.coordinator_bumps = bumps
    error = KafkaError("x")
    bench.manager.abortable_if_possible(error)
    assert (bench.manager.state, bench.manager.epoch_bump_required, bench.wakes) == (state, bump, 1)
    assert bench.manager.last_error is error


def test_an_abort_goes_on_whatever_else_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafkapy.producer")
    for state in (State.ABORTING, State.FATAL_ERROR):
        bench = Bench(state)
        bench.manager.abortable(KafkaError("x"))
        assert (bench.manager.state, bench.wakes) == (state, 0)
    caplog.clear()
    bench = Bench(State.IN_TRANSACTION)
    bench.manager.abortable(KafkaError("x"))
    bench.manager.fatal(KafkaError("y"))
    said = [(each.levelno, each.message) for each in caplog.records if each.levelno > logging.DEBUG]
    assert [level for level, _ in said] == [logging.INFO] * 2
    assert said[0][1].startswith("The transaction must be aborted: ")
    assert said[1][1].startswith("The producer has a fatal error: ")


# --- errors of records and batches --------------------------------------------------------------------------------

PASSING = error_for(ErrorCode.NOT_ENOUGH_REPLICAS)
REFUSED = error_for(ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize(
    ("state", "error", "after", "raised"),
    [
        (State.IN_TRANSACTION, REFUSED, State.ABORTABLE_ERROR, type(REFUSED)),
        (State.IN_TRANSACTION, KafkaTimeoutError("x"), State.ABORTABLE_ERROR, TransactionAbortableError),
        (State.IN_TRANSACTION, PASSING, State.ABORTABLE_ERROR, TransactionAbortableError),
        (
            State.IN_TRANSACTION,
            error_for(ErrorCode.INVALID_TXN_STATE),
            State.ABORTABLE_ERROR,
            TransactionAbortableError,
        ),
        (State.IN_TRANSACTION, TransactionAbortedError("x"), State.IN_TRANSACTION, None),
        (State.COMMITTING, REFUSED, State.ABORTABLE_ERROR, type(REFUSED)),
        (State.ABORTING, REFUSED, State.ABORTING, None),
        (State.READY, REFUSED, State.READY, None),
        *(
            (State.READY, error_for(code), State.FATAL_ERROR, type(error_for(code)))
            for code in (
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.UNSUPPORTED_VERSION,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
        ),
        (State.FATAL_ERROR, PASSING, State.FATAL_ERROR, None),
        (State.FATAL_ERROR, error_for(ErrorCode.PRODUCER_FENCED), State.FATAL_ERROR, None),
    ],
)
def test_what_the_error_of_a_record_means(
    state: State, error: Exception, after: State, raised: type[Exception] | None
) -> None:
    bench = Bench(state)
    bench.manager.coordinator_bumps = True
    bench.manager.error_of_record(error)
    assert bench.manager.state is after
    last = bench.manager.last_error
    assert (None if last is None else type(last)) is raised
    if raised is TransactionAbortableError:
        assert last is not None
        assert str(last).endswith(f"a record failed after its retries: {error}")
        assert last.__cause__ is error
    assert bench.manager.epoch_bump_required is (state is State.IN_TRANSACTION and after is not state)


def test_without_transactions_the_error_of_a_record_is_its_own() -> None:
    manager = Bench(State.READY, None).manager
    manager.error_of_record(REFUSED)
    manager.error_of_record(PASSING)
    assert manager.state is State.READY


class Queue:
    """A partition's sequence; keeps what is done to it."""

    def __init__(self, *, expects: int = 5, unresolved: int = -1, last_acked: int = 10) -> None:
        self.expects = expects
        self.unresolved_sequence = unresolved
        self.last_acked_offset = last_acked
        self.next_sequence = expects
        self.unacked: list[Any] = []
        self.done: list[Any] = []

    def is_next_sequence(self, sequence: int) -> bool:
        return sequence == self.expects

    def start_sequence(self, *producer: int) -> None:
        self.done.append(producer)

    def reset_sequence(self) -> None:
        self.done.append("reset")

    def close_gap(self, batch: Any) -> None:
        self.done.append(batch)


def batch(**fields: Any) -> Any:
    return SimpleNamespace(**{"has_sequence": True, "sequence_reset": False, "base_sequence": 5, **fields})


@pytest.mark.parametrize(
    ("code", "transactional", "adjust", "done", "bump"),
    [
        (OUT_OF_ORDER, False, False, [], True),
        (OUT_OF_ORDER, False, True, [], True),
        (OUT_OF_ORDER, True, True, ["gap"], False),
        (OUT_OF_ORDER, True, False, [], False),
        (UNKNOWN, True, True, ["reset"], False),
        (UNKNOWN, False, True, ["reset"], False),
        (ErrorCode.INVALID_RECORD, True, True, ["gap"], False),
        (ErrorCode.INVALID_RECORD, False, True, [], True),
        (ErrorCode.INVALID_RECORD, True, False, [], False),
        (ErrorCode.INVALID_RECORD, False, False, [], False),
    ],
)
def test_what_becomes_of_the_sequence_of_a_batch_that_failed(
    code: ErrorCode, transactional: bool, adjust: bool, done: list[str], bump: bool
) -> None:
    for has_sequence in (True, False):
        manager = Bench(State.READY, "id" if transactional else None).manager
        queue: Any = Queue()
        failed = batch(has_sequence=has_sequence)
        manager.batch_failed(queue, failed, error_for(code), adjust)
        assert queue.done == ([failed if each == "gap" else each for each in done] if has_sequence else [])
        assert manager.epoch_bump_required is (bump and has_sequence)
    fatal = Bench(State.FATAL_ERROR).manager
    fatal.batch_failed(queue, batch(), error_for(UNKNOWN), True)
    assert queue.done == []


@pytest.mark.parametrize(
    ("code", "transactional", "start", "sent", "queue", "again", "done", "bump"),
    [
        # The log's start says whether retention has deleted the producer's records.
        (UNKNOWN, True, -1, {}, {}, True, [], False),
        (UNKNOWN, True, 5, {"sequence_reset": True}, {}, True, [], False),
        (UNKNOWN, True, 11, {}, {}, True, [PRODUCER], False),
        (UNKNOWN, True, 10, {}, {}, False, [], False),
        (UNKNOWN, False, 11, {}, {}, True, [], True),
        (UNKNOWN, False, 5, {}, {}, True, [], True),
        (UNKNOWN, False, -1, {}, {}, True, [], False),
        # A number that is not the next one waits for those before it.
        (OUT_OF_ORDER, True, -1, {"base_sequence": 6}, {}, True, [], False),
        (OUT_OF_ORDER, True, -1, {"sequence_reset": True}, {}, True, [], False),
        (OUT_OF_ORDER, True, -1, {}, {}, False, [], False),
        (OUT_OF_ORDER, True, -1, {"base_sequence": 6}, {"unresolved": 6}, False, [], False),
        (OUT_OF_ORDER, False, -1, {"base_sequence": 6}, {}, True, [], False),
        (OUT_OF_ORDER, False, -1, {}, {}, True, [], True),
        (OUT_OF_ORDER, False, -1, {"base_sequence": 6}, {"unresolved": 6}, True, [], True),
        (OUT_OF_ORDER, False, -1, {"base_sequence": 7}, {"unresolved": 6}, True, [], False),
        (OUT_OF_ORDER, False, -1, {"base_sequence": 0}, {"unresolved": 0, "expects": 0}, True, [], True),
        (OUT_OF_ORDER, False, -1, {"base_sequence": 0}, {"unresolved": 0}, True, [], True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True, -1, {}, {}, True, [], False),
        (ErrorCode.INVALID_RECORD, False, -1, {}, {}, False, [], False),
    ],
)
def test_which_refused_batch_is_sent_again(
    code: ErrorCode,
    transactional: bool,
    start: int,
    sent: dict[str, Any],
    queue: dict[str, Any],
    again: bool,
    done: list[Any],
    bump: bool,
) -> None:
    manager = Bench(State.READY, "id" if transactional else None).manager
    of: Any = Queue(**queue)
    assert manager.can_retry(of, batch(**sent), code, start) is again
    assert of.done == done
    assert manager.epoch_bump_required is bump


@pytest.mark.parametrize("producer", [(7, 3), (7, 2**15 - 1), (-1, -1)])
def test_another_epoch_gives_the_numbers_of_those_who_asked_anew(producer: tuple[int, int]) -> None:
    bench = Bench(State.READY, None)
    manager = bench.manager
    manager.set_producer(*producer)
    asked: Any = Queue(unresolved=4)
    manager.request_epoch_bump(asked)
    manager.bump_epoch_if_required()
    if producer == (7, 3):
        assert (manager.producer, asked.done, asked.unresolved_sequence) == ((7, 4), [(7, 4)], -1)
        assert not manager.epoch_bump_required
        manager.bump_epoch_if_required()
        assert manager.producer == (7, 4)
    elif producer[0] == 7:
        assert (manager.producer, manager.state, asked.done) == ((-1, -1), State.UNINITIALIZED, [])
        manager.initializing()
        manager.initialized(8, 0)
        assert (asked.done, asked.unresolved_sequence, bench.wakes) == ([(8, 0)], -1, 1)
    else:
        assert manager.epoch_bump_required
        assert asked.done == []


def test_a_sequence_that_starts_over_is_resolved() -> None:
    manager = Bench(State.READY, None).manager
    asked: Any = Queue()
    other: Any = Queue()
    other.next_sequence = asked.next_sequence = 8
    manager.mark_unresolved(asked, batch(last_sequence=7))
    manager.request_epoch_bump(asked)
    manager.bump_epoch_if_required()
    manager.resolve_sequences()
    assert not manager.epoch_bump_required
    # The next epoch is for those who ask for it, not for those who have asked before.
    manager.request_epoch_bump(other)
    manager.bump_epoch_if_required()
    assert (asked.done, other.done) == ([(7, 4)], [(7, 5)])


@pytest.mark.parametrize("transactional", [True, False])
def test_a_sequence_that_was_reset_is_resolved(transactional: bool) -> None:
    manager = Bench(State.READY, "id" if transactional else None).manager
    queue: Any = Queue()
    queue.next_sequence = 8
    manager.mark_unresolved(queue, batch(last_sequence=7))
    manager.batch_failed(queue, batch(), error_for(UNKNOWN), True)
    manager.resolve_sequences()
    assert (queue.done, manager.epoch_bump_required, manager.state) == (["reset"], False, State.READY)


def test_with_transactions_another_epoch_waits_for_the_end() -> None:
    manager = Bench(State.IN_TRANSACTION).manager
    manager.epoch_bump_required = True
    manager.bump_epoch_if_required()
    assert (manager.producer, manager.epoch_bump_required) == (PRODUCER, True)


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_an_expired_batch_is_resolved_when_nothing_is_in_flight(transactional: bool, written: bool) -> None:
    bench = Bench(State.IN_TRANSACTION if transactional else State.READY, "id" if transactional else None, v2=True)
    manager = bench.manager
    queue: Any = Queue()
    manager.mark_unresolved(queue, batch(last_sequence=7))
    manager.mark_unresolved(queue, batch(last_sequence=4))  # an earlier one says nothing new
    assert queue.unresolved_sequence == 8
    queue.next_sequence = queue.expects if written else queue.expects + 3
    queue.unacked = [batch()]
    manager.resolve_sequences()
    assert queue.unresolved_sequence == 8
    queue.unacked = []
    manager.resolve_sequences()
    assert queue.unresolved_sequence == (-1 if written or transactional else 8)
    assert manager.epoch_bump_required is (not written and not transactional)
    broken = transactional and not written
    assert manager.state is (
        State.ABORTABLE_ERROR if broken else State.IN_TRANSACTION if transactional else State.READY
    )
    if broken:
        assert str(manager.last_error).endswith("sent records expired without a response")
    manager.epoch_bump_required = False
    manager.resolve_sequences()
    assert not manager.epoch_bump_required
