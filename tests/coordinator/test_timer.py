"""The heap of timeouts on a virtual clock."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.coordinator.timer import TimerHeap
from kafkapy.testing.coordinator import VirtualClock


def test_ten_thousand_timeouts_are_one_alarm() -> None:
    clock = VirtualClock()
    heap = TimerHeap(clock)
    rang: list[int] = []
    for key in range(10_000):
        heap.schedule(key, 1000 + key % 7, lambda key=key: rang.append(key))  # type: ignore[misc]
    for key in range(5_000):
        heap.schedule(key, 2000, lambda key=key: rang.append(key))  # type: ignore[misc]
    assert clock.alarms == 1
    clock.advance(1010)
    assert sorted(rang) == list(range(5_000, 10_000))
    clock.advance(1000)
    assert sorted(rang) == list(range(10_000))
    assert clock.alarms == 0


def test_one_that_fails_does_not_keep_others_from_ringing() -> None:
    clock = VirtualClock()
    heap = TimerHeap(clock)
    rang: list[str] = []
    heap.schedule("bad", 10, lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    heap.schedule("good", 10, lambda: rang.append("good"))
    clock.advance(10)
    assert rang == ["good"]


def test_cancelled_entries_do_not_pile_up() -> None:
    clock = VirtualClock()
    heap = TimerHeap(clock)
    for key in range(10_000):
        heap.schedule(key, 60_000, lambda: None)
        heap.cancel(key)
    assert len(heap) == 0
    assert len(heap._heap) < 100


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("schedule"), st.integers(0, 5), st.integers(0, 50)),
            st.tuples(st.just("restart"), st.integers(0, 5), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("advance"), st.just(0), st.integers(0, 60)),
        ),
        max_size=60,
    )
)
def test_every_timeout_rings_exactly_at_its_last_deadline(steps: list[tuple[str, int, int]]) -> None:
    clock = VirtualClock()
    heap = TimerHeap(clock)
    rang: list[tuple[int, int]] = []
    due: dict[int, int] = {}
    expected: list[tuple[int, int]] = []
    for what, key, ms in steps:
        if what == "schedule":
            heap.schedule(key, ms, lambda key=key: rang.append((clock.monotonic_ms(), key)))  # type: ignore[misc]
            due[key] = clock.monotonic_ms() + ms
        elif what == "restart":
            assert heap.restart(key, ms) == (key in due)
            if key in due:
                due[key] = clock.monotonic_ms() + ms
        elif what == "cancel":
            heap.cancel(key)
            due.pop(key, None)
        else:
            clock.advance(ms)
            passed = [(at, key) for key, at in due.items() if at <= clock.monotonic_ms()]
            expected += passed
            for _, key in passed:
                del due[key]
    assert sorted(rang) == sorted(expected)
    assert len(heap) == len(due)
