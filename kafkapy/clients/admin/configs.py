"""Configurations of topics, brokers, broker loggers, client metrics and groups.

Describe, alter, reset, list. Served by: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources:
the broker itself for one broker and its loggers, any broker for the rest. ConfigResource("broker", "") is the default
of all brokers.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from kafkapy.clients.admin.routing import AdminRouting, raise_first
from kafkapy.clients.admin.shapes import OK, as_dict, checked, error_of, error_text, member_of
from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ErrorCode, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkapy.types import ConfigResourceType, ConfigSource, ConfigType

__all__ = ["AlterConfigOp", "ConfigAdmin", "ConfigFilterType", "ConfigResource"]

NOT_MODIFIED = (
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)
"""The sources of values that are not set on the resource itself."""
TYPE_NAMES = {each.code: each.name for each in ConfigType}
SHOW_WHAT_IS_SET = (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP)
"""Resource types for which brokers of some releases describe only keys with a value."""
ON_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)

DYNAMIC_SOURCE = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}


LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.")
"""Before a key of one listener. A SASL mechanism may follow."""


class AlterConfigOp(IntEnum):
    """An operation of IncrementalAlterConfigs on one key. APPEND and SUBTRACT change lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigFilterType(IntEnum):
    """The keys that describe_configs returns.

    ALL; DYNAMIC: alterable keys; MODIFIED: keys set on the resource; DEFAULT: keys not set on it; STATIC: keys from the
    broker's file.
    """

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class ConfigResource:
    """A resource with a configuration: type (member or name), name, and keys.

    `configs`: to describe, keys or None for all; to alter, {key: value} or {key: (AlterConfigOp, value)}; to reset,
    keys or nothing for all keys set on the resource.
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str | int,
        name: str,
        configs: Mapping[str, Any] | Iterable[str] | None = None,
    ) -> None:
        self.resource_type = member_of(ConfigResourceType, resource_type)
        self.name = str(name)
        self.configs = configs

    @property
    def key(self) -> tuple[ConfigResourceType, str]:
        """(type, name)."""
        return self.resource_type, self.name

    @property
    def broker(self) -> int | None:
        """The id of the broker that serves the resource, or None.

        None: any broker. ValueError when the name is not a broker id.
        """
        if self.resource_type not in ON_ONE_BROKER or (
            self.resource_type is ConfigResourceType.BROKER and not self.name
        ):
            return None
        try:
            return int(self.name)
        except ValueError:
            raise ValueError(f"{self.name!r} is not a broker id (a number)") from None

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, {self.configs!r})"


Keys = Mapping[tuple[ConfigResourceType, str], Mapping[str, Any]]


class ConfigAdmin(AdminRouting):
    """The admin client's calls for configurations."""

    async def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str | int = "modified",
        include_documentation: bool = False,
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """The configurations of resources. Raises the first resource's error.

        {type name in lower case: {resource name: {key: {value, read_only, config_source, is_sensitive, synonyms,
        config_type, documentation}}}}. `config_filter` selects keys: 'modified' (set on the resource), 'all', ...
        """
        resources = list(config_resources)
        shown = member_of(ConfigFilterType, config_filter)
        low = 3 if include_documentation else 1 if include_synonyms else 0
        deadline = self.deadline()
        by_key = {resource.key: resource for resource in resources}

        async def ask(node: int, keys: list[Any]) -> dict[Any, Any]:
            request = DescribeConfigsRequest(
                resources=[_described(by_key[key]) for key in keys],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            response = await self.send(node, request, deadline, low=low)
            return {
                (ConfigResourceType(result.resource_type), result.resource_name): _about(
                    result, error_of(result.error_code, result.error_message)
                )
                or _shown_configs(result, shown)
                for result in response.results
            }

        outcomes = raise_first(await self._by_resource(resources, ask, deadline))
        found: dict[str, dict[str, Any]] = {}
        for (kind, name), configs in outcomes.items():
            found.setdefault(kind.name.lower(), {})[name] = configs
        return found

    async def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Sets, deletes, appends to and subtracts from keys.

        `raise_on_unknown`: ValueError for keys that the brokers do not know or that are not alterable. `incremental`
        False: use AlterConfigs, which only sets keys; the resource's other keys are sent too, because AlterConfigs
        resets missing keys (ValueError when brokers hide their values). None: use AlterConfigs only for brokers older
        than Kafka 2.3. Returns {type name in lower case: {resource name: 'OK' or the error}}.
        """
        resources = list(config_resources)
        operations = {resource.key: _operations(resource.configs) for resource in resources}
        if raise_on_unknown:
            await self._refuse_unknown(resources)
        if incremental is None:
            incremental = await self._serves_incremental()
        if incremental:
            return await self._alter_incrementally(resources, operations, validate_only)
        given = await self._given(resources)
        values = {}
        for key, wanted in operations.items():
            if any(operation is not AlterConfigOp.SET for operation, _ in wanted.values()):
                raise ValueError("AlterConfigs can only set keys: DELETE, APPEND and SUBTRACT need Kafka 2.3")
            values[key] = given[key] | {name: value for name, (_, value) in wanted.items()}
        return await self._replace(resources, values, validate_only)

    async def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Resets keys to their defaults.

        The keys are the `configs` of each resource, or all keys set on it. Arguments and result as in alter_configs.
        """
        resources = list(config_resources)
        if raise_on_unknown:
            await self._refuse_unknown(resources)
        if incremental is None:
            incremental = await self._serves_incremental()
        given = await self._given(resources)
        names = {resource.key: list(resource.configs or given[resource.key]) for resource in resources}
        if incremental:
            operations = {key: dict.fromkeys(each, (AlterConfigOp.DELETE, None)) for key, each in names.items()}
            return await self._alter_incrementally(resources, operations, validate_only)
        values = {
            key: {name: value for name, value in given[key].items() if name not in each} for key, each in names.items()
        }
        return await self._replace(resources, values, validate_only)

    async def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str | int] | None = None
    ) -> dict[str, list[str]]:
        """{type name in lower case: [resource name]} of resources with a configuration.

        All types by default. Kafka 3.7 to 4.0 list only client metrics (UnsupportedVersionError for others), 4.1 lists
        all types.
        """
        wanted = [member_of(ConfigResourceType, each) for each in resource_types or ()]
        low = 1 if wanted and wanted != [ConfigResourceType.CLIENT_METRICS] else 0
        deadline = self.deadline()

        def build(version: int) -> ListConfigResourcesRequest:
            return ListConfigResourcesRequest(resource_types=[int(each) for each in wanted] if version else [])

        async def ask(node: int) -> Any:
            return checked(await self.send_built(node, ListConfigResourcesRequest, build, deadline, low=low))

        found: dict[str, list[str]] = {}
        for resource in (await self.one(self.anywhere, ask, deadline)).config_resources:
            kind = ConfigResourceType(resource.resource_type).name.lower()
            found.setdefault(kind, []).append(resource.resource_name)
        return found

    # --- internals --------------------------------------------------------------------------------------------------

    async def _by_resource(self, resources: Sequence[ConfigResource], ask: Any, deadline: Any) -> dict[Any, Any]:
        """Runs `ask` at each resource's broker, or at any broker."""
        groups: dict[int | None, list[Any]] = {}
        for resource in resources:
            groups.setdefault(resource.broker, []).append(resource.key)
        outcomes: dict[Any, Any] = {}
        for broker, keys in groups.items():
            locate = self.anywhere if broker is None else self.at_node(broker)
            outcomes |= await self.drive(keys, locate, ask, deadline)
        return {resource.key: outcomes[resource.key] for resource in resources}

    async def _given(self, resources: Sequence[ConfigResource]) -> dict[Any, dict[str, Any]]:
        """{resource key: {key: value}} of the keys set on each resource.

        Hidden values are None.
        """
        bare = [ConfigResource(*resource.key) for resource in resources]
        found = await self.describe_configs(bare, config_filter=ConfigFilterType.MODIFIED)
        return {
            resource.key: {
                name: config["value"]
                for name, config in found[resource.resource_type.name.lower()][resource.name].items()
            }
            for resource in resources
        }

    async def _refuse_unknown(self, resources: Sequence[ConfigResource]) -> None:
        bare = [ConfigResource(*resource.key) for resource in resources]
        found = await self.describe_configs(bare, config_filter=ConfigFilterType.DYNAMIC)
        for resource in resources:
            if resource.resource_type in SHOW_WHAT_IS_SET or resource.key == (ConfigResourceType.BROKER, ""):
                continue  # other settable keys are known only to the broker
            known = found[resource.resource_type.name.lower()][resource.name]
            unknown = sorted(name for name in resource.configs or () if not _is_known(name, known))
            if unknown:
                raise ValueError(await self._why_unknown(resource, unknown, known))

    async def _why_unknown(self, resource: ConfigResource, unknown: Sequence[str], known: Iterable[str]) -> str:
        kind = resource.resource_type.name.lower().replace("_", " ")
        found = await self.describe_configs([ConfigResource(*resource.key)], config_filter=ConfigFilterType.ALL)
        if set(unknown) <= set(found[resource.resource_type.name.lower()][resource.name]):
            return (
                f"{kind} {resource.name} has {', '.join(unknown)} from the file that it was started with, and takes "
                "no other value while it runs"
            )
        question = did_you_mean(unknown[0], known)
        return f"{kind} {resource.name} has no configuration {', '.join(unknown)} that can be set" + (
            f"; {question}" if question else ""
        )

    async def _serves_incremental(self) -> bool:
        deadline = self.deadline()
        api = IncrementalAlterConfigsRequest

        async def ask(node: int) -> int:
            return await self.network.version(node, api.API_KEY, api.VERSIONS.low, api.VERSIONS.high)

        try:
            await self.one(self.anywhere, ask, deadline)
        except UnsupportedVersionError:
            return False
        return True

    async def _alter_incrementally(
        self, resources: Sequence[ConfigResource], operations: Keys, validate_only: bool
    ) -> dict[str, dict[str, str]]:
        config_class = IncrementalAlterConfigsRequest.Resource.Config
        configs = {
            key: [
                config_class(name=name, config_operation=operation, value=value)
                for name, (operation, value) in wanted.items()
            ]
            for key, wanted in operations.items()
        }
        return await self._alter(IncrementalAlterConfigsRequest, resources, configs, validate_only)

    async def _replace(
        self, resources: Sequence[ConfigResource], values: Keys, validate_only: bool
    ) -> dict[str, dict[str, str]]:
        for resource in resources:
            hidden = sorted(name for name, value in values[resource.key].items() if value is None)
            if hidden:
                raise ValueError(
                    f"AlterConfigs would reset {', '.join(hidden)} of {resource.resource_type.name.lower()} "
                    f"{resource.name}: brokers hide these values"
                )
        config_class = AlterConfigsRequest.Resource.Config
        configs = {
            key: [config_class(name=name, value=value) for name, value in wanted.items()]
            for key, wanted in values.items()
        }
        return await self._alter(AlterConfigsRequest, resources, configs, validate_only)

    async def _alter(
        self, api: Any, resources: Sequence[ConfigResource], configs: Mapping[Any, list[Any]], validate_only: bool
    ) -> dict[str, dict[str, str]]:
        """Sends the `configs` of each resource, which are in the API's form."""
        deadline = self.deadline()

        async def ask(node: int, keys: list[Any]) -> dict[Any, Any]:
            altered = [
                api.Resource(resource_type=kind, resource_name=name, configs=configs[kind, name]) for kind, name in keys
            ]
            request = api(resources=altered, validate_only=validate_only)
            return _altered(await self.send(node, request, deadline))

        return _results(await self._by_resource(resources, ask, deadline))


def _described(resource: ConfigResource) -> DescribeConfigsRequest.Resource:
    return DescribeConfigsRequest.Resource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configuration_keys=None if resource.configs is None else list(resource.configs),
    )


def _shown_configs(result: Any, shown: ConfigFilterType) -> dict[str, dict[str, Any]]:
    kind = ConfigResourceType(result.resource_type)
    # Dynamic defaults are set on the resource of all brokers, not on that of one broker.
    given = (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,) if not result.resource_name else ()
    configs = {}
    for config in result.configs:
        source = _source(config, kind)
        if _is_left_out(source, config.read_only, shown, given):
            continue
        row = as_dict(config, "name", "is_default")
        row["config_source"] = source.name
        row["config_type"] = TYPE_NAMES.get(config.config_type, "UNKNOWN")
        for synonym in row["synonyms"]:
            synonym["source"] = ConfigSource(synonym["source"]).name
        configs[config.name] = row
    return configs


def _source(config: Any, kind: ConfigResourceType) -> ConfigSource:
    if config.config_source >= 0:
        return ConfigSource(config.config_source)
    if config.read_only and kind is ConfigResourceType.BROKER:
        return ConfigSource.STATIC_BROKER_CONFIG
    return ConfigSource.DEFAULT_CONFIG if config.is_default else DYNAMIC_SOURCE.get(kind, ConfigSource.UNKNOWN)


def _is_left_out(
    source: ConfigSource, read_only: bool, shown: ConfigFilterType, given: tuple[ConfigSource, ...]
) -> bool:
    if shown is ConfigFilterType.DYNAMIC:
        return read_only
    if shown is ConfigFilterType.STATIC:
        return source is not ConfigSource.STATIC_BROKER_CONFIG
    if shown is ConfigFilterType.ALL:
        return False
    modified = source in given or source not in NOT_MODIFIED
    return modified is not (shown is ConfigFilterType.MODIFIED)


def _operations(configs: Any) -> dict[str, tuple[AlterConfigOp, str | None]]:
    if not isinstance(configs, Mapping):
        raise TypeError("to alter, a ConfigResource needs configs={key: value} or {key: (AlterConfigOp, value)}")
    operations: dict[str, tuple[AlterConfigOp, str | None]] = {}
    for name, given in configs.items():
        operation, value = given if isinstance(given, tuple) else (AlterConfigOp.SET, given)
        operation = member_of(AlterConfigOp, operation)
        if operation is AlterConfigOp.DELETE:
            value = None
        elif isinstance(value, (list, set)):
            value = ",".join(map(str, value))
        elif isinstance(value, bool):
            value = str(value).lower()
        operations[name] = operation, None if value is None else str(value)
    return operations


def _altered(response: Any) -> dict[Any, Any]:
    answers: dict[Any, Any] = {}
    for result in response.responses:
        error = error_of(result.error_code, result.error_message)
        again = error is not None and error.code == ErrorCode.NOT_CONTROLLER
        text = error_text(result.error_code, result.error_message) or OK
        answers[ConfigResourceType(result.resource_type), result.resource_name] = error if again else text
    return answers


def _results(outcomes: Mapping[Any, Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for (kind, name), text in raise_first(outcomes).items():
        found.setdefault(kind.name.lower(), {})[name] = text
    return found


def _about(result: Any, error: Any) -> Any:
    """The error, with the name of its resource."""
    if error is None:
        return None
    kind = ConfigResourceType(result.resource_type).name.lower().replace("_", " ")
    return error_for(error.code, f"{kind.capitalize()} {result.resource_name}: {error}")


def _is_known(name: str, known: Container[str]) -> bool:
    """Whether a resource has the key, or has it for all listeners."""
    base = LISTENER_PREFIX.sub("", name, count=1)
    return name in known or (base != name and (base in known or base.partition(".")[2] in known))
