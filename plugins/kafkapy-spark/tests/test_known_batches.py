"""Batches whose number a sink has decided: repeated, of a restored checkpoint, or of another sink."""

from __future__ import annotations

from typing import Any

import pytest
from exactly_once_faults import Cluster
from kafkapy_spark import foreach_batch
from kafkapy_spark.decisions import MAX_EARLIER, Decision, Handle, Past
from kafkapy_spark.sink_errors import MovedError, RewoundError
from kafkapy_spark.sink_identity import checkpoint_name, stream_sink
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import Meaning
from sink_rows import Rows
from sink_rows import cluster as cluster


def values(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


def written(cluster: Cluster) -> Rows:
    """A query that has written batches 0 to 2."""
    rows = Rows(cluster)
    for batch in range(3):
        rows.batch(batch, values(f"{batch}a", f"{batch}b"), values(f"{batch}c"))
    return rows


ALL = [f"{batch}{row}".encode() for batch in range(3) for row in "abc"]


def test_a_batch_is_repeated_with_the_same_rows(cluster: Cluster, protocol: int) -> None:
    """In other partitions and another order. Nothing is written, and Spark knows that the batch is done."""
    rows = written(cluster)
    rows.batch(2, values("2c"), values("2b"), [], values("2a"))
    assert rows.seen() == ALL


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("found", [values("x", "y", "z"), values("2a", "2b"), values("2a", "2b", "2c", "2c"), []])
def test_a_checkpoint_restored_from_a_backup(cluster: Cluster, batch: int, found: list[bytes]) -> None:
    """Its batches have other rows under numbers that were decided: as many, fewer or more."""
    rows = written(cluster)
    plan = rows.plan()
    result = rows.task(plan, 0, found, batch)
    assert result.handle is None and result.skipped
    with pytest.raises(RewoundError, match="ignoreSinkState=true .* ignoreSinkState=skip") as raised:
        rows.commit(result)
    assert f"batch {batch} of {rows.query.name} is not written" in str(raised.value)
    assert not cluster.run(rows.query.driver().abort([result])), "it says that the batch is written"
    assert rows.seen() == ALL
    rows.batch(3, values("3a"))
    assert rows.seen() == [*ALL, b"3a"]


def test_it_is_written_again_where_that_is_wanted(cluster: Cluster, protocol: int) -> None:
    """Once: a batch that is repeated after that has the same rows."""
    rows = written(cluster)
    again = Rows(cluster, ignoreSinkState="true")
    again.query = rows.query
    for _ in range(2):
        again.batch(1, values("new 1"))
    for _ in range(2):
        again.batch(2, values("new 2a"), values("new 2b"))
    again.batch(2, values("new 2b"), values("new 2a"))
    given_up = again.task(again.plan(), 0, values("newer 2"), 2)
    assert not cluster.run(again.query.driver().abort([given_up])), "what was decided has other rows"
    assert cluster.run(rows.query.driver().find_open()) == []
    assert rows.seen() == [*ALL, b"new 1", b"new 2a", b"new 2b"]


def test_it_is_left_out_where_that_is_wanted(cluster: Cluster) -> None:
    rows = written(cluster)
    skipping = Rows(cluster, ignoreSinkState="skip")
    skipping.query = rows.query
    skipping.batch(1, values("new 1"))
    skipping.batch(2, values("new 2"))
    left_out = skipping.task(skipping.plan(), 0, values("new 2"), 2)
    assert cluster.run(skipping.query.driver().abort([left_out])), "it counts as written"
    skipping.batch(3, values("3a"))
    assert rows.seen() == [*ALL, b"3a"]


def test_rows_that_were_not_summed_up(cluster: Cluster) -> None:
    """By the first version of the control topic: their number has to do."""
    text = (
        b'{"version":1,"query":"q","batch":7,"driver":[4,5],"tasks":2,"time_ms":1,'
        b'"handles":[[3,0,1,20,21,2,100,%d],[3,1,0,22,23,2,50,0]]}'
    )
    decision = Decision.from_json(text % 0)
    assert decision.handles[0] == Handle("3-0-1", 0, 20, 21, 2, 100, 0) and decision.handles[0].place is None
    assert decision.handles[0].transaction("s").transactional_id == "s-3-0-1"
    assert decision.past == Past("q", 7, 150, None)
    assert Decision.from_json(text % 9).past == Past("q", 7, 150, 9)


def test_the_micro_batches_of_foreach_batch() -> None:
    """Their numbers are a checkpoint's: unlike versions that somebody counts, they are not skipped in silence."""

    class Frame:
        """Takes what a DataFrameWriter takes."""

        def __init__(self) -> None:
            self.write, self.given = self, dict[str, str]()

        def format(self, _name: str) -> Frame:
            return self

        def mode(self, _name: str) -> Frame:
            return self

        def options(self, **options: str) -> Frame:
            self.given = options
            return self

        def save(self) -> None:
            pass

    def known(**options: str) -> str:
        frame: Any = Frame()
        given = {"kafka.bootstrap.servers": "h:1", "delivery": "exactly-once", **options}
        foreach_batch({**given, "txnAppId": "a"})(frame, 7)
        return SinkOptions.parse(frame.given, streaming=False).on_known

    assert known() == "refuse"
    assert known(ignoreSinkState="skip") == "skip"
    once = {"kafka.bootstrap.servers": "h:1", "delivery": "exactly-once", "txnAppId": "a", "txnVersion": "1"}
    assert SinkOptions.parse(once, streaming=False).on_known == "skip"


# --- several queries, several sinks -----------------------------------------------------------------------------------


def test_queries_that_take_turns_on_a_sink(cluster: Cluster) -> None:
    """What the other has decided meanwhile does not make a sink forget."""
    rows = written(cluster)
    first = rows.query.name
    for number in range(MAX_EARLIER - 1):
        rows.query.name = f"{first}-{number}"
        rows.batch(0, values(f"of {number}"))
    rows.query.name = first
    seen = rows.seen()
    rows.batch(2, values("2a"), values("2b", "2c"))
    with pytest.raises(RewoundError):
        rows.batch(1, values("x"))
    assert rows.seen() == seen
    rows.batch(3, values("3a"))
    rows.query.name = f"{first}-0"
    assert rows.plan().meaning(rows.query.name, 0) is Meaning.COMPARED


def moved(cluster: Cluster, rows: Rows, **options: str) -> Rows:
    """The same query on another sink."""
    other = Rows(cluster, **options)
    other.query.name = rows.query.name
    return other


def test_a_moved_checkpoint(cluster: Cluster, protocol: int) -> None:
    """Its query has another sink than before, and it is not known what the one before has written."""
    rows = written(cluster)
    other = moved(cluster, rows)
    for batch in (2, 3):
        plan = other.plan()
        result = other.task(plan, 0, values("2a"), batch)
        with pytest.raises(MovedError, match=f"transactionalIdPrefix={rows.query.sink} .* ignoreSinkState=true"):
            other.commit(result)
        assert not cluster.run(other.query.driver().abort([result]))
    assert rows.seen() == ALL
    rows.batch(3, values("3a"))
    assert rows.seen() == [*ALL, b"3a"]


def test_a_moved_checkpoint_that_begins_again(cluster: Cluster) -> None:
    """And is moved back later, after the other sink has gone on."""
    rows = written(cluster)
    other = moved(cluster, rows, ignoreSinkState="true")
    other.batch(3, values("3a"))
    staying = moved(cluster, rows)
    staying.query = other.query
    staying.batch(5, values("5a"))
    for batch in (5, 6):
        with pytest.raises(MovedError, match=other.query.sink):
            rows.batch(batch, values("5a"))
    rows.plan()
    assert rows.seen() == [*ALL, b"3a", b"5a"]


def test_applications_that_write_into_several_topics(cluster: Cluster) -> None:
    """Versions of one say nothing of another's."""
    rows = written(cluster)
    other = moved(cluster, rows)
    plan = other.plan()
    other.commit(other.task(plan, 0, values("2a"), 2), alone=False)
    assert rows.seen() == sorted([*ALL, b"2a"])


@pytest.mark.parametrize(
    "location",
    [
        "/checkpoints/x",
        "/checkpoints/x/",
        "file:///checkpoints/x",
        "file:/checkpoints/x",
        "FILE:/checkpoints/x",
        "file://localhost/checkpoints/x",
        "hdfs:///checkpoints/x",
        "/checkpoints//x",
        "/checkpoints/./x",
        "/checkpoints/y/../x/.",
        "/../checkpoints/x",
        " /checkpoints/x ",
    ],
)
def test_spellings_of_a_checkpoint(location: str) -> None:
    assert checkpoint_name(location) == "/checkpoints/x"
    names = {stream_sink(SinkOptions({}, topic="t", checkpoint_location=each)) for each in (location, "/checkpoints/x")}
    assert len(names) == 1


def test_other_checkpoints() -> None:
    """Of other places: they have other names."""
    same = [
        ["s3a://bucket/x", "s3://bucket//x/", "S3N://Bucket/x"],
        ["s3a://other/x"],
        ["hdfs://name:8020/x", "HDFS://name:8020/./x"],
        ["abfss://c@a.dfs.core.windows.net/x"],
        ["/x"],
        ["x", "./x", "x/"],
        ["../x", "./../x"],
        ["/x:y"],
    ]
    names = [{checkpoint_name(each) for each in spelled} for spelled in same]
    assert [len(each) for each in names] == [1] * len(same)
    assert len(set.union(*names)) == len(same)
