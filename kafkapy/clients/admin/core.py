"""`AdminCore`: the admin client as coroutines.

`KafkaAdminClient` and the asyncio admin client are facades over it.
"""

from __future__ import annotations

from kafkapy.clients.admin.acls import AclAdmin
from kafkapy.clients.admin.cluster import ClusterAdmin
from kafkapy.clients.admin.configs import ConfigAdmin
from kafkapy.clients.admin.delegation_tokens import DelegationTokenAdmin
from kafkapy.clients.admin.groups import GroupAdmin
from kafkapy.clients.admin.log_dirs import LogDirAdmin
from kafkapy.clients.admin.share_groups import ShareGroupOffsetAdmin
from kafkapy.clients.admin.transactions import TransactionAdmin
from kafkapy.clients.admin.users import UserAdmin

__all__ = ["AdminCore"]


class AdminCore(
    ClusterAdmin,
    ConfigAdmin,
    GroupAdmin,
    ShareGroupOffsetAdmin,
    TransactionAdmin,
    LogDirAdmin,
    AclAdmin,
    UserAdmin,
    DelegationTokenAdmin,
):
    """The admin client, with one module per family of requests.

        core = AdminCore(ClientConfig(ADMIN, bootstrap_servers="localhost:9092"))
        await core.start()
        await core.create_topics({"orders": {"num_partitions": 6}})
        await core.close()

    All methods raise KafkaError: the broker's error, KafkaConnectionError or a similar one when the call's time ends
    without a response, IllegalStateError after close().
    """
