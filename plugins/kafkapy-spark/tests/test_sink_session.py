"""Sessions of sinks, their names and timeouts, and what their writers do with messages, without a broker."""

from __future__ import annotations

import logging
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from kafkapy_spark import exactly_once, exactly_once_stream, sink_session
from kafkapy_spark.exactly_once import TransactionMessage, log_aborted, log_committed, results_of
from kafkapy_spark.exactly_once_stream import ExactlyOnceStreamWriter
from kafkapy_spark.sink_errors import SinkError
from kafkapy_spark.sink_identity import _longest_timeout_ms, batch_sink, checkpoint_name, stream_sink
from kafkapy_spark.sink_identity import transaction_timeout_ms as timeout_of
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import Meaning, TaskResult
from kafkapy_spark.sink_session import SinkSession

from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import IllegalArgumentError, KafkaError

DRIVER = PreparedTxnState(7, 3, 2)
CONFIG = {"bootstrap.servers": "localhost:1"}


class Background:
    """Stands for the thread of a loop; counts its stops."""

    def __init__(self, name: str) -> None:
        self.name, self.stops, self.foreign = name, 0, False

    def run(self, coroutine: Any) -> Any:
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("it waits")

    def stop(self) -> None:
        self.stops += 1


class Client:
    """Stands for a client; fails to start where a test says so."""

    def __init__(self, kafka: Any) -> None:
        self.kafka, self.closed = kafka, 0

    async def start(self) -> None:
        if "broken" in self.kafka:
            raise KafkaError("no")

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Background]:
    """The threads of the sessions that a test makes."""
    made: list[Background] = []

    def background(name: str) -> Background:
        made.append(Background(name))
        return made[-1]

    monkeypatch.setattr(sink_session, "BackgroundLoop", background)
    monkeypatch.setattr(sink_session, "TransactionClient", Client)
    monkeypatch.setattr(sink_session, "_open", {})
    return made


def test_a_session_is_closed_with_its_thread(loops: list[Background]) -> None:
    with SinkSession(CONFIG) as session:
        assert (session.timeout_ms, session.two_phases) == (None, None)
        assert loops[0].stops == 0
    client: Any = session.client
    assert (client.closed, loops[0].stops) == (1, 1)
    loops[0].foreign = True
    session.close()
    assert (client.closed, loops[0].stops) == (1, 2)


def test_a_session_that_cannot_start_leaves_no_thread(loops: list[Background]) -> None:
    with pytest.raises(KafkaError, match="no"):
        SinkSession({"broken": "yes"})
    assert [each.stops for each in loops] == [1]


def test_the_last_two_configurations_stay_connected(loops: list[Background]) -> None:
    one = SinkSession.connected({"a": "1", "b": "2"})
    assert SinkSession.connected({"b": "2", "a": "1"}) is one
    two = SinkSession.connected({"a": "2"})
    assert SinkSession.connected({"a": "1", "b": "2"}) is one
    assert [each.stops for each in loops] == [0, 0]
    three = SinkSession.connected({"a": "3"})
    assert [each.stops for each in loops] == [0, 1, 0]  # the one that was not used for longest
    assert SinkSession.connected({"a": "1", "b": "2"}) is one
    assert SinkSession.connected({"a": "3"}) is three
    assert SinkSession.connected({"a": "2"}) is not two
    assert [each.stops for each in loops] == [1, 1, 0, 0]


# --- names and timeouts -------------------------------------------------------------------------------------------


def options(**given: Any) -> SinkOptions:
    return SinkOptions(CONFIG, **given)


def test_names_of_sinks_follow_from_their_options() -> None:
    assert batch_sink(options()) != batch_sink(options())
    assert batch_sink(options()).startswith("kafkapy-spark-")
    assert batch_sink(options(transactional_id_prefix="p")).startswith("p-")
    named = {"txn_app_id": "app", "txn_version": 1}
    assert batch_sink(options(**named)) == batch_sink(options(**named))
    assert batch_sink(options(**named)) != batch_sink(options(**named, topic="t"))
    with_prefix = batch_sink(options(**named, transactional_id_prefix="p"))
    assert with_prefix == batch_sink(options(**named, topic="t", transactional_id_prefix="p"))
    assert len(with_prefix) == len("p-") + 16
    assert stream_sink(options()) is None
    assert stream_sink(options(transactional_id_prefix="p", checkpoint_location="/c")) == "p"
    name = stream_sink(options(checkpoint_location="file:///c/"))
    assert name is not None
    assert name == stream_sink(options(checkpoint_location="/c"))
    assert name != stream_sink(options(checkpoint_location="/c", topic="t"))
    assert len(name) == len("kafkapy-spark-") + 16


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/a/b", "/a/b"),
        ("/a/./b/", "/a/b"),
        ("/a/../b", "/b"),
        ("/../b", "/b"),
        ("/a/../../b", "/b"),
        ("../b", "../b"),
        ("../../b", "../../b"),
        ("a/../../b", "../b"),
        ("a/b/..", "a"),
        (" a ", "a"),
        ("file:/a", "/a"),
        ("file://host/a", "/a"),
        ("hdfs:///a", "/a"),
        ("HDFS://Name/a", "hdfs://name/a"),
        ("s3a://b/a", "s3://b/a"),
        ("s3n://b/a", "s3://b/a"),
        ("s3://b/a", "s3://b/a"),
        ("s3x://b", "s3x://b/"),
    ],
)
def test_a_checkpoint_is_spelled_in_one_way(location: str, name: str) -> None:
    assert checkpoint_name(location) == name


def test_a_timeout_is_asked_for_once() -> None:
    asked: list[Any] = []

    def run(coroutine: Any) -> int:
        coroutine.close()
        asked.append(1)
        return 5000

    session: Any = SimpleNamespace(timeout_ms=None, run=run)
    assert timeout_of(session, SinkOptions({"transaction.timeout.ms": "7000"})) == 7000
    assert (session.timeout_ms, asked) == (None, [])
    assert [timeout_of(session, options()) for _ in range(2)] == [5000, 5000]
    assert (session.timeout_ms, asked) == (5000, [1])


@pytest.mark.parametrize(
    ("found", "timeout_ms"),
    [
        ({"transaction.max.timeout.ms": {"value": "123"}}, 123),
        ({"transaction.max.timeout.ms": {"value": None}}, 900_000),
        ({"transaction.max.timeout.ms": {}}, 900_000),
        ({}, 900_000),
        (None, 900_000),
    ],
)
def test_transactions_last_as_long_as_the_brokers_allow(found: Any, timeout_ms: int) -> None:
    async def brokers() -> dict[int, Any]:
        return {3: None, 2: None}

    async def describe_configs(resources: list[Any], *, config_filter: str) -> Any:
        assert ([each.name for each in resources], config_filter) == (["2"], "all")
        if found is None:
            raise KafkaError("may not")
        return {"broker": {"2": found}}

    session: Any = SimpleNamespace(client=SimpleNamespace(brokers=brokers, describe_configs=describe_configs))
    assert Background("").run(_longest_timeout_ms(session)) == timeout_ms


# --- writers ------------------------------------------------------------------------------------------------------


def result(batch: int = 4, rows: int = 2, meaning: Meaning = Meaning.NEW) -> TaskResult:
    return TaskResult("q", batch, 0, DRIVER, meaning=meaning, rows=rows)


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([], "It: 0 records were committed"),
        ([result(rows=2), result(rows=3)], "It: 5 records were committed"),
        ([result(meaning=Meaning.SKIPPED), result(rows=3)], "It: 5 records were committed"),
        ([result(meaning=Meaning.SKIPPED), result(meaning=Meaning.COMPARED)], "It was written before"),
    ],
)
def test_what_a_commit_says(results: list[TaskResult], said: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkapy.spark")
    log_committed(results, "It")
    assert caplog.messages == [said]


def test_what_an_abort_says(caplog: pytest.LogCaptureFixture) -> None:
    log_aborted("It", True)
    log_aborted("It", False)
    assert caplog.messages == [
        "It has failed after it was decided: its records are committed all the same",
        "It has failed: nothing of it is in Kafka for readers of committed records",
    ]


def test_results_are_those_of_tasks_that_have_succeeded() -> None:
    one = result()
    other: Any = object()
    assert results_of([TransactionMessage(one), None, other]) == [one]


class Driver:
    """Stands for a sink's driver; keeps what it is told."""

    made: list[tuple[Any, ...]] = []
    fails = False

    def __init__(
        self, control: Any, sink: str, *, replay: bool, on_known: str, alone: bool = True, temporary: bool = False
    ) -> None:
        Driver.made.append(("made", control, sink, replay, on_known, alone, temporary))

    def begin(self, timeout_ms: int) -> Any:
        if Driver.fails:
            raise KafkaError("no broker")
        Driver.made.append(("begin", timeout_ms))
        return f"plan of {timeout_ms}"

    def commit(self, results: Any) -> Any:
        Driver.made.append(("commit", results))

    def abort(self, *given: Any) -> Any:
        Driver.made.append(("abort", *given))
        return True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the drivers of a test are told."""
    session = SimpleNamespace(control="control", run=lambda outcome: outcome, timeout_ms=5000)
    for module in (exactly_once, exactly_once_stream):
        monkeypatch.setattr(module, "SinkDriver", Driver)
        monkeypatch.setattr(module.SinkSession, "connected", lambda kafka: session)
    monkeypatch.setattr(Driver, "made", [])
    monkeypatch.setattr(Driver, "fails", False)
    return Driver.made


def test_a_batch_write_begins_with_its_plan(told: list[tuple[Any, ...]]) -> None:
    given = options(txn_app_id="app", txn_version=3, transactional_id_prefix="p", on_lost_transaction="replay")
    writer = exactly_once.ExactlyOnceWriter(given, None)  # type: ignore[arg-type]
    sink = batch_sink(given)
    made = ("made", "control", sink, True, given.on_known, False, False)
    assert told == [made, ("begin", 5000)]
    assert (writer._query, writer._batch, writer._plan) == ("app", 3, "plan of 5000")
    told.clear()
    writer.commit([TransactionMessage(result()), None])
    writer.abort([TransactionMessage(result())])
    assert told == [made, ("commit", [result()]), made, ("abort", [result()], "plan of 5000")]
    plain = exactly_once.ExactlyOnceWriter(options(), None)  # type: ignore[arg-type]
    assert (plain._query, plain._batch) == (plain._sink, 0)
    assert told[-2][3] is False
    assert told[-2][6] is True, "no driver comes to its sink again"


def test_a_streaming_write_begins_when_it_is_sent_to_the_tasks(told: list[tuple[Any, ...]]) -> None:
    with pytest.raises(IllegalArgumentError, match="needs the option transactionalIdPrefix"):
        ExactlyOnceStreamWriter(options(), None)  # type: ignore[arg-type]
    given = options(transactional_id_prefix="p")
    writer = ExactlyOnceStreamWriter(given, None)  # type: ignore[arg-type]
    assert (told, writer._plan) == ([], None)
    Driver.fails = True
    with pytest.raises(pickle.PicklingError, match="KafkaError: no broker"):
        pickle.dumps(writer)
    Driver.fails = False
    told.clear()
    made = ("made", "control", "p", False, given.on_known, True, False)
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(writer))
        assert copy._plan == "plan of 5000"
    assert told == [made, ("begin", 5000)]
    told.clear()
    writer.commit([TransactionMessage(result()), None], 4)
    with pytest.raises(SinkError, match="results of another batch came to the commit of batch 5"):
        writer.commit([TransactionMessage(result(5)), TransactionMessage(result())], 5)
    writer.abort([TransactionMessage(result())], 4)
    assert told == [made, ("commit", [result()]), made, ("abort", [result()])]


def test_a_task_needs_to_know_its_batch(told: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    properties: dict[str, str] = {}
    context = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 6, taskAttemptId=lambda: 8)
    for module in (exactly_once, exactly_once_stream):
        monkeypatch.setattr(module.TaskContext, "get", lambda: context)
    written: list[tuple[Any, ...]] = []
    monkeypatch.setattr(exactly_once, "write_task", lambda *given: written.append(given) or result())
    given = options(transactional_id_prefix="p")
    writer = ExactlyOnceStreamWriter(given, None)  # type: ignore[arg-type]
    pickle.dumps(writer)
    for known in ({}, {"sql.streaming.queryId": "q"}, {"streaming.sql.batchId": "4"}):
        properties.clear()
        properties.update(known)
        with pytest.raises(SinkError, match="does not say which batch of which query"):
            writer.write(iter(()))
    properties["sql.streaming.queryId"] = "q"
    rows: Any = iter(())
    assert writer.write(rows) == TransactionMessage(result())
    assert written == [(given, None, "plan of 5000", "q", 4, 6, 8, rows)]
