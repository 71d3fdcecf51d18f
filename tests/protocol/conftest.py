"""Every declared message class, random instances of them, and the reference codec."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

import kafkapy.protocol.messages
from kafkapy.protocol.header import RequestHeader, ResponseHeader
from kafkapy.protocol.schema import ZERO_UUID, Field, Message, Request, Response, Struct

INTEGERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}


def message_modules() -> list[ModuleType]:
    package = kafkapy.protocol.messages
    return [
        importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ]


def message_classes() -> list[type[Message]]:
    found: list[type[Message]] = [RequestHeader, ResponseHeader]
    for module in message_modules():
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
                found.append(value)
    return found


MESSAGES = message_classes()
assert len(MESSAGES) > 150


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "message_class" in metafunc.fixturenames:
        metafunc.parametrize("message_class", MESSAGES, ids=lambda cls: cls.NAME)
    if "api_class" in metafunc.fixturenames:
        apis = [cls for cls in MESSAGES if issubclass(cls, Request | Response)]
        metafunc.parametrize("api_class", apis, ids=lambda cls: cls.NAME)


def random_value(field: Field, version: int, flexible: bool, rng: random.Random, unknown_tags: bool) -> Any:
    if version in field.nullable and rng.random() < 0.25:
        return None
    kind = field.kind
    if kind in INTEGERS:
        bits = rng.choice((1, 7, INTEGERS[kind]))
        bits = min(bits, INTEGERS[kind])
        low = 0 if kind.startswith("u") else -(1 << bits)
        return rng.randint(low, (1 << bits) - 1)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.uniform(-1e9, 1e9)
    if kind == "uuid":
        return ZERO_UUID if rng.random() < 0.3 else UUID(int=rng.getrandbits(128))
    if kind == "string":
        alphabet = string.ascii_letters + "é中🙂"
        return "".join(rng.choices(alphabet, k=rng.choice((0, 1, 5, 40, 130))))
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 17, 200)))
    if kind == "array":
        element = field.element
        assert element is not None
        return [random_value(element, version, flexible, rng, unknown_tags) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    assert field.struct is not None
    return random_struct(field.struct, version, flexible, rng, unknown_tags)


def random_struct(cls: type[Struct], version: int, flexible: bool, rng: random.Random, unknown_tags: bool) -> Any:
    values = {
        field.name: random_value(field, version, flexible, rng, unknown_tags)
        for field in cls._fields
        if version in field.versions and not (version in field.tagged and rng.random() < 0.3)
    }
    instance = cls(**values)
    if flexible and unknown_tags and rng.random() < 0.2:
        instance._unknown_tags = {tag: rng.randbytes(rng.randint(0, 9)) for tag in rng.sample(range(100, 40_000), 2)}
    return instance


@pytest.fixture(scope="session")
def random_message() -> Callable[..., Any]:
    """random_message(cls, version, rng, unknown_tags=False): an instance that the version can carry."""

    def make(cls: type[Message], version: int, rng: random.Random, unknown_tags: bool = False) -> Any:
        return random_struct(cls, version, version in cls.FLEXIBLE, rng, unknown_tags)

    return make


@pytest.fixture(scope="session")
def versions_of() -> Callable[[type[Message]], range]:
    """Every declared version of a message class."""
    return lambda cls: range(cls.VERSIONS.low, cls.VERSIONS.high + 1)


@pytest.fixture(scope="session")
def modules() -> list[ModuleType]:
    return message_modules()


@pytest.fixture(scope="session")
def reference() -> Iterator[ModuleType]:
    """tests/reference/protocol_codec.py"""
    path = Path(__file__).parent.parent / "reference" / "protocol_codec.py"
    spec = importlib.util.spec_from_file_location("reference_protocol_codec", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
