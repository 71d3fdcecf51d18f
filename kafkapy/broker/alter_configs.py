"""The common part of AlterConfigs and IncrementalAlterConfigs: authorization and the change itself.

Source: kafka.server.ZkAdminManager and kafka.server.ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kafkapy.broker import loggers
from kafkapy.broker.context import RequestContext
from kafkapy.config.broker import BROKER_CONFIG_DEF, LISTENER_KEY
from kafkapy.config.client_metrics import CLIENT_METRICS_CONFIG_DEF, validate_subscription
from kafkapy.config.config_def import ConfigDef, format_value
from kafkapy.config.group import GROUP_CONFIG_DEF, validate_group
from kafkapy.config.topic import TOPIC_CONFIG_DEF, broker_defaults, validate_overrides
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.config_repository import ConfigEdit
from kafkapy.metadata.topic_names import validate_topic_name
from kafkapy.policies import AlteredConfigs, check_altered_configs
from kafkapy.slices import counted, in_slices
from kafkapy.types import AclOperation, ConfigResourceType, ConfigType, ResourceType

SHOWN_AT_MOST: Final = 100
"""Keys that an error names."""

ON_THE_CLUSTER: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)
"""Resources whose configuration needs a permission on the cluster."""
ALTERABLE: Final = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.GROUP,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
)


class OpType(IntEnum):
    """The config_operation of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One key and what is to be done with it."""

    name: str
    operation: OpType
    value: str | None


def authorize(context: RequestContext, kind: int, name: str) -> None:
    """Raises the authorization error of the resource's type.

    INVALID_REQUEST for a type that cannot be altered.
    """
    if kind == ConfigResourceType.TOPIC:
        if not context.authorize(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, name):
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif kind == ConfigResourceType.GROUP:
        if not context.authorize(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, name):
            raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif kind in ON_THE_CLUSTER and not context.authorize(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if kind not in ALTERABLE:
        raise error_for(ErrorCode.INVALID_REQUEST, no_configuration(kind))


def has_secrets(request: AlteringRequest) -> bool:
    """Whether a request sets a secret, or an unknown key of a broker."""
    return any(
        resource.resource_type == ConfigResourceType.BROKER and _is_secret(config.name)
        for resource in request.resources
        for config in resource.configs
    )


def _is_secret(name: str) -> bool:
    key = BROKER_CONFIG_DEF.get(name)
    if key is None and (listener := LISTENER_KEY.fullmatch(name)) is not None:
        base: str = listener["base"]
        key = BROKER_CONFIG_DEF.get(base) or BROKER_CONFIG_DEF.get(base.partition(".")[2])
    return key is None or key.sensitive


def no_configuration(kind: int) -> str:
    """The sentence about a type of resources that have no configuration here."""
    return f"Unknown resource type {kind}"


class AlteredResource(Protocol):
    """A resource of one of the two requests."""

    resource_type: int
    resource_name: str


class AlteringRequest(Protocol):
    """One of the two requests."""

    resources: Sequence[Any]


A = TypeVar("A", bound=AlteredResource)
R = TypeVar("R")


async def alter_each(
    context: RequestContext,
    resources: Sequence[A],
    alter: Callable[[A], Awaitable[None]],
    result: Callable[..., R],
) -> list[R]:
    """One result for each resource; a failing resource does not stop the others.

    `alter` is awaited for each resource that the client may alter.
    """
    asked = await counted((each.resource_type, each.resource_name) for each in resources)
    context.leave(asked)
    results = []
    async for resource in in_slices(resources):
        kind, name = resource.resource_type, resource.resource_name
        error, message = ErrorCode.NONE, None
        if asked[kind, name] > 1:
            error, message = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            try:
                authorize(context, kind, name)
                await alter(resource)
            except KafkaError as failure:
                error, message = failure.code, failure.message
        results.append(result(error_code=error, error_message=message, resource_type=kind, resource_name=name))
    return results


def failed_each(
    resources: Iterable[AlteredResource], error: ErrorCode, message: str, result: Callable[..., R]
) -> list[R]:
    """The error for every resource."""
    return [
        result(
            error_code=error,
            error_message=message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in resources
    ]


async def replace(
    context: RequestContext, kind: int, name: str, keys: Mapping[str, str | None], validate_only: bool
) -> None:
    """Make `keys` the whole configuration of a resource. KafkaError.

    The resource is a topic, a group, this broker or (empty name) all brokers.
    """
    values: dict[str, str] = {}
    for key, value in keys.items():
        if value is None:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {key}")
        values[key] = value
    await _store(context, kind, name, lambda _current: values, validate_only, values)


async def increment(
    context: RequestContext, kind: int, name: str, changes: Sequence[Alteration], validate_only: bool
) -> None:
    """Apply operations key by key. KafkaError, and nothing is changed then."""
    counts = await counted(change.name for change in changes)
    duplicates = [name async for name, count in in_slices(counts.items()) if count > 1]
    if duplicates:
        shown = ",".join(sorted(duplicates[:SHOWN_AT_MOST]))
        raise error_for(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {shown}")
    nulls = [
        each.name async for each in in_slices(changes) if each.value is None and each.operation is not OpType.DELETE
    ]
    if nulls:
        shown = ", ".join(nulls[:SHOWN_AT_MOST])
        raise error_for(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {shown}")
    if kind == ConfigResourceType.BROKER_LOGGER:
        _alter_loggers(context, name, changes, validate_only)
        return
    defaults: Mapping[str, object]
    if kind == ConfigResourceType.TOPIC:
        definition, defaults = TOPIC_CONFIG_DEF, broker_defaults(context.broker.config)
    elif kind == ConfigResourceType.GROUP:
        definition, defaults = GROUP_CONFIG_DEF, GROUP_CONFIG_DEF.defaults()
    elif kind == ConfigResourceType.CLIENT_METRICS:
        definition, defaults = CLIENT_METRICS_CONFIG_DEF, CLIENT_METRICS_CONFIG_DEF.defaults()
    else:
        definition, defaults = BROKER_CONFIG_DEF, BROKER_CONFIG_DEF.defaults()

    def edit(current: dict[str, str]) -> dict[str, str]:
        _apply(current, changes, definition, defaults)
        return current

    await _store(context, kind, name, edit, validate_only, [change.name for change in changes])


async def _store(
    context: RequestContext, kind: int, name: str, edit: ConfigEdit, validate_only: bool, altered: Collection[str]
) -> None:
    """Store what `edit` makes of the keys that are there, once that is valid.

    `altered` are the keys that the request names: those that change are shown to the policy.
    """
    config = context.broker.dynamic_config

    def ask_policy(before: Mapping[str, str], after: Mapping[str, str]) -> None:
        policy = context.broker.alter_config_policy
        if policy is not None:
            changed = {
                key: after.get(key)
                for key in altered
                if kind == ConfigResourceType.BROKER or before.get(key) != after.get(key)
            }
            check_altered_configs(policy, AlteredConfigs(ConfigResourceType(kind), name, changed))

    def checked_topic(current: dict[str, str]) -> Mapping[str, str]:
        _require_topic(context, name)  # it may be gone when it is this change's turn
        before = dict(current)
        values = edit(current)
        validate_overrides(values, config.config, before)
        ask_policy(before, values)
        return values

    def checked_group(current: dict[str, str]) -> Mapping[str, str]:
        before = dict(current)
        values = edit(current)
        validate_group(values, config.config)
        ask_policy(before, values)
        return values

    def checked_client_metrics(current: dict[str, str]) -> Mapping[str, str]:
        before = dict(current)
        values = edit(current)
        validate_subscription(name, values)
        ask_policy(before, values)
        return values

    def checked_broker(current: dict[str, str]) -> Mapping[str, str]:
        before = dict(current)
        values = edit(current)
        config.check_broker(broker_id, values)
        ask_policy(before, values)
        return values

    if kind == ConfigResourceType.TOPIC:
        _require_topic(context, name)
        if validate_only:
            checked_topic(dict(await config.loaded_topic_keys(name)))
        else:
            await config.change_topic(name, checked_topic)
    elif kind == ConfigResourceType.GROUP:
        if not name:
            raise error_for(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        if validate_only:
            checked_group(dict(config.group_keys(name)))
        else:
            await config.change_group(name, checked_group)
    elif kind == ConfigResourceType.CLIENT_METRICS:
        if validate_only:
            checked_client_metrics(dict(config.client_metrics_keys(name)))
        else:
            if not name:
                validate_subscription(name, {})
            await config.change_client_metrics(name, checked_client_metrics)
    elif kind == ConfigResourceType.BROKER:
        broker_id = _broker_id(context, name)
        if validate_only:
            checked_broker(await config.broker_keys(broker_id))
        else:
            await config.change_broker(broker_id, checked_broker)
    else:
        raise error_for(ErrorCode.INVALID_REQUEST, no_configuration(kind))


def _require_topic(context: RequestContext, name: str) -> None:
    if not name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    validate_topic_name(name)
    if not context.broker.metadata_cache.contains(name):
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _broker_id(context: RequestContext, name: str) -> int | None:
    """None for the cluster-wide defaults."""
    if name == "":
        return None
    own = context.broker.node_id
    if node_id(name) != own:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own}, but received {name}")
    return own


def node_id(name: str, what: str = "Node") -> int:
    """The id that a broker resource's name is. INVALID_REQUEST."""
    try:
        return int(name)
    except ValueError:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}") from None


def _apply(
    current: dict[str, str], changes: Sequence[Alteration], definition: ConfigDef, defaults: Mapping[str, object]
) -> None:
    for change in changes:
        if change.operation is OpType.SET:
            current[change.name] = change.value or ""
        elif change.operation is OpType.DELETE:
            current.pop(change.name, None)
        else:
            key = definition.get(change.name)
            if key is None or key.type is not ConfigType.LIST:
                verb = change.operation.name.lower()
                if key is None:
                    raise error_for(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
                if definition is not BROKER_CONFIG_DEF:
                    text = f"Can't {verb.upper()} to key {change.name} because its type is not LIST."
                    raise error_for(ErrorCode.INVALID_CONFIG, text)
                raise error_for(
                    ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {change.name}"
                )
            start = current.get(change.name)
            if start is None:
                start = format_value(key.type, defaults.get(change.name)) or ""
            items = [item for item in start.split(",") if item]
            given = dict.fromkeys(item.strip() for item in (change.value or "").split(",") if item.strip())
            if change.operation is OpType.APPEND:
                there = set(items)
                items += [item for item in given if item not in there]
            else:
                items = [item for item in items if item not in given]
            current[change.name] = ",".join(items)


def _alter_loggers(context: RequestContext, name: str, changes: Sequence[Alteration], validate_only: bool) -> None:
    own = context.broker.node_id
    if node_id(name) != own:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {own}, but received {name}")
    for change in changes:
        if change.operation not in (OpType.SET, OpType.DELETE):
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource",
            )
        if not loggers.exists(change.name):
            raise error_for(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation is OpType.SET and change.value not in loggers.LEVELS:
            raise error_for(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(loggers.LEVELS))}",
            )
        if change.operation is OpType.DELETE and change.name == loggers.ROOT:
            raise error_for(
                ErrorCode.INVALID_REQUEST, f"Removing the log level of the {loggers.ROOT} logger is not allowed"
            )
    if validate_only:
        return
    for change in changes:
        if change.operation is OpType.SET:
            loggers.set_level(change.name, change.value or "")
        else:
            loggers.unset_level(change.name)
