"""DescribeQuorum, API key 55: versions 0 to 2.

There is no KRaft quorum. The response shows the same facts of this cluster: the controller is the only voter and the
leader, its epoch is the leader epoch, and the last transaction of the metadata store is the log end.

Versions:
0: the API (KIP-595).
1: times of the last fetch and the last catch-up of each replica (KIP-836).
2: directory ids, endpoints of the nodes, error messages (KIP-853).

Known gaps: directory ids of voters are zero.
"""

from __future__ import annotations

import time
from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.metadata.topic_names import CLUSTER_METADATA_TOPIC
from kafkapy.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = DescribeQuorumRequest
RESPONSE = DescribeQuorumResponse

Topic = DescribeQuorumResponse.Topic
Node = DescribeQuorumResponse.Node
MS_PER_S: Final = 1000
FIRST_WITH_NODES: Final = 2


async def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The quorum, as partition 0 of __cluster_metadata.

    A request has to ask for it alone, as in Kafka.
    """
    context.authorize_cluster(AclOperation.DESCRIBE)
    if len(request.topics) == 1 and _is_quorum(request.topics[0]):
        return await _quorum(context)
    return DescribeQuorumResponse(
        error_message="",
        topics=[
            Topic(
                topic_name=topic.topic_name,
                partitions=[_unknown(each.partition_index) async for each in in_slices(topic.partitions)],
            )
            async for topic in in_slices(request.topics)
        ],
    )


def _is_quorum(topic: DescribeQuorumRequest.Topic) -> bool:
    alone = len(topic.partitions) == 1 and topic.partitions[0].partition_index == 0
    return alone and topic.topic_name == CLUSTER_METADATA_TOPIC


async def _quorum(context: RequestContext) -> DescribeQuorumResponse:
    end = await context.broker.store.last_transaction()
    snapshot = context.broker.metadata_cache.snapshot
    leader, now_ms = snapshot.controller_id, int(time.time() * MS_PER_S)
    node = snapshot.node(leader, context.listener_name)
    partition = Topic.Partition(
        partition_index=0,
        error_message="",
        leader_id=leader,
        leader_epoch=snapshot.controller_epoch,
        high_watermark=end,
        current_voters=[
            ReplicaState(
                replica_id=leader, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
            )
        ],
        observers=[],
    )
    listeners = [Node.Listener(name=context.listener_name, host=node.host, port=node.port)] if node else []
    return DescribeQuorumResponse(
        error_message="",
        topics=[Topic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=[Node(node_id=leader, listeners=listeners)] if context.api_version >= FIRST_WITH_NODES else [],
    )


def _unknown(index: int) -> Topic.Partition:
    return Topic.Partition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
