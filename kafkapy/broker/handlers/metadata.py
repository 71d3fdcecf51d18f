"""Metadata, API key 3: versions 0 to 13.

The response gives brokers, topics and partition leaders from the metadata cache. auto.create.topics.enable and the
request together allow the creation of an unknown name; the response waits for it and names the leader at once (Kafka
answers with an error and lets the client ask again). A new topic counts in the client's quota of controller mutations,
and is UNKNOWN_TOPIC_OR_PARTITION while it exceeds it. A topic that the client may not describe is left out of "all
topics", and is TOPIC_AUTHORIZATION_FAILED otherwise.

Versions:
0: the API; an empty list means all topics.
1: null means all topics; rack of brokers, controller id, internal topics.
2: cluster id (KIP-78).
3: throttle time in the response.
4: a client may forbid auto-creation (KAFKA-5291).
5: offline replicas (KIP-112).
6: the response leaves before the pause of a throttled client (KIP-219).
7: leader epochs (KIP-320).
8: operations that the client may do (KIP-430).
9: flexible encoding with tagged fields (KIP-482).
10: topic ids in the response (KIP-516).
11: operations on the cluster are gone; DescribeCluster has them (KIP-700).
12: topics by id (KIP-516).
13: error code of the whole response, for a rebootstrap (KIP-1102).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from uuid import UUID

from kafkapy.broker.context import NO_AUTHORIZED_OPERATIONS, RequestContext
from kafkapy.broker.topic_view import view
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.cache import MetadataSnapshot, TopicMetadata
from kafkapy.metadata.topic_names import invalid_reason, is_internal
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.schema import ZERO_UUID
from kafkapy.slices import counted, in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = MetadataRequest
RESPONSE = MetadataResponse
TRAILING_BYTES = True
"""librdkafka 2.x asks for all topics in version 13 with an array length of four bytes where one belongs. Kafka reads
what the protocol says and overlooks the three bytes left over, and so does this broker.
"""

Topic = MetadataResponse.Topic


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Brokers and the topics asked for.

    INVALID_REQUEST for a null name or an id below version 12.
    """
    broker = context.broker
    everything = request.topics is None or (not request.topics and context.api_version == 0)
    asked = [] if everything else request.topics or []
    if context.api_version < 12:
        async for topic in in_slices(asked):
            if topic.name is None or topic.topic_id != ZERO_UUID:
                raise error_for(
                    ErrorCode.INVALID_REQUEST,
                    f"Metadata version {context.api_version} takes topic names, not null and not ids",
                )
    snapshot = broker.metadata_cache.snapshot
    ids = {topic.topic_id async for topic in in_slices(asked) if topic.topic_id != ZERO_UUID}
    names_by_id = {each: snapshot.topic_names.get(each) async for each in in_slices(ids)}
    if everything:
        names = list(snapshot.topics)
    elif ids:
        names = [name for name in names_by_id.values() if name is not None]
    else:
        names = list(await counted(topic.name for topic in asked if topic.name is not None))

    context.leave(ids, names_by_id, names)
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.TOPIC, names, log_if_denied=not everything
    )
    topics = [
        _error(None, ErrorCode.UNKNOWN_TOPIC_ID, each)
        async for each, name in in_slices(names_by_id.items())
        if name is None
    ]
    if not everything:
        async for name in in_slices(names):
            if name not in allowed:
                # An id tells nothing that the client did not know; a name must not tell whether it exists.
                topics.append(
                    _error(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, broker.metadata_cache.topic_id(name))
                    if ids
                    else _error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                )
    wanted = [name async for name in in_slices(names) if name in allowed]
    missing = [name async for name in in_slices(wanted) if name not in snapshot.topics]
    context.leave(wanted, missing)
    absent: list[Topic] = []
    if missing:
        errors = await _create_missing(context, request, missing)
        snapshot = broker.metadata_cache.snapshot
        absent = [_error(name, error) async for name, error in in_slices(errors.items()) if name not in snapshot.topics]
        context.leave(errors)
    found = [
        _found(context, snapshot, snapshot.topics[name]) async for name in in_slices(wanted) if name in snapshot.topics
    ]
    if request.include_topic_authorized_operations:
        async for shown in in_slices(chain(absent, found)):
            if shown.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                continue
            shown.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, shown.name or "")
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in snapshot.nodes(context.listener_name)
        ],
        cluster_id=broker.cluster_id,
        controller_id=snapshot.controller_id,
        topics=topics + absent + found,
        cluster_authorized_operations=_cluster_operations(context, request),
    )


def error_response(request: MetadataRequest, error: ErrorCode, message: str) -> MetadataResponse:
    """The error for every topic that was asked for."""
    del message
    topics = [_error(topic.name or "", error, topic.topic_id) for topic in request.topics or []]
    return MetadataResponse(brokers=[], topics=topics, error_code=error)


def _error(name: str | None, error: ErrorCode, topic_id: UUID = ZERO_UUID) -> Topic:
    internal = name is not None and error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED and is_internal(name)
    return Topic(error_code=error, name=name, topic_id=topic_id, is_internal=internal, partitions=[])


def _found(context: RequestContext, snapshot: MetadataSnapshot, topic: TopicMetadata) -> Topic:
    """The topic with its partitions, which are computed once for each listener and state of the brokers."""
    version_0, listener_errors = context.api_version == 0, context.api_version >= 6
    key = ("Metadata", snapshot.brokers_version, context.listener_name, version_0, listener_errors)
    partitions: list[Topic.Partition] | None = topic.memo.get(key)
    if partitions is None:
        partitions = []
        for each in topic.partitions.values():
            seen = view(snapshot, each, context.listener_name, only_alive=version_0, listener_errors=listener_errors)
            partitions.append(
                Topic.Partition(
                    error_code=seen.error,
                    partition_index=seen.partition,
                    leader_id=seen.leader,
                    leader_epoch=seen.leader_epoch,
                    replica_nodes=seen.replicas,
                    isr_nodes=seen.isr,
                    offline_replicas=seen.offline_replicas,
                )
            )
        # What was computed for brokers that have changed since is of no use any more.
        for old in [each for each in topic.memo if isinstance(each, tuple) and each[1] != snapshot.brokers_version]:
            del topic.memo[old]
        topic.memo[key] = partitions
    return Topic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions)


async def _create_missing(
    context: RequestContext, request: MetadataRequest, missing: Iterable[str]
) -> dict[str, ErrorCode]:
    """Create the topics where that is allowed, and the error of each that is not there afterwards."""
    broker = context.broker
    errors = {
        name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if invalid_reason(name) is None
        else ErrorCode.INVALID_TOPIC_EXCEPTION
        async for name in in_slices(missing)
    }
    if not (request.allow_auto_topic_creation and broker.config.get_bool("auto.create.topics.enable")):
        return errors
    creatable = list(errors)
    if not context.authorize(AclOperation.CREATE, ResourceType.CLUSTER, log_if_denied=False):
        allowed = await context.authorized_names_in_slices(AclOperation.CREATE, ResourceType.TOPIC, creatable)
        errors |= {
            name: ErrorCode.TOPIC_AUTHORIZATION_FAILED async for name in in_slices(creatable) if name not in allowed
        }
    creatable = [
        name async for name, error in in_slices(errors.items()) if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    if creatable:
        errors |= await broker.auto_topics.create(creatable, context.mutation_quota(strict_since=0))
    return errors


def _cluster_operations(context: RequestContext, request: MetadataRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return NO_AUTHORIZED_OPERATIONS
    if not context.authorize(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER)
