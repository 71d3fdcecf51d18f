"""The names that programs for aiokafka import are there, and stand for the same."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import aiokafka
import aiokafka.admin
import aiokafka.errors
import aiokafka.structs
import pytest
from certificates import shared_ca

import kafkapy.aio
import kafkapy.aio.errors
import kafkapy.aio.structs
from kafkapy.aio.helpers import create_ssl_context
from kafkapy.testing import Broker

OF_ITS_OWN_WORKS = {
    "AuthenticationMethodNotSupported",
    "Cancelled",
    "CorrelationIdError",
    "MetadataEmptyBrokerList",
    "QuotaViolationError",
    "StaleLeaderEpochCodeError",
    "TooManyInFlightRequests",
}
"""Errors that only aiokafka's own network layer and protocol classes know."""


def test_what_the_package_exports_is_there() -> None:
    assert {name for name in aiokafka.__all__ if not hasattr(kafkapy.aio, name)} == set()
    assert [name for name in aiokafka.admin.__all__ if not hasattr(kafkapy.aio, name)] == []
    structs = {"ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "RecordMetadata", "TopicPartition"}
    assert structs <= set(dir(aiokafka.structs)) & set(dir(kafkapy.aio.structs))


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("abc", ("AbstractTokenProvider", "ConsumerRebalanceListener")),
        ("admin", ("AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete")),
        ("admin.client", ("AIOKafkaAdminClient",)),
        ("admin.config_resource", ("ConfigResource", "ConfigResourceType")),
        ("client", ("AIOKafkaClient",)),
        ("consumer", ("AIOKafkaConsumer",)),
        ("coordinator.assignors.range", ("RangePartitionAssignor",)),
        ("coordinator.assignors.roundrobin", ("RoundRobinPartitionAssignor",)),
        ("coordinator.assignors.sticky.sticky_assignor", ("StickyPartitionAssignor",)),
        ("errors", ("for_code",)),
        ("helpers", ("create_ssl_context",)),
        ("partitioner", ("DefaultPartitioner", "murmur2")),
        ("producer", ("AIOKafkaProducer",)),
    ],
)
def test_modules_that_programs_import_are_there(module: str, names: tuple[str, ...]) -> None:
    for package in ("aiokafka", "kafkapy.aio"):
        assert {name for name in names if not hasattr(import_module(f"{package}.{module}"), name)} == set()


def test_an_ssl_context_checks_certificates_and_names() -> None:
    context = create_ssl_context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(FileNotFoundError):
        create_ssl_context(certfile="/nothing/here")


def test_errors_have_the_same_names_and_codes() -> None:
    theirs = {
        name: each
        for name, each in vars(aiokafka.errors).items()
        if isinstance(each, type) and issubclass(each, Exception)
    }
    assert len(theirs) > 100
    missing = {name for name in theirs if not hasattr(kafkapy.aio.errors, name)}
    assert missing == OF_ITS_OWN_WORKS
    for name, each in theirs.items():
        if name not in missing and getattr(each, "errno", -1) not in (None, -1):
            assert int(getattr(kafkapy.aio.errors, name).code) == each.errno, name
    assert kafkapy.aio.errors.ProducerFenced is kafkapy.aio.errors.ProducerFencedError
    with pytest.raises(AttributeError, match="NoSuchError"):
        _ = kafkapy.aio.errors.NoSuchError


def test_the_program_of_the_page_runs(broker: Broker, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "asyncio.md").read_text(encoding="utf-8")
    example, secured = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text(example.replace("localhost:9092", broker.bootstrap_servers), encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", str(program)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 b'42' b'two apples'\n"
    # The settings of the other block are known: a producer with an unknown one cannot be made.
    ca = tmp_path / "ca.pem"
    ca.write_bytes(shared_ca().pem)
    names = {"AIOKafkaProducer": kafkapy.aio.AIOKafkaProducer, "password": "secret"}
    made = eval(secured.replace("ca.pem", str(ca)), names)
    assert isinstance(made, kafkapy.aio.AIOKafkaProducer)
