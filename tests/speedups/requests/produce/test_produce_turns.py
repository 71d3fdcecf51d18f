"""Produces to a partition whose disk is slow: each keeps its place, and a turn that nobody takes goes to the next."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from waiting import WAIT_S, wait_until

from kafkapy._speedups.testing.held_turn import HeldTurn
from kafkapy._speedups.testing.request_driver import PARKED, REPLY, Exchange
from kafkapy.errors import ErrorCode

FAIR_TURNS = 64


def send(broker: Any, *partitions: int, **fields: Any) -> Exchange:
    topics = {"t": [(number, broker.batch()) for number in partitions or (0,)]}
    exchange: Exchange = broker.send(broker.produce_request(topics, version=9, **fields), 9)
    return exchange


def parked(broker: Any, count: int) -> list[Exchange]:
    requests = [send(broker) for _ in range(count)]
    assert {request.kind for request in requests} == {PARKED}
    return requests


def entry_of(broker: Any, exchange: Exchange) -> Any:
    assert exchange.kind == REPLY
    assert exchange.reply is not None
    # Requests are answered in another order than they were sent.
    broker.correlation_id = int.from_bytes(exchange.reply[4:8], "big")
    return broker.only(broker.produce_reply(exchange, 9))


def offset_of(broker: Any, exchange: Exchange) -> int:
    entry = entry_of(broker, exchange)
    assert entry.error_code == ErrorCode.NONE
    return int(entry.base_offset)


def woken(requests: list[Exchange]) -> list[int]:
    return [number for number, request in enumerate(requests) if request.kind == PARKED and request.wakes]


@pytest.fixture
def slow(broker: Any) -> tuple[Any, HeldTurn]:
    (log,) = broker.topic("t")
    return log, HeldTurn(log)


def test_turns_are_taken_in_the_order_of_arrival(broker: Any, slow: Any) -> None:
    _, turn = slow
    requests = parked(broker, 5)
    turn.end()
    for number in range(8):
        assert woken(requests) == [number], "one at a time"
        if number < 3:
            requests += parked(broker, 1)  # behind the others, although nothing is being written
        assert offset_of(broker, requests[number].resume()) == number
    assert offset_of(broker, send(broker)) == 8


def test_a_request_that_could_not_go_keeps_its_place(broker: Any, slow: Any) -> None:
    log, turn = slow
    requests = parked(broker, 3)
    turn.end()
    again = HeldTurn(log)  # passes the called one
    requests[0].resume()
    assert requests[0].kind == PARKED
    again.end()
    for number in range(3):
        assert woken(requests) == [number]
        assert offset_of(broker, requests[number].resume()) == number


def test_a_place_in_one_queue_outlasts_a_turn_in_another(broker: Any) -> None:
    turns = [HeldTurn(log) for log in broker.topic("t", 2)]
    both = send(broker, 0, 1)
    later = send(broker, 1)
    assert both.kind == later.kind == PARKED
    turns[0].end()
    both.resume()
    assert both.kind == PARKED, "partition 1 is still busy"
    turns[1].end()
    assert both.wakes == 1
    assert later.wakes == 0
    assert both.resume().kind == REPLY
    assert offset_of(broker, later.resume()) == 1


@pytest.mark.parametrize("gone", range(5))
def test_a_turn_goes_on_when_a_request_is_gone(broker: Any, slow: Any, gone: int) -> None:
    _, turn = slow
    requests = parked(broker, 5)
    if gone == 0:
        requests[4].cancel()  # long before its turn
    turn.end()
    for number in range(gone):
        requests[number].resume()
    if gone:
        assert woken(requests) == [gone]
        requests[gone].cancel()
    left = [request for request in requests if request.kind == PARKED and request not in (requests[gone or 4],)]
    for request in left:
        assert request.wakes == 1
        request.resume()
        assert request.kind == REPLY
    assert offset_of(broker, send(broker)) == 4


def test_all_but_the_last_are_gone(broker: Any, slow: Any) -> None:
    _, turn = slow
    requests = parked(broker, 5)
    turn.end()
    for request in requests[:4]:
        assert request.wakes == 1
        request.cancel()
    assert offset_of(broker, requests[4].resume()) == 0


def test_a_turn_goes_on_when_a_request_times_out(broker: Any, slow: Any) -> None:
    log, turn = slow
    requests = parked(broker, 3)
    turn.end()
    again = HeldTurn(log)
    late = requests[0].resume(timed_out=True)
    assert entry_of(broker, late).error_code == ErrorCode.REQUEST_TIMED_OUT
    again.end()
    assert woken(requests) == [1]
    assert offset_of(broker, requests[1].resume()) == 0


def test_a_turn_goes_on_when_an_append_is_refused(broker: Any) -> None:
    (log,) = broker.topic("t", min_insync_replicas=2)
    turn = HeldTurn(log)
    requests = [send(broker, acks=-1), *parked(broker, 2)]
    turn.end()
    assert entry_of(broker, requests[0].resume()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert woken(requests) == [1]
    assert offset_of(broker, requests[1].resume()) == 0
    assert log.log_end_offset == 1


def test_all_are_woken_when_leadership_goes(broker: Any, slow: Any) -> None:
    log, turn = slow
    requests = parked(broker, 3)
    turn.end()
    log.become_follower(2, 1)
    assert woken(requests) == [0, 1, 2]
    for request in requests:
        entry = entry_of(broker, request.resume())
        assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.become_leader(1, 2, [1])
    assert offset_of(broker, send(broker)) == 0


def test_a_called_request_that_never_comes_is_passed(broker: Any, slow: Any) -> None:
    _, turn = slow
    lost, waiting = parked(broker, 2)
    turn.end()
    assert lost.wakes == 1
    deadline = time.monotonic() + WAIT_S
    newcomers = parked(broker, 1)
    while not waiting.wakes:
        assert time.monotonic() < deadline, "the partition stalls"
        newcomers += parked(broker, 1)  # the first one after the end of the call has the oldest called
        time.sleep(0.05)
    assert offset_of(broker, waiting.resume()) == 0
    assert offset_of(broker, newcomers[0].resume()) == 1


def test_a_quick_disk_has_no_queue(broker: Any, slow: Any) -> None:
    _, turn = slow
    requests = parked(broker, 20 * FAIR_TURNS)
    turn.end()
    done = 0
    # On a busy machine some of these turns are slow ones too.
    while (called := woken(requests)) == [done]:
        requests[done].resume()
        done += 1
    assert done >= FAIR_TURNS
    assert called == list(range(done, len(requests))), "all of them at once"
    assert len(called) > 1
    assert offset_of(broker, send(broker)) == done
    for request in requests[done:]:
        assert request.resume().kind == REPLY


def test_appends_wait_in_order_for_a_segment(broker: Any) -> None:
    """The first one rolls; the others wait for their turns, not for another segment."""
    size = len(broker.batch())
    (log,) = broker.topic("t", segment_bytes=6 * size)
    for _ in range(4):
        assert send(broker).kind == REPLY
    turn = HeldTurn(log)
    requests = parked(broker, 5)
    turn.end()
    for number in range(5):
        assert woken(requests[number:]) == [0]
        requests[number].resume()
        assert requests[number].kind == (REPLY if number < 2 else PARKED)
    log.prepare_segment()
    for number in range(2, 5):
        assert woken(requests) == [number]
        assert offset_of(broker, requests[number].resume()) == 4 + number
    assert log.log_end_offset == 9
    assert send(broker).kind == REPLY


def test_the_append_of_a_thread_has_its_place_too(broker: Any, slow: Any) -> None:
    """An append that cannot park, as a follower's or a coordinator's may be."""
    log, turn = slow
    requests = parked(broker, 1)
    turn.end()
    again = HeldTurn(log)
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(log.append_as_leader(broker.batch(), api_version=9)[0]))
    thread.start()
    wait_until(lambda: again.queue == 1, "the thread waits in the queue")
    requests += parked(broker, 1)
    requests[0].resume()
    again.end()
    assert woken(requests) == [0]
    assert not taken
    assert offset_of(broker, requests[0].resume()) == 0
    thread.join(WAIT_S)
    assert taken == [1]
    wait_until(lambda: requests[1].wakes, "the request behind it is called")
    assert offset_of(broker, requests[1].resume()) == 2


def stress(broker: Any, seconds: float) -> None:
    """Requests that come, are gone, time out, and threads that append, around turns that last."""
    (log,) = broker.topic("t")
    end = time.monotonic() + seconds
    problems: list[BaseException] = []
    appended = [0] * 6

    def requests(number: int) -> None:
        driver = type(broker.driver)(broker.plane)
        request = broker.produce_request({"t": [(0, broker.batch())]}, version=9)
        count = 0
        while time.monotonic() < end:
            count += 1
            exchange = broker.send(request, 9, driver=driver)
            deadline = time.monotonic() + WAIT_S
            while exchange.kind == PARKED:
                if count % 7 == number:
                    exchange.cancel()
                    break
                while not exchange.wakes:
                    assert time.monotonic() < deadline, "never called"
                    time.sleep(0)
                if count % 11 == number:
                    exchange.cancel()
                    break
                exchange.resume()
            else:
                appended[number] += 1

    def appends(number: int) -> None:
        while time.monotonic() < end:
            log.append_as_leader(broker.batch(), api_version=9)
            appended[number] += 1

    def turns(_number: int) -> None:
        while time.monotonic() < end:
            turn = HeldTurn(log)
            time.sleep(0.004)
            turn.end()
            time.sleep(0.002)

    def run(work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as problem:
            problems.append(problem)

    works = [requests, requests, requests, requests, appends, turns]
    threads = [threading.Thread(target=run, args=(work, number)) for number, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 2 * WAIT_S)
        assert not thread.is_alive(), "a thread hangs"
    assert not problems, problems
    assert sum(appended) == log.log_end_offset
    assert all(appended[:5])
    assert send(broker).kind in (REPLY, PARKED)


def test_no_turn_is_lost(broker: Any) -> None:
    stress(broker, 3)


@pytest.mark.soak
def test_no_turn_is_lost_in_minutes(broker: Any) -> None:
    stress(broker, 180)
