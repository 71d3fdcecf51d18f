"""What a Fetch leaves behind: nothing of replicas that are not assigned, little of topics that are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode


@pytest.mark.parametrize("version", range(4, 19))
def test_a_replica_that_is_not_assigned_reads_nothing_and_is_not_remembered(broker: Any, version: int) -> None:
    (log,) = broker.topic("t", isr=(1, 2), replicas=(1, 2, 3))
    log.append_as_leader(broker.batch(b"not replicated"))
    log.follower_position(77, 1)
    followers = log.followers()
    assert [replica for replica, *_ in followers] == [2, 3]
    epochs = [-1] if version < 9 else [-1, 0]
    for epoch, wait_ms in ((epoch, wait_ms) for epoch in epochs for wait_ms in (0, 10_000)):
        for replica in (0, 1, 77, 0x7FFFFFFF):
            entry = broker.only(
                broker.fetch(
                    [("t", 0, 0)],
                    version=version,
                    replica_id=replica,
                    current_leader_epoch=epoch,
                    max_wait_ms=wait_ms,
                    min_bytes=1 << 20,
                )
            )
            wanted = ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (entry.error_code, entry.high_watermark, len(entry.records or b"")) == (wanted, -1, 0)
    assert (log.followers(), log.high_watermark) == (followers, 0)
    # One that is assigned but not in sync reads to the log end, and is remembered.
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version, replica_id=3))
    assert (entry.error_code, len(entry.records)) == (0, len(broker.batch(b"not replicated")))
    broker.fetch([("t", 0, 1)], version=version, replica_id=3)
    [(replica, end, _, _, _, in_sync)] = log.followers()[1:]
    assert (replica, end, in_sync, log.high_watermark) == (3, 1, False, 0)


def test_what_followers_are_known_for_outlives_a_change_of_the_assignment(broker: Any) -> None:
    (log,) = broker.topic("t", isr=(1, 2), replicas=(1, 2, 3))
    log.append_as_leader(broker.batch(b"a"))
    broker.fetch([("t", 0, 1)], replica_id=3)
    log.become_leader(1, 0, (1, 3), (1, 3, 4))
    assert [(replica, end, in_sync) for replica, end, _, _, _, in_sync in log.followers()] == [
        (3, 1, True),
        (4, -1, False),
    ]
    assert log.high_watermark == 1
    assert broker.only(broker.fetch([("t", 0, 0)], replica_id=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.become_leader(1, 1, (1, 3), (1, 3))
    assert [end for _, end, *_ in log.followers()] == [-1]


def test_what_cannot_be_a_topics_name_is_denied_without_a_question(broker: Any) -> None:
    broker.plane.authorizer_epoch = 1
    for name in ("x" * 250, "x" * 32_000, "", ".", "..", "a b", "a/b", "\x00cluster", "\x01id", "\u00e4"):
        entry = broker.only(broker.fetch([(name, 0, 0)]))
        assert entry.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reply = broker.produce({name: [(0, broker.batch())]})
        assert broker.only(reply).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.driver.remembered() == (0, 0)
    for name in ("x" * 249, "...", "a.b_c-D9"):
        assert broker.fetch_exchange([(name, 0, 0)]).questions == [b"\x03" + name.encode()]


def test_decisions_that_a_connection_piles_up_are_dropped_when_the_request_is_done(broker: Any) -> None:
    broker.plane.authorizer_epoch = 1

    def ask(names: list[str]) -> None:
        exchange = broker.fetch_exchange([(name, 0, 0) for name in names])
        broker.driver.decide(dict.fromkeys(exchange.questions, True))
        assert len(broker.by_partition(broker.fetch_reply(broker.in_turns(exchange.resume()), 12))) == len(names)

    ask([f"few-{i}" for i in range(100)])
    assert broker.driver.remembered() == (100, sum(len(f"few-{i}") + 1 for i in range(100)))
    ask([f"{i:0>249}" for i in range(5_000)])
    assert broker.driver.remembered() == (0, 0)
    ask([f"many-{i}" for i in range(10_001)])
    assert broker.driver.remembered() == (0, 0)
    for i in range(40):
        transaction = "x" * 30_000 + str(i)
        batch = broker.batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        exchange = broker.send(
            broker.produce_request({"t": [(0, batch)]}, version=9, transactional_id=transaction, acks=-1), 9
        )
        broker.driver.decide(dict.fromkeys(exchange.questions, False))
        broker.produce_reply(exchange.resume(), 9)
        assert broker.driver.remembered()[1] < 1 << 20
