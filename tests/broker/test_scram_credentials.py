"""SCRAM users at the start of a broker, and on other brokers of the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.sasl_broker import log_in_scram, open_connection, sasl_config

from kafkapy.broker.scram_credentials import SECRET, ScramCredentials, Upsertion, follow, unknown_users_secret
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.znodes import CONFIG_USERS
from kafkapy.security.add_scram import parse_add_scram
from kafkapy.security.scram import CredentialCache, ScramMechanism, credential_of_password, encode_credential


class SharedStore(MemoryStore):
    """The store of several brokers: none removes a notification that others have not read."""

    is_shared = True


def logs_in(server: KafkaServer, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> bool:
    client = open_connection(server)
    try:
        return bool(log_in_scram(client, mechanism, user, password).error_code == ErrorCode.NONE)
    finally:
        client.close()


def test_a_user_of_the_start_logs_in_and_keeps_its_later_password(tmp_path: Path) -> None:
    keys = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}
    added = [parse_add_scram("SCRAM-SHA-256=[name=first,password=one]")]
    with KafkaServer(sasl_config(tmp_path, keys), added_users=added) as server:
        assert logs_in(server, "first", "one")
        made = encode_credential(credential_of_password(ScramMechanism.SCRAM_SHA_256, "two"))
        repository = server.context.dynamic_config.repository
        server.call(repository.change(CONFIG_USERS, "first", lambda config: {**config, "SCRAM-SHA-256": made}))
    added.append(parse_add_scram("SCRAM-SHA-256=[name=second,password=three]"))
    with KafkaServer(sasl_config(tmp_path, keys), added_users=added) as server:
        assert logs_in(server, "first", "two")
        assert not logs_in(server, "first", "one")
        assert logs_in(server, "second", "three")


def test_a_change_reaches_the_other_brokers() -> None:
    async def run() -> None:
        store = SharedStore()
        await store.start()
        await store.ensure_path(f"/config/{CONFIG_USERS}")
        writer, reader = ConfigRepository(store), ConfigRepository(store)
        for each in (writer, reader):
            await each.start((CONFIG_USERS,))
        cache = CredentialCache(b"secret")
        follow(reader, cache)
        salted = b"x" * 32
        results = await ScramCredentials(store, writer).alter([], [Upsertion("a b", 1, 4096, b"salt", salted)])
        assert results == {"a b": None}
        await reader.process_changes()
        found = cache.credential("SCRAM-SHA-256", "a b")
        assert found is not None
        assert (found.salt, found.iterations) == (b"salt", 4096)
        late = CredentialCache(b"secret")
        third = ConfigRepository(store)
        await third.start((CONFIG_USERS,))
        follow(third, late)
        assert late.credential("SCRAM-SHA-256", "a b") == found
        for repository in (writer, reader, third):
            await repository.stop()
        await store.close()

    asyncio.run(run())


def test_defaults_and_quotas_of_clients_are_no_users() -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.start()
        repository = ConfigRepository(store)
        await store.ensure_path(f"/config/{CONFIG_USERS}/alice/clients")
        await repository.start((CONFIG_USERS,))
        cache = CredentialCache(b"secret")
        follow(repository, cache)
        made = encode_credential(credential_of_password(ScramMechanism.SCRAM_SHA_256, "x"))
        for name in ("<default>", "alice/clients/c"):
            await repository.change(CONFIG_USERS, name, lambda config: {"SCRAM-SHA-256": made})
        for user in ("<default>", "alice/clients/c", "alice"):
            assert cache.credential("SCRAM-SHA-256", user) is None
        await repository.stop()
        await store.close()

    asyncio.run(run())


def test_all_brokers_share_the_secret_of_unknown_users() -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.start()
        made = await asyncio.gather(*(unknown_users_secret(store) for _ in range(3)))
        assert len(set(made)) == 1
        assert (await store.get(SECRET))[0] == made[0]
        assert len(made[0]) == 32
        await store.close()

    asyncio.run(run())
