"""The template's authorizer denies what its key says, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafkapy_template import plugin

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.plugins import PluginManager
from kafkapy.security.authorizer.base import Action, AuthorizationResult
from kafkapy.types import AclOperation, ResourceType


@pytest.fixture
def plugins() -> PluginManager:
    manager = PluginManager()
    manager.register(plugin, "template")
    return manager


def make_config(plugins: PluginManager, **keys: str) -> BrokerConfig:
    given = {"authorizer.class.name": "deny_prefix"} | {name.replace("_", "."): text for name, text in keys.items()}
    return BrokerConfig(given, definition=plugins.broker_config_def())


def decide(plugins: PluginManager, config: BrokerConfig, kind: ResourceType, name: str) -> AuthorizationResult:
    authorizer = plugins.create_authorizer(config)
    return authorizer.authorize(SimpleNamespace(), [Action(AclOperation.READ, kind, name)])[0]


def test_topics_with_the_prefix_are_denied(plugins: PluginManager) -> None:
    config = make_config(plugins, template_deny_prefix="private-")
    assert decide(plugins, config, ResourceType.TOPIC, "private-orders") is AuthorizationResult.DENIED
    assert decide(plugins, config, ResourceType.TOPIC, "orders") is AuthorizationResult.ALLOWED
    assert decide(plugins, config, ResourceType.GROUP, "private-group") is AuthorizationResult.ALLOWED


def test_an_empty_prefix_is_refused(plugins: PluginManager) -> None:
    with pytest.raises(ConfigError, match=r"template\.deny\.prefix.*not empty"):
        make_config(plugins, template_deny_prefix="")
