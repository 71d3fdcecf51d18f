"""TLS connections of the clients, by the I/O thread and by an ssl.SSLContext, against scripted brokers."""

from __future__ import annotations

import asyncio
import datetime
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import certificates
import pytest
from certificates import Certificate
from clients.connected import client, groups, list_groups
from clients.fake_broker import FakeCluster
from clients.sasl.sasl_broker import SaslSide
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from kafkapy.clients.network_client import NetworkClient
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import AuthenticationError, ConfigError, NoBrokersAvailableError, SslAuthenticationError
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.registry import ApiKeys

Run = Callable[[Any], Any]
NEVER_IN_TIME = 2**31 - 1


class Place:
    """A directory with certificates, and the clients' keys for them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = self.write("ca", certificates.shared_ca())

    def write(self, name: str, certificate: Certificate) -> str:
        """The path of a PEM file with chain and key."""
        file = self.directory / f"{name}.pem"
        file.write_bytes(certificate.chain_pem + certificate.key_pem)
        return str(file)

    def server(self, certificate: Certificate, *, client_ca: str | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.write("server", certificate))
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def trusting(self, how: str, ca: str) -> dict[str, object]:
        """Keys of a client that trusts this CA."""
        if how == "kernel":
            return {"security_protocol": "SSL", "ssl_cafile": ca}
        return {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=ca)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


HOW = pytest.mark.parametrize("how", ["kernel", "python"])


@asynccontextmanager
async def tls_cluster(context: ssl.SSLContext) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    cluster[1].tls = context
    async with cluster:
        yield cluster


@asynccontextmanager
async def raw_server(serve: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    """The address of a server that does as a test says."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def refusal(bootstrap: str, **keys: object) -> SslAuthenticationError:
    """The error of a client that gives up at its first connection."""
    with pytest.raises(SslAuthenticationError) as raised:
        async with client(bootstrap, bootstrap_timeout_ms=NEVER_IN_TIME, **keys):
            pass
    assert not raised.value.retriable
    assert isinstance(raised.value, AuthenticationError)
    assert bootstrap in str(raised.value)
    return raised.value


@HOW
def test_requests_go_over_tls(run: Run, place: Place, how: str) -> None:
    async def scenario() -> None:
        async with (
            tls_cluster(place.server(certificates.localhost())) as cluster,
            client(cluster.bootstrap, **place.trusting(how, place.ca)) as network,
        ):
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda *_: groups("a", "b")
            answers = await asyncio.gather(*(list_groups(network) for _ in range(100)))
            assert answers == [["a", "b"]] * 100
            assert network.metrics.connection_count == 1

    run(scenario())


@HOW
def test_large_responses_and_requests_arrive_whole(run: Run, place: Place, how: str) -> None:
    names = [f"{number:06}" * 1000 for number in range(1500)]  # 9 MB, more than one turn of the I/O thread

    async def scenario() -> None:
        async with (
            tls_cluster(place.server(certificates.localhost())) as cluster,
            client(cluster.bootstrap, **place.trusting(how, place.ca)) as network,
        ):
            cluster[1].on[ApiKeys.LIST_GROUPS] = lambda _, request: groups(*(request.states_filter or names))
            assert await list_groups(network) == names
            states = ["x" * 30_000] * 100
            responses = await asyncio.gather(
                *(network.send(1, ListGroupsRequest(states_filter=states)) for _ in range(5)), list_groups(network)
            )
            for response in responses[:5]:
                assert [group.group_id for group in response.groups] == states
            assert responses[5] == names

    run(scenario())


@HOW
def test_sasl_goes_over_tls(run: Run, place: Place, how: str) -> None:
    async def scenario() -> None:
        async with tls_cluster(place.server(certificates.localhost())) as cluster:
            side = SaslSide(cluster[1], {"ann": "hunter2"})
            keys = {
                **place.trusting(how, place.ca),
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "ann",
                "sasl_plain_password": "hunter2",
            }
            async with client(cluster.bootstrap, **keys):
                assert side.authenticated == 1

    run(scenario())


@HOW
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("untrusted", "certificate|issuer"),
        ("other host", "(?i)hostname|ip address"),
        ("expired", "expired"),
    ],
)
def test_a_wrong_certificate_is_refused_at_once(run: Run, place: Place, how: str, fault: str, reason: str) -> None:
    ca = certificates.shared_ca()
    certificate = {
        "untrusted": lambda: certificates.make_ca("Another").sign("localhost", ["localhost", "127.0.0.1"]),
        "other host": lambda: ca.sign("broker", ["broker.example", "127.0.0.2"]),
        "expired": lambda: ca.sign("localhost", ["localhost", "127.0.0.1"], days=-1),
    }[fault]()

    async def scenario() -> None:
        async with tls_cluster(place.server(certificate)) as cluster:
            error = await refusal(cluster.bootstrap, **place.trusting(how, place.ca))
            assert re.search(reason, str(error)), str(error)
            assert cluster[1].requests == []

    run(scenario())


@pytest.mark.parametrize(
    "keys",
    [
        {"ssl_check_hostname": False},
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.endpoint.identification.algorithm": "none"},
    ],
)
def test_the_check_of_the_name_can_be_switched_off(run: Run, place: Place, keys: dict[str, object]) -> None:
    certificate = certificates.shared_ca().sign("broker", ["broker.example"])

    async def scenario() -> None:
        async with (
            tls_cluster(place.server(certificate)) as cluster,
            client(cluster.bootstrap, **place.trusting("kernel", place.ca), **keys) as network,
        ):
            assert network.metrics.connection_count == 1

    run(scenario())


def test_the_check_of_the_certificate_can_be_switched_off(run: Run, place: Place) -> None:
    async def scenario() -> None:
        async with tls_cluster(place.server(certificates.make_ca("Another").sign("x", ["x"]))) as cluster:
            keys = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
            async with client(cluster.bootstrap, **keys) as network:
                assert network.metrics.connection_count == 1

    run(scenario())


def revocations(ca: Certificate, *revoked: Certificate) -> bytes:
    """The revocation list of an authority, in PEM."""
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(now - datetime.timedelta(days=1))
        .next_update(now + datetime.timedelta(days=1))
    )
    for each in revoked:
        entry = x509.RevokedCertificateBuilder().revocation_date(now)
        made = made.add_revoked_certificate(entry.serial_number(each.certificate.serial_number).build())
    return made.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


async def check_lists(place: Place, server: Certificate, lists: bytes, refused: str) -> None:
    """A client with these revocation lists refuses the server with that reason, or accepts it ("")."""
    file = place.directory / "revoked.pem"
    file.write_bytes(lists)
    keys = place.trusting("kernel", place.ca) | {"ssl_crlfile": str(file)}
    async with tls_cluster(place.server(server)) as cluster:
        if refused:
            assert refused in str(await refusal(cluster.bootstrap, **keys))
            return
        async with client(cluster.bootstrap, **keys) as network:
            assert network.metrics.connection_count == 1


@pytest.mark.parametrize("revoked", [True, False])
def test_a_revoked_certificate_is_refused(run: Run, place: Place, revoked: bool) -> None:
    certificate, other = (certificates.shared_ca().sign("localhost", ["127.0.0.1"]) for _ in range(2))
    lists = revocations(certificates.shared_ca(), certificate if revoked else other)
    run(check_lists(place, certificate, lists, "revoked" if revoked else ""))


@pytest.mark.parametrize(
    ("of_root", "of_middle", "refused"),
    [
        ("nothing", "nothing", ""),
        ("middle", "nothing", "revoked"),
        ("nothing", "server", "revoked"),
        ("", "nothing", ""),
        ("", "server", "revoked"),
        ("nothing", "", "CRL"),
        ("middle", "", "refused"),
    ],
)
def test_lists_of_a_chain(run: Run, place: Place, of_root: str, of_middle: str, refused: str) -> None:
    """The server's own certificate needs the list of its issuer; an authority must not stand in a list."""
    root = certificates.shared_ca()
    middle = root.sign("an authority between", is_ca=True)
    server = middle.sign("localhost", ["127.0.0.1"])
    revoked = {"nothing": (), "middle": (middle,), "server": (server,)}
    lists = b"".join(
        revocations(authority, *revoked[what]) for authority, what in ((root, of_root), (middle, of_middle)) if what
    )
    run(check_lists(place, server, lists, refused))


@pytest.mark.parametrize("form", ["kafka-python", "librdkafka", "librdkafka pem", "kafka pem", "ssl_context"])
def test_a_client_certificate_is_shown(run: Run, place: Place, form: str) -> None:
    alice = certificates.shared_ca().sign("alice")
    chain, key = alice.write(place.directory, "alice")
    context = ssl.create_default_context(cafile=place.ca)
    context.load_cert_chain(chain, key)
    ca_pem = certificates.shared_ca().chain_pem.decode()
    keys: dict[str, object] = {
        "kafka-python": {"ssl_cafile": place.ca, "ssl_certfile": chain, "ssl_keyfile": key},
        "librdkafka": {"ssl.ca.location": place.ca, "ssl.certificate.location": chain, "ssl.key.location": key},
        "librdkafka pem": {
            "ssl.ca.pem": ca_pem,
            "ssl.certificate.pem": alice.chain_pem.decode(),
            "ssl.key.pem": alice.key_pem.decode(),
        },
        "kafka pem": {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": ca_pem,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": place.write("alice-store", alice),
        },
        "ssl_context": {"ssl_context": context},
    }[form]

    async def scenario() -> None:
        server = place.server(certificates.localhost(), client_ca=place.ca)
        async with (
            tls_cluster(server) as cluster,
            client(cluster.bootstrap, security_protocol="ssl", **keys) as network,
        ):
            assert network.metrics.connection_count == 1

    run(scenario())


@HOW
def test_a_missing_client_certificate_is_raised_or_tried_again(run: Run, place: Place, how: str) -> None:
    """With TLS 1.3 the refusal comes after the handshake, and a reset may overtake it."""

    async def scenario() -> None:
        server = place.server(certificates.localhost(), client_ca=place.ca)
        async with tls_cluster(server) as cluster:
            with pytest.raises((SslAuthenticationError, NoBrokersAvailableError)):
                async with client(cluster.bootstrap, bootstrap_timeout_ms=300, **place.trusting(how, place.ca)):
                    pass
            assert cluster[1].requests == []

    run(scenario())


def test_a_client_without_tls_is_told_of_a_tls_listener(run: Run, place: Place) -> None:
    async def scenario() -> None:
        async with tls_cluster(place.server(certificates.localhost())) as cluster:
            with pytest.raises(NoBrokersAvailableError, match=r"does the listener need TLS\? see security\.protocol"):
                async with client(cluster.bootstrap, bootstrap_timeout_ms=300):
                    pass

    run(scenario())


def test_a_tls_alert_is_told_at_once(run: Run) -> None:
    """As TLS of Java answers a client without TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x50")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with raw_server(serve) as address:
            assert "set security.protocol to SSL or SASL_SSL" in str(await refusal(address))

    run(scenario())


@HOW
def test_a_listener_that_closes_the_handshake_is_tried_again(run: Run, place: Place, how: str) -> None:
    """As a plaintext listener does, for which the first record has an impossible size."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.close()

    async def scenario() -> None:
        async with raw_server(serve) as address:
            with pytest.raises(NoBrokersAvailableError, match="TLS handshake"):
                async with client(address, bootstrap_timeout_ms=200, **place.trusting(how, place.ca)):
                    pass

    run(scenario())


@HOW
def test_a_listener_that_answers_without_tls_is_named(run: Run, place: Place, how: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with raw_server(serve) as address:
            error = await refusal(address, **place.trusting(how, place.ca))
            assert how == "python" or "HTTP came instead of TLS" in str(error)

    run(scenario())


@HOW
def test_a_handshake_has_the_time_of_a_connection(run: Run, place: Place, how: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> None:
        async with raw_server(serve) as address:
            keys = {"socket_connection_setup_timeout_ms": 50, "bootstrap_timeout_ms": 500}
            with pytest.raises(NoBrokersAvailableError, match="did not finish the TLS handshake"):
                async with client(address, **keys, **place.trusting(how, place.ca)):
                    pass

    run(scenario())


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"ssl_cafile": "/nothing/here.pem"}, "/nothing/here.pem"),
        ({"ssl_crlfile": __file__}, "the file has no PEM block"),
        ({"ssl_context": "context"}, "must be an ssl.SSLContext"),
        ({"ssl_context": ssl.create_default_context(), "ssl_cafile": "ca.pem"}, "no effect beside ssl.context"),
        ({"ssl_cafile": "a", "ssl.truststore.location": "b"}, "contradicts"),
        ({"ssl_cafile": "a", "ssl.ca.location": "b"}, "set twice"),
    ],
)
def test_wrong_settings_are_refused_before_a_connection(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        NetworkClient(ClientConfig(COMMON, {}, security_protocol="SSL", **keys))


def test_a_plaintext_client_reads_no_store() -> None:
    ClientConfig(COMMON, {}, ssl_cafile="/nothing/here.pem", ssl_password="secret")
