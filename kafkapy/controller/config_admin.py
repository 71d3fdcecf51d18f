"""Changes of settings: AlterConfigs and IncrementalAlterConfigs. Source: kafka.server.ZkAdminManager, ConfigAdminManager.

AlterConfigs replaces all settings of an entity, IncrementalAlterConfigs changes single keys. A change of a topic is
checked as a whole, the way the topic would be afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkapy import errors
from kafkapy.config.config_def import ConfigDef, format_value
from kafkapy.config.topic import TOPIC_CONFIG_DEF, broker_defaults, validate_overrides
from kafkapy.controller.admin_requests import AlterConfigOp, ConfigChange
from kafkapy.metadata.znodes import CONFIG_BROKERS, CONFIG_TOPICS, DEFAULT_ENTITY
from kafkapy.types import ConfigType

if TYPE_CHECKING:
    from kafkapy.controller.controller import KafkaController

logger = logging.getLogger("kafka.server.ConfigAdminManager")


class ConfigAdmin:
    """Writes settings. Used by handlers, on the control loop. Each method raises the error of its one resource."""

    def __init__(self, controller: KafkaController) -> None:
        self._controller = controller

    async def alter_topic(self, topic: str, configs: Mapping[str, str | None], validate_only: bool = False) -> None:
        """Replace all settings of a topic. UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST."""
        self._require_topic(topic)
        # AlterConfigs leaves out keys without a value, so that they go back to the default.
        wanted = {key: value for key, value in configs.items() if value is not None}
        await self._write_topic(topic, wanted, validate_only)

    async def incremental_alter_topic(
        self, topic: str, changes: Sequence[ConfigChange], validate_only: bool = False
    ) -> None:
        """Change single settings of a topic. UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST."""
        self._require_topic(topic)
        current = await self._controller.configs.fetch(CONFIG_TOPICS, topic)
        config = self._controller.config
        defaults = {
            name: format_value(TOPIC_CONFIG_DEF[name].type, value) for name, value in broker_defaults(config).items()
        }
        await self._write_topic(topic, apply_changes(current, changes, TOPIC_CONFIG_DEF, defaults), validate_only)

    async def write_broker(self, broker_id: int | None, configs: Mapping[str, str]) -> None:
        """Replace the dynamic settings of one broker, or of all (None). The caller has checked them."""
        name = DEFAULT_ENTITY if broker_id is None else str(broker_id)
        logger.info("Updating broker %s with new configuration: %s", name, ", ".join(sorted(configs)))
        await self._controller.configs.change(CONFIG_BROKERS, name, configs)

    def _require_topic(self, topic: str) -> None:
        if not topic:
            raise errors.InvalidRequestError("Default topic resources are not allowed.")
        if not self._controller.metadata_cache.contains(topic):
            raise errors.UnknownTopicOrPartitionError(f"The topic '{topic}' does not exist.")

    async def _write_topic(self, topic: str, configs: Mapping[str, str], validate_only: bool) -> None:
        configs_now = await self._controller.configs.fetch(CONFIG_TOPICS, topic)
        validate_overrides(configs, self._controller.config, configs_now)
        if not validate_only:
            logger.info("Updating topic %s with new configuration: %s", topic, dict(configs))
            await self._controller.configs.change(CONFIG_TOPICS, topic, configs)


def apply_changes(
    current: Mapping[str, str],
    changes: Sequence[ConfigChange],
    definition: ConfigDef,
    defaults: Mapping[str, str | None],
) -> dict[str, str]:
    """The settings after IncrementalAlterConfigs. INVALID_REQUEST, INVALID_CONFIG.

    APPEND and SUBTRACT work on lists, and on the default where nothing is set.
    """
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise errors.InvalidRequestError(f"Error due to duplicate config keys : {','.join(twice)}")
    null = [c.name for c in changes if c.operation is not AlterConfigOp.DELETE and c.value is None]
    if null:
        raise errors.InvalidRequestError(f"Null value not supported for : {','.join(null)}")
    result = dict(current)
    for change in changes:
        if change.operation is AlterConfigOp.SET:
            result[change.name] = change.value or ""
        elif change.operation is AlterConfigOp.DELETE:
            result.pop(change.name, None)
        else:
            key = definition.get(change.name)
            if key is None or key.type is not ConfigType.LIST:
                raise errors.InvalidConfigError(
                    f"Config value {change.operation.name.lower()} is not allowed for config key: {change.name}"
                )
            before = result.get(change.name, defaults.get(change.name)) or ""
            items = [item.strip() for item in before.split(",") if item.strip()]
            given = [item.strip() for item in (change.value or "").split(",") if item.strip()]
            if change.operation is AlterConfigOp.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            result[change.name] = ",".join(items)
    return result
