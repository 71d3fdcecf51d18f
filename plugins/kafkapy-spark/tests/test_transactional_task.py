"""What a task does around its rows: it checks its driver, gets a producer, and leaves a transaction open or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafkapy_spark import transactional_task
from kafkapy_spark.decisions import Past
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import Meaning, SinkPlan
from kafkapy_spark.transactional_task import _initialized, _initialized_with, _write, write_task

from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import (
    KafkaError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)

DRIVER = PreparedTxnState(7, 3, 2)
TIMEOUT, TWO_PHASES = "transaction.timeout.ms", "transaction.two.phase.commit.enable"


class Producer:
    """Keeps what it is told; fails where a test says so."""

    def __init__(self, **fails: BaseException) -> None:
        self.fails = fails
        self.calls: list[Any] = []

    def _call(self, name: str, *given: Any) -> Any:
        self.calls.append((name, *given))
        if name in self.fails:
            raise self.fails[name]
        return PreparedTxnState(8, 4, 2)

    def init_transactions(self) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def prepare_transaction(self) -> Any:
        return self._call("prepare")

    def abort_transaction(self) -> None:
        self._call("abort")

    def close(self, timeout: float) -> None:
        self._call("close", timeout)


def plan(**fields: Any) -> SinkPlan:
    return SinkPlan("s", DRIVER, 5000, **fields)


@pytest.mark.parametrize(
    ("given", "known", "refused", "tried", "after"),
    [
        ({}, None, None, [True], True),
        ({}, True, None, [True], True),
        ({}, False, None, [False], False),
        ({}, None, TransactionalIdAuthorizationFailedError("no"), [True, False], False),
        ({}, None, UnsupportedVersionError("old"), [True, False], False),
        ({TIMEOUT: "7000"}, None, None, [False], None),
        ({TIMEOUT: "7000"}, True, None, [False], True),
        ({TWO_PHASES: "true"}, None, None, [True], True),
        ({TWO_PHASES: "true"}, None, UnsupportedVersionError("old"), [True], None),
        ({TWO_PHASES: "false"}, None, None, [False], None),
    ],
)
def test_transactions_have_no_timeout_where_the_brokers_allow_that(
    given: dict[str, str],
    known: bool | None,
    refused: KafkaError | None,
    tried: list[bool],
    after: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    def initialized_with(options: Any, schema: Any, kafka: dict[str, str], transactional_id: str) -> Any:
        made.append((kafka, transactional_id))
        if refused is not None and TWO_PHASES in kafka:
            raise refused
        return "writer"

    monkeypatch.setattr(transactional_task, "_initialized_with", initialized_with)
    session: Any = SimpleNamespace(two_phases=known)
    options = SinkOptions({"acks": "all", **given})
    if refused is not None and given:
        with pytest.raises(UnsupportedVersionError):
            _initialized(session, options, None, plan(), "s-1")
    else:
        assert _initialized(session, options, None, plan(), "s-1") == "writer"
    assert made == [
        ({"acks": "all", **({TWO_PHASES: "true"} if two_phases else {TIMEOUT: "5000"})}, "s-1") for two_phases in tried
    ]
    assert session.two_phases is after


@pytest.mark.parametrize("error", [None, ProducerFencedError("x"), KeyboardInterrupt()])
def test_a_producer_that_cannot_begin_is_closed_at_once(
    error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(**({} if error is None else {"init": error}))
    made: list[Any] = []

    def writer(options: Any, schema: Any, *, transactional_id: str) -> Any:
        made.append((options.kafka, schema, transactional_id))
        return SimpleNamespace(producer=producer)

    monkeypatch.setattr(transactional_task, "RecordWriter", writer)
    if error is None:
        assert _initialized_with(SinkOptions({}), "schema", {"a": "b"}, "s-1").producer is producer
        assert producer.calls == [("init",)]
    else:
        with pytest.raises(type(error)):
            _initialized_with(SinkOptions({}), "schema", {"a": "b"}, "s-1")
        assert producer.calls == [("init",), ("close", 0)]
    assert made == [({"a": "b"}, "schema", "s-1")]


@pytest.mark.parametrize(
    ("fails", "calls", "raised"),
    [
        ({}, ["begin", "write", "prepare"], None),
        ({"write": ValueError("x")}, ["begin", "write", "abort"], ValueError),
        ({"write": KeyboardInterrupt()}, ["begin", "write", "abort"], KeyboardInterrupt),
        ({"prepare": ValueError("x")}, ["begin", "write", "prepare", "abort"], ValueError),
        ({"write": ValueError("x"), "abort": KafkaError("y")}, ["begin", "write", "abort"], ValueError),
        ({"begin": KafkaError("x")}, ["begin"], KafkaError),
    ],
)
def test_a_transaction_is_left_open_or_aborted(
    fails: dict[str, BaseException], calls: list[str], raised: type[BaseException] | None
) -> None:
    producer = Producer(**fails)

    def write(batches: Any) -> Any:
        producer._call("write")
        return SimpleNamespace(rows=5, checksum=9)

    writer: Any = SimpleNamespace(producer=producer, write=write, last_place=lambda: ("t", 1, 17))
    if raised is None:
        handle = _write(writer, "name", 6, iter(()))
        assert tuple(handle) == ("name", 6, 8, 4, 2, 5, 9, "t", 1, 17)
    else:
        with pytest.raises(raised):
            _write(writer, "name", 6, iter(()))
    assert [name for (name,) in producer.calls] == calls


class Rows:
    """Stands for a batch of rows."""

    def __init__(self, count: int) -> None:
        self.num_rows = count


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a task does, step by step."""
    done: list[Any] = []

    async def require_current(client: Any, given: SinkPlan) -> None:
        done.append(("current", client, given.sink))

    def run(coroutine: Any) -> None:
        with pytest.raises(StopIteration):
            coroutine.send(None)

    session = SimpleNamespace(client="client", run=run, two_phases=None)

    @contextmanager
    def lent(sink: str, driver: Any, *, reuse: bool) -> Iterator[str]:
        done.append(("lent", sink, driver, reuse))
        yield "name"

    @contextmanager
    def initialized(*given: Any) -> Iterator[str]:
        done.append(("initialized", given[3].sink, given[4]))
        yield "writer"
        done.append("closed")

    def write(writer: Any, name: str, partition: int, batches: Any) -> Any:
        done.append(("write", writer, name, partition, [each.num_rows for each in batches]))
        return SimpleNamespace(rows=5, checksum=9)

    def summed_up(options: Any, schema: Any, batches: Any) -> Any:
        done.append(("summed up", [each.num_rows for each in batches]))
        return SimpleNamespace(rows=4, checksum=8)

    monkeypatch.setattr(transactional_task, "require_current", require_current)
    monkeypatch.setattr(transactional_task.SinkSession, "connected", lambda kafka: session)
    monkeypatch.setattr(transactional_task, "task_ids", SimpleNamespace(lent=lent))
    monkeypatch.setattr(transactional_task, "_initialized", initialized)
    monkeypatch.setattr(transactional_task, "_write", write)
    monkeypatch.setattr(transactional_task, "summed_up", summed_up)
    return done


KNOWN = (Past("q", 4, 3, 7),)


@pytest.mark.parametrize(
    ("given", "batch", "meaning", "done"),
    [
        (plan(), 5, Meaning.NEW, "written"),
        (plan(known=KNOWN), 5, Meaning.NEW, "written"),
        (plan(known=KNOWN), 4, Meaning.COMPARED, "summed up"),
        (plan(known=KNOWN), 3, Meaning.REFUSED, "nothing"),
        (plan(known=KNOWN, lost=frozenset({6})), 4, Meaning.NEW, "replayed"),
        (plan(known=KNOWN, lost=frozenset({2})), 4, Meaning.NEW, "summed up"),
    ],
)
def test_what_a_task_does_with_its_rows(
    given: SinkPlan, batch: int, meaning: Meaning, done: str, steps: list[Any]
) -> None:
    rows: Any = iter([Rows(0), Rows(2), Rows(3)])
    result = write_task(SinkOptions({}), None, given, "q", batch, 6, 0, rows)
    assert result.partition == 6
    if done in ("written", "replayed"):
        assert steps == [
            ("lent", "s", DRIVER, done == "written"),
            ("initialized", "s", "s-name"),
            ("current", "client", "s"),
            ("write", "writer", "name", 6, [2, 3]),
            "closed",
        ]
        assert (result.rows, result.checksum) == (5, 9)
        assert result.handle is not None
    elif done == "summed up":
        assert steps == [("summed up", [0, 2, 3])]
        assert (result.rows, result.checksum, result.handle) == (4, 8, None)
    else:
        assert (steps, result.rows, result.handle) == ([], 0, None)
    if not given.lost:
        assert result.meaning is meaning


def test_a_task_without_rows_asks_nobody(steps: list[Any]) -> None:
    rows: Any = iter([Rows(0), Rows(0)])
    result = write_task(SinkOptions({}), None, plan(), "q", 5, 6, 0, rows)
    assert (steps, result.handle, result.rows) == ([], None, 0)
