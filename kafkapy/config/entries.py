"""Entries of DescribeConfigs: value, source, synonyms.

Source: KIP-226 and kafka.server.ConfigHelper.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.types import ConfigSource, ConfigType


class ConfigSynonym(NamedTuple):
    """A possible source of a value. `value` is None for a secret."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key in DescribeConfigs.

    `synonyms` begin with the winning source and end with the weakest.
    """

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
        """Whether the key is not set (the is_default field of version 0)."""
        return self.source is ConfigSource.DEFAULT_CONFIG
