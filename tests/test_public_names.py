"""The names of the package: typed, made on first use, and those that kafka-python has."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import kafka
import pytest

import kafkapy

NOT_OURS = {"AsyncConsumerRebalanceListener"}
"""Of kafka-python: a listener with coroutines. The asyncio consumer takes those of aiokafka's shape."""


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
    assert set(kafka.__all__) - set(kafkapy.__all__) == NOT_OURS


def test_importing_the_package_imports_no_client() -> None:
    code = "import sys, kafkapy; print([name for name in sys.modules if name.startswith('kafkapy.clients')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
