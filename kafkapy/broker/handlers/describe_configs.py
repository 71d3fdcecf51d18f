"""DescribeConfigs, API key 32: versions 0 to 4.

The request names topics, groups, this broker, the defaults of all brokers (an empty broker name), this broker's loggers
or client-metrics subscriptions. The response gives value and source of each key, and on request its synonyms and
documentation. Sensitive values are null, and the error message of a success is empty, as in Kafka.

Versions:
0: the API (KIP-133).
1: synonyms, and the source of each value (KIP-226).
2: the response leaves before the pause of a throttled client (KIP-219).
3: type and documentation of each key (KIP-569).
4: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.broker import loggers
from kafkapy.broker.alter_configs import ON_THE_CLUSTER, no_configuration, node_id
from kafkapy.broker.context import RequestContext
from kafkapy.config.client_metrics import describe_subscription
from kafkapy.config.entries import ConfigEntry
from kafkapy.config.group import describe_group
from kafkapy.config.topic import describe_topic
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.topic_names import validate_topic_name
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ConfigResourceType, ConfigSource, ResourceType

REQUEST = DescribeConfigsRequest
RESPONSE = DescribeConfigsResponse

Resource = DescribeConfigsRequest.Resource
Result = DescribeConfigsResponse.Result


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """One result for each resource, in the order asked."""
    results = []
    async for resource in in_slices(request.resources):
        result = Result(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        try:
            result.configs = await _configs(context, request, resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def error_response(request: DescribeConfigsRequest, error: ErrorCode, message: str) -> DescribeConfigsResponse:
    """The error for every resource."""
    return DescribeConfigsResponse(
        results=[
            Result(
                error_code=error,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=[],
            )
            for each in request.resources
        ]
    )


async def _configs(context: RequestContext, request: DescribeConfigsRequest, resource: Resource) -> list[Result.Config]:
    broker, name = context.broker, resource.resource_name
    keys = resource.configuration_keys or None
    kind = resource.resource_type
    if kind == ConfigResourceType.TOPIC:
        if not context.authorize(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        validate_topic_name(name)
        if not broker.metadata_cache.contains(name):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        config = broker.dynamic_config
        return _entries(context, request, describe_topic(config.config, await config.loaded_topic_keys(name), keys))
    if kind == ConfigResourceType.GROUP:
        if not context.authorize(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, name):
            raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not name:
            raise error_for(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        config = broker.dynamic_config
        return _entries(context, request, describe_group(config.config, config.group_keys(name), keys))
    if kind in ON_THE_CLUSTER and not context.authorize(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        if kind == ConfigResourceType.BROKER_LOGGER:
            if not name:
                raise error_for(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _require_this_broker(context, name, f"{broker.node_id}")
            return [
                Result.Config(
                    name=each,
                    value=level,
                    read_only=False,
                    config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
                    is_sensitive=False,
                )
                for each, level in loggers.levels().items()
                if keys is None or each in keys
            ]
        if name == "":
            return _entries(context, request, _cluster_defaults(context, keys))
        _require_this_broker(context, name, f"{broker.node_id} or empty string,")
        return _entries(context, request, broker.dynamic_config.config.describe(keys))
    if kind == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise error_for(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        found = describe_subscription(broker.dynamic_config.client_metrics_keys(name), keys)
        return _entries(context, request, found)
    raise error_for(ErrorCode.INVALID_REQUEST, no_configuration(kind))


def _require_this_broker(context: RequestContext, name: str, expected: str) -> None:
    if node_id(name, "Broker") != context.broker.node_id:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected} but received {name}")


def _cluster_defaults(context: RequestContext, keys: Iterable[str] | None) -> list[ConfigEntry]:
    """Only what the cluster-wide dynamic configuration sets, as Kafka."""
    config = context.broker.dynamic_config.config
    names = [name for name in config.dynamic_default if keys is None or name in keys]
    entries = []
    for entry in config.describe(names):
        synonyms = tuple(each for each in entry.synonyms if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        value = synonyms[0].value if synonyms else entry.value
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries.append(
            ConfigEntry(
                entry.name, value, entry.read_only, source, entry.sensitive, synonyms, entry.type, entry.documentation
            )
        )
    return entries


def _entries(
    context: RequestContext, request: DescribeConfigsRequest, entries: Iterable[ConfigEntry]
) -> list[Result.Config]:
    return [
        Result.Config(
            name=entry.name,
            value=None if entry.sensitive else entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_default=entry.is_default and context.api_version == 0,
            is_sensitive=entry.sensitive,
            synonyms=[
                Result.Config.Synonym(name=each.name, value=None if entry.sensitive else each.value, source=each.source)
                for each in entry.synonyms
            ]
            if request.include_synonyms
            else [],
            config_type=entry.type.code,
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in entries
    ]
