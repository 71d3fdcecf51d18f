"""The broker opens no listener that it cannot guard, and says which keys it ignores."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from system.raw_client import RawClient

from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.testing.broker_process import BrokerFailedError, BrokerProcess
from kafkapy.types import SecurityProtocol

IGNORED = re.compile(r"keys that are set have no effect in this broker: ([^\"]*)")
UNKNOWN = re.compile(r"ignores unknown configuration keys: ([^\"]*)")
GROUP_IGNORED = re.compile(r"Configuration keys of group (\S+) have no effect in this broker: ([^\"]*)")
TOPIC_IGNORED = re.compile(r"Topic configuration (\S+) has no effect in this broker; topics that set it: ([^\"]*)")


@pytest.mark.parametrize("protocol", [each for each in SecurityProtocol if each.tls])
def test_a_tls_listener_without_a_keystore_keeps_the_broker_from_starting(
    protocol: SecurityProtocol, tmp_path: Path
) -> None:
    broker = BrokerProcess(
        tmp_path,
        {
            "listeners": "OPEN://127.0.0.1:0,SAFE://127.0.0.1:0",
            "listener.security.protocol.map": f"OPEN:PLAINTEXT,SAFE:{protocol.name}",
            "inter.broker.listener.name": "OPEN",
        },
    )
    try:
        with pytest.raises(BrokerFailedError, match="exit code 1"):
            broker.start()
        assert broker.process is not None
        assert broker.process.returncode == 1
        last = broker.log_tail().strip().splitlines()[-1]
        assert last.startswith("kafkapy-server: ") and "ssl.keystore.location" in last
        assert "a TLS listener needs a keystore" in last
        assert not (tmp_path / "logs").exists()  # nothing was done yet
    finally:
        broker.kill()


def test_keys_without_effect_are_named_at_start_and_when_they_are_set_later(tmp_path: Path) -> None:
    keys = {"super.users": "User:root", "remote.log.storage.system.enable": "true", "num.partitions": "2"}
    keys["cruise.control.metrics.topic"] = "hidden"
    broker = BrokerProcess(tmp_path, keys)
    with broker:
        client = RawClient(broker.bootstrap)
        assert IGNORED.findall(broker.log_tail()) == ["remote.log.storage.system.enable, super.users"]
        assert UNKNOWN.findall(broker.log_tail()) == ["cruise.control.metrics.topic"]
        assert "hidden" not in broker.log_tail(100_000)
        topic = CreateTopicsRequest.Topic
        configs = [topic.Config(name="preallocate", value="true")]
        made = client.call(
            CreateTopicsRequest(
                topics=[topic(name="t", num_partitions=1, replication_factor=1, configs=configs)], timeout_ms=10_000
            ),
            7,
        )
        assert made.topics[0].error_code == 0
        resource = IncrementalAlterConfigsRequest.Resource
        change = resource.Config(name="log.preallocate", config_operation=0, value="true")
        answer = client.call(
            IncrementalAlterConfigsRequest(resources=[resource(resource_type=4, resource_name="1", configs=[change])]),
            1,
        )
        assert answer.responses[0].error_code == 0
        change = resource.Config(name="streams.session.timeout.ms", config_operation=0, value="50000")
        answer = client.call(
            IncrementalAlterConfigsRequest(resources=[resource(resource_type=32, resource_name="g", configs=[change])]),
            1,
        )
        assert answer.responses[0].error_code == 0
        broker.restart()
        assert IGNORED.findall(broker.log_tail(100_000)) == [
            "remote.log.storage.system.enable, super.users",
            "log.preallocate",
            "log.preallocate, remote.log.storage.system.enable, super.users",
        ]
        assert GROUP_IGNORED.findall(broker.log_tail(100_000)) == [("g", "streams.session.timeout.ms")] * 2
        assert TOPIC_IGNORED.findall(broker.log_tail(100_000)) == [("preallocate", "t")] * 2
