"""Which offsets a batch read takes, without Spark around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkapy_spark.data_loss import DataLossError
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.reader import KafkapyReader
from kafkapy_spark.schema import SCHEMA

from kafkapy.errors import IllegalStateError


def planned(broker: Any, topic: str, **options: object) -> list[tuple[int, int, int]]:
    """(partition, start, end) of all that is read."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    given |= {name: str(value) for name, value in options.items()}
    tasks = KafkapyReader(SourceOptions.parse(given, streaming=False), SCHEMA).partitions()
    return sorted((each.partition.partition, each.start, each.end) for task in tasks for each in task.task)


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (20, {"0": 30, "1": -1}, "{}-0 ends at offset 10, before the ending offset 30"),
        (3, {"0": 12, "1": -1}, "{}-0 ends at offset 10, before the ending offset 12"),
    ],
)
def test_offsets_behind_the_end_are_data_loss(
    start: int, end: Any, message: str, topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """A topic made again has fewer records than one knew of: an empty result would hide it."""
    name = topic(2)
    send(name, ["x"] * 10, 0)
    send(name, ["y"], 1)
    options = {
        "startingOffsets": json.dumps({name: {"0": start, "1": -2}}),
        "endingOffsets": end if isinstance(end, str) else json.dumps({name: end}),
    }
    with pytest.raises(DataLossError, match=message.format(name)):
        planned(broker, name, **options)
    rest = [(0, 3, 10)] if start == 3 else []
    assert planned(broker, name, failOnDataLoss=False, **options) == [*rest, (1, 0, 1)]


@pytest.mark.parametrize("fail", [True, False])
def test_a_start_behind_the_end_is_an_error(
    fail: bool, topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 5: whatever failOnDataLoss says."""
    name = topic()
    send(name, ["x"] * 10)
    message = f"The resolved start offset 20 is greater than the resolved end offset 10 for topic {name} partition 0."
    with pytest.raises(IllegalStateError, match=message):
        planned(broker, name, startingOffsets=json.dumps({name: {"0": 20}}), failOnDataLoss=fail)


def test_a_range_may_be_empty(topic: Callable[..., str], send: Callable[..., None], broker: Any) -> None:
    name = topic()
    send(name, ["x"] * 10)
    at_end = json.dumps({name: {"0": 10}})
    assert planned(broker, name, startingOffsets=at_end) == []
    assert planned(broker, name, startingTimestamp=1 << 50, startingOffsetsByTimestampStrategy="latest") == []
