"""The words of kafka-configs."""

from __future__ import annotations

CONFIGS = "kafka.admin.ConfigCommand"
ALL = "--entity-default"
SHOWN = ("--describe",)


def named(name: str) -> tuple[str, str]:
    return "--entity-name", name


def added(*configs: str) -> tuple[str, ...]:
    return "--alter", "--add-config", ",".join(configs)


def removed(*keys: str) -> tuple[str, ...]:
    return "--alter", "--delete-config", ",".join(keys)
