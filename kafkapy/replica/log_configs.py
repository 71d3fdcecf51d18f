"""A topic's effective log configuration, from its settings in the metadata store.

Source: kafka.server.TopicConfigHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy import errors
from kafkapy.config.topic import LogConfig

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger("kafka.server.TopicConfigHandler")


def effective_log_config(topic: str, overrides: Mapping[str, str], config: BrokerConfig) -> LogConfig:
    """The settings that a log runs with.

    A setting that this version does not know or allow is left out, with a log line. The store may hold such a setting
    from another version; the topic must still open.
    """
    try:
        return LogConfig.create(config, dict(overrides))
    except errors.ConfigError:
        usable = {}
        for key, value in overrides.items():
            try:
                LogConfig.create(config, {key: value})
            except errors.ConfigError as error:
                logger.error("Topic %s has an invalid configuration value, which the broker ignores: %s", topic, error)
            else:
                usable[key] = value
        return LogConfig.create(config, usable)
