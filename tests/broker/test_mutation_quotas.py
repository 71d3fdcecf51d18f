"""The token bucket of controller mutations against its model, strict and permissive."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.sampled_rate import ModelBucket

from kafkapy.broker.mutation_quotas import BucketQuota, TokenBucket
from kafkapy.errors import ErrorCode, KafkaError, code_of


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 500)), max_size=40),
    limit=st.floats(0.1, 100),
    windows=st.integers(1, 11),
)
def test_tokens_are_those_of_the_model(steps: list[tuple[float, int]], limit: float, windows: int) -> None:
    now_s = 50.0
    bucket, model = TokenBucket(limit, windows, 1, now_s), ModelBucket(limit, windows, now_s)
    for pause_s, count in steps:
        now_s += pause_s
        bucket.take(count, now_s)
        model.take(count, now_s)
        assert bucket.tokens(now_s) == pytest.approx(model.at(now_s), rel=1e-9, abs=1e-9)
        wanted = 0 if model.tokens >= 0 else -model.tokens / limit * 1000
        assert bucket.throttle_ms(now_s) == pytest.approx(wanted, abs=1)


def test_a_strict_quota_refuses_what_comes_after_the_last_token() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 5, 1, clock.now_s)
    quota = BucketQuota(bucket, True, clock)
    quota.record(15)  # the bucket has ten tokens, and may go below zero once
    assert quota.throttle_time_ms == 0
    with pytest.raises(KafkaError) as refused:
        quota.record(1)
    assert code_of(refused.value) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.throttle_time_ms == 2500
    clock.now_s += 1
    assert quota.throttle_time_ms == 1500
    clock.now_s += 1.5
    BucketQuota(bucket, True, clock).record(1)


def test_a_permissive_quota_throttles_afterwards() -> None:
    clock = Clock()
    quota = BucketQuota(TokenBucket(2.0, 5, 1, clock.now_s), False, clock)
    quota.record(15)
    assert quota.throttle_time_ms == 2500
    quota.record(15)
    assert quota.throttle_time_ms == 10_000


def test_tokens_stay_when_the_limit_changes() -> None:
    bucket = TokenBucket(1.0, 10, 1, 0.0)
    bucket.take(4, 0.0)
    bucket.set_limit(100.0, 0.0)
    assert bucket.tokens(0.0) == 6
    bucket.set_limit(0.1, 0.0)
    assert bucket.tokens(0.0) == 1 and bucket.is_full(0.0)
