"""TLS contexts of settings: handshakes that succeed or fail, and stores that change while a listener runs."""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from kafkapy._speedups.base.tls import TlsContext
from kafkapy._speedups.testing.tls_connection import TlsConnection
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.config_def import Password
from kafkapy.config.properties import parse_properties
from kafkapy.errors import ConfigError
from kafkapy.security.ssl.certificates import Identity, create_authority, truststore
from kafkapy.security.ssl.context import ListenerTls, client_context, server_context
from kafkapy.security.ssl.settings import SslSettings

SECRET = "st0re-pass"
Handshake = Callable[..., tuple[TlsConnection, TlsConnection]]


def settings(identity: Identity | None = None, trusted: Identity | None = None, **values: Any) -> SslSettings:
    given: dict[str, Any] = {"keystore_type": "PEM", "truststore_type": "PEM"}
    if identity is not None:
        given |= {"keystore_key": Password(identity.key_pem()),
                  "keystore_certificate_chain": Password(identity.chain_pem())}  # fmt: skip
    if trusted is not None:
        given |= {"truststore_certificates": Password(trusted.chain_pem())}
    return SslSettings(**given | values)


@pytest.fixture
def handshake() -> Iterator[Handshake]:
    """Both ends of a connection after their handshakes."""
    made: list[TlsConnection] = []

    def shake(server: TlsContext, client: TlsContext, host: str = "localhost") -> tuple[TlsConnection, TlsConnection]:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        left = TlsConnection(ends[0].detach(), server)
        right = TlsConnection(ends[1].detach(), client, host, 9093)
        made.extend((left, right))
        for _ in range(20):
            done = [each.handshake() for each in (left, right)]
            if done == [1, 1]:
                break
        return left, right

    yield shake
    for each in made:
        each.close()


def succeeded(ends: tuple[TlsConnection, TlsConnection]) -> bool:
    """Whether a byte goes from the client to the server, and back."""
    server, client = ends
    if server.handshake() != 1 or client.handshake() != 1:
        return False
    for sender, receiver in ((client, server), (server, client)):
        if sender.write([b"x"]) != 1 or receiver.read(1) != b"x":
            return False
    return True


# --- handshakes -------------------------------------------------------------------------------------------------------


def test_client_that_trusts_the_authority_connects(
    identity: Identity, authority: Identity, handshake: Handshake
) -> None:
    ends = handshake(server_context(settings(identity)), client_context(settings(trusted=authority)))
    assert succeeded(ends)
    assert ends[0].protocol == "TLSv1.3"
    assert ends[0].peer_certificate is None


def test_client_that_trusts_another_authority_refuses(identity: Identity, handshake: Handshake) -> None:
    ends = handshake(server_context(settings(identity)), client_context(settings(trusted=create_authority("Other"))))
    assert not succeeded(ends)
    assert "self-signed certificate" in str(ends[1].error) or "unable to get" in str(ends[1].error)


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
@pytest.mark.parametrize("shown", ["own", "foreign", None])
def test_client_certificates(
    identity: Identity, authority: Identity, handshake: Handshake, client_auth: str, shown: str | None
) -> None:
    issuer = {"own": authority, "foreign": create_authority("Foreign")}
    client = issuer[shown].issue("CN=alice") if shown is not None else None
    server = server_context(settings(identity, authority, client_auth=client_auth))
    ends = handshake(server, client_context(settings(client, authority)))
    asked = client_auth != "none"
    accepted = not asked or shown == "own" or (shown is None and client_auth == "requested")
    assert succeeded(ends) == accepted
    if accepted and asked and client is not None:
        assert ends[0].peer_certificate == client.certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "other.example"])
@pytest.mark.parametrize(
    ("values", "checked"),
    [
        ({}, True),
        ({"endpoint_identification_algorithm": "HTTPS"}, True),
        ({"endpoint_identification_algorithm": ""}, False),
        ({"endpoint_identification_algorithm": "none"}, False),
        ({"check_hostname": False}, False),
    ],
)
def test_host_names(
    identity: Identity, authority: Identity, handshake: Handshake, host: str, values: dict[str, Any], checked: bool
) -> None:
    client = client_context(settings(trusted=authority, **values))
    ends = handshake(server_context(settings(identity)), client, host)
    assert succeeded(ends) == (not checked or host != "other.example")


def test_client_without_verification_accepts_every_certificate(identity: Identity, handshake: Handshake) -> None:
    client = client_context(settings(verify_certificate=False, truststore_location="/not/read"))
    assert succeeded(handshake(server_context(settings(identity)), client, "other.example"))


def test_revoked_certificate_is_refused(
    tmp_path: Path, authority: Identity, identity: Identity, handshake: Handshake
) -> None:
    revoked = authority.issue("revoked", hosts=["localhost"])
    now = datetime.datetime.now(datetime.UTC)
    entry = x509.RevokedCertificateBuilder().serial_number(revoked.certificate.serial_number).revocation_date(now)
    listed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - datetime.timedelta(hours=1))
        .next_update(now + datetime.timedelta(days=1))
        .add_revoked_certificate(entry.build())
        .sign(authority.key, hashes.SHA256())
    )
    path = tmp_path / "crl.pem"
    path.write_bytes(listed.public_bytes(Encoding.PEM))
    client = client_context(settings(trusted=authority, crl_location=str(path)))
    assert succeeded(handshake(server_context(settings(identity)), client))
    ends = handshake(server_context(settings(revoked)), client)
    assert not succeeded(ends)
    assert "revoked" in str(ends[1].error)
    path.write_text(authority.chain_pem())
    with pytest.raises(ConfigError, match="there is no revocation list in it"):
        client_context(settings(trusted=authority, crl_location=str(path)))
    path.write_text("-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n")
    with pytest.raises(ConfigError, match="a revocation list cannot be read") as caught:
        client_context(settings(trusted=authority, crl_location=str(path)))
    assert (caught.value.key, caught.value.value) == ("ssl.crl.location", str(path))


@pytest.mark.parametrize(
    ("server", "client", "version"),
    [
        ({"enabled_protocols": ("TLSv1.2",)}, {}, "TLSv1.2"),
        ({}, {"enabled_protocols": ("TLSv1.2", "TLSv1.3"), "protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"protocol": "TLS"}, {}, "TLSv1.3"),
        ({"enabled_protocols": ()}, {}, "TLSv1.3"),
        ({"enabled_protocols": ("TLSv1.3",)}, {"enabled_protocols": ("TLSv1.2",)}, None),
    ],
)
def test_versions(
    identity: Identity, authority: Identity, handshake: Handshake, server: dict[str, Any], client: dict[str, Any],
    version: str | None,
) -> None:  # fmt: skip
    ends = handshake(
        server_context(settings(identity, **server)), client_context(settings(trusted=authority, **client))
    )
    assert succeeded(ends) == (version is not None)
    if version is not None:
        assert ends[1].protocol == version


def test_cipher_suites_by_their_names_in_java(identity: Identity, authority: Identity, handshake: Handshake) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    server = server_context(settings(identity, cipher_suites=(suite,)))
    ends = handshake(server, client_context(settings(trusted=authority)))
    assert succeeded(ends)
    assert (ends[1].protocol, ends[1].cipher_suite) == ("TLSv1.2", suite)


# --- settings that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({"protocol": "SSLv3"}, "ssl.protocol", "must be one of TLS, TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"),
        ({"enabled_protocols": ("TLSv1.2", "SSLv3")}, "ssl.enabled.protocols", "must be of TLSv1"),
        ({"enabled_protocols": ("TLSv1.3",), "protocol": "TLSv1.2"}, "ssl.enabled.protocols", "none of them"),
        ({"cipher_suites": ("TLS_NO_SUCH",)}, "ssl.cipher.suites", "TLS_NO_SUCH"),
        ({"cipher_suites": ("NO_SUCH",)}, "ssl.cipher.suites", "NO_SUCH"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",), "enabled_protocols": ("TLSv1.2",)}, "ssl.cipher.suites",
         "no cipher suite fits"),
    ],
)  # fmt: skip
def test_setting_that_tls_cannot_have_is_refused(
    identity: Identity, values: dict[str, Any], key: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        server_context(settings(identity, **values))
    assert (caught.value.key, reason in caught.value.reason) == (key, True), str(caught.value)


def test_client_with_another_check_of_names_is_refused(authority: Identity) -> None:
    with pytest.raises(ConfigError, match="must be https or empty"):
        client_context(settings(trusted=authority, endpoint_identification_algorithm="LDAPS"))


def test_listener_without_a_keystore_is_refused(authority: Identity) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: a TLS listener needs a keystore"):
        server_context(settings(trusted=authority))


# --- a listener's settings --------------------------------------------------------------------------------------------

PROPERTIES = """\
listeners=EXTERNAL://:9093,INTERNAL://:9094
listener.security.protocol.map=EXTERNAL:SSL,INTERNAL:SASL_SSL
inter.broker.listener.name=INTERNAL
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN
ssl.keystore.location=/all.p12
ssl.client.auth=required
listener.name.external.ssl.keystore.location=/external.p12
listener.name.external.ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/
"""


def test_listener_prefix_wins() -> None:
    config = BrokerConfig(parse_properties(PROPERTIES, "server.properties"))
    external, internal = (SslSettings.for_listener(config, name) for name in ("EXTERNAL", "INTERNAL"))
    assert (external.keystore_location, internal.keystore_location) == ("/external.p12", "/all.p12")
    assert external.principal_mapping_rules == "RULE:^CN=(.*?),.*$/$1/"
    assert internal.principal_mapping_rules == "DEFAULT"
    assert "listener.name.external.ssl.keystore.location: x (server.properties, line 8)" in str(
        external.error("ssl.keystore.location", "x", "/external.p12")
    )
    assert "configuration ssl.keystore.location: x (server.properties, line 6)" in str(
        internal.error("ssl.keystore.location", "x", "/all.p12")
    )


def test_sasl_listener_takes_client_auth_only_from_its_own_key() -> None:
    config = BrokerConfig(parse_properties(PROPERTIES))
    assert SslSettings.for_listener(config, "EXTERNAL").client_auth == "required"
    assert SslSettings.for_listener(config, "INTERNAL").client_auth == "none"
    own = BrokerConfig(parse_properties(PROPERTIES + "listener.name.internal.ssl.client.auth=requested\n"))
    assert SslSettings.for_listener(own, "INTERNAL").client_auth == "requested"


# --- reload -----------------------------------------------------------------------------------------------------------


def files(directory: Path, identity: Identity, trusted: Identity | None, **values: Any) -> SslSettings:
    (directory / "key.p12").write_bytes(identity.pkcs12(SECRET))
    given: dict[str, Any] = {"keystore_location": str(directory / "key.p12"), "keystore_password": Password(SECRET)}
    if trusted is not None:
        (directory / "trust.p12").write_bytes(truststore([trusted.certificate], SECRET))
        given |= {"truststore_location": str(directory / "trust.p12"), "truststore_password": Password(SECRET)}
    return SslSettings(**given | values)


def same_names(authority: Identity, **values: Any) -> Identity:
    given: dict[str, Any] = {"hosts": ["localhost", "127.0.0.1"]}
    return authority.issue("CN=broker,OU=Kafka,O=Example,C=DE", **given | values)


def test_written_file_is_taken_for_new_connections(
    tmp_path: Path, identity: Identity, authority: Identity, handshake: Handshake
) -> None:
    tls = ListenerTls(files(tmp_path, identity, None))
    before = tls.context
    client = client_context(settings(trusted=authority))
    assert not tls.changed(tls.settings)
    assert not tls.reload(tls.settings)
    renewed = same_names(authority)
    files(tmp_path, renewed, None)
    assert tls.changed(tls.settings)
    assert tls.reload(tls.settings)
    assert not tls.changed(tls.settings)
    for context, shown in ((before, identity), (tls.context, renewed)):
        ends = handshake(context, client)
        assert succeeded(ends)
        assert ends[1].peer_certificate == shown.certificate.public_bytes(Encoding.DER)


def test_file_with_the_same_size_and_time_is_noticed_by_its_inode(tmp_path: Path, identity: Identity) -> None:
    tls = ListenerTls(files(tmp_path, identity, None))
    path = tmp_path / "key.p12"
    status = path.stat()
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.rename(path)
    assert tls.changed(tls.settings)


@pytest.mark.parametrize(
    ("renewed", "values", "reason"),
    [
        ({}, {}, None),
        ({"hosts": ["localhost", "127.0.0.1", "more.example"]}, {}, None),
        ({"hosts": ["localhost"]}, {}, "lacks alternative names of the old one (127.0.0.1)"),
        ({"hosts": []}, {}, "lacks alternative names of the old one (127.0.0.1, localhost)"),
        ({"hosts": ["localhost"]}, {"allow_san_changes": True}, None),
        ({"name": "CN=broker,OU=Other,O=Example,C=DE"}, {}, "the new certificate is of CN=broker,OU=Other"),
        ({"name": "CN=broker,OU=Other,O=Example,C=DE"}, {"allow_dn_changes": True}, None),
        ({"name": "CN=Broker,OU=KAFKA,O=Example,C=DE"}, {}, None),
        ({"days": 5, "starts_in_days": -10}, {}, "expired at"),
    ],
)
def test_renewed_keystore_is_checked(
    tmp_path: Path, identity: Identity, authority: Identity, renewed: dict[str, Any], values: dict[str, Any],
    reason: str | None,
) -> None:  # fmt: skip
    tls = ListenerTls(files(tmp_path, identity, None))
    before = tls.context
    name = renewed.pop("name", "CN=broker,OU=Kafka,O=Example,C=DE") if "name" in renewed else None
    new = same_names(authority, **renewed) if name is None else authority.issue(name, hosts=["localhost", "127.0.0.1"])
    changed = files(tmp_path, new, None, **values)
    if reason is None:
        tls.validate(changed)
        assert tls.context is before
        assert tls.reload(changed)
        assert tls.context is not before
        return
    for refused in (tls.validate, tls.reload):
        with pytest.raises(ConfigError) as caught:
            refused(changed)
        assert reason in caught.value.reason
        assert caught.value.value == str(tmp_path / "key.p12")
        assert tls.context is before
    # A later attempt is checked again.
    assert tls.changed(changed)


def test_file_that_is_half_written_keeps_the_old_context(tmp_path: Path, identity: Identity) -> None:
    tls = ListenerTls(files(tmp_path, identity, None))
    before = tls.context
    path = tmp_path / "key.p12"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="the PKCS12 store is damaged"):
        tls.reload(tls.settings)
    path.unlink()
    with pytest.raises(ConfigError, match="the file does not exist"):
        tls.reload(tls.settings)
    assert tls.context is before


def test_truststore_is_neither_added_nor_removed(tmp_path: Path, identity: Identity, authority: Identity) -> None:
    without, with_one = files(tmp_path, identity, None), files(tmp_path, identity, authority)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: a truststore cannot be added to a listener"):
        ListenerTls(without).reload(with_one)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: a truststore cannot be removed from a listener"):
        ListenerTls(with_one).reload(without)
    with pytest.raises(ConfigError, match="a TLS listener needs a keystore"):
        ListenerTls(without).reload(SslSettings())


def test_inter_broker_listener_accepts_its_own_certificate(
    tmp_path: Path, identity: Identity, authority: Identity
) -> None:
    ListenerTls(files(tmp_path, identity, authority), inter_broker=True)
    foreign = create_authority("Foreign")
    with pytest.raises(ConfigError, match="does not accept the certificate of CN=broker.*could not connect"):
        ListenerTls(files(tmp_path, identity, foreign), inter_broker=True)
    ListenerTls(files(tmp_path, identity, foreign))
    clients_only = same_names(authority, server=False)
    with pytest.raises(ConfigError, match="extended key usage does not allow a TLS server"):
        ListenerTls(files(tmp_path, clients_only, authority), inter_broker=True)
    servers_only = same_names(authority, client=False)
    ListenerTls(files(tmp_path, servers_only, authority), inter_broker=True)
    with pytest.raises(ConfigError, match="does not allow a TLS client, and brokers connect as clients"):
        ListenerTls(files(tmp_path, servers_only, authority, client_auth="required"), inter_broker=True)


def test_inter_broker_listener_changes_its_authority_in_two_steps(
    tmp_path: Path, identity: Identity, authority: Identity
) -> None:
    """As in Kafka: old and new brokers connect to each other at every step."""
    other = create_authority("Next CA")
    tls = ListenerTls(files(tmp_path, identity, authority), inter_broker=True)
    at_once = files(tmp_path, same_names(other), other)
    with pytest.raises(ConfigError, match="does not accept the certificate"):
        tls.reload(at_once)
    both = files(tmp_path, identity, authority)
    (tmp_path / "trust.p12").write_bytes(truststore([authority.certificate, other.certificate], SECRET))
    assert tls.reload(both)
    moved = files(tmp_path, same_names(other), authority)
    (tmp_path / "trust.p12").write_bytes(truststore([authority.certificate, other.certificate], SECRET))
    assert tls.reload(moved)


def test_chain_under_an_intermediate_authority_is_accepted(
    tmp_path: Path, authority: Identity, handshake: Handshake
) -> None:
    middle = authority.issue("CN=Middle CA", authority=True)
    leaf = middle.issue("CN=leaf", hosts=["localhost"])
    tls = ListenerTls(files(tmp_path, leaf, authority), inter_broker=True)
    assert succeeded(handshake(tls.context, client_context(settings(trusted=authority))))
    # An authority in the middle is enough to trust, as in Java.
    ListenerTls(files(tmp_path, leaf, middle), inter_broker=True)
    not_an_authority = authority.issue("CN=Middle CA")
    forged = not_an_authority.issue("CN=leaf", hosts=["localhost"])
    with pytest.raises(ConfigError, match="does not accept the certificate"):
        ListenerTls(files(tmp_path, forged, authority), inter_broker=True)


@pytest.mark.parametrize("after", ["none", "requested"])
def test_running_listener_keeps_its_client_authentication(
    identity: Identity, authority: Identity, handshake: Handshake, after: str
) -> None:
    # Kafka's NON_RECONFIGURABLE_CONFIGS: whoever may alter a broker's keys does not open a listener by that.
    tls = ListenerTls(settings(identity, authority, client_auth="required"))
    changed = settings(identity, authority, client_auth=after)
    tls.reload(changed)
    assert not tls.changed(changed)
    assert not succeeded(handshake(tls.context, client_context(settings(trusted=authority))))
    assert succeeded(handshake(tls.context, client_context(settings(authority.issue("CN=alice"), authority))))
    with pytest.raises(ConfigError, match="NO_SUCH"):
        tls.validate(settings(identity, authority, client_auth=after, cipher_suites=("NO_SUCH",)))


def test_settings_in_the_configuration_reload_by_their_values(identity: Identity, authority: Identity) -> None:
    tls = ListenerTls(settings(identity, authority))
    assert not tls.reload(settings(identity, authority))
    assert tls.reload(settings(same_names(authority), authority))


def test_refused_setting_never_shows_a_secret(tmp_path: Path, identity: Identity, authority: Identity) -> None:
    right = files(tmp_path, identity, authority)
    wrong = "wr0ng-guess"
    given = {"keystore_location": right.keystore_location, "keystore_password": Password(wrong)}
    with pytest.raises(ConfigError) as caught:
        ListenerTls(right).reload(SslSettings(**given))
    assert wrong not in str(caught.value)
    assert wrong not in repr(caught.value)
