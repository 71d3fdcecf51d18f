"""What DescribeConfigs tells about a key: value, source, synonyms. Source: KIP-226 and kafka.server.ConfigHelper."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.types import ConfigSource, ConfigType


class ConfigSynonym(NamedTuple):
    """One place a value could come from. `value` is None where it is secret."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key as DescribeConfigs reports it. `synonyms` run from the place that won to the weakest."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str

    @property
    def is_default(self) -> bool:
        """Whether nobody set the key (the is_default field of version 0)."""
        return self.source is ConfigSource.DEFAULT_CONFIG
