"""The hook implementations: what the entry point in pyproject.toml names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.config_def import ConfigKey, Importance, non_empty
from kafkapy.plugins import hookimpl
from kafkapy.security.authorizer.base import Authorizer
from kafkapy.types import ConfigType
from kafkapy_template.authorizer import PREFIX_KEY, DenyPrefixAuthorizer

logger = logging.getLogger(__name__)


@hookimpl
def register_authorizers() -> Mapping[str, Callable[[], Authorizer]]:
    """The authorizer, under the name for authorizer.class.name."""
    return {"deny_prefix": DenyPrefixAuthorizer}


@hookimpl
def register_config_keys() -> Iterable[ConfigKey]:
    """The plugin's key, checked and documented like Kafka's own."""
    doc = "Topics whose name begins with this are denied to everybody by the authorizer deny_prefix."
    return [ConfigKey(PREFIX_KEY, ConfigType.STRING, "secret.", non_empty(), Importance.MEDIUM, doc)]


@hookimpl
def broker_started(config: BrokerConfig) -> None:
    """Called once the broker serves clients. A hook takes only the arguments it wants."""
    logger.info("topics that begin with %r are denied", config.get_str(PREFIX_KEY))
