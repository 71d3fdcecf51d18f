"""Authorizers of plugins in a running broker: with the metadata store, or with nothing but answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from broker.acting import ANY_FILTER, binding, creation
from broker.conftest import Client
from broker.conftest import config as broker_config
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.security.authorizer.allow_all import AllowAllAuthorizer
from kafkapy.security.authorizer.base import AclBinding, AclDeleteResult, AuthorizationResult
from kafkapy.types import AclOperation, ResourceType

ACL = binding(ResourceType.TOPIC, "t", AclOperation.READ)


class Switch(AllowAllAuthorizer):
    """Allows topics, or not. It does not say when it changes its mind."""

    def __init__(self) -> None:
        self.allows = True
        self.epoch = 1

    @property
    def decisions_epoch(self) -> int:
        return self.epoch

    def authorize(self, context: Any, actions: Sequence[Any]) -> list[AuthorizationResult]:
        denied = [not self.allows and each.operation is AclOperation.WRITE for each in actions]
        return [AuthorizationResult.DENIED if each else AuthorizationResult.ALLOWED for each in denied]

    def switch(self) -> None:
        self.allows = not self.allows
        self.epoch += 1


class Stored(Switch):
    """Keeps whether it allows topics in the metadata store, and ACLs in Kafka's nodes."""

    PATH = "/my-authorizer"

    async def start(self, services: Any) -> None:
        self.services = services
        self.acl_store = await services.acl_store()
        await self.acl_store.start(self.heard)
        await services.metadata_store.ensure_path(self.PATH)
        value, _ = await services.metadata_store.get(self.PATH)
        self.allows = value != b"no"

    async def heard(self, changed: Any) -> None:
        self.changed = changed

    async def create_acls(self, context: Any, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        await self.services.metadata_store.set(self.PATH, b"no")
        self.switch()
        self.services.decisions_changed()
        return [None] * len(bindings)

    async def delete_acls(self, context: Any, filters: Any) -> list[AclDeleteResult]:
        return [AclDeleteResult((ACL,)) for _ in filters]


class Failing(Switch):
    async def start(self, services: Any) -> None:
        raise StoreUnavailableError("/x", "no ACLs today")


def server_with(directory: Path, authorizer: Any) -> KafkaServer:
    class Plugin:
        @hookimpl
        def register_authorizers(self) -> Any:
            return {"mine": lambda: authorizer}

    plugins = PluginManager.load()
    plugins.register(Plugin(), "mine")
    return KafkaServer(broker_config(directory, authorizer_class_name="mine"), plugins)


def appended(client: Client) -> ErrorCode:
    try:
        client.produce("t", [(1, b"x")])
    except AssertionError as error:
        return ErrorCode[str(error).partition("\n")[0]]
    return ErrorCode.NONE


def test_an_authorizer_that_says_nothing_is_looked_at(tmp_path: Path) -> None:
    authorizer = Switch()
    with server_with(tmp_path, authorizer) as server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        client.create_topic("t")
        for expected in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE):
            wait_until(lambda expected=expected: appended(client) == expected, f"Produce is {expected.name}")
            authorizer.switch()
        client.close()


def test_an_authorizer_with_the_metadata_store(tmp_path: Path) -> None:
    with server_with(tmp_path, Stored()) as server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        client.create_topic("t")
        assert appended(client) == ErrorCode.NONE
        created = client(CreateAclsRequest(creations=[creation(ACL)] * 2), 3)
        assert [each.error_code for each in created.results] == [ErrorCode.NONE] * 2
        assert appended(client) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        deleted = client(DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**ANY_FILTER)]), 3)
        assert [each.resource_name for each in deleted.filter_results[0].matching_acls] == ["t"]
        client.close()
    again = Stored()
    with server_with(tmp_path, again) as server:
        assert not again.allows
        assert (again.services.node_id, again.services.cluster_id) == (1, server.context.cluster_id)


def test_an_authorizer_that_cannot_start_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="no ACLs today"), server_with(tmp_path, Failing()):
        pass
