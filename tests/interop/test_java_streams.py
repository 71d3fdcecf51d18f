"""Exactly once over kills with Kafka Streams (`exactly_once_v2`) in the middle of the pipeline (make interop-java)."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop.conftest import JAVA
from interop.pipeline import SOURCE, TARGET, Pipeline
from peers.apache_kafka import VERSIONS, PeerMissingError, compiled, streams_jars

pytestmark = JAVA

WORKER = Path(__file__).parent / "java" / "StreamsWorker.java"
STUCK_S = 60
"""Streams restores its store and waits out two session timeouts before it goes on."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_kafka_streams_passes_each_record_on_exactly_once(tmp_path: Path, version: str) -> None:
    try:
        libs = streams_jars(version)
        classes = compiled(WORKER, libs)
    except PeerMissingError as missing:
        pytest.skip(f"Kafka Streams {version}: {missing}")

    def command(bootstrap: str) -> list[str]:
        options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{classes}:{libs}/*"]
        return ["java", *options, "StreamsWorker", bootstrap, SOURCE, TARGET, "streams", str(tmp_path / "state")]

    Pipeline(tmp_path, command, 200_000, kills=10, stuck_s=STUCK_S).run()
