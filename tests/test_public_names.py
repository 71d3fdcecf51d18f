"""The names of the package: typed, made on first use, and those that kafka-python has."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import kafka
import pytest

import kafkapy

MODULES = {
    "kafka.admin": (),
    "kafka.consumer": (),
    "kafka.consumer.group": ("KafkaConsumer",),
    "kafka.consumer.fetcher": ("ConsumerRecord",),
    "kafka.consumer.subscription_state": ("AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"),
    "kafka.coordinator.assignors.abstract": ("AbstractPartitionAssignor", "RebalanceProtocol"),
    "kafka.coordinator.assignors.cooperative_sticky": ("CooperativeStickyAssignor",),
    "kafka.coordinator.assignors.range": ("RangePartitionAssignor",),
    "kafka.coordinator.assignors.roundrobin": ("RoundRobinPartitionAssignor",),
    "kafka.coordinator.assignors.sticky.sticky_assignor": ("StickyPartitionAssignor",),
    "kafka.errors": ("for_code",),
    "kafka.partitioner": (),
    "kafka.partitioner.abc": ("Partitioner",),
    "kafka.partitioner.default": ("DefaultPartitioner", "murmur2"),
    "kafka.partitioner.sticky": ("StickyPartitioner",),
    "kafka.producer": (),
    "kafka.producer.future": ("FutureRecordMetadata", "RecordMetadata"),
    "kafka.producer.kafka": ("KafkaProducer",),
    "kafka.structs": ("ConsumerGroupMetadata", "MemberState", "OffsetAndMetadata", "OffsetAndTimestamp"),
}
"""Modules of kafka-python that programs import, with names that its `__all__` does not say."""


@pytest.mark.parametrize("name", kafkapy.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(kafkapy, name) is not None
    assert name in dir(kafkapy)


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KafkaTeapot'"):
        _ = kafkapy.KafkaTeapot


def test_every_name_has_its_type() -> None:
    """Checkers of types see the imports that run-time makes on first use."""
    source = Path(kafkapy.__file__).read_text(encoding="utf-8")
    [block] = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == kafkapy._MODULES
    assert {*typed, "__version__"} == set(kafkapy.__all__)


def test_kafka_pythons_names_are_there() -> None:
    assert set(kafka.__all__) - set(kafkapy.__all__) == set()


@pytest.mark.parametrize("module", MODULES)
def test_kafka_pythons_modules_are_there_with_their_names(module: str) -> None:
    theirs = import_module(module)
    ours = import_module(module.replace("kafka.", "kafkapy.", 1))
    names = {*MODULES[module], *getattr(theirs, "__all__", ())}
    assert names
    assert {name for name in names if not hasattr(theirs, name)} == set()
    assert {name for name in names if not hasattr(ours, name)} == set()


def test_the_states_of_a_member_are_kafka_pythons() -> None:
    theirs, ours = import_module("kafka.structs").MemberState, import_module("kafkapy.structs").MemberState
    for name in ("UNJOINED", "REBALANCING", "STABLE"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_the_class_of_a_code() -> None:
    errors = import_module("kafkapy.errors")
    assert errors.for_code(0) is errors.NoError
    assert errors.for_code(3) is errors.UnknownTopicOrPartitionError
    assert errors.for_code(30_000) is errors.UnknownError


def test_a_client_that_names_an_assignor_gets_nothing_of_the_broker() -> None:
    code = (
        "import sys, kafkapy.coordinator.assignors.roundrobin, kafkapy.coordinator.assignors.abstract\n"
        "print([name for name in sys.modules if name.startswith('kafkapy.coordinator.') and 'assignors' not in name\n"
        "       or name.startswith(('kafkapy.broker', 'kafkapy.log', 'kafkapy.network', 'kafkapy.controller'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_importing_the_package_imports_no_client() -> None:
    code = "import sys, kafkapy; print([name for name in sys.modules if name.startswith('kafkapy.clients')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
