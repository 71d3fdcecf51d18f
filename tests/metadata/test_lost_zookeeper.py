"""A broker whose ZooKeeper goes away serves on, and stops when it is told to."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from peers.apache_kafka import PeerMissingError
from peers.zookeeper import ZooKeeper
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.testing.broker_process import BrokerProcess

END_S = 120
"""Far beyond what a busy machine takes; without a bound, the broker would never end."""


@pytest.mark.parametrize("fate", ["killed", "paused"])
def test_a_broker_without_its_store_serves_what_it_leads_and_stops_in_time(tmp_path: Path, fate: str) -> None:
    try:
        zookeeper = ZooKeeper(tmp_path / "zookeeper")
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with zookeeper:
        keys = {"zookeeper.connect": zookeeper.connect, "zookeeper.session.timeout.ms": "2000"}
        with BrokerProcess(tmp_path / "broker", keys) as broker:
            with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
                producer.send("t", b"before").get(60)
                if fate == "killed":
                    zookeeper.kill()
                else:
                    zookeeper.pause()
                wait_until(lambda: "session is suspended" in broker.log_tail(1 << 20), "the broker notices")
                producer.send("t", b"after").get(60)
            with KafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
                assert [next(consumer).value for _ in range(2)] == [b"before", b"after"]
            assert broker.process is not None
            broker.process.send_signal(signal.SIGTERM)
            assert broker.process.wait(END_S) == 0, broker.log_tail()
            broker.process = None
            said = broker.log_tail(1 << 20)
        assert "it has lost the metadata store" in said
        assert "shut down completed" in said
        if fate == "paused":
            zookeeper.resume()
