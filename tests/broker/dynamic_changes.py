"""Dynamic changes of a broker's keys, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

BROKER = 4
SET, DELETE = 0, 1


def alter(client: Any, keys: Mapping[str, str | None], name: str = "1", validate_only: bool = False) -> Any:
    """Set keys of a broker, or delete those with None; the resource's result."""
    Resource = IncrementalAlterConfigsRequest.Resource
    configs = [
        Resource.Config(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in keys.items()
    ]
    resource = Resource(resource_type=BROKER, resource_name=name, configs=configs)
    return client(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1).responses[0]


def change(client: Any, keys: Mapping[str, str | None], name: str = "1") -> None:
    """The same for a change that the broker takes."""
    result = alter(client, keys, name)
    assert result.error_code == ErrorCode.NONE, result.error_message


@contextmanager
def changed(client: Any, keys: Mapping[str, str], name: str = "1") -> Iterator[None]:
    """The keys are set inside."""
    change(client, keys, name)
    try:
        yield
    finally:
        change(client, dict.fromkeys(keys), name)
