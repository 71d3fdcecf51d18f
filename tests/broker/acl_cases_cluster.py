"""The ACL matrix: configuration, cluster and delegation tokens (see acl_matrix.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from broker.acl_case import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_DENIED,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    GROUP_DENIED,
    OK,
    READ,
    TOPIC,
    TOPIC_DENIED,
    USER,
    Ask,
    World,
    case,
    need,
    on_cluster,
)
from broker.acting import ANY_FILTER, ActingClient, binding, creation

from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_quorum import DescribeQuorumRequest
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkapy.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkapy.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.stop_replica import StopReplicaRequest
from kafkapy.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest
from kafkapy.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import AclOperation, ResourceType

# --- configuration ------------------------------------------------------------------------------------------------

CONFIG_TOPIC, CONFIG_BROKER, CONFIG_LOGGER, CONFIG_METRICS, CONFIG_GROUP = 2, 4, 8, 16, 32


def describing(kind: int, name: Callable[[World], str]) -> Ask:
    def ask(client: ActingClient, world: World, version: int) -> Any:
        asked = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name(world), configuration_keys=None)
        response = client(DescribeConfigsRequest(resources=[asked]), version)
        return [(each.error_code, bool(each.configs)) for each in response.results]

    return ask


def altering(kind: int, name: Callable[[World], str], key: str, value: str) -> Ask:
    def ask(client: ActingClient, world: World, version: int) -> Any:
        config = AlterConfigsRequest.Resource.Config(name=key, value=value)
        asked = AlterConfigsRequest.Resource(resource_type=kind, resource_name=name(world), configs=[config])
        response = client(AlterConfigsRequest(resources=[asked], validate_only=False), version)
        return [each.error_code for each in response.responses]

    return ask


def incrementing(kind: int, name: Callable[[World], str], key: str, value: str) -> Ask:
    def ask(client: ActingClient, world: World, version: int) -> Any:
        config = IncrementalAlterConfigsRequest.Resource.Config(name=key, config_operation=0, value=value)
        asked = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name(world), configs=[config])
        response = client(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), version)
        return [each.error_code for each in response.responses]

    return ask


class Configured(NamedTuple):
    label: str
    kind: int
    name: Callable[[World], str]
    resource: tuple[ResourceType, str]
    denied: int
    key: str
    value: str


ON_CLUSTER = (CLUSTER, "cluster")
CONFIGURED = (
    Configured("a topic", CONFIG_TOPIC, lambda w: w.topic, (TOPIC, "topic"), TOPIC_DENIED, "retention.ms", "77777777"),
    Configured("a broker", CONFIG_BROKER, lambda w: "1", ON_CLUSTER, CLUSTER_DENIED, "log.retention.bytes", "55555555"),
    Configured("a logger", CONFIG_LOGGER, lambda w: "1", ON_CLUSTER, CLUSTER_DENIED, "kafka.request.logger", "WARN"),
    Configured("client metrics", CONFIG_METRICS, lambda w: "m", ON_CLUSTER, CLUSTER_DENIED, "interval.ms", "1000"),
    Configured(
        "a group",
        CONFIG_GROUP,
        lambda w: w.group,
        (GROUP, "group"),
        GROUP_DENIED,
        "consumer.session.timeout.ms",
        "46000",
    ),
)
for each in CONFIGURED:
    case(
        ApiKeys.DESCRIBE_CONFIGS,
        each.label,
        need((*each.resource, DESCRIBE_CONFIGS)),
        denied=[[(each.denied, False)]],
        allowed=[(OK, True)],
    )(describing(each.kind, each.name))
    if each.kind != CONFIG_LOGGER:
        case(
            ApiKeys.ALTER_CONFIGS,
            each.label,
            need((*each.resource, ALTER_CONFIGS)),
            denied=[[each.denied]],
            allowed=[OK],
            changes=True,
        )(altering(each.kind, each.name, each.key, each.value))
    case(
        ApiKeys.INCREMENTAL_ALTER_CONFIGS,
        each.label,
        need((*each.resource, ALTER_CONFIGS)),
        denied=[[each.denied]],
        allowed=[OK],
        changes=True,
    )(incrementing(each.kind, each.name, each.key, each.value))


@case(ApiKeys.LIST_CONFIG_RESOURCES, "all", on_cluster(DESCRIBE_CONFIGS), denied=[(CLUSTER_DENIED, 0)], allowed=(OK, 0))
def list_config_resources(client: ActingClient, world: World, version: int) -> Any:
    response = client(ListConfigResourcesRequest(), version)
    return response.error_code, len(response.config_resources) if response.error_code else 0


# --- cluster ------------------------------------------------------------------------------------------------------


@case(ApiKeys.DESCRIBE_ACLS, "all", on_cluster(DESCRIBE), denied=[(CLUSTER_DENIED, False)], allowed=(OK, True))
def describe_acls(client: ActingClient, world: World, version: int) -> Any:
    every = ANY_FILTER if version else ANY_FILTER | {"pattern_type_filter": 3}
    response = client(DescribeAclsRequest(**every), version)
    return response.error_code, bool(response.resources)


@case(ApiKeys.CREATE_ACLS, "one", on_cluster(ALTER), denied=[[CLUSTER_DENIED]], allowed=[OK], changes=True)
def create_acls(client: ActingClient, world: World, version: int) -> Any:
    entry = creation(binding(TOPIC, world.new_topic, READ, "User:somebody"))
    return [each.error_code for each in client(CreateAclsRequest(creations=[entry]), version).results]


@case(ApiKeys.DELETE_ACLS, "none", on_cluster(ALTER), denied=[[CLUSTER_DENIED]], allowed=[OK])
def delete_acls(client: ActingClient, world: World, version: int) -> Any:
    fields = ANY_FILTER | {"pattern_type_filter": 3, "principal_filter": "User:nobody"}
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**fields)])
    return [each.error_code for each in client(request, version).filter_results]


@case(ApiKeys.DESCRIBE_CLUSTER, "operations", on_cluster(DESCRIBE), denied=[(OK, False)], allowed=(OK, True))
def describe_cluster(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    return response.error_code, response.cluster_authorized_operations & 1 << DESCRIBE != 0


@case(
    ApiKeys.DESCRIBE_LOG_DIRS,
    "all",
    on_cluster(DESCRIBE),
    denied=[(CLUSTER_DENIED, False)],
    allowed=(OK, True),
    versions=range(3, 6),
)
def describe_log_dirs(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeLogDirsRequest(topics=None), version)
    return response.error_code, bool(response.results)


@case(
    ApiKeys.DESCRIBE_LOG_DIRS,
    "all, old versions",
    on_cluster(DESCRIBE),
    denied=[False],
    allowed=True,
    versions=range(3),
)
def describe_log_dirs_old(client: ActingClient, world: World, version: int) -> Any:
    return bool(client(DescribeLogDirsRequest(topics=None), version).results)


@case(
    ApiKeys.ALTER_REPLICA_LOG_DIRS,
    "to nowhere",
    on_cluster(ALTER),
    denied=[[CLUSTER_DENIED]],
    allowed=[57],  # LOG_DIR_NOT_FOUND
)
def alter_replica_log_dirs(client: ActingClient, world: World, version: int) -> Any:
    topic = AlterReplicaLogDirsRequest.Dir.Topic(name=world.topic, partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path="/nowhere", topics=[topic])])
    return [each.error_code for each in client(request, version).results[0].partitions]


@case(
    ApiKeys.ELECT_LEADERS,
    "preferred",
    on_cluster(ALTER),
    denied=[(CLUSTER_DENIED, [CLUSTER_DENIED])],
    allowed=(OK, [84]),  # ELECTION_NOT_NEEDED
    versions=[1, 2],
)
def elect_leaders(client: ActingClient, world: World, version: int) -> Any:
    asked = ElectLeadersRequest.TopicPartitions(topic=world.topic, partitions=[0])
    response = client(ElectLeadersRequest(topic_partitions=[asked]), version)
    return response.error_code, [
        each.error_code for topic in response.replica_election_results for each in topic.partition_result
    ]


@case(
    ApiKeys.ELECT_LEADERS,
    "preferred, old version",
    on_cluster(ALTER),
    denied=[[CLUSTER_DENIED]],
    allowed=[84],
    versions=[0],
)
def elect_leaders_old(client: ActingClient, world: World, version: int) -> Any:
    asked = ElectLeadersRequest.TopicPartitions(topic=world.topic, partitions=[0])
    response = client(ElectLeadersRequest(topic_partitions=[asked]), version)
    return [each.error_code for topic in response.replica_election_results for each in topic.partition_result]


@case(
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS,
    "a cancel",
    on_cluster(ALTER),
    denied=[CLUSTER_DENIED],
    allowed=OK,
)
def alter_partition_reassignments(client: ActingClient, world: World, version: int) -> Any:
    part = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=None)
    topic = AlterPartitionReassignmentsRequest.Topic(name=world.topic, partitions=[part])
    return client(AlterPartitionReassignmentsRequest(topics=[topic]), version).error_code


@case(ApiKeys.LIST_PARTITION_REASSIGNMENTS, "all", on_cluster(DESCRIBE), denied=[CLUSTER_DENIED], allowed=OK)
def list_partition_reassignments(client: ActingClient, world: World, version: int) -> Any:
    return client(ListPartitionReassignmentsRequest(topics=None), version).error_code


@case(
    ApiKeys.UPDATE_FEATURES,
    "an unknown one",
    on_cluster(ALTER),
    denied=[CLUSTER_DENIED],
    allowed="another",
)
def update_features(client: ActingClient, world: World, version: int) -> Any:
    update = UpdateFeaturesRequest.FeatureUpdate(feature="nothing", max_version_level=1)
    response = client(UpdateFeaturesRequest(feature_updates=[update]), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(ApiKeys.DESCRIBE_QUORUM, "of the metadata", on_cluster(DESCRIBE), denied=[CLUSTER_DENIED], allowed="another")
def describe_quorum(client: ActingClient, world: World, version: int) -> Any:
    part = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    topic = DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=[part])
    response = client(DescribeQuorumRequest(topics=[topic]), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(ApiKeys.UNREGISTER_BROKER, "an unknown one", on_cluster(ALTER), denied=[CLUSTER_DENIED], allowed="another")
def unregister_broker(client: ActingClient, world: World, version: int) -> Any:
    response = client(UnregisterBrokerRequest(broker_id=77), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


# A former controller's requests: they are refused for that, once they are allowed.


@case(ApiKeys.LEADER_AND_ISR, "none", on_cluster(CLUSTER_ACTION), denied=[CLUSTER_DENIED], allowed="another")
def leader_and_isr(client: ActingClient, world: World, version: int) -> Any:
    response = client(LeaderAndIsrRequest(controller_id=7, controller_epoch=-1, live_leaders=[]), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(ApiKeys.STOP_REPLICA, "none", on_cluster(CLUSTER_ACTION), denied=[CLUSTER_DENIED], allowed="another")
def stop_replica(client: ActingClient, world: World, version: int) -> Any:
    response = client(StopReplicaRequest(controller_id=7, controller_epoch=-1), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(ApiKeys.UPDATE_METADATA, "none", on_cluster(CLUSTER_ACTION), denied=[CLUSTER_DENIED], allowed="another")
def update_metadata(client: ActingClient, world: World, version: int) -> Any:
    response = client(UpdateMetadataRequest(controller_id=7, controller_epoch=-1, live_brokers=[]), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS, "all", on_cluster(DESCRIBE), denied=[(CLUSTER_DENIED, 0)], allowed=(OK, 0)
)
def describe_user_scram_credentials(client: ActingClient, world: World, version: int) -> Any:
    # Kafka fails inside, and never answers, when it denies a request without a list of users.
    response = client(DescribeUserScramCredentialsRequest(users=[]), version)
    return response.error_code, len(response.results) if response.error_code else 0


@case(
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS,
    "a new user",
    on_cluster(ALTER),
    denied=[[CLUSTER_DENIED]],
    allowed=[OK],
    changes=True,
)
def alter_user_scram_credentials(client: ActingClient, world: World, version: int) -> Any:
    user = AlterUserScramCredentialsRequest.Upsertion(
        name=world.topic, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    response = client(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]), version)
    return [each.error_code for each in response.results]


@case(
    ApiKeys.DESCRIBE_CLIENT_QUOTAS,
    "all",
    on_cluster(DESCRIBE_CONFIGS),
    denied=[(CLUSTER_DENIED, None)],
    allowed=(OK, []),
)
def describe_client_quotas(client: ActingClient, world: World, version: int) -> Any:
    component = DescribeClientQuotasRequest.Component(entity_type="user", match_type=0, match=world.topic)
    response = client(DescribeClientQuotasRequest(components=[component], strict=True), version)
    return response.error_code, response.entries


@case(
    ApiKeys.ALTER_CLIENT_QUOTAS,
    "only checked",
    on_cluster(ALTER_CONFIGS),
    denied=[[CLUSTER_DENIED]],
    allowed=[OK],
)
def alter_client_quotas(client: ActingClient, world: World, version: int) -> Any:
    Entry = AlterClientQuotasRequest.Entry
    entry = Entry(
        entity=[Entry.Entity(entity_type="user", entity_name=world.topic)],
        ops=[Entry.Op(key="producer_byte_rate", value=1000.0, remove=False)],
    )
    response = client(AlterClientQuotasRequest(entries=[entry], validate_only=True), version)
    return [each.error_code for each in response.entries]


# --- delegation tokens --------------------------------------------------------------------------------------------


@case(
    ApiKeys.CREATE_DELEGATION_TOKEN,
    "of another user",
    need((USER, "owner", AclOperation.CREATE_TOKENS)),
    denied=[65],
    allowed=OK,
    versions=[3],
)
def create_delegation_token(client: ActingClient, world: World, version: int) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name=world.owner.partition(":")[2], renewers=[], max_lifetime_ms=-1
    )
    response = client(request, version)
    assert bool(response.hmac) == (response.error_code == OK)
    return response.error_code


@case(
    ApiKeys.DESCRIBE_DELEGATION_TOKEN,
    "of another user",
    need(
        (ResourceType.USER, "owner", AclOperation.DESCRIBE_TOKENS), (ResourceType.DELEGATION_TOKEN, "token", DESCRIBE)
    ),
    denied=[(OK, False)],
    allowed=(OK, True),
)
def describe_delegation_token(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeDelegationTokenRequest(owners=None), version)
    return response.error_code, world.token in {each.token_id for each in response.tokens}
