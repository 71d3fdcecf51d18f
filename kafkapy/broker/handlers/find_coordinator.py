"""FindCoordinator, API key 10: versions 0 to 6.

The response names the broker that coordinates a group, a transactional id or a share-partition: the leader of its
partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state`. The first request creates that topic,
which counts in no client's quota. Share-partitions are for brokers: a key is the group, the topic id and the partition
with colons between them, and needs CLUSTER_ACTION.

Versions:
0: groups only.
1: transactional ids (KIP-98); throttle time and error message in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: flexible encoding with tagged fields (KIP-482).
4: several keys at once (KIP-699).
5: TRANSACTION_ABORTABLE tells producers to abort (KIP-890).
6: share-partitions (KIP-932).

Known gaps: none. With ZooKeeper share-partitions get INVALID_REQUEST, as from Apache Kafka 3.9.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.mutation_quotas import Unlimited
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import ErrorCode
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, CoordinatorType, Node, ResourceType

REQUEST = FindCoordinatorRequest
RESPONSE = FindCoordinatorResponse

NO_NODE = Node(-1, "", -1)


async def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """One coordinator below version 4, one for each key from then on."""
    if context.api_version < 4:
        error, node = await _coordinator(context, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=error,
            error_message=error.message or error.name,
            node_id=node.id,
            host=node.host,
            port=node.port,
        )
    coordinators = []
    async for key in in_slices(request.coordinator_keys):
        error, node = await _coordinator(context, request.key_type, key)
        coordinators.append(_entry(key, error, node))
    return FindCoordinatorResponse(coordinators=coordinators)


def error_response(request: FindCoordinatorRequest, error: ErrorCode, message: str) -> FindCoordinatorResponse:
    """The error, in the place where the request's version has it."""
    if request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[_entry(key, error, NO_NODE) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, host="", port=-1)


def _entry(key: str, error: ErrorCode, node: Node) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=key,
        node_id=node.id,
        host=node.host,
        port=node.port,
        error_code=error,
        error_message=error.message or "",
    )


async def _coordinator(context: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, Node]:
    if key_type == CoordinatorType.GROUP:
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, key):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, NO_NODE
        return await _leader(context, GROUP_METADATA_TOPIC, key)
    if key_type == CoordinatorType.TRANSACTION:
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_NODE
        return await _leader(context, TRANSACTION_STATE_TOPIC, key)
    if key_type == CoordinatorType.SHARE and context.api_version >= 6:
        context.authorize_cluster(AclOperation.CLUSTER_ACTION)
        if not context.broker.features.zookeeper:
            return await _share_coordinator(context, key)
    return ErrorCode.INVALID_REQUEST, NO_NODE


async def _share_coordinator(context: RequestContext, key: str) -> tuple[ErrorCode, Node]:
    try:
        share_key = ShareKey.parse(key)
    except ValueError:
        return ErrorCode.INVALID_REQUEST, NO_NODE
    return await _leader(context, SHARE_GROUP_STATE_TOPIC, share_key.text)


async def _leader(context: RequestContext, topic: str, key: str) -> tuple[ErrorCode, Node]:
    """The leader of the key's partition of an internal topic."""
    broker = context.broker
    if not broker.metadata_cache.contains(topic):
        await broker.auto_topics.create([topic], Unlimited())
    await broker.coordinators.look_for(topic)
    partition = partition_of(key, broker.coordinators.partition_count(topic))
    snapshot = broker.metadata_cache.snapshot
    found = snapshot.partition(topic, partition)
    node = None if found is None else snapshot.node(found.leader, context.listener_name)
    return (ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE) if node is None else (ErrorCode.NONE, node)
