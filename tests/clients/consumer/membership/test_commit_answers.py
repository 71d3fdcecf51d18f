"""What a committer makes of each answer, without a coordinator: who is told, what is tried again, and how long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from clients.consumer.membership.fake_core import FakeCore, Run, tps

from kafkapy.clients.consumer.membership import commits as module
from kafkapy.clients.consumer.membership.commits import (
    OF_THE_MEMBER,
    OffsetCommitter,
    _retried_before_rebalance,
    _retried_fetch,
)
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
    error_for,
)
from kafkapy.protocol.messages.offset_commit import OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchResponse
from kafkapy.types import ZERO_UUID, OffsetAndMetadata, TopicPartition

ID = UUID(int=5)
ME = ConsumerGroupMetadata("orders", 4, "m1")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Bench:
    """A committer of a member, or of a consumer without a group's assignment."""

    def __init__(self, *, member: bool = True, **keys: object) -> None:
        self.core = FakeCore(ClientConfig(CONSUMER, {"bootstrap.servers": "x:1", "group.id": "orders", **keys}))
        if member:
            self.core.subscription.subscribe(["t"], None)
        self.refused: list[Any] = []
        self.stale = 0
        self.lost: list[str] = []
        self.heard: list[ErrorCode] = []
        self.core.membership = SimpleNamespace(commit_refused=self._refuse)  # type: ignore[assignment]
        self.core.network.cluster.invalidate = self._invalidate  # type: ignore[method-assign]
        self.commits: OffsetCommitter = self.core.commits
        self.commits.coordinator = SimpleNamespace(  # type: ignore[assignment]
            answered=self.heard.append, lost=self.lost.append, known=True
        )

    def _refuse(self, code: ErrorCode, sent: ConsumerGroupMetadata) -> KafkaError:
        self.refused.append((code, sent))
        return CommitFailedError()

    def _invalidate(self) -> None:
        self.stale += 1

    def check(self, *codes: int) -> None:
        """The answer to a commit has these codes, each for a partition."""
        kind = OffsetCommitResponse.Topic
        partitions = [kind.Partition(partition_index=index, error_code=code) for index, code in enumerate(codes)]
        response = OffsetCommitResponse(topics=[kind(name="", topic_id=ID, partitions=partitions)])
        self.commits._check_commit(response, {ID: "t"}, ME)


ERRORS = [each for each in ErrorCode if each is not ErrorCode.NONE]


@pytest.mark.parametrize("member", [True, False])
def test_the_first_error_of_a_commit_is_its_error(member: bool) -> None:
    bench = Bench(member=member)
    bench.check(0, 0)
    for code in ERRORS:
        for told in (bench.refused, bench.lost, bench.heard):
            told.clear()
        bench.stale = 0
        with pytest.raises(KafkaError) as raised:
            bench.check(0, int(code))
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            assert str(raised.value) == "Not authorized for the topics t"
            assert bench.heard == []
            continue
        of_member = member and code in OF_THE_MEMBER
        assert raised.type is (CommitFailedError if of_member else type(error_for(code)))
        assert bench.refused == ([(code, ME)] if of_member else [])
        assert bench.heard == [code]
        assert bench.lost == (["REQUEST_TIMED_OUT"] if code is ErrorCode.REQUEST_TIMED_OUT else [])
        refreshes = code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert bench.stale == int(refreshes)


def test_a_missing_right_to_one_topic_hides_no_other_error() -> None:
    bench = Bench()
    unauthorized, invalid = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), int(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    with pytest.raises(type(error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE))):
        bench.check(unauthorized, invalid)
    bench.core.membership = None
    with pytest.raises(type(error_for(ErrorCode.ILLEGAL_GENERATION))):
        bench.check(int(ErrorCode.ILLEGAL_GENERATION))


def read(code: ErrorCode, offset: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """What is read of an answer about one of two partitions."""
    kind = OffsetFetchResponse.Group.Topic
    part = kind.Partition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, metadata=None, error_code=int(code)
    )
    answer: Any = SimpleNamespace(topics=[kind(name="", topic_id=ID, partitions=[part])])
    return OffsetCommitter._read_committed([T0, T1], answer, {ID: "t"})


def test_what_is_read_of_committed_offsets() -> None:
    for offset in (-1, 0, 7):
        found = OffsetAndMetadata(offset, "", 3) if offset >= 0 else None
        assert read(ErrorCode.NONE, offset) == {T0: found, T1: None}
    for code in ERRORS:
        with pytest.raises(KafkaError) as raised:
            read(code, 7)
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            assert raised.type is TopicAuthorizationFailedError
            assert str(raised.value) == "Not authorized for the topics t"
        elif code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            assert raised.type is UnstableOffsetCommitError
            assert str(raised.value) == f"Transactions on {T0} are pending"
        else:
            assert raised.type is type(error_for(code))
            assert str(raised.value) == f"The committed offset of {T0} cannot be read: {code.message}"


def test_which_errors_are_tried_again() -> None:
    renewed = {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
    for code in ERRORS:
        error = error_for(code)
        assert _retried_fetch(error) is (error.retriable or code in renewed)
        deleted = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert _retried_before_rebalance(error) is (error.retriable and not deleted)
        failed = CommitFailedError()
        failed.__cause__ = error
        assert _retried_before_rebalance(failed) is isinstance(error, StaleMemberEpochError)


def test_each_attempt_waits_longer(run: Run) -> None:
    async def scenario() -> None:
        commits = Bench().commits
        asked: list[int] = []
        commits._backoff = SimpleNamespace(delay_s=lambda attempts: asked.append(attempts) or 0)  # type: ignore[assignment]
        errors = [error_for(ErrorCode.NETWORK_EXCEPTION) for _ in range(3)]
        left = list(errors)
        failures: list[KafkaError] = []

        async def attempt() -> str:
            if left:
                raise left.pop(0)
            return "done"

        assert await commits._retry(attempt, lambda error: True, failures) == "done"
        assert (asked, failures) == ([1, 2, 3], [errors[-1]])
        left.append(errors[0])
        with pytest.raises(type(errors[0])):
            await commits._retry(attempt, lambda error: False, failures)
        assert asked == [1, 2, 3]

    run(scenario())


@pytest.mark.parametrize(("timeout_ms", "timeout_s"), [(None, 7.5), (0, 0), (1, 0.001), (2500, 2.5)])
def test_a_timeout_says_what_took_so_long(
    run: Run, timeout_ms: int | None, timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    timeout = asyncio.timeout

    def at_once(seconds: float) -> Any:
        limits.append(seconds)
        return timeout(0)

    async def scenario() -> None:
        commits = Bench(**{"default.api.timeout.ms": 7500}).commits
        for failures, reason in (([], ""), ([KafkaError("a"), KafkaError("b")], ": b")):
            with pytest.raises(KafkaTimeoutError) as raised:
                async with commits._within("The commit", timeout_ms) as known:
                    known += failures
                    await asyncio.Event().wait()
            assert str(raised.value) == f"The commit of group orders took longer than {timeout_s:g} s{reason}"
        with pytest.raises(TimeoutError) as other:
            async with commits._within("The commit", timeout_ms):
                raise TimeoutError("somebody else's")
        assert str(other.value) == "somebody else's"

    with monkeypatch.context() as patch:
        patch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": at_once}))
        run(scenario())
    assert limits == [timeout_s] * 3


def test_the_versions_of_the_apis() -> None:
    assert (module.FIRST_COMMIT_VERSION, module.FIRST_FETCH_VERSION, module.TOPIC_IDS_SINCE) == (2, 1, 10)
    assert (module.GROUPS_SINCE, module.STABLE_SINCE) == (8, 7)


@pytest.mark.parametrize("version", [1, 6, 7, 8, 9, 10])
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("member", [None, ME])
def test_a_query_for_offsets(version: int, stable: bool, member: ConsumerGroupMetadata | None) -> None:
    bench = Bench()
    bench.core.membership = SimpleNamespace(fetch_identity=lambda: member)  # type: ignore[assignment]
    ids = {"a": ID, "b": UUID(int=6)} if version >= 10 else {}
    request = bench.commits._fetch_request(sorted(tps("a1 a0 b0")), ids, version, stable)
    assert request.require_stable is (stable and version >= 7)
    if version < 8:
        assert request.group_id == "orders"
        assert [(each.name, each.partition_indexes) for each in request.topics or ()] == [("a", [0, 1]), ("b", [0])]
        return
    (group,) = request.groups
    assert (group.group_id, group.member_id, group.member_epoch) == ("orders", *(("m1", 4) if member else (None, -1)))
    assert [(each.name, each.topic_id, each.partition_indexes) for each in group.topics or ()] == [
        ("" if ids else "a", ids.get("a", ZERO_UUID), [0, 1]),
        ("" if ids else "b", ids.get("b", ZERO_UUID), [0]),
    ]
