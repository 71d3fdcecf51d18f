"""The exactly-once protocol on Apache Kafka: 3.9 with transaction version 1, 4.x with 2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exactly_once_faults import Cluster
from interop.conftest import JAVA
from peers.apache_kafka import VERSIONS, ApacheKafka, PeerMissingError, jars
from test_exactly_once_faults import (
    test_a_driver_that_was_replaced_cannot_commit,
    test_commit_fails_at_every_request_and_spark_aborts,
    test_every_answer_is_lost_once,
    test_schedules_by_chance,
    test_the_driver_dies_at_every_request,
    test_transactions_that_time_out,
)
from test_sink_transactions import (
    cluster,
    test_a_commit_is_rolled_forward_by_hand,
    test_a_transaction_whose_id_is_used_again_is_not_ended,
    test_an_end_by_the_other_protocol,
    test_an_end_is_final_and_may_be_asked_for_again,
    test_decisions_are_read_as_they_were_written,
    test_what_is_lost_is_written_again,
    test_what_is_undecided_is_aborted_by_hand,
)

pytestmark = JAVA

__all__ = [
    "cluster",
    "test_a_commit_is_rolled_forward_by_hand",
    "test_a_driver_that_was_replaced_cannot_commit",
    "test_a_transaction_whose_id_is_used_again_is_not_ended",
    "test_an_end_by_the_other_protocol",
    "test_an_end_is_final_and_may_be_asked_for_again",
    "test_commit_fails_at_every_request_and_spark_aborts",
    "test_decisions_are_read_as_they_were_written",
    "test_every_answer_is_lost_once",
    "test_schedules_by_chance",
    "test_the_driver_dies_at_every_request",
    "test_transactions_that_time_out",
    "test_what_is_lost_is_written_again",
    "test_what_is_undecided_is_aborted_by_hand",
]


class Peer:
    """A broker as tests know ours."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.bootstrap_servers = kafka.bootstrap


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    try:
        jars(release)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    kafka = ApacheKafka(release, tmp_path_factory.mktemp("kafka"), {})
    kafka.start()
    yield Peer(kafka)
    kafka.stop()
    kafka.remove()


@pytest.fixture
def protocol(release: str) -> int:
    """What the release's clients follow."""
    return 2 if release == "4.x" else 0


@pytest.fixture
def spark(broker: Peer) -> Iterator[Cluster]:
    made = Cluster(broker.bootstrap_servers)
    yield made
    made.close()
