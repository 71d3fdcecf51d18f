"""TLS, logins and ACLs towards ZooKeeper and etcd, through the keys of a broker, on real servers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from metadata.broken_link import until
from peers.apache_kafka import PeerMissingError
from peers.etcd import Etcd
from peers.zookeeper import ZooKeeper

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.metadata.etcd_client import EtcdClient, encoded
from kafkapy.metadata.store import MetadataStore, NoNodeError, StoreUnavailableError, WatchEvent
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.metadata.zookeeper_connection import security_of
from kafkapy.plugins import PluginManager
from kafkapy.security.ssl.certificates import Identity, create_authority, truststore

PASSWORD = "store-secret"
JAAS = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="{}";'


class Stores:
    """Key stores and trust stores of a server and a broker, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = create_authority("Stores CA")
        self.server = self.authority.issue("server", hosts=["127.0.0.1", "localhost"])
        self.elsewhere = self.authority.issue("server", hosts=["elsewhere.example.org"])
        self.broker = self.authority.issue("CN=broker")
        (directory / "ca.pem").write_text(self.authority.chain_pem())
        (directory / "ca.p12").write_bytes(truststore([self.authority.certificate], PASSWORD))
        (directory / "other-ca.pem").write_text(create_authority("Other CA").chain_pem())
        for name in ("server", "elsewhere", "broker"):
            identity: Identity = getattr(self, name)
            (directory / f"{name}.p12").write_bytes(identity.pkcs12(PASSWORD))
            (directory / f"{name}.pem").write_text(identity.key_pem() + identity.chain_pem())
            (directory / f"{name}.crt").write_text(identity.chain_pem())
            (directory / f"{name}.key").write_text(identity.key_pem())

    def path(self, name: str) -> str:
        return str(self.directory / name)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("certificates"))


class SecureZooKeeper(ZooKeeper):
    """A server with a port for TLS, which asks for a certificate."""

    def __init__(self, directory: Path, stores: Stores) -> None:
        from peers.apache_kafka import free_port

        self.secure_port = free_port()
        super().__init__(
            directory,
            {
                "secureClientPort": str(self.secure_port),
                "secureClientPortAddress": "127.0.0.1",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": stores.path("server.p12"),
                "ssl.keyStore.password": PASSWORD,
                "ssl.trustStore.location": stores.path("ca.p12"),
                "ssl.trustStore.password": PASSWORD,
                "ssl.clientAuth": "want",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            },
        )


@pytest.fixture(scope="module")
def secure_zookeeper(tmp_path_factory: pytest.TempPathFactory, stores: Stores) -> Iterator[SecureZooKeeper]:
    try:
        server = SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), stores)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="module")
def sasl_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A server that knows the user kafka."""
    directory = tmp_path_factory.mktemp("zookeeper")
    jaas = directory / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module} required user_kafka="secret"; }};\n')
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    try:
        server = ZooKeeper(directory, {"authProvider.sasl": provider}, [f"-Djava.security.auth.login.config={jaas}"])
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server


def run(keys: dict[str, str], test: Callable[[MetadataStore], Awaitable[None]]) -> None:
    """Run a test with the store that these keys make."""
    store_keys = {"zookeeper.session.timeout.ms": "60000", "kafkapy.etcd.session.timeout.ms": "60000"}
    manager = PluginManager.load(builtins=["kafkapy.metadata.registered_stores"])

    async def opened() -> None:
        store = manager.create_metadata_store(BrokerConfig({**store_keys, **keys}))
        await store.start()
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(opened())


async def use(store: MetadataStore) -> None:
    """Write, read and watch."""
    seen: list[WatchEvent] = []
    await store.ensure_path("/top")
    await store.watch_children("/top", seen.append)
    name = await store.create("/top/n_", b"x" * 100_000, sequential=True)
    assert (await store.get(name))[0] == b"x" * 100_000
    await asyncio.gather(*(store.set(name, b"%d" % number) for number in range(40)))
    assert len(await store.get_many([name] * 200)) == 200
    await until(lambda: bool(seen))
    await store.delete(name)


# --- ZooKeeper: TLS -----------------------------------------------------------------------------------------------


def tls_keys(server: SecureZooKeeper, stores: Stores, **more: str) -> dict[str, str]:
    return {
        "zookeeper.connect": f"127.0.0.1:{server.secure_port}/{uuid.uuid4().hex}",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": stores.path("ca.pem"),
        **{f"zookeeper.ssl.{name.replace('_', '.')}": value for name, value in more.items()},
    }


@pytest.mark.parametrize("form", ["pem", "p12", "none", "1.3", "suite"])
def test_zookeeper_over_tls(secure_zookeeper: SecureZooKeeper, stores: Stores, form: str) -> None:
    keys = tls_keys(secure_zookeeper, stores)
    if form == "pem":
        keys["zookeeper.ssl.keystore.location"] = stores.path("broker.pem")
    elif form == "p12":
        for store, name in (("keystore", "broker.p12"), ("truststore", "ca.p12")):
            keys[f"zookeeper.ssl.{store}.location"] = stores.path(name)
            keys[f"zookeeper.ssl.{store}.password"] = PASSWORD
            keys[f"zookeeper.ssl.{store}.type"] = "PKCS12"
    elif form == "1.3":
        keys |= {"zookeeper.ssl.protocol": "TLSv1.3", "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}
    elif form == "suite":
        keys["zookeeper.ssl.cipher.suites"] = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    run(keys, use)


@pytest.mark.parametrize("mistake", ["another authority", "no TLS at all", "plain port"])
def test_a_tls_connection_that_cannot_be_is_one_sentence(
    secure_zookeeper: SecureZooKeeper, stores: Stores, mistake: str
) -> None:
    keys = tls_keys(secure_zookeeper, stores) | {"zookeeper.connection.timeout.ms": "5000"}
    if mistake == "another authority":
        keys["zookeeper.ssl.truststore.location"] = stores.path("other-ca.pem")
    elif mistake == "no TLS at all":
        del keys["zookeeper.ssl.client.enable"]
    else:
        keys["zookeeper.connect"] = secure_zookeeper.connect
    with pytest.raises(StoreUnavailableError, match="cannot be reached within 5 seconds: ") as caught:
        run(keys, use)
    if mistake == "another authority":
        assert "TLS fails: " in str(caught.value)


def test_the_host_name_of_zookeepers_certificate_is_compared(tmp_path: Path, stores: Stores) -> None:
    try:
        server = SecureZooKeeper(tmp_path, stores)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    server._settings["ssl.keyStore.location"] = stores.path("elsewhere.p12")
    with server:
        keys = tls_keys(server, stores)
        with pytest.raises(StoreUnavailableError, match="TLS fails: .*(mismatch|not valid)"):
            run(keys | {"zookeeper.connection.timeout.ms": "10000"}, use)
        run(keys | {"zookeeper.ssl.endpoint.identification.algorithm": ""}, use)


# --- ZooKeeper: ACLs ----------------------------------------------------------------------------------------------

PATHS = ("/brokers", "/config/users/alice", "/config/brokers", "/delegation_token/tokens/t", "/config/topics/t")
OPEN = [("world", "anyone", 31)]


async def make_nodes(store: MetadataStore) -> None:
    await store.ensure_paths([*PATHS, "/consumers"])
    await store.create("/ids", b"me", ephemeral=True)


def acls(store: MetadataStore) -> dict[str, list[tuple[str, str, int]]]:
    """The ACLs of the nodes, which only their owner may read."""
    assert isinstance(store, ZooKeeperStore)
    found: dict[str, Any] = {path: store._client.get_acls(path)[0] for path in (*PATHS, "/consumers", "/")}
    return {
        path: sorted((each.id.scheme, each.id.id if each.id.scheme == "world" else "", each.perms) for each in entries)
        for path, entries in found.items()
    }


def wanted_acls(scheme: str) -> dict[str, list[tuple[str, str, int]]]:
    mine = (scheme, "", 31)
    secret = ("/config/users/alice", "/config/brokers", "/delegation_token/tokens/t")
    public = sorted([mine, ("world", "anyone", 1)])
    return {path: [mine] if path in secret else public for path in (*PATHS, "/")} | {"/consumers": OPEN}


@pytest.mark.parametrize("how", ["certificate", "password"])
def test_nodes_have_kafkas_acls(request: pytest.FixtureRequest, stores: Stores, how: str) -> None:
    if how == "certificate":
        server: ZooKeeper = request.getfixturevalue("secure_zookeeper")
        assert isinstance(server, SecureZooKeeper)
        keys = tls_keys(server, stores, keystore_location=stores.path("broker.pem"))
    else:
        server = request.getfixturevalue("sasl_zookeeper")
        keys = {"zookeeper.connect": f"{server.connect}/{uuid.uuid4().hex}"}
        keys["kafkapy.zookeeper.sasl.jaas.config"] = JAAS.format("secret")
    chroot = "/" + keys["zookeeper.connect"].rpartition("/")[2]

    async def test(store: MetadataStore) -> None:
        await make_nodes(store)
        found = await asyncio.to_thread(acls, store)
        assert found == wanted_acls("x509" if how == "certificate" else "sasl")
        await store.set("/config/users/alice", b"secret")
        await asyncio.to_thread(others_are_kept_out, server.connect + chroot)
        assert (await store.get("/brokers"))[0] == b""

    run(keys | {"zookeeper.set.acl": "true"}, test)

    async def read(store: MetadataStore) -> None:
        assert (await store.get("/config/users/alice"))[0] == b"secret"

    run(keys, read)  # another session of the same broker


def others_are_kept_out(connect: str) -> None:
    client = KazooClient(hosts=connect)
    client.start(60)
    try:
        assert client.get("/brokers")[0] in (b"", None)
        client.create("/consumers/group")
        for attempt in (
            lambda: client.get("/config/users/alice"),
            lambda: client.set("/brokers", b"taken"),
            lambda: client.create("/brokers/mine"),
            lambda: client.delete("/config/topics/t"),
        ):
            with pytest.raises(NoAuthError):
                attempt()
    finally:
        client.stop()


def test_without_the_key_nodes_are_open(zookeeper: str) -> None:
    chroot = f"/{uuid.uuid4().hex}"

    async def test(store: MetadataStore) -> None:
        await make_nodes(store)
        found = await asyncio.to_thread(acls, store)
        assert set(map(tuple, found.values())) == {tuple(OPEN)}

    run({"zookeeper.connect": zookeeper + chroot}, test)


def test_a_wrong_password_is_one_sentence(sasl_zookeeper: ZooKeeper) -> None:
    keys = {
        "zookeeper.connect": sasl_zookeeper.connect,
        "zookeeper.connection.timeout.ms": "20000",
        "kafkapy.zookeeper.sasl.jaas.config": JAAS.format("wrong"),
    }
    with pytest.raises(StoreUnavailableError, match="refuses this broker") as caught:
        run(keys, use)
    assert "wrong" not in str(caught.value)


# --- ZooKeeper: keys that are refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl: needs a broker that ZooKeeper knows"),
        ({"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"}, "zookeeper.set.acl: needs a broker"),
        ({"kafkapy.zookeeper.sasl.jaas.config": "x"}, "kafkapy.zookeeper.sasl.jaas.config: "),
        (
            {"kafkapy.zookeeper.sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required keyTab="k";'},
            "other mechanisms are not supported",
        ),
        (
            {"kafkapy.zookeeper.sasl.jaas.config": JAAS.format("")},
            "must have the options username and password",
        ),
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable: must be false"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable: must be false"),
        ({"zookeeper.ssl.protocol": "SSLv3"}, "zookeeper.ssl.protocol: must be of TLSv1, "),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "zookeeper.ssl.enabled.protocols: must name versions"),
        ({"zookeeper.ssl.cipher.suites": "TLS_NO_SUCH_SUITE"}, "zookeeper.ssl.cipher.suites: names no suite"),
        ({"zookeeper.ssl.endpoint.identification.algorithm": "LDAPS"}, "must be HTTPS or empty"),
        ({"zookeeper.ssl.truststore.location": "/no/such.pem"}, "/no/such.pem"),
    ],
)
def test_a_key_that_cannot_be_kept_to_is_refused_at_the_start(keys: dict[str, str], said: str) -> None:
    tls = any(name.startswith("zookeeper.ssl.") for name in keys)
    config = BrokerConfig(
        {"zookeeper.connect": "localhost:1", **({"zookeeper.ssl.client.enable": "true"} if tls else {}), **keys}
    )
    with pytest.raises(ConfigError) as caught:
        security_of(config)
    assert said in str(caught.value)


# --- etcd ---------------------------------------------------------------------------------------------------------


def etcd_server(directory: Path, *arguments: str, scheme: str = "http") -> Etcd:
    try:
        return Etcd(directory, arguments, scheme=scheme)
    except PeerMissingError as missing:
        pytest.skip(str(missing))


def test_etcd_over_tls(tmp_path: Path, stores: Stores) -> None:
    server = etcd_server(
        tmp_path, "--cert-file", stores.path("server.crt"), "--key-file", stores.path("server.key"),
        "--trusted-ca-file", stores.path("ca.pem"), "--client-cert-auth", scheme="https",
    )  # fmt: skip
    keys = {
        "kafkapy.etcd.endpoints": server.endpoint,
        "kafkapy.etcd.ssl.truststore.location": stores.path("ca.pem"),
        "kafkapy.etcd.ssl.keystore.location": stores.path("broker.pem"),
    }
    short = {"kafkapy.etcd.connection.timeout.ms": "5000"}
    with server:
        run(keys, use)
        packed = {f"kafkapy.etcd.ssl.{store}.type": "PKCS12" for store in ("keystore", "truststore")}
        packed |= {f"kafkapy.etcd.ssl.{store}.password": PASSWORD for store in ("keystore", "truststore")}
        packed["kafkapy.etcd.ssl.truststore.location"] = stores.path("ca.p12")
        packed["kafkapy.etcd.ssl.keystore.location"] = stores.path("broker.p12")
        run(keys | packed, use)
        strangers = keys | short | {"kafkapy.etcd.ssl.truststore.location": stores.path("other-ca.pem")}
        with pytest.raises(StoreUnavailableError, match="cannot be reached within 5 seconds: .*TLS fails"):
            run(strangers, use)
        without = {name: value for name, value in keys.items() if "keystore" not in name}
        with pytest.raises(StoreUnavailableError, match="cannot be reached within"):
            run(without | short, use)
        plain = {"kafkapy.etcd.endpoints": server.endpoint.replace("https", "http")}
        with pytest.raises(StoreUnavailableError, match="cannot be reached within"):
            run(plain | short, use)


def test_etcd_asks_for_a_user(tmp_path: Path) -> None:
    server = etcd_server(tmp_path, "--auth-token-ttl", "2")
    keys = {
        "kafkapy.etcd.endpoints": server.endpoint,
        "kafkapy.etcd.prefix": "/cluster",
        "kafkapy.etcd.user": "broker",
        "kafkapy.etcd.password": "secret",
    }

    async def prepare() -> None:
        client = EtcdClient([server.endpoint], 10.0)
        permission = {"permType": "READWRITE", "key": encoded("/cluster/"), "range_end": encoded("/cluster0")}
        for path, message in (
            ("user/add", {"name": "root", "password": "root"}),
            ("user/add", {"name": "broker", "password": "secret"}),
            ("role/add", {"name": "brokers"}),
            ("role/grant", {"name": "brokers", "perm": permission}),
            ("user/grant", {"user": "broker", "role": "brokers"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("auth/enable", {}),
        ):
            prefix = "/v3/" if path.startswith("auth/") else "/v3/auth/"
            await client.call(prefix + path, message, timeout_s=20.0, repeatable=False)
        client.close()

    async def test(store: MetadataStore) -> None:
        await use(store)
        await asyncio.sleep(0)
        await store.create("/mine", ephemeral=True)
        # The token of a login lives for two seconds: a new one is asked for.
        for _ in range(8):
            await asyncio.sleep(0.5)
        assert (await store.get("/mine"))[1].ephemeral_owner == store.session_id
        seen: list[WatchEvent] = []
        await store.watch_node("/mine", seen.append)
        await store.set("/mine", b"x")
        await until(lambda: bool(seen))
        with pytest.raises(NoNodeError):
            await store.get("/nothing")

    with server:
        asyncio.run(prepare())
        run(keys, test)
        for wrong in ({"kafkapy.etcd.password": "wrong"}, {"kafkapy.etcd.user": "nobody"}):
            with pytest.raises(StoreUnavailableError, match="refuses this broker: the user .* is refused"):
                run(keys | wrong, use)
        with pytest.raises(StoreUnavailableError, match="refuses this broker|refused"):
            run(keys | {"kafkapy.etcd.prefix": "/other"}, use)
