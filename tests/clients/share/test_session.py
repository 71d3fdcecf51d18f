"""The share session of a consumer with one broker: epochs and partitions."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkapy.clients.share.session import ShareSession
from kafkapy.errors import ErrorCode
from kafkapy.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
ID, OTHER = UUID(int=1), UUID(int=2)


def test_a_session_sends_changes_only() -> None:
    session = ShareSession(1)
    plan = session.plan({A: ID, B: ID})
    assert (plan.epoch, plan.added, plan.forgotten) == (0, {A: ID, B: ID}, {})
    assert session.is_new
    assert session.answered(ErrorCode.NONE)
    assert not session.is_new
    plan = session.plan({B: ID, C: ID})
    assert (plan.epoch, plan.added, plan.forgotten) == (1, {C: ID}, {A: ID})
    session.answered(ErrorCode.NONE)
    plan = session.plan({B: ID, C: ID})
    assert (plan.epoch, plan.added, plan.forgotten) == (2, {}, {})


def test_a_topic_that_was_created_again() -> None:
    session = ShareSession(1)
    session.plan({A: ID})
    session.answered(ErrorCode.NONE)
    plan = session.plan({A: OTHER})
    assert (plan.added, plan.forgotten) == ({A: OTHER}, {A: ID})
    assert session.names == {ID: "t", OTHER: "t"}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_an_error_ends_the_session(code: ErrorCode) -> None:
    session = ShareSession(1)
    session.plan({A: ID})
    session.answered(ErrorCode.NONE)
    session.plan({A: ID})
    assert not session.answered(code)
    plan = session.plan({A: ID})
    assert (plan.epoch, plan.added, plan.forgotten) == (0, {A: ID}, {})


def test_epochs_begin_again_behind_the_largest() -> None:
    session = ShareSession(1)
    session.plan({A: ID})
    session._epoch = 2**31 - 1
    session.answered(ErrorCode.NONE)
    assert session.epoch == 1
