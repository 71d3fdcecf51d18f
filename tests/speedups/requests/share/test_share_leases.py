"""Leases: network threads store acknowledgements themselves, and the share coordinator hears of it in time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speedups.requests.share.lending import PARTITION, LendingBroker
from speedups.requests.share.members import Member, acknowledged, ranges
from speedups.requests.share.test_share_race import RECORDS, EarlyLedger, T, Worker
from waiting import wait_until

from kafkapy._speedups.testing.share_leases import begin, store
from kafkapy.coordinator.share.records import SNAPSHOT, UPDATE
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.share_state_records import ShareUpdateValue

ACCEPT, RELEASE, REJECT = 1, 2, 3
ARCHIVING = 3


def working(broker: LendingBroker, records: int = 20) -> Member:
    """A member that holds records 0 to `records` - 1, one of each batch, and whose share-partition has a lease."""
    (log,) = broker.topic("t")
    for _ in range(records + 1):
        log.append_as_leader(broker.batch(b"v"))
    member = broker.member("m")
    assert ranges(member.fetch([T], max_records=5000, batch_size=5000)) == [(0, records, 1)]
    assert accept(member, records) == 0  # the first write is Python's
    lends = broker.lends and broker.config.updates_per_snapshot > 1 and not broker.config.compression
    assert bool(broker.shard._leases) == lends
    return member


def accept(member: Member, first: int, last: int | None = None, kind: int = ACCEPT) -> int:
    """The error of an acknowledgement."""
    response = member.acknowledge({T: [(first, first if last is None else last, [kind])]})
    return response.error_code or acknowledged(response)[0]


def direct(member: Member, first: int, last: int | None = None, kind: int = ACCEPT) -> Any:
    """An acknowledgement that is answered at once, without a turn of Python."""
    exchange = member.acknowledge_exchange({T: [(first, first if last is None else last, [kind])]})
    assert acknowledged(member.acknowledge_reply(exchange)) == {0: 0}


@pytest.fixture
def broker() -> Any:
    made = LendingBroker()
    yield made
    made.shares.close()


def test_an_acknowledgement_is_stored_before_its_answer(broker: LendingBroker) -> None:
    member = working(broker)
    known = len(broker.records())
    direct(member, 0)
    direct(member, 1, 3, RELEASE)
    assert len(broker.records()) == known + 2
    value: ShareUpdateValue = broker.records()[-2].value
    assert (value.start_offset, [(b.first_offset, b.last_offset, b.delivery_state) for b in value.state_batches]) == (
        1, [],
    )  # fmt: skip
    assert [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in
            broker.records()[-1].value.state_batches] == [(1, 3, 0, 1)]  # fmt: skip
    assert broker.by_python == 1
    assert ranges(member.fetch()) == [(1, 3, 2)], "released records come back"
    assert broker.shares.counters()["leased_writes"] == 2


def test_a_fetch_does_not_get_what_it_releases(broker: LendingBroker) -> None:
    """It is the first of those who wait when the coordinator has stored that, as without a lease."""
    member = working(broker)
    other = broker.member("other")
    waiting = other.fetch_exchange([T])
    assert waiting.kind == "parked"
    exchange = member.fetch_exchange(acks={T: [(0, 3, [RELEASE])]}, max_wait_ms=0)
    broker.serve()
    assert waiting.wakes
    waiting.resume()
    assert ranges(other.reply(waiting)) == [(0, 3, 2)]
    exchange.resume()
    assert ranges(member.reply(exchange)) == []


steps = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 4), st.sampled_from([ACCEPT, RELEASE, REJECT])), max_size=25
)


@settings(max_examples=150)
@given(steps=steps, limit=st.sampled_from([0, 1, 3, 500]), state_of=st.integers(0, 3))
def test_the_log_is_the_one_that_the_coordinator_writes(
    steps: list[tuple[int, int, int]], limit: int, state_of: int
) -> None:
    """The same requests with and without leases: the same records, the same answers, the same state; and what the log
    tells another coordinator is what the first one knows."""
    logs = []
    for lends in (True, False):
        broker = LendingBroker(lends=lends, updates_per_snapshot=limit)
        member = working(broker)
        answers = [accept(member, first, first + width, kind) for first, width, kind in steps]
        if state_of:
            # The coordinator looks at the state in the middle of a lease.
            broker.ask(broker.coordinator.summary(broker.key("t"), -1))
            answers += [accept(member, first, first + width, kind) for first, width, kind in steps[:state_of]]
        stored = broker.stored(broker.coordinator)
        assert broker.stored(broker.new_coordinator()) == stored
        logs.append((answers, stored, broker.raw_records()))
        broker.shares.close()
    assert logs[0] == logs[1]


def test_snapshots_come_when_they_are_due() -> None:
    broker = LendingBroker(updates_per_snapshot=5)
    member = working(broker, 60)
    for offset in range(50):
        assert accept(member, offset) == 0
    versions = [each.key_version for each in broker.records()]
    assert versions.count(SNAPSHOT) == 1 + (len(versions) - 1) // 6
    runs = "".join(map(str, versions)).split(str(SNAPSHOT))
    assert {len(each) for each in runs[1:-1]} == {5} and set("".join(runs)) == {str(UPDATE)}
    # A write in six was the coordinator's for the snapshot, and one in six for the update that follows it.
    assert broker.by_python <= 2 + 2 * (len(versions) // 6)
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)


def test_the_coordinator_hears_of_updates_when_it_needs_the_state(broker: LendingBroker) -> None:
    member = working(broker)
    direct(member, 0, 4)
    direct(member, 8, 9)
    key = broker.key("t")
    assert broker.shard.states[key].start_offset == 0
    summary = broker.ask(broker.coordinator.summary(key, -1))
    assert (summary.start_offset, summary.delivery_complete) == (5, 3)
    direct(member, 5)  # the lease goes on
    state = broker.ask(broker.coordinator.read(key, 0))
    assert (state.start_offset, [tuple(each) for each in state.batches]) == (6, [(8, 9, 2, 1), (20, 20, 2, 1)])
    assert not broker.shard._leases
    assert accept(member, 6) == 0  # that is Python's
    direct(member, 7)
    # A later state epoch: what an operator has set holds, for this broker and for the next.
    assert broker.ask(broker.coordinator.initialize(key, 2, 3)) is None
    assert accept(member, 10) == ErrorCode.FENCED_STATE_EPOCH
    for coordinator in (broker.coordinator, broker.new_coordinator()):
        assert broker.stored(coordinator)[key][:3] == (2, 3, 0)


def test_the_start_offset_never_goes_back(broker: LendingBroker) -> None:
    """Nor does the delivery-complete count beside one start offset; see ShareShard.write."""
    working(broker)
    (lease,) = broker.shard._leases.values()
    for start, complete in ((5, 7), (3, 9), (5, 2), (6, 4), (2, 1)):
        assert begin(lease) and store(lease, start, complete, [(start, start, 0, 1)])
    updates, start, complete, end, changes = lease.tell()
    assert (updates, start, complete, end) == (5, 6, 4, broker.state_log.log_end_offset)
    assert [(each.value.start_offset, each.value.delivery_complete_count) for each in broker.records()[-5:]] == [
        (5, 7), (5, 7), (5, 7), (6, 4), (6, 4),
    ]  # fmt: skip
    assert changes == [(5, 5, 0, 1), (5, 5, 0, 1), (6, 6, 0, 1)]
    assert lease.tell() == (0, 6, 4, end, [])


def test_what_the_coordinator_has_not_heard_of_is_bounded() -> None:
    broker = LendingBroker()
    broker.settings = (30_000, 5000, 5, False, False, True)
    member = working(broker, 4300)
    (lease,) = broker.shard._leases.values()
    # The first record stays below all others, and its change too.
    direct(member, 0, kind=RELEASE)
    for offset in range(1, 100):
        direct(member, offset, kind=RELEASE if offset % 2 else ACCEPT)
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)
    # Changes that the start offset has passed are dropped, those at it are not.
    assert ranges(member.fetch(max_records=1, share_acquire_mode=1)) == [(0, 0, 2)]
    direct(member, 0)
    for offset in range(101, 201, 2):
        direct(member, offset)
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)
    for first in (201, 601, 1001):
        types = [ACCEPT if number % 2 else RELEASE for number in range(400)]
        exchange = member.acknowledge_exchange({T: [(first, first + 399, types)]})
        assert acknowledged(member.acknowledge_reply(exchange)) == {0: 0}
    assert not begin(lease), "too much for one lease"
    by_python = broker.by_python
    assert accept(member, 1500) == 0
    assert broker.by_python == by_python + 1
    # One write of more changes than an update of a network thread may have.
    wide = {T: [(first, first + 49, [number % 2 + 1 for number in range(50)]) for first in range(1600, 4200, 50)]}
    assert acknowledged(member.acknowledge(wide)) == {0: 0}  # type: ignore[arg-type]
    assert broker.by_python == by_python + 2
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)


@pytest.mark.parametrize("work", ["initialize", "read", "write", "delete", "forget"])
def test_the_coordinator_waits_for_an_update_that_is_under_way(broker: LendingBroker, work: str) -> None:
    working(broker)
    key = broker.key("t")
    (lease,) = broker.shard._leases.values()
    coordinator = broker.coordinator
    calls: dict[str, Any] = {
        "initialize": lambda: coordinator.initialize(key, 2, 7),
        "read": lambda: coordinator.read(key, 1),
        "write": lambda: coordinator.write(key, 1, 0, 12, 0, ()),
        "delete": lambda: coordinator.delete(key),
        "forget": lambda: coordinator.runtime.write(0, lambda shard, _: shard.forget(key)),
    }
    assert begin(lease)
    known = broker.raw_records()
    assert broker.ask(calls[work]()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.raw_records() == known
    assert store(lease, 11, 1, [(11, 12, 2, 1)]), "what was under way counts"
    assert not begin(lease), "nothing more begins"
    assert broker.ask(calls[work]()) != ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(broker.raw_records()) == len(known) + 2
    assert broker.stored(broker.new_coordinator()) == broker.stored(coordinator)


def test_a_coordinator_that_loads_again_waits_for_what_is_under_way(broker: LendingBroker) -> None:
    """It finds the update in the log, and the write of it that Python gets too changes nothing."""
    working(broker)
    key = broker.key("t")
    (lease,) = broker.shard._leases.values()
    assert begin(lease)
    broker.coordinator.on_leadership_change(PARTITION, broker.epoch, False)
    broker.coordinator.on_leadership_change(PARTITION, broker.epoch, True)
    broker.clock.advance(1000)
    assert broker.ask(broker.coordinator.read(key, 0)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not store(lease, 5, 1, []), "the shard that lent it is gone: Python writes it again"
    broker.clock.advance(1000)
    assert broker.ask(broker.coordinator.read(key, 1)).start_offset == 5
    assert broker.ask(broker.coordinator.write(key, 1, 0, 5, 1, ())) == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)


def test_the_coordinator_goes_on_from_an_update_that_is_not_committed(broker: LendingBroker) -> None:
    """A new leader reads the state before Python has the write: no record goes back to what was before the update."""
    member = working(broker)
    direct(member, 6, 9)
    (lease,) = broker.shard._leases.values()
    assert begin(lease)
    broker.state_log.set_isr(1, (1,), (1, 2))
    key = broker.key("t")
    assert not store(lease, 10, 3, [(0, 5, 2, 1)]), "in the log, and not committed"
    assert broker.state_log.high_watermark == broker.state_log.log_end_offset - 1
    state = broker.coordinator.read(key, 1)
    broker.clock.run()
    assert not state.done, "it waits for what it tells of"
    broker.state_log.set_isr(2, (1,), (1,))
    broker.coordinator.runtime._committed(PARTITION)
    assert broker.ask(state).start_offset == 10
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)


def test_a_lease_ends_with_an_update_that_it_does_not_store(broker: LendingBroker) -> None:
    """The next one would go before the write that Python has got."""
    working(broker)
    (lease,) = broker.shard._leases.values()
    known = broker.raw_records()
    assert begin(lease)
    assert not store(lease, 5, 1, [(5, 5, ARCHIVING, 1)]), "records that wait for dead letters"
    assert broker.raw_records() == known and not lease.busy
    assert not begin(lease)


def test_states_of_a_deleted_topic_go_when_the_update_under_way_has_ended(broker: LendingBroker) -> None:
    working(broker)
    key = broker.key("t")
    (lease,) = broker.shard._leases.values()
    assert begin(lease)
    broker.coordinator.topics_deleted([key.topic_id])
    broker.clock.advance(1000)
    assert key in broker.shard.states
    assert store(lease, 5, 1, [])
    broker.clock.advance(1000)
    assert not broker.shard.states and not broker.shard.held_up
    assert broker.stored(broker.new_coordinator()) == {}


def test_compressed_states_have_no_leases() -> None:
    broker = LendingBroker(compression=1)
    member = working(broker)
    assert accept(member, 0) == 0
    assert broker.by_python == 2 and not broker.shard._leases


WHY = ["another replica is in sync", "one is about to be", "another leader", "flush.messages", "dead letters"]


@pytest.mark.parametrize("why", WHY)
def test_python_goes_on_with_what_cannot_be_stored_at_once(why: str) -> None:
    broker = LendingBroker()
    if why == "dead letters":
        broker.settings = (30_000, 2000, 5, True, False, True)
    member = working(broker)
    if why == "another replica is in sync":
        broker.state_log.become_leader(1, 0, (1, 2), (1, 2))
    elif why == "one is about to be":
        assert broker.state_log.set_isr(1, (1,), (1, 2))
    elif why == "another leader":
        broker.state_log.become_leader(1, 1, (1,), (1,))
        broker.coordinator.on_leadership_change(PARTITION, 1, True)
    elif why == "flush.messages":
        broker.state_log.update_config(broker.log_config(flush_messages=1))
    exchange = member.acknowledge_exchange({T: [(0, 0, [REJECT])]})
    assert exchange.kind == "parked"
    loads, (write,), _ = broker.shares.take()
    assert not loads and write.key == ("g", broker.topic_id("t"), 0)
    assert write.batches == [(0, 0, 3 if why == "dead letters" else 4, 1)]
    write.finish()
    assert exchange.wakes
    exchange.resume()
    assert acknowledged(member.acknowledge_reply(exchange)) == {0: 0}


@pytest.fixture
def parked(broker: LendingBroker) -> Any:
    """An acknowledgement that its lease could not store."""
    member = working(broker)
    broker.state_log.become_leader(1, 1, (1,), (1,))
    exchange = member.acknowledge_exchange({T: [(0, 0, [ACCEPT])]})
    assert exchange.kind == "parked"
    return member, exchange


def test_a_closed_share_partition_answers_what_its_lease_could_not_store(broker: LendingBroker, parked: Any) -> None:
    member, exchange = parked
    broker.shares.drop_group("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert exchange.wakes
    exchange.resume()
    assert acknowledged(member.acknowledge_reply(exchange)) == {0: ErrorCode.GROUP_ID_NOT_FOUND}
    assert broker.shares.take() == ([], [], []), "nobody writes it any more"


def test_writes_that_nobody_takes_end_with_the_table(broker: LendingBroker, parked: Any) -> None:
    member, exchange = parked
    broker.shares.close()
    exchange.resume()
    assert acknowledged(member.acknowledge_reply(exchange)) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_members_on_many_threads_beside_a_coordinator_that_looks(broker: LendingBroker) -> None:
    """Each record has one holder at a time and is accepted once, while leases come and go."""
    broker.config = broker.config.__class__(updates_per_snapshot=20)
    broker.coordinator.config = broker.config
    broker.shard._config = broker.config
    (log,) = broker.topic("t")
    ledger = EarlyLedger()
    workers = [Worker(broker.member(f"m{number}"), ledger) for number in range(4)]
    for worker in workers:
        worker.thread.start()
    key = broker.key("t")
    looks = 0
    for _ in range(0, RECORDS, 3):
        log.append_as_leader(broker.batch(b"a", b"b", b"c"))
        broker.serve()

    def all_ended() -> bool:
        nonlocal looks
        broker.serve()
        looks += 1
        if looks % 3 == 0 and key in broker.shard.states:
            broker.ask(broker.coordinator.summary(key, -1))
        if looks % 7 == 0 and key in broker.shard.states:
            broker.ask(broker.coordinator.read(key, 0))
        time.sleep(0)
        return ledger.done or any(worker.error for worker in workers)

    wait_until(all_ended, "all records are accepted")
    for worker in workers:
        while worker.thread.is_alive():
            broker.serve()
            worker.thread.join(0.01)
    assert [worker.error for worker in workers] == [None] * 4
    broker.serve()
    assert broker.share("t")["start_offset"] == RECORDS
    assert broker.shares.counters()["leased_writes"] > 0
    assert broker.stored(broker.coordinator)[key][1] == RECORDS
    assert broker.stored(broker.new_coordinator()) == broker.stored(broker.coordinator)
