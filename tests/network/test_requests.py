"""Requests that Python answers, and requests that wait inside the data plane."""

from __future__ import annotations

import gc
import select
import socket
import struct
import threading
import time

import pytest

from kafkapy._speedups.network.network_request import NetworkRequest
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse


def collect(net):
    """The Python side keeps its requests instead of answering them."""
    requests = []
    net.handler = requests.append
    return requests


def test_python_sees_who_asks_what(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send(b"body", correlation_id=77, client_id="käse")
    request = eventually(lambda: requests)[0]
    assert (request.api_key, request.api_version, request.correlation_id, request.client_id) == (3, 5, 77, "käse")
    assert bytes(request.body) == b"body" and request.body.readonly
    assert request.client_address == "127.0.0.1" and request.peer_port == client.socket.getsockname()[1]
    assert request.local_port == net.server.bound_port("PLAINTEXT")
    assert request.listener_name == "PLAINTEXT" and request.ask_kind is None and request.questions == []
    assert request.principal == "User:ANONYMOUS" and not request.privileged
    request.reply([b"in ", bytearray(b"three "), memoryview(b"parts")])
    assert client.receive() == (77, b"in three parts")


def test_a_body_stays_valid_as_long_as_somebody_holds_it(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send(b"keep" * 5000)
    body = eventually(lambda: requests).pop().body
    client.reset()
    eventually(lambda: not net.server.connections())
    gc.collect()
    assert bytes(body) == b"keep" * 5000


def test_a_whole_frame_can_be_sent_as_it_is(network, eventually):
    net = network()
    net.handler = lambda request: request.reply_frame(struct.pack(">i", request.correlation_id) + b"own header")
    assert net.client().ask(version=9) == b"own header"


def test_replies_may_come_from_any_thread(network):
    net = network()
    threads = []

    def handler(request):
        thread = threading.Thread(target=request.reply, args=(request.body,))
        threads.append(thread)
        thread.start()

    net.handler = handler
    clients = [net.client() for _ in range(8)]
    for turn in range(20):
        for client in clients:
            client.send(b"%d" % turn)
        for client in clients:
            assert client.receive()[1] == b"%d" % turn
    for thread in threads:
        thread.join()


def test_a_second_answer_is_refused(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send()
    request = eventually(lambda: requests)[0]
    request.reply(b"one")
    with pytest.raises(RuntimeError, match="answered already"):
        request.reply(b"two")
    with pytest.raises(RuntimeError, match="answered already"):
        request.close()
    with pytest.raises(RuntimeError, match="answered already"):
        request.no_reply()
    assert client.receive()[1] == b"one"


def test_an_answer_of_the_wrong_kind_is_refused(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send()
    request = eventually(lambda: requests)[0]
    for wrong in (request.resume, lambda: request.answer_authorization([]), lambda: request.replace_records(0, b"")):
        with pytest.raises(RuntimeError, match="wants a reply"):
            wrong()
    with pytest.raises(TypeError):
        request.reply("text")
    request.reply(b"ok")
    assert client.receive()[1] == b"ok"


def test_no_reply_lets_the_connection_go_on(network):
    net = network()
    net.handler = lambda request: request.no_reply() if bytes(request.body) == b"quiet" else request.reply(b"loud")
    client = net.client()
    client.send(b"quiet", correlation_id=1)
    client.send(b"x", correlation_id=2)
    assert client.receive() == (2, b"loud")


def test_a_closed_request_closes_its_connection_and_says_why(network, eventually):
    net = network()
    net.handler = lambda request: request.close("the body cannot be decoded")
    client = net.client()
    client.send()
    assert client.closed_by_broker()
    assert "the body cannot be decoded" in eventually(net.lines)[0]


def test_a_request_that_is_dropped_closes_its_connection(network, eventually):
    net = network()
    net.handler = lambda request: None
    client = net.client()
    client.send()
    assert client.closed_by_broker()
    assert "dropped without a response" in eventually(net.lines)[0]


def test_a_server_and_its_requests_can_be_garbage_together(network, eventually):
    def unanswered():
        net = network()
        requests = collect(net)
        client = net.client()
        client.send(b"x" * 5000)
        cycle = [net, eventually(lambda: requests)]
        cycle.append(cycle)
        net.close()

    for _ in range(3):
        unanswered()
        gc.collect()


def test_requests_are_not_made_by_hand():
    with pytest.raises(TypeError):
        NetworkRequest()


def test_an_answer_to_a_client_that_is_gone_is_dropped(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send()
    request = eventually(lambda: requests)[0]
    client.reset()
    eventually(lambda: not request.connection_open)
    request.reply(b"nobody reads this")
    net.handler = net.echo
    assert net.client().ask(b"next") == b"next"


def test_a_half_closed_client_gets_its_reply(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send(b"last words")
    client.socket.shutdown(socket.SHUT_WR)
    request = eventually(lambda: requests)[0]
    eventually(lambda: net.counters()["processors"][0]["idle_ns"] > 0)
    request.reply(b"heard")
    assert client.receive()[1] == b"heard"
    assert client.closed_by_broker()


def test_what_python_remembers_of_a_connection_goes_with_it(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send()
    request = eventually(lambda: requests).pop()
    assert request.connection_data is None
    request.connection_data = {"step": 1}
    connection = request.connection_id
    request.reply(b"")
    client.receive()
    client.send()
    request = eventually(lambda: requests).pop()
    assert request.connection_data == {"step": 1}
    request.reply(b"")
    client.receive()
    client.close()
    eventually(lambda: net.lines() is not None and connection in net.closed_connections)
    assert net.server.request_channel.connection_closed(connection) == {"step": 1}
    assert net.server.request_channel.connection_data == {}


def test_connection_data_set_after_the_client_has_gone_is_announced_too(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send()
    request = eventually(lambda: requests).pop()
    client.reset()
    eventually(lambda: not request.connection_open)
    request.connection_data = "late"
    eventually(lambda: net.lines() is not None and request.connection_id in net.closed_connections)
    request.close()


def test_what_the_client_says_of_itself_is_listed(network, eventually):
    net = network()

    def handler(request):
        request.set_client_software("librdkafka", "2.5.3")
        request.principal = "User:alice"
        request.reply(b"")

    net.handler = handler
    client = net.client()
    client.ask()
    # The bytes are counted just after they were sent.
    eventually(lambda: net.server.connections()[0]["bytes_out"])
    (info,) = net.server.connections()
    assert (info["software_name"], info["software_version"], info["principal"]) == ("librdkafka", "2.5.3", "User:alice")
    assert (
        info["requests"] == 1
        and info["bytes_in"] > 0
        and info["bytes_out"] == 8
        and info["listener_name"] == "PLAINTEXT"
    )


def test_the_control_loop_is_not_woken_again_for_what_it_has(network, eventually):
    net = network()
    channel = net.server.request_channel
    assert net.client().ask(b"served") == b"served"
    eventually(lambda: not select.select([channel], [], [], 0)[0])


def test_network_threads_count_their_time(network, eventually):
    began_ns = time.monotonic_ns()
    net = network(num_network_threads=3)
    eventually(lambda: all(each["running_ns"] > 0 < each["idle_ns"] for each in net.counters()["processors"]))
    assert all(each["running_ns"] < time.monotonic_ns() - began_ns for each in net.counters()["processors"])


def test_a_full_queue_keeps_requests_with_their_connections(network, eventually):
    net = network(queued_max_requests=2)
    held = threading.Event()
    release = threading.Event()

    def handler(request):
        held.set()
        release.wait(10)
        request.reply(request.body)

    net.handler = handler
    net.topic("t")
    clients = [net.client() for _ in range(12)]
    clients[0].send(b"0")
    held.wait(10)
    for index, client in enumerate(clients[1:], 1):
        client.send(b"%d" % index)
    eventually(lambda: net.counters()["request_channel"]["full"] > 0)
    assert net.counters()["request_channel"]["queue_size"] == 2
    other = net.client()
    other.send_bytes(net.fetch_frame("t"))
    assert other.receive()[0] == 1  # the data plane's own requests do not wait there
    release.set()
    for index, client in enumerate(clients):
        assert client.receive()[1] == b"%d" % index


# ---- Produce and Fetch ---------------------------------------------------------------------------------------------


def test_a_fetch_gives_back_what_was_produced(network):
    net = network()
    net.topic("t")
    client = net.client()
    for index in range(50):
        client.send_bytes(net.produce_frame("t", net.batch(b"value-%d" % index), correlation_id=index))
        correlation, payload = client.receive()
        assert correlation == index
        assert net.produced(payload).base_offset == index
    client.send_bytes(net.fetch_frame("t", 10, correlation_id=99))
    correlation, payload = client.receive()
    assert correlation == 99
    records = bytes(net.fetched(payload).records)
    assert all(b"value-%d" % index in records for index in range(10, 50))
    assert net.counters()["apis"][0]["requests"] == 50 and net.counters()["apis"][0]["errors"] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_waiting_fetch_is_woken_by_a_produce_on_any_processor(network, threads):
    net = network(num_network_threads=threads)
    net.topic("t")
    consumers = [net.client() for _ in range(4)]
    producer = net.client()
    for turn in range(10):
        for consumer in consumers:
            consumer.send_bytes(net.fetch_frame("t", turn, max_wait_ms=60_000))
        assert all(consumer.silent(0.01) for consumer in consumers)
        producer.send_bytes(net.produce_frame("t", net.batch(b"turn-%d" % turn)))
        producer.receive()
        for consumer in consumers:
            assert b"turn-%d" % turn in bytes(net.fetched(consumer.receive()[1]).records)


def test_a_waiting_fetch_that_names_a_partition_often_is_answered_once(network, eventually):
    net = network()
    net.topic("t")
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 25,
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic="t", partitions=[partition] * 2000)],
    )
    waiting, producing = [net.client() for _ in range(3)], net.client()
    for client in waiting:
        client.send(request.encode(12), key=1, version=12)
    eventually(lambda: sum(info["in_flight"] for info in net.server.connections()) == 3)
    waiting.pop().close()
    eventually(lambda: len(net.server.connections()) == 3)
    producing.send_bytes(net.produce_frame("t", net.batch(b"value")))
    assert net.produced(producing.receive()[1]).error_code == 0
    for client in waiting:
        answers = FetchResponse.decode(client.receive()[1][1:], 12).responses[0].partitions
        assert [(answer.error_code, answer.high_watermark) for answer in answers] == [(0, 1)]
        assert all(answer.records for answer in answers)


def test_a_waiting_fetch_is_answered_empty_when_its_time_is_over(network):
    net = network()
    net.topic("t")
    client = net.client()
    client.send_bytes(net.fetch_frame("t", max_wait_ms=30))
    assert not net.fetched(client.receive()[1]).records


def test_requests_behind_a_waiting_fetch_wait_for_it(network):
    net = network()
    net.topic("t")
    client, producer = net.client(), net.client()
    client.send_bytes(
        net.fetch_frame("t", max_wait_ms=60_000, correlation_id=1) + client.frame(b"behind", correlation_id=2)
    )
    assert client.silent()
    producer.send_bytes(net.produce_frame("t", net.batch(b"v")))
    producer.receive()
    assert client.receive()[0] == 1
    assert client.receive() == (2, b"behind")


def test_a_waiting_fetch_of_a_client_that_goes_away_is_given_up(network, eventually):
    net = network()
    log = net.topic("t")
    clients = [net.client() for _ in range(5)]
    for client in clients:
        client.send_bytes(net.fetch_frame("t", max_wait_ms=60_000))
    eventually(lambda: net.counters()["apis"].get(1, {}).get("requests") == 5)
    for client in clients:
        client.close()
    eventually(lambda: not net.server.connections())
    log.append_as_leader(net.batch(b"v"))
    assert net.client().ask(b"alive") == b"alive"


def test_a_produce_waits_for_the_in_sync_replicas_and_is_answered_when_they_have_it(network):
    net = network()
    log = net.topic("t", isr=(1, 2))
    client = net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"small"), acks=-1, correlation_id=1))
    assert client.silent()
    log.follower_position(2, 1)
    assert net.produced(client.receive()[1]).error_code == 0
    # Large enough to be handled in the read buffer, which then is the request's; the next request is in the same read.
    client.send_bytes(
        net.produce_frame("t", net.batch(b"L" * 40_000), acks=-1, correlation_id=2)
        + client.frame(b"behind", correlation_id=3)
    )
    assert client.silent()
    other = net.client()
    assert other.ask(b"o" * 50_000) == b"o" * 50_000
    log.follower_position(2, 2)
    assert client.receive()[0] == 2
    assert client.receive() == (3, b"behind")
    client.send_bytes(net.produce_frame("t", net.batch(b"late"), acks=-1, timeout_ms=20, correlation_id=4))
    assert net.produced(client.receive()[1]).error_code == 7  # REQUEST_TIMED_OUT


def test_produces_without_acks_have_no_reply(network):
    net = network()
    log = net.topic("t")
    client = net.client()
    client.send_bytes(
        b"".join(net.produce_frame("t", net.batch(b"v"), acks=0) for _ in range(20))
        + client.frame(b"end", correlation_id=9)
    )
    assert client.receive() == (9, b"end")
    assert log.log_end_offset == 20


def test_a_produce_without_acks_that_fails_closes_the_connection(network):
    net = network()
    client = net.client()
    client.send_bytes(net.produce_frame("no such topic", net.batch(b"v"), acks=0))
    assert client.closed_by_broker()


def test_python_decides_what_the_data_plane_may_do(network, eventually):
    net = network()
    net.topic("t")
    net.plane.authorizer_epoch = 1
    asked = []

    def handler(request):
        asked.append((request.ask_kind, request.questions))
        with pytest.raises(RuntimeError, match="asks for a decision"):
            request.reply(b"")
        request.answer_authorization([question[:1] == b"\x04" for question in request.questions])

    net.handler = handler
    client = net.client()
    for _ in range(3):  # asked once, remembered for the connection
        client.send_bytes(net.produce_frame("t", net.batch(b"v")))
        assert net.produced(client.receive()[1]).error_code == 0
    assert asked == [(0, [b"\x04t"])]
    client.send_bytes(net.fetch_frame("t"))
    assert net.fetched(client.receive()[1]).error_code == 29  # TOPIC_AUTHORIZATION_FAILED
    net.plane.authorizer_epoch = 2
    client.send_bytes(net.produce_frame("t", net.batch(b"v")))
    client.receive()
    assert len(asked) == 3


def test_decisions_of_rules_that_changed_meanwhile_are_asked_for_again(network):
    net = network()
    net.topic("t")
    net.plane.authorizer_epoch = 1
    asked = []

    def decide(request):
        asked.append(request.questions)
        if len(asked) == 1:
            # The rules change between the decision and its arrival.
            net.plane.authorizer_epoch = 2
            request.answer_authorization([True] * request.question_count)
        else:
            request.answer_authorization([False] * request.question_count)

    net.handler = decide
    client = net.client()
    client.send_bytes(net.fetch_frame("t"))
    assert net.fetched(client.receive()[1]).error_code == 29  # TOPIC_AUTHORIZATION_FAILED
    assert len(asked) == 2 and asked[0] == asked[1]


def test_a_client_that_pipelines_shares_its_processor(network, eventually):
    """A thousand requests that lie ready do not hold up another connection's until they are all served."""
    net = network(num_network_threads=1)
    log = net.topic("t")
    greedy, modest = net.client(), net.client()
    modest.send_bytes(net.fetch_frame("t", 1 << 40))
    modest.receive()

    def id_of(client):
        port = client.socket.getsockname()[1]
        return next(info["id"] for info in net.server.connections() if info["peer_port"] == port)

    def bytes_in(client):
        return next(info["bytes_in"] for info in net.server.connections() if info["id"] == id_of(client))

    def round_of_requests():
        waiting = net.fetch_frame("t", log.log_end_offset, max_wait_ms=60_000)
        empty = net.fetch_frame("t", 1 << 40)
        many = 60_000 // len(empty)
        parked = bytes_in(greedy) + len(waiting)
        greedy.send_bytes(waiting + empty * many)
        # The broker takes what one recv() gives; what the kernel had not passed on by then stays in the socket.
        eventually(lambda: bytes_in(greedy) >= parked)
        net.plane.request_log_level = 1
        modest.send_bytes(net.produce_frame("t", net.batch(b"wakes the greedy one")))
        modest.receive()
        for _ in range(20):
            modest.send_bytes(net.fetch_frame("t", 1 << 40))
            modest.receive()
        for _ in range(many + 1):
            greedy.receive()
        net.plane.request_log_level = 0
        order = net.logged_requests[:]
        net.logged_requests.clear()
        theirs = [index for index, each in enumerate(order) if each == id_of(greedy)]
        # Too few of them are logged where they were served before the log was on.
        return len(theirs) > 1 and id_of(modest) in order[theirs[1] : theirs[-1]]

    id_of(greedy)
    assert any(round_of_requests() for _ in range(400))


def test_decisions_may_be_given_bit_by_bit_and_the_last_lets_the_request_go_on(network, eventually):
    net = network()
    for topic in ("a", "b", "c"):
        net.topic(topic)
    net.plane.authorizer_epoch = 1
    requests = collect(net)
    client = net.client()
    client.send_bytes(net.fetch_frame("a", more=["b", "c"]))
    request = eventually(lambda: requests).pop()
    assert request.question_count == 3
    assert request.questions_between(1, 9) == request.questions[1:] == [b"\x03b", b"\x03c"]
    request.answer_authorization([True])
    request.answer_authorization([])
    with pytest.raises(ValueError, match="has 3 questions, not more"):
        request.answer_authorization([True, False, True])
    assert request.questions_between(0, 3), "the request has not gone on"
    request.answer_authorization([False, True])
    with pytest.raises(RuntimeError, match="was answered already"):
        request.answer_authorization([True])
    assert (request.question_count, request.questions_between(0, 3)) == (0, [])
    answered = FetchResponse.decode(client.receive()[1][1:], 12).responses
    assert {each.topic: each.partitions[0].error_code for each in answered} == {"a": 0, "b": 29, "c": 0}


def test_an_ask_whose_client_goes_away_can_still_be_answered(network, eventually):
    net = network()
    net.topic("t")
    net.plane.authorizer_epoch = 1
    requests = collect(net)
    client = net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"x" * 20_000)))
    request = eventually(lambda: requests).pop()
    client.reset()
    eventually(lambda: not net.server.connections())
    assert request.questions
    request.answer_authorization([True] * request.question_count)
    del request
    net.handler = net.echo
    assert net.client().ask(b"alive") == b"alive"


def test_a_worker_looks_into_records_when_the_topic_wants_it(network, eventually):
    net = network()
    log = net.topic("t", compression_type="gzip")
    net.topic("refused", compression_type="gzip")
    good = net.batch(b"v" * 10)

    def handler(request):
        assert request.ask_kind == 1
        index = int(request.questions[0])
        log_id, topic, partition, records = request.records_to_validate(index)
        assert partition == 0 and records[17:] and log_id > 0
        if topic == "refused":
            request.refuse_records(index, 87, "no such record", [0])
        else:
            request.accept_records(index)
        request.resume()

    net.handler = handler
    client = net.client()
    client.send_bytes(net.produce_frame("t", good))
    assert net.produced(client.receive()[1]).error_code == 0
    assert log.log_end_offset == 1
    client.send_bytes(net.produce_frame("refused", good))
    partition = net.produced(client.receive()[1])
    assert partition.error_code == 87 and "no such record" in (partition.error_message or "")


def hold(net):
    """From here on replies of the test's thread wait for each other; made an end of by the function that this gives."""
    channel = net.server.request_channel
    channel.hold_replies()
    return channel.let_go_of_replies


def test_held_replies_go_out_when_they_are_let_go_of(network, eventually):
    net = network()
    requests = collect(net)
    clients = [net.client() for _ in range(4)]
    for client in clients:
        client.send(b"held")
    eventually(lambda: len(requests) == 4)
    let_go = hold(net)
    try:
        for request in requests:
            request.reply(request.body)
        assert all(client.silent() for client in clients)
    finally:
        let_go()
    assert [client.receive()[1] for client in clients] == [b"held"] * 4
    requests.clear()
    clients[0].send(b"again")
    eventually(lambda: requests).pop().reply(b"not held")
    assert clients[0].receive()[1] == b"not held"


def test_of_sixteen_held_replies_none_waits_any_longer(network, eventually):
    net = network(num_network_threads=1)
    requests = collect(net)
    clients = [net.client() for _ in range(17)]
    for number, client in enumerate(clients):
        client.send(correlation_id=number)
    eventually(lambda: len(requests) == 17)
    requests.sort(key=lambda request: request.correlation_id)
    let_go = hold(net)
    try:
        for request in requests[:15]:
            request.reply(b"")
        assert all(client.silent(0.01) for client in clients)
        requests[15].reply(b"")
        assert [client.receive()[0] for client in clients[:16]] == list(range(16))
        requests[16].reply(b"")
        assert clients[16].silent()
    finally:
        let_go()
    assert clients[16].receive()[0] == 16


def test_another_threads_replies_do_not_wait_for_the_held_ones(network, eventually):
    net = network(num_network_threads=1)
    requests = collect(net)
    held, other = net.client(), net.client()
    held.send(b"held", correlation_id=1)
    other.send(b"other", correlation_id=2)
    eventually(lambda: len(requests) == 2)
    requests.sort(key=lambda request: request.correlation_id)
    let_go = hold(net)
    try:
        requests[0].reply(b"held")
        assert held.silent()
        thread = threading.Thread(target=requests[1].reply, args=(b"other",))
        thread.start()
        thread.join()
        assert other.receive()[1] == b"other"
    finally:
        let_go()
    assert held.receive()[1] == b"held"


def test_more_requests_at_once_than_the_control_loop_is_woken_for(network):
    """A network thread finds all of them in one turn or in a few; none may be left behind without a signal."""
    net = network(num_network_threads=1)
    clients = [net.client() for _ in range(100)]
    for _ in range(20):
        for number, client in enumerate(clients):
            client.send(correlation_id=number)
        assert [client.receive()[0] for client in clients] == list(range(100))
