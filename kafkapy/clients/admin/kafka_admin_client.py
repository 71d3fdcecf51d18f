"""`KafkaAdminClient`: blocking administration of a cluster.

It has kafka-python's methods and more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from kafkapy.clients.admin.core import AdminCore
from kafkapy.clients.background import BackgroundLoop
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import IllegalStateError

if TYPE_CHECKING:
    from kafkapy.config.options import AdminOptions

__all__ = ["KafkaAdminClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AdminCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[KafkaAdminClient, P], T]:
    """A blocking method with the name, arguments and documentation of the core's."""

    @wraps(method)
    def call(self: KafkaAdminClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._core, *args, **kwargs))

    return cast("Callable[Concatenate[KafkaAdminClient, P], T]", call)


class KafkaAdminClient:
    """Administers a cluster. All threads may share one.

    It owns a thread with an event loop, and the connections.

        with KafkaAdminClient(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics({"orders": {"num_partitions": 6, "configs": {"retention.ms": "3600000"}}})

    Keywords are kafka-python's; Kafka's keys come in a mapping: KafkaAdminClient({"client.id": "me"}). The constructor
    returns when a broker has responded: NoBrokersAvailableError after bootstrap.timeout.ms. Methods raise KafkaError; a
    call without a response within default.api.timeout.ms (or its timeout_ms) fails with the last error.
    """

    def __init__(self, configs: Mapping[str, object] | None = None, **keywords: Unpack[AdminOptions]) -> None:
        self.config = ClientConfig(ADMIN, configs, **keywords)
        self._closed = False
        self._core = AdminCore(self.config)
        self._loop = BackgroundLoop("kafkapy-admin")
        try:
            self._loop.run(self._core.start())
            self._loop.call(self._core.network.learn_api_version, self.config)
        except BaseException:
            self._loop.stop()
            self._closed = True
            raise
        self._finalizer = weakref.finalize(self, self._loop.stop)

    def close(self) -> None:
        """Closes the connections. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            # After a fork the thread and the connections belong to the parent.
            if not self._loop.foreign:
                self._loop.run(self._core.close())
        finally:
            self._finalizer()

    def __enter__(self) -> KafkaAdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            coroutine.close()
            raise IllegalStateError("The admin client is closed.")
        return self._loop.run(coroutine)

    list_topics = _blocking(AdminCore.list_topics)
    describe_topics = _blocking(AdminCore.describe_topics)
    describe_topic_partitions = _blocking(AdminCore.describe_topic_partitions)
    create_topics = _blocking(AdminCore.create_topics)
    wait_for_topics = _blocking(AdminCore.wait_for_topics)
    delete_topics = _blocking(AdminCore.delete_topics)
    create_partitions = _blocking(AdminCore.create_partitions)
    delete_records = _blocking(AdminCore.delete_records)

    list_partition_offsets = _blocking(AdminCore.list_partition_offsets)
    elect_leaders = _blocking(AdminCore.elect_leaders)
    alter_partition_reassignments = _blocking(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AdminCore.list_partition_reassignments)

    describe_configs = _blocking(AdminCore.describe_configs)
    alter_configs = _blocking(AdminCore.alter_configs)
    reset_configs = _blocking(AdminCore.reset_configs)
    list_config_resources = _blocking(AdminCore.list_config_resources)

    describe_cluster = _blocking(AdminCore.describe_cluster)
    describe_metadata_quorum = _blocking(AdminCore.describe_metadata_quorum)
    api_versions = _blocking(AdminCore.api_versions)
    get_broker_version_data = _blocking(AdminCore.get_broker_version_data)
    describe_features = _blocking(AdminCore.describe_features)
    update_features = _blocking(AdminCore.update_features)
    client_instance_id = _blocking(AdminCore.client_instance_id)
    unregister_broker = _blocking(AdminCore.unregister_broker)
    add_raft_voter = _blocking(AdminCore.add_raft_voter)
    remove_raft_voter = _blocking(AdminCore.remove_raft_voter)

    describe_log_dirs = _blocking(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AdminCore.alter_replica_log_dirs)

    list_groups = _blocking(AdminCore.list_groups)
    describe_groups = _blocking(AdminCore.describe_groups)
    describe_consumer_groups = _blocking(AdminCore.describe_consumer_groups)
    describe_share_groups = _blocking(AdminCore.describe_share_groups)
    delete_groups = _blocking(AdminCore.delete_groups)
    remove_group_members = _blocking(AdminCore.remove_group_members)
    list_group_offsets = _blocking(AdminCore.list_group_offsets)
    alter_group_offsets = _blocking(AdminCore.alter_group_offsets)
    reset_group_offsets = _blocking(AdminCore.reset_group_offsets)
    reset_targets = _blocking(AdminCore.reset_targets)
    delete_group_offsets = _blocking(AdminCore.delete_group_offsets)

    list_share_group_offsets = _blocking(AdminCore.list_share_group_offsets)
    alter_share_group_offsets = _blocking(AdminCore.alter_share_group_offsets)
    reset_share_group_offsets = _blocking(AdminCore.reset_share_group_offsets)
    delete_share_group_offsets = _blocking(AdminCore.delete_share_group_offsets)

    list_transactions = _blocking(AdminCore.list_transactions)
    describe_transactions = _blocking(AdminCore.describe_transactions)
    describe_producers = _blocking(AdminCore.describe_producers)
    abort_transaction = _blocking(AdminCore.abort_transaction)
    fence_producers = _blocking(AdminCore.fence_producers)
    complete_transaction = _blocking(AdminCore.complete_transaction)
    terminate_transaction = _blocking(AdminCore.terminate_transaction)
    find_hanging_transactions = _blocking(AdminCore.find_hanging_transactions)
    find_hanging_producers = _blocking(AdminCore.find_hanging_producers)

    describe_acls = _blocking(AdminCore.describe_acls)
    create_acls = _blocking(AdminCore.create_acls)
    add_acls = _blocking(AdminCore.add_acls)
    delete_acls = _blocking(AdminCore.delete_acls)

    describe_user_scram_credentials = _blocking(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AdminCore.alter_user_scram_credentials)
    describe_client_quotas = _blocking(AdminCore.describe_client_quotas)
    alter_client_quotas = _blocking(AdminCore.alter_client_quotas)

    create_delegation_token = _blocking(AdminCore.create_delegation_token)
    renew_delegation_token = _blocking(AdminCore.renew_delegation_token)
    expire_delegation_token = _blocking(AdminCore.expire_delegation_token)
    describe_delegation_token = _blocking(AdminCore.describe_delegation_token)
