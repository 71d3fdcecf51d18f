"""What the exactly-once sink is made of: handles, the control topic, lost transactions, and kafkapy-spark txn."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from exactly_once_faults import PARTITIONS, TIMEOUT_MS, Cluster, Query, read_committed
from kafkapy_spark.cli import main
from kafkapy_spark.control_topic import CONTROL_TOPIC, ControlTopic
from kafkapy_spark.decisions import Decision, Handle, Past, SinkState
from kafkapy_spark.sink_identity import batch_sink, stream_sink, transaction_timeout_ms
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import Meaning
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.transactions import OpenTransaction, TransactionClient
from kafkapy_spark.two_phase_commit import (
    LostTransactionError,
    SinkError,
    SinkPlan,
    SupersededError,
    TaskResult,
)
from sink_rows import Rows
from sink_rows import cluster as cluster

from kafkapy import KafkaConsumer, testing
from kafkapy.admin import ConfigResource, ConfigResourceType, TransactionState
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import (
    ConcurrentTransactionsError,
    ErrorCode,
    InvalidTxnStateError,
    NotCoordinatorError,
    UnsupportedVersionError,
)
from kafkapy.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.produce import ProduceResponse
from kafkapy.types import CoordinatorType, TopicPartition

QUERY = "query"


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker(auto_create_topics_enable=False) as started:
        yield started


def begun(cluster: Cluster, name: str, value: bytes = b"x") -> OpenTransaction:
    """An open transaction with a record."""
    state = cluster.run(cluster.client.initialize(name, TIMEOUT_MS))
    transaction = OpenTransaction(name, state)
    cluster.run(cluster.client.append(TopicPartition(cluster.topic, 0), {value: value}, transaction))
    return transaction


def state_of(client: TransactionClient, transaction: OpenTransaction) -> Any:
    async def describe() -> TransactionState:
        found = await client.describe_transactions([transaction.transactional_id])
        return found[transaction.transactional_id].state

    return describe()


def end(cluster: Cluster, transaction: OpenTransaction, *, committed: bool) -> bool:
    return cluster.run(cluster.client.end(transaction, committed=committed)) is not None


# --- transactions -----------------------------------------------------------------------------------------------------


def test_an_end_is_final_and_may_be_asked_for_again(cluster: Cluster, protocol: int) -> None:
    kept, gone = begun(cluster, f"{cluster.topic}-kept"), begun(cluster, f"{cluster.topic}-gone")
    for _ in range(3):
        assert end(cluster, kept, committed=True)
        assert end(cluster, gone, committed=False)
    assert not end(cluster, kept, committed=False)
    assert not end(cluster, gone, committed=True)
    assert sum(read_committed(cluster.bootstrap, cluster.topic, PARTITIONS).values()) == 1


def test_a_transaction_whose_id_is_used_again_is_not_ended(cluster: Cluster, protocol: int) -> None:
    """Neither by whom it was begun, nor by whom it was found."""
    name = f"{cluster.topic}-0"
    before = begun(cluster, name)
    [found] = cluster.run(cluster.query().driver().client.find_open(re.compile(name)))
    assert found == before
    after = begun(cluster, name)
    for each in (before, found):
        assert not end(cluster, each, committed=True)
        assert not end(cluster, each, committed=False)
    assert cluster.run(cluster.client.open_descriptions([before, after])).keys() == {after}
    assert end(cluster, after, committed=False)
    cluster.queries.clear()


@pytest.mark.parametrize("version", [0, 1])
def test_an_end_by_the_other_protocol(cluster: Cluster, version: int) -> None:
    """A transaction is ended as it was begun, whatever the cluster's feature says by then."""
    name = f"{cluster.topic}-old"
    state = cluster.run(cluster.client.initialize(name, TIMEOUT_MS))._replace(transaction_version=version)
    old = OpenTransaction(name, state)
    cluster.run(cluster.client.append(TopicPartition(cluster.topic, 0), {b"x": b"x"}, old))
    for _ in range(2):
        assert cluster.run(cluster.client.end(old, committed=True)) == state
    assert cluster.run(cluster.client.current(name)) == (state.producer_id, state.producer_epoch)


def test_who_a_producer_is_behind_an_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who the coordinator says; who it was, where that says nothing."""
    client, names = cluster.client, [f"{cluster.topic}-told", f"{cluster.topic}-not"]
    told, untold = (begun(cluster, name) for name in names)
    after = cluster.run(client.end(told, committed=True))
    assert after == (*cluster.run(client.current(names[0])), 2) and after != told.state
    send = client.send

    async def silent(*request: Any, **versions: Any) -> Any:
        response = await send(*request, **versions)
        if isinstance(response, EndTxnResponse):
            response.producer_id = response.producer_epoch = -1
        return response

    monkeypatch.setattr(client, "send", silent)
    assert cluster.run(client.end(untold, committed=True)) == untold.state


def test_a_coordinator_that_would_not_end_a_transaction_as_it_was_begun(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an older release, amid an upgrade: it would keep the epoch, and is not asked."""
    client, transaction = cluster.client, begun(cluster, f"{cluster.topic}-0")
    for connection in client.network._connections.by_node.values():
        monkeypatch.setitem(connection.api_versions, EndTxnRequest.API_KEY, (0, 4))
    with pytest.raises(UnsupportedVersionError, match="EndTxn is needed in versions 5 to"):
        cluster.run(client.end(transaction, committed=True))
    assert cluster.run(client.open_descriptions([transaction])).keys() == {transaction}
    monkeypatch.undo()
    assert end(cluster, transaction, committed=True)


@pytest.mark.parametrize("moved", [False, True], ids=["busy", "moved"])
def test_the_coordinator_is_looked_up_again_only_when_it_may_be_another(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    """One that is busy with the end before is asked again as it is."""
    client, requests = cluster.client, list[str]()
    error = NotCoordinatorError if moved else ConcurrentTransactionsError
    transaction = begun(cluster, f"{cluster.topic}-0")
    send = client.send

    async def first_refused(node: int, request: Any, *given: Any, **versions: Any) -> Any:
        requests.append(type(request).__name__)
        if len(requests) == 1:
            raise error
        return await send(node, request, *given, **versions)

    looked_up: list[str] = []
    invalidate = client.lookup.invalidate

    def invalidated(key: str, kind: CoordinatorType) -> None:
        looked_up.append(key)
        invalidate(key, kind)

    monkeypatch.setattr(client, "send", first_refused)
    monkeypatch.setattr(client.lookup, "invalidate", invalidated)
    assert end(cluster, transaction, committed=True)
    assert requests[:2] == ["EndTxnRequest"] * 2
    assert looked_up == [transaction.transactional_id] * moved


def test_records_have_the_time_of_their_append(cluster: Cluster) -> None:
    partition = TopicPartition(cluster.topic, 0)
    before_ms = time.time() * 1000
    cluster.run(cluster.client.append(partition, {b"k": b"v"}))
    after_ms = time.time() * 1000
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        record = next(consumer)
    assert (record.key, record.value) == (b"k", b"v")
    assert before_ms - 1 <= record.timestamp <= after_ms


def test_an_append_that_the_leader_has_from_an_earlier_attempt(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset is not known any more; any other error is raised."""
    client, partition = cluster.client, TopicPartition(cluster.topic, 0)
    send = client.send

    def answering(code: ErrorCode) -> Any:
        async def answered(*request: Any, **versions: Any) -> Any:
            response = await send(*request, **versions)
            if isinstance(response, ProduceResponse):
                [result] = response.responses[0].partition_responses
                result.error_code, result.error_message, result.base_offset = code, "as the leader puts it", -1
            return response

        return answered

    monkeypatch.setattr(client, "send", answering(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    assert cluster.run(client.append(partition, {b"k": b"v"})) == -1
    monkeypatch.setattr(client, "send", answering(ErrorCode.INVALID_TXN_STATE))
    with pytest.raises(InvalidTxnStateError, match="as the leader puts it"):
        cluster.run(client.append(partition, {b"k": b"v"}))


def test_names_of_other_sinks_are_left_alone(cluster: Cluster, protocol: int) -> None:
    query = cluster.query()
    query.sink = f"{cluster.topic}.a+b"
    token = "0123456789abcdef"
    other = [f"{query.sink}-1-{token}-3", f"{cluster.topic}xa+b-{token}-3", f"{query.sink}-{token}"]
    names = [f"{query.sink}-{token}-3", *other]
    open_ = [begun(cluster, name) for name in names]
    cluster.run(query.driver().begin(TIMEOUT_MS))
    states = [cluster.run(state_of(cluster.client, each)) for each in open_]
    assert states[0] in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    assert states[1:] == [TransactionState.ONGOING] * 3
    for each in open_:
        end(cluster, each, committed=False)


# --- the control topic ------------------------------------------------------------------------------------------------


def decision(driver: PreparedTxnState, batch: int = 0, *handles: Handle) -> Decision:
    return Decision(QUERY, batch, driver.producer_id, driver.producer_epoch, 2, handles)


async def at_once() -> float:
    """No reason not to decide."""
    return 60.0


def decided(cluster: Cluster, sink: str, batch: int) -> Decision:
    """Writes a decision."""

    async def work() -> Decision:
        control = ControlTopic(cluster.client)
        await control.ensure()
        driver = await cluster.client.initialize(f"{sink}-driver", TIMEOUT_MS)
        made = decision(driver, batch, Handle("x-3", 0, 7, 8, 2, 100, 5, "t", 1, 17))
        assert await control.decide(sink, OpenTransaction(f"{sink}-driver", driver), made, at_once) is not None
        return made

    out: Decision = cluster.run(work())
    return out


def test_decisions_are_read_as_they_were_written(cluster: Cluster, protocol: int) -> None:
    sink = cluster.topic
    control = ControlTopic(cluster.client)
    cluster.run(control.ensure())
    assert cluster.run(control.read(sink)) == SinkState()
    for batch in range(3):
        made = decided(cluster, sink, batch)
        for reader in (control, ControlTopic(cluster.client)):
            cluster.run(reader.find())
            assert cluster.run(reader.read(sink)).unfinished == made
        cluster.run(control.done(sink, made))
        state = cluster.run(control.read(sink))
        assert (state.decision, state.unfinished) == (made, None)
    assert cluster.run(control.read_all())[sink].decision == made
    cluster.run(control.forget([sink]))
    assert cluster.run(control.read(sink)) == SinkState()


def test_decisions_are_read_by_the_first_fetch_with_isolation_levels(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = decided(cluster, cluster.topic, 0)
    for connection in cluster.client.network._connections.by_node.values():
        monkeypatch.setitem(connection.api_versions, FetchRequest.API_KEY, (0, 4))
    control = ControlTopic(cluster.client)
    cluster.run(control.find())
    assert cluster.run(control.read(cluster.topic)).decision == made


def test_a_driver_that_dies_amid_a_decision_has_decided_nothing(cluster: Cluster, protocol: int) -> None:
    """And what others have decided behind that is read as soon as its transaction has ended."""
    sink = cluster.topic
    made = decided(cluster, sink, 0)
    control = ControlTopic(cluster.client)
    cluster.run(control.find())
    driver = OpenTransaction(f"{sink}-driver", cluster.run(cluster.client.initialize(f"{sink}-driver", TIMEOUT_MS)))
    later = decision(driver.state, 1)
    cluster.run(cluster.client.append(control.partition_of(sink), {sink.encode(): later.to_json()}, driver))

    async def read_while_open() -> SinkState:
        reading = asyncio.ensure_future(control.read(sink))
        await asyncio.sleep(0.2)
        assert not reading.done()
        await cluster.client.initialize(f"{sink}-driver", TIMEOUT_MS)
        return await reading

    assert cluster.run(read_while_open()).decision == made


def test_a_control_topic_that_is_made_anew(cluster: Cluster, broker: testing.Broker) -> None:
    """What was read of the old one is forgotten."""
    sink = cluster.topic
    decided(cluster, sink, 0)
    control = ControlTopic(cluster.client)
    cluster.run(control.find())
    assert cluster.run(control.read(sink)).decision is not None
    broker.delete_topic(CONTROL_TOPIC)
    cluster.run(control.ensure())
    assert cluster.run(control.read(sink)) == SinkState()


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_control_topic_that_forgets(policy: str) -> None:
    """Somebody has made it otherwise than a sink does, or changed it."""
    with testing.Broker(auto_create_topics_enable=False) as broker:
        broker.create_topic(CONTROL_TOPIC, 1, {"cleanup.policy": policy})
        made = Cluster(broker.bootstrap_servers)
        control = ControlTopic(made.client)
        for _ in range(2):
            with pytest.raises(
                SinkError, match=f"has cleanup.policy={policy}, and has to have compact: .* `kafkapy co"
            ):
                made.run(control.ensure())
        resource = ConfigResource(ConfigResourceType.TOPIC, CONTROL_TOPIC, {"cleanup.policy": "compact"})
        made.run(made.client.alter_configs([resource]))
        made.run(control.ensure())
        made.close()


# --- plans ------------------------------------------------------------------------------------------------------------


def test_which_batches_are_known(caplog: pytest.LogCaptureFixture) -> None:
    known = (Past(QUERY, 5, 10, 7), Past("before", 3, 1, 1))
    plan = SinkPlan("s", PreparedTxnState(1, 18, 2), TIMEOUT_MS, known)
    new, compared, refused = Meaning.NEW, Meaning.COMPARED, Meaning.REFUSED
    assert [plan.meaning(QUERY, batch) for batch in (4, 5, 6)] == [refused, compared, new]
    assert [plan.meaning("before", batch) for batch in (2, 3, 4)] == [refused, compared, new]
    assert plan.meaning("another", 5) is new
    written = replace(plan, on_known="write")
    assert [written.meaning(QUERY, batch) for batch in (4, 5, 6)] == [new, Meaning.NEW_IF_OTHER, new]
    assert not caplog.messages
    skipping = replace(plan, on_known="skip")
    assert [skipping.meaning(QUERY, batch) for batch in (4, 5, 6)] == [Meaning.SKIPPED, Meaning.SKIPPED, new]
    assert [each.split(":")[0] for each in caplog.messages] == ["Batch 4 of query is skipped"]


def test_names_of_streaming_sinks() -> None:
    named = SinkOptions({}, topic="t", transactional_id_prefix="p", checkpoint_location="/c")
    assert stream_sink(named) == "p"
    places = [("/c", "t"), ("/c/", "t"), ("/c", "u"), ("/d", "t"), ("/c", None)]
    names = [stream_sink(SinkOptions({}, topic=topic, checkpoint_location=place)) for place, topic in places]
    assert names[0] == names[1] and len(set(names)) == 4
    assert stream_sink(SinkOptions({}, topic="t")) is None
    # Another release must find what was decided under a name.
    assert names[0] == "kafkapy-spark-e7cf7cd41102b776"


def test_names_of_batch_sinks() -> None:
    def name(topic: str, app: str | None, prefix: str | None = None) -> str:
        return batch_sink(SinkOptions({}, topic=topic, txn_app_id=app, transactional_id_prefix=prefix))

    assert name("t", None) != name("t", None)
    assert name("t", None, "p").startswith("p-") and name("t", "a", "p").startswith("p-")
    assert name("t", "a") == name("t", "a")
    assert len({name("t", "a"), name("u", "a"), name("t", "b"), name("t", "a", "p")}) == 4
    assert name("t", "a", "p") == name("u", "a", "p")
    assert (name("t", "a"), name("t", "a", "p")) == ("kafkapy-spark-4d58d820d6f462d8", "p-87428fc522803d31")


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_tasks_leave_transactions_open(cluster: Cluster, protocol: int) -> None:
    rows = Rows(cluster)
    first, second = rows.query.rows[0][:1], rows.query.rows[0][1:]
    plan = rows.plan()
    with pytest.raises(RuntimeError, match="the query's own error"):
        rows.task(plan, 0, first, fail=True)
    assert cluster.run(rows.query.driver().find_open()) == []
    results = [rows.task(plan, 0, first), rows.task(plan, 1, []), rows.task(plan, 2, second)]
    assert [(each.rows, each.handle is not None) for each in results] == [(1, True), (0, False), (3, True)]
    assert len(cluster.run(rows.query.driver().find_open())) == 2
    cluster.run(rows.query.driver().commit(results))
    again = rows.plan()
    assert rows.task(again, 0, first).skipped and not rows.task(again, 0, [], batch=1).skipped
    with pytest.raises(SupersededError):
        rows.task(plan, 0, first, batch=1)
    rows.query.done = 1
    cluster.run(rows.query.run_on())
    cluster.check()


def test_a_streaming_writer_commits_and_takes_back(cluster: Cluster, protocol: int) -> None:
    types = pytest.importorskip("pyspark.sql").types
    from kafkapy_spark.exactly_once import TransactionMessage
    from kafkapy_spark.exactly_once_stream import ExactlyOnceStreamWriter

    rows = Rows(cluster)
    driver = rows.query.driver()
    writer = ExactlyOnceStreamWriter(replace(rows.options, transactional_id_prefix=driver.sink), types.StructType())

    def done(number: int) -> list[Any]:
        return [TransactionMessage(rows.task(rows.plan(), 0, [b"%d" % number], number)), None]

    writer.abort(done(0), 0)
    assert cluster.run(driver.find_open()) == []
    with pytest.raises(SinkError, match="results of another batch"):
        writer.commit(done(0), 1)
    writer.commit(done(0), 0)
    writer.abort(done(1), 1)
    assert rows.seen() == [b"0"]
    cluster.queries.clear()


def test_a_task_is_replayed(cluster: Cluster, protocol: int) -> None:
    """Rows in another order have the same checksum; what was committed is not written again."""
    rows = Rows(cluster, onLostTransaction="replay")
    values = rows.query.rows[0]
    plan = rows.plan()
    results = [rows.task(plan, 0, values[:2]), rows.task(plan, 1, values[2:])]
    decided_on = {each.handle.name for each in results if each.handle is not None}
    lose(cluster, rows.query, plan, results)
    plan = rows.plan(replay=True)
    results = [rows.task(plan, 0, values[1::-1]), rows.task(plan, 1, values[:1:-1])]
    assert [each.handle is not None for each in results] == [False, True]
    assert results[1].handle is not None and results[1].handle.name not in decided_on, "it is decided on still"
    cluster.run(rows.query.driver(replay=True).commit(results))
    rows.query.done = 1
    cluster.run(rows.query.run_on())
    cluster.check()


def test_how_long_transactions_may_last() -> None:
    with testing.Broker(transaction_max_timeout_ms=123_456) as broker:
        options = SinkOptions({"bootstrap.servers": broker.bootstrap_servers})
        with SinkSession(options.kafka) as session:
            assert transaction_timeout_ms(session, options) == 123_456
            given = replace(options, kafka={**options.kafka, "transaction.timeout.ms": "7000"})
            assert transaction_timeout_ms(session, given) == 7000


def test_a_timeout_of_ones_own(cluster: Cluster) -> None:
    rows = Rows(cluster, **{"kafka.transaction.timeout.ms": "70000"})
    result = rows.task(rows.plan(), 0, rows.query.rows[0])
    assert result.handle is not None
    name = result.handle.transaction(rows.query.sink).transactional_id
    assert cluster.run(cluster.client.describe_transactions([name]))[name].transaction_timeout_ms == 70_000
    cluster.run(rows.query.run_on())
    cluster.check()


# --- lost transactions ------------------------------------------------------------------------------------------------


def lose(cluster: Cluster, query: Query, plan: SinkPlan | None = None, results: list[TaskResult] | None = None) -> None:
    """A batch of two partitions is decided; the broker ends the second's transaction before it can be committed."""

    async def work() -> None:
        begun = plan or await query.driver().begin(TIMEOUT_MS)
        done = results or await divided(query, begun)
        driver = query.driver()

        async def then_die(decision: Decision) -> list[Handle]:
            raise RuntimeError("dies behind the commit point")

        driver._roll_forward = then_die  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await driver.commit(done)
        assert done[1].handle is not None
        await cluster.client.initialize(done[1].handle.transaction(query.sink).transactional_id, TIMEOUT_MS)

    cluster.run(work())


async def divided(query: Query, plan: SinkPlan, *, otherwise: bool = False) -> list[TaskResult]:
    """The results of the batch's tasks, always of the same rows."""
    rows = query.rows[query.done]
    parts = [rows[:2], rows[2:]] if not otherwise else [rows[2:], rows[:2]]
    return [await query.task(plan, query.done, partition, part) for partition, part in enumerate(parts)]


def test_what_is_lost_is_reported(cluster: Cluster, protocol: int) -> None:
    """At each start of the query, with the batch and the partitions, until somebody accepts it."""
    query = cluster.query()
    lose(cluster, query)
    for _ in range(2):
        with pytest.raises(
            LostTransactionError, match=r"batch 0 of query-of-.* was decided .* its partitions 1 \(2 of 4"
        ):
            cluster.run(query.driver().begin(TIMEOUT_MS))
    result = txn(cluster, "commit", query.sink)
    assert result.exit_code == 1 and json.loads(result.output)[0]["lost_partitions"] == [1]
    assert txn(cluster, "commit", query.sink, "--accept-loss").exit_code == 0
    assert cluster.run(query.driver().begin(TIMEOUT_MS)).meaning(query.name, 0) is Meaning.COMPARED
    found = read_committed(cluster.bootstrap, cluster.topic, PARTITIONS)
    assert sorted(found.elements()) == sorted(query.rows[0][:2])


def test_what_is_lost_is_written_again(cluster: Cluster, protocol: int) -> None:
    """Where the batch is divided as before; not where it is not, and no later batch goes before it."""
    query = cluster.query()
    lose(cluster, query)
    for otherwise in (True, False):
        plan = cluster.run(query.driver(replay=True).begin(TIMEOUT_MS))
        assert plan.lost == {1}
        with pytest.raises(SinkError, match=r"partitions \[1\] of batch 0 of .* are lost"):
            plan.is_replayed(query.name, 1)
        results = cluster.run(divided(query, plan, otherwise=otherwise))
        driver = query.driver(replay=True)
        if otherwise:
            with pytest.raises(SinkError, match="not divided into the same partitions"):
                cluster.run(driver.commit(results))
            cluster.run(driver.abort(results))
        else:
            cluster.run(driver.commit(results))
    query.done = 1
    cluster.run(query.run_on())
    cluster.check()


def test_what_is_lost_is_written_again_after_many_starts(cluster: Cluster, protocol: int) -> None:
    """Tasks that compare what was committed take none of the transactional ids that tell that it was."""
    rows = Rows(cluster, onLostTransaction="replay")
    first, second = rows.query.rows[0][:2], rows.query.rows[0][2:]
    plan = rows.plan()
    lose(cluster, rows.query, plan, [rows.task(plan, 0, first), rows.task(plan, 1, second)])
    for _ in range(4):
        plan = rows.plan(replay=True)
        assert plan.lost == {1}
        rows.task(plan, 0, first)
    plan = rows.plan(replay=True)
    cluster.run(rows.query.driver(replay=True).commit([rows.task(plan, 0, first), rows.task(plan, 1, second)]))
    rows.query.done = 1
    cluster.run(rows.query.run_on())
    cluster.check()


def test_results_of_different_plans(cluster: Cluster) -> None:
    query = cluster.query()

    async def work() -> None:
        old, new = await query.driver().begin(TIMEOUT_MS), await query.driver().begin(TIMEOUT_MS)
        with pytest.raises(SupersededError, match="has begun after"):
            await query.task(old, 0, 0, [b"x"])
        with pytest.raises(SinkError, match="different plans"):
            await query.driver().commit(
                [TaskResult(query.name, 0, 0, old.driver), TaskResult(query.name, 0, 1, new.driver)]
            )
        await query.driver().commit([TaskResult(query.name, 0, 0, new.driver)])
        assert (await query.driver().begin(TIMEOUT_MS)).known == (), "there was nothing to decide on"

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


# --- kafkapy-spark txn ------------------------------------------------------------------------------------------------


def txn(cluster: Cluster, *arguments: str) -> Any:
    given = ["txn", *arguments, "-b", cluster.bootstrap, "--json"]
    return CliRunner().invoke(main, given)


def listed(cluster: Cluster, sink: str) -> Any:
    result = txn(cluster, "list", sink)
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.output)
    return row


def test_a_commit_is_rolled_forward_by_hand(cluster: Cluster, protocol: int) -> None:
    query = cluster.query(1)

    async def die_behind_the_commit_point() -> None:
        plan = await query.driver().begin(TIMEOUT_MS)
        results = await divided(query, plan)
        control = ControlTopic(cluster.client)
        await control.find()
        handles = tuple(each.handle for each in results if each.handle is not None)
        driver = OpenTransaction(f"{query.sink}-driver", plan.driver)
        await control.decide(query.sink, driver, replace(decision(plan.driver, 0, *handles), query=query.name), at_once)

    cluster.run(die_behind_the_commit_point())
    row = listed(cluster, query.sink)
    assert (row["state"], row["batch"], row["rows"], row["tasks"]) == ("unfinished", 0, 4, 2)
    assert [each["decided"] for each in row["open_transactions"]] == [True, True]
    result = txn(cluster, "commit", query.sink)
    assert result.exit_code == 0 and json.loads(result.output)[0]["rows"] == 4
    assert listed(cluster, query.sink)["state"] == "done"
    assert json.loads(txn(cluster, "commit").output) == []
    query.done = 1
    cluster.check()


def test_nothing_is_kept_of_a_write_that_is_finished_by_hand(cluster: Cluster, protocol: int) -> None:
    """One without txnAppId: nobody is going to use its sink again."""
    query = cluster.query(1)
    query.name = query.sink

    async def die_behind_the_commit_point() -> bytes:
        plan = await query.driver(alone=False).begin(TIMEOUT_MS)
        driver = query.driver(alone=False)
        results = await divided(query, plan)

        async def dies(_decision: Decision) -> list[Handle]:
            raise RuntimeError("dies behind the commit point")

        driver._roll_forward = dies  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await driver.commit(results)
        return query.sink.encode()

    key = cluster.run(die_behind_the_commit_point())
    assert {each: value is None for each, value in kept(cluster, key).items()} == {key: False}
    assert txn(cluster, "commit", query.sink).exit_code == 0
    assert kept(cluster, key) == {key: None, b"\0" + key: None}
    query.done = 1
    cluster.check()


def kept(cluster: Cluster, key: bytes) -> dict[bytes, bytes | None]:
    """What compaction keeps of a sink in the control topic: the last value of each key."""
    found: dict[bytes, bytes | None] = {}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed") as consumer:
        places = [TopicPartition(CONTROL_TOPIC, each) for each in consumer.partitions_for_topic(CONTROL_TOPIC) or ()]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(each) < ends[each] for each in places):
            for records in consumer.poll(timeout_ms=100).values():
                found.update({each.key: each.value for each in records if each.key.endswith(key)})
    return found


def test_what_is_undecided_is_aborted_by_hand(cluster: Cluster, protocol: int) -> None:
    query = cluster.query(1)
    plan = cluster.run(query.driver().begin(TIMEOUT_MS))
    results = cluster.run(divided(query, plan))
    row = listed(cluster, query.sink)
    assert (row["state"], row["batch"], len(row["open_transactions"])) == ("undecided", None, 2)
    assert txn(cluster, "commit", query.sink).exit_code == 1
    result = txn(cluster, "abort", query.sink, "--yes")
    assert result.exit_code == 0 and json.loads(result.output) == [{"sink": query.sink, "ended": 2, "open": 0}]
    with pytest.raises(SinkError):
        cluster.run(query.driver().commit(results))
    assert txn(cluster, "list", query.sink).exit_code == 1
    cluster.run(query.run_on())
    cluster.check()


def test_tables_of_sinks(cluster: Cluster) -> None:
    decided(cluster, cluster.topic, 4)
    plain = ["-b", cluster.bootstrap]
    result = CliRunner().invoke(main, ["txn", "list", *plain])
    line = next(line for line in result.output.splitlines() if line.startswith(cluster.topic))
    assert line.split("\t")[1:4] == ["unfinished", QUERY, "4"]
    result = CliRunner().invoke(main, ["txn", "abort", cluster.topic, *plain], input="n\n")
    assert result.exit_code == 1 and f"Abort transactions of {cluster.topic}" in result.output
