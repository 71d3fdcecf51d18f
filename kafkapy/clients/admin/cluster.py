"""The cluster: its brokers, quorum, features and versions.

Served by: DescribeCluster (Metadata before Kafka 2.8), DescribeQuorum, ApiVersions, UnregisterBroker, AddRaftVoter,
RemoveRaftVoter, GetTelemetrySubscriptions (any broker), UpdateFeatures (controller).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kafkapy.clients.admin.shapes import OK, as_dict, checked, error_of, error_text, member_of, operation_names
from kafkapy.clients.admin.topics import TopicAdmin
from kafkapy.clients.telemetry import NEGATIVE, check_enabled
from kafkapy.errors import UnsupportedVersionError
from kafkapy.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.describe_quorum import DescribeQuorumRequest
from kafkapy.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kafkapy.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kafkapy.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import ZERO_UUID, UpdateFeatureType
from kafkapy.version import __version__

__all__ = ["ClusterAdmin"]

METADATA_TOPIC = "__cluster_metadata"
UPDATE_FEATURES_MS = 60_000


class ClusterAdmin(TopicAdmin):
    """The admin client's calls for the whole cluster."""

    _instance_id: UUID | None = None

    async def describe_cluster(self) -> dict[str, Any]:
        """The cluster's id, controller, brokers and authorized operations.

        {cluster_id, controller_id, brokers: [{broker_id, host, port, rack, is_fenced}], authorized_operations}.
        """
        deadline = self.deadline()

        def build(version: int) -> DescribeClusterRequest:
            return DescribeClusterRequest(
                include_cluster_authorized_operations=True, include_fenced_brokers=version >= 2
            )

        async def ask(node: int) -> dict[str, Any]:
            response = checked(await self.send_built(node, DescribeClusterRequest, build, deadline))
            shown = as_dict(
                response,
                "throttle_time_ms",
                "error_code",
                "error_message",
                "endpoint_type",
                "cluster_authorized_operations",
            )
            shown["authorized_operations"] = operation_names(response.cluster_authorized_operations)
            return shown

        try:
            return await self.one(self.anywhere, ask, deadline)
        except UnsupportedVersionError:
            shown = await self.cluster_metadata([])
            for broker in shown["brokers"]:
                broker["broker_id"] = broker.pop("node_id")
            return {name: value for name, value in shown.items() if name not in ("topics", "throttle_time_ms")}

    async def describe_metadata_quorum(self) -> dict[str, Any]:
        """The KRaft quorum: topics and nodes.

        topics is one topic with one partition: leader_id, leader_epoch, high_watermark, current_voters, observers,
        error. UnsupportedVersionError when the cluster has no KRaft controllers.
        """
        deadline = self.deadline()
        topic_class = DescribeQuorumRequest.Topic
        request = DescribeQuorumRequest(
            topics=[topic_class(topic_name=METADATA_TOPIC, partitions=[topic_class.Partition(partition_index=0)])]
        )

        async def ask(node: int) -> Any:
            return checked(await self.send(node, request, deadline))

        shown = as_dict(await self.one(self.anywhere, ask, deadline), "error_code", "error_message")
        for topic in shown["topics"]:
            for partition in topic["partitions"]:
                partition["error"] = error_text(partition.pop("error_code"), partition.pop("error_message"))
        return shown

    async def api_versions(self, broker_id: int | None = None) -> dict[int, tuple[int, int]]:
        """{api key: (oldest, newest version)} of one broker, or of any broker.

        Known keys are `ApiKeys`; all keys are ints.
        """
        response = await self._api_versions(broker_id)
        known = {each.value: each for each in ApiKeys}
        return {
            known.get(each.api_key, each.api_key): (each.min_version, each.max_version) for each in response.api_keys
        }

    async def get_broker_version_data(self, broker_id: int) -> dict[int, tuple[int, int]]:
        """`api_versions` of one broker."""
        return await self.api_versions(broker_id)

    async def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """The cluster's features: supported and finalized levels (KIP-584).

        {feature: {'supported': (lowest, highest level), 'finalized': (lowest, highest), 'finalized_epoch'}}; without a
        finalized level only 'supported'. `finalized_epoch` is None when unknown.
        """
        response = await self._api_versions(None, at_controller=send_request_to_controller, low=3)
        epoch = response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None
        features: dict[str, dict[str, Any]] = {}
        for each in response.supported_features:
            features.setdefault(each.name, {})["supported"] = (each.min_version, each.max_version)
        for each in response.finalized_features:
            level = features.setdefault(each.name, {})
            level["finalized"] = (each.min_version_level, each.max_version_level)
            level["finalized_epoch"] = epoch
        return features

    async def update_features(
        self,
        feature_updates: Mapping[str, int | tuple[UpdateFeatureType | str | int, int]],
        validate_only: bool = False,
        timeout_ms: int = UPDATE_FEATURES_MS,
    ) -> dict[str, str]:
        """Finalizes levels of features; returns {feature: 'OK' or the error}.

        Updates are {feature: level}, or {feature: (UpdateFeatureType, level)} for downgrades; a level below 1 removes
        the feature. Raises an error of the whole request.
        """
        deadline = self.deadline(timeout_ms)
        updates = {
            name: spec if isinstance(spec, tuple) else (UpdateFeatureType.UPGRADE, spec)
            for name, spec in feature_updates.items()
        }

        def build(version: int) -> UpdateFeaturesRequest:
            return UpdateFeaturesRequest(
                timeout_ms=timeout_ms,
                feature_updates=[_feature_update(name, *spec, version) for name, spec in updates.items()],
                validate_only=validate_only,
            )

        async def ask(node: int) -> Any:
            low = 1 if validate_only else 0
            return checked(await self.send_built(node, UpdateFeaturesRequest, build, deadline, low=low))

        response = await self.one(self.at_controller, ask, deadline)
        told = {each.feature: error_text(each.error_code, each.error_message) or OK for each in response.results}
        return dict.fromkeys(updates, OK) | told

    async def unregister_broker(self, broker_id: int) -> None:
        """Removes a broker from a KRaft cluster for good. BrokerIdNotRegisteredError and others."""
        await self._plain(UnregisterBrokerRequest(broker_id=broker_id))

    async def add_raft_voter(
        self,
        voter_id: int,
        voter_directory_id: UUID,
        endpoints: Iterable[tuple[str, str, int]],
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Makes a KRaft controller a voter (KIP-853).

        Endpoints are (listener name, host, port).
        """
        deadline = self.deadline(timeout_ms)
        listeners = [AddRaftVoterRequest.Listener(name=name, host=host, port=port) for name, host, port in endpoints]
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self.request_ms(deadline),
            voter_id=voter_id,
            voter_directory_id=voter_directory_id,
            listeners=listeners,
        )
        await self._plain(request, timeout_ms)

    async def remove_raft_voter(
        self, voter_id: int, voter_directory_id: UUID, cluster_id: str | None = None, timeout_ms: int | None = None
    ) -> None:
        """Removes a KRaft controller from the voters (KIP-853)."""
        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=voter_directory_id
        )
        await self._plain(request, timeout_ms)

    async def _plain(self, request: Any, timeout_ms: int | None = None) -> None:
        """Sends a request to any broker, and raises the response's error."""
        deadline = self.deadline(timeout_ms)

        async def ask(node: int) -> None:
            response = await self.send(node, request, deadline)
            if error := error_of(response.error_code, response.error_message):
                raise error

        await self.one(self.anywhere, ask, deadline)

    async def client_instance_id(self, timeout_ms: float) -> UUID:
        """The id that a broker gave this client (KIP-714).

        An admin client pushes no metrics. ValueError for a negative timeout; IllegalStateError with
        enable_metrics_push=False, the default; UnsupportedVersionError from a broker without telemetry.
        """
        if timeout_ms < 0:
            raise ValueError(NEGATIVE)
        check_enabled(bool(self.config["enable.metrics.push"]))
        if self._instance_id is None:
            deadline = self.deadline(timeout_ms)
            request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)

            async def ask(node: int) -> UUID:
                found: UUID = checked(await self.send(node, request, deadline)).client_instance_id
                return found

            self._instance_id = await self.one(self.anywhere, ask, deadline)
        return self._instance_id

    async def _api_versions(self, broker: int | None, *, at_controller: bool = False, low: int = 0) -> Any:
        deadline = self.deadline()

        def build(version: int) -> ApiVersionsRequest:
            if version < 3:
                return ApiVersionsRequest()
            return ApiVersionsRequest(client_software_name="kafkapy", client_software_version=__version__)

        async def ask(node: int) -> Any:
            return checked(await self.send_built(node, ApiVersionsRequest, build, deadline, low=low))

        somewhere = self.at_controller if at_controller else self.anywhere
        return await self.one(somewhere if broker is None else self.at_node(broker), ask, deadline)


def _feature_update(
    name: str, kind: UpdateFeatureType | str | int, level: int, version: int
) -> UpdateFeaturesRequest.FeatureUpdate:
    update = member_of(UpdateFeatureType, kind)
    if version:
        return UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=update)
    return UpdateFeaturesRequest.FeatureUpdate(
        feature=name, max_version_level=level, allow_downgrade=update is not UpdateFeatureType.UPGRADE
    )
