"""Fetch sessions: what a request says, and what each kind of response does to the next one."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkapy.clients.consumer.fetch_session import FetchPlan, FetchSession, WantedPartition
from kafkapy.errors import ErrorCode
from kafkapy.types import ZERO_UUID, TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
ID, OTHER = UUID(int=7), UUID(int=8)


def want(offset: int, topic_id: UUID = ID) -> WantedPartition:
    return WantedPartition(topic_id, offset, 0, 1 << 20)


def done(
    session: FetchSession, plan: FetchPlan, *, session_id: int, answered: set[TopicPartition], error: int = 0
) -> bool:
    return session.completed(plan, error, session_id, 0, answered, False)


@pytest.fixture
def session() -> FetchSession:
    """With id 99, epoch 1, about A at 0 and B at 0."""
    session = FetchSession(1)
    plan = session.build({A: want(0), B: want(0)})
    assert (plan.session_id, plan.epoch, plan.full) == (0, 0, True)
    assert list(plan.send) == [A, B]
    assert done(session, plan, session_id=99, answered={A, B})
    return session


def test_only_what_changed_is_said_again(session: FetchSession) -> None:
    plan = session.build({A: want(5), B: want(0), C: want(1)})
    assert (plan.session_id, plan.epoch, plan.full) == (99, 1, False)
    assert plan.send == {A: want(5), C: want(1)}
    assert plan.forget == []
    assert set(plan.partitions) == {A, B, C}
    assert done(session, plan, session_id=99, answered={C})
    plan = session.build({A: want(5), C: want(2)})
    assert plan.epoch == 2
    assert plan.send == {C: want(2)}
    assert plan.forget == [(B, ID)]
    assert set(plan.partitions) == {A, C}


def test_a_topic_made_anew_is_forgotten_under_its_old_id(session: FetchSession) -> None:
    plan = session.build({A: want(0, OTHER), B: want(0)})
    assert plan.send == {A: want(0, OTHER)}
    assert plan.replaced == [(A, ID)]
    assert session.names == {OTHER: "t"}
    assert plan.forget == []


def test_ids_are_used_only_when_all_are_known(session: FetchSession) -> None:
    assert session.build({A: want(0), B: want(0)}).with_topic_ids
    assert not session.build({A: want(0), C: want(0, ZERO_UUID)}).with_topic_ids


def test_a_partition_without_id_that_goes_still_counts(session: FetchSession) -> None:
    plan = session.build({A: want(0), C: want(0, ZERO_UUID)})
    assert done(session, plan, session_id=99, answered=set())
    assert not session.build({A: want(0)}).with_topic_ids


@pytest.mark.parametrize(
    ("error", "next_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 99),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 99),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 99),
    ],
)
def test_an_error_begins_a_session_anew(session: FetchSession, error: ErrorCode, next_id: int) -> None:
    plan = session.build({A: want(1), B: want(1)})
    assert not done(session, plan, session_id=99, answered=set(), error=error)
    plan = session.build({A: want(1), B: want(1)})
    # An id with epoch 0 closes that session and asks for another.
    assert (plan.session_id, plan.epoch, list(plan.send)) == (next_id, 0, [A, B])


def test_a_lost_connection_begins_a_session_anew(session: FetchSession) -> None:
    session.build({A: want(1), B: want(1)})
    session.failed()
    plan = session.build({A: want(1)})
    assert (plan.session_id, plan.epoch, plan.full, plan.forget) == (99, 0, True, [])


def test_a_broker_without_room_for_a_session_gets_full_requests() -> None:
    session = FetchSession(1)
    for _ in range(2):
        plan = session.build({A: want(0)})
        assert (plan.session_id, plan.epoch) == (0, 0)
        assert done(session, plan, session_id=0, answered={A})


def test_a_session_the_broker_has_closed_is_begun_anew(session: FetchSession) -> None:
    plan = session.build({A: want(1), B: want(0)})
    assert done(session, plan, session_id=0, answered={A})
    plan = session.build({A: want(1), B: want(0)})
    assert (plan.session_id, plan.epoch, len(plan.send)) == (0, 0, 2)


def test_sessions_can_be_switched_off() -> None:
    session = FetchSession(1, enabled=False)
    for _ in range(2):
        plan = session.build({A: want(0)})
        assert (plan.session_id, plan.epoch, plan.full) == (0, -1, True)
        assert done(session, plan, session_id=55, answered={A})
    session.failed()
    assert session.build({A: want(0)}).epoch == -1
    assert session.close() is None


@pytest.mark.parametrize("answered", [{A}, {A, B, C}, set()])
def test_a_full_response_about_other_partitions_is_not_used(answered: set[TopicPartition]) -> None:
    session = FetchSession(1)
    plan = session.build({A: want(0), B: want(0)})
    assert not done(session, plan, session_id=99, answered=answered)
    assert session.build({A: want(0)}).session_id == 0


def test_an_empty_full_response_that_throttles_is_no_error() -> None:
    session = FetchSession(1)
    plan = session.build({A: want(0)})
    assert not session.completed(plan, 0, 0, 500, set(), False)
    assert session.build({A: want(0)}).epoch == 0


def test_an_incremental_response_about_a_partition_outside_is_not_used(session: FetchSession) -> None:
    plan = session.build({A: want(1), B: want(0)})
    assert not done(session, plan, session_id=99, answered={C})
    plan = session.build({A: want(1), B: want(0)})
    assert (plan.session_id, plan.epoch) == (99, 0)
    assert done(session, plan, session_id=100, answered={A, B})
    plan = session.build({A: want(1), B: want(0)})
    assert not session.completed(plan, 0, 100, 0, {A}, True)


def test_epochs_wrap_to_one(session: FetchSession) -> None:
    session._epoch = (1 << 31) - 1
    plan = session.build({A: want(1), B: want(0)})
    assert done(session, plan, session_id=99, answered=set())
    assert session.build({A: want(1), B: want(0)}).epoch == 1


def test_closing_says_so_to_the_broker(session: FetchSession) -> None:
    plan = session.close()
    assert plan is not None
    assert (plan.session_id, plan.epoch, plan.send) == (99, -1, {})
    assert session.close() is None
    assert (session.names, list(session.partitions)) == ({}, [])


@pytest.mark.parametrize(("throttle_ms", "usable"), [(0, True), (1, False)])
def test_a_broker_that_only_throttles_opens_no_session(throttle_ms: int, usable: bool) -> None:
    session = FetchSession(1)
    plan = session.build({})
    assert session.completed(plan, 0, 99, throttle_ms, set(), False) is usable
    assert session.build({}).session_id == (99 if usable else 0)
