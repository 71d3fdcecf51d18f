"""A cluster that cannot be reached: one attempt of bootstrap.timeout.ms, one message, no frames of ours."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.errors import NoBrokersAvailableError

pytest.importorskip("pyspark")


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address where nobody listens and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("streaming", [False, True])
def test_it_is_one_message(nowhere: str, streaming: bool, caplog: pytest.LogCaptureFixture) -> None:
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.reader import KafkapyReader
    from kafkapy_spark.schema import source_schema
    from kafkapy_spark.stream_reader import KafkapyStreamReader

    given = {
        "kafka.bootstrap.servers": nowhere,
        "kafka.bootstrap.timeout.ms": "400",
        "kafka.retry.backoff.max.ms": "50",
        "kafka.reconnect.backoff.max.ms": "50",
        "subscribe": "t",
    }
    options = SourceOptions.parse(given, streaming=streaming)
    schema = source_schema(False)
    reader: Any = KafkapyStreamReader(options, schema) if streaming else KafkapyReader(options, schema)
    ask: Callable[[], Any] = reader.initialOffset if streaming else reader.partitions
    with caplog.at_level(logging.WARNING), pytest.raises(NoBrokersAvailableError, match=nowhere) as caught:
        ask()
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2, "that of the test and one of ours"
    assert [record.getMessage() for record in caplog.records] == [
        f"bootstrap server ({nowhere}) cannot be reached: connection refused"
    ], "not tried again"
