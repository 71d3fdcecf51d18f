"""Stores made by keytool, openssl and cryptography are read; each defect is refused with file and reason."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    pkcs12,
)

from kafkapy.config.config_def import Password
from kafkapy.errors import ConfigError
from kafkapy.security.ssl import certificates
from kafkapy.security.ssl.certificates import Identity, create_authority, truststore
from kafkapy.security.ssl.settings import KeyOrigin, SslSettings
from kafkapy.security.ssl.stores import KeyMaterial, load_keystore, load_truststore

SECRET = "st0re-p@ss wörd"
OTHER = "an0ther-secret"


def _settings(**values: Any) -> SslSettings:
    secrets = {"keystore_password", "key_password", "keystore_key", "keystore_certificate_chain",
               "truststore_password", "truststore_certificates"}  # fmt: skip
    given = {name: Password(value) if name in secrets else str(value) for name, value in values.items()}
    return SslSettings(**given)


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _same_key(material: KeyMaterial | None, identity: Identity) -> bool:
    assert material is not None
    key = load_der_private_key(material.private_key, None)
    numbers = key.private_numbers()  # type: ignore[union-attr]
    return numbers == identity.key.private_numbers() and material.chain == tuple(map(_der, identity.chain))


def _refused(settings: SslSettings, *, trust: bool = False) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_truststore(settings) if trust else load_keystore(settings)
    for secret in (SECRET, OTHER, "PRIVATE KEY-----\nM"):
        assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


@pytest.fixture(scope="session")
def under_intermediate(authority: Identity) -> Identity:
    middle = authority.issue("CN=Middle CA", authority=True)
    return middle.issue("CN=leaf,O=Example", hosts=["leaf.example"])


# --- PEM --------------------------------------------------------------------------------------------------------------


def test_pem_in_the_configuration(identity: Identity, authority: Identity) -> None:
    settings = _settings(
        keystore_type="PEM", keystore_key=identity.key_pem(), keystore_certificate_chain=identity.chain_pem(),
        truststore_type="PEM", truststore_certificates=authority.chain_pem(),
    )  # fmt: skip
    assert _same_key(load_keystore(settings), identity)
    assert load_truststore(settings) == (_der(authority.certificate),)


@pytest.mark.parametrize("separator", ["", " ", "\t", "\r\n"])
def test_pem_in_one_line_as_a_properties_file_joins_it(identity: Identity, separator: str) -> None:
    def joined(pem: str) -> str:
        return pem.replace("\n", separator)

    settings = _settings(
        keystore_type="PEM", keystore_key=joined(identity.key_pem(SECRET)), key_password=SECRET,
        keystore_certificate_chain=joined(identity.chain_pem()),
    )  # fmt: skip
    assert _same_key(load_keystore(settings), identity)


def test_pem_file_with_key_and_chain_among_other_text(tmp_path: Path, under_intermediate: Identity) -> None:
    leaf, middle = under_intermediate.chain
    parts = ["Bag Attributes\n    friendlyName: x-y\n", middle.public_bytes(Encoding.PEM).decode(),
             "Key Attributes: <No Attributes>\n", under_intermediate.key_pem(),
             "subject=CN = leaf\n", leaf.public_bytes(Encoding.PEM).decode()]  # fmt: skip
    (tmp_path / "store.pem").write_text("".join(parts))
    material = load_keystore(_settings(keystore_type="PEM", keystore_location=tmp_path / "store.pem"))
    assert _same_key(material, under_intermediate)


@pytest.mark.parametrize("password", [None, SECRET])
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("bits", [None, 2048])
def test_pem_key_in_every_form(
    authority: Identity, password: str | None, form: PrivateFormat, bits: int | None
) -> None:
    identity = authority.issue("x", key=certificates.new_key(rsa_bits=bits))
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    pem = identity.key.private_bytes(Encoding.PEM, form, encryption).decode()
    assert (":" in pem) == (form is PrivateFormat.TraditionalOpenSSL and password is not None)
    given = {} if password is None else {"key_password": password}
    settings = _settings(
        keystore_type="PEM", keystore_key=pem, keystore_certificate_chain=identity.chain_pem(), **given
    )
    assert _same_key(load_keystore(settings), identity)


def test_pem_keys_of_openssl(tmp_path: Path, openssl: Any, authority: Identity) -> None:
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "key.pem")
    openssl("req", "-new", "-x509", "-key", "key.pem", "-subj", "/CN=by openssl", "-days", "30", "-out", "chain.pem")
    for name, *how in (
        ("pkcs8.pem", "pkcs8", "-topk8", "-v2", "aes-256-cbc"),
        ("scrypt.pem", "pkcs8", "-topk8", "-scrypt"),
        ("traditional.pem", "rsa", "-aes256", "-traditional"),
    ):
        openssl(*how, "-in", "key.pem", "-out", name, "-passout", f"pass:{OTHER}")
        (tmp_path / "store.pem").write_text((tmp_path / name).read_text() + (tmp_path / "chain.pem").read_text())
        settings = _settings(keystore_type="PEM", keystore_location=tmp_path / "store.pem", key_password=OTHER)
        material = load_keystore(settings)
        assert material is not None
        assert isinstance(load_der_private_key(material.private_key, None), rsa.RSAPrivateKey)
        without = _settings(keystore_type="PEM", keystore_location=tmp_path / "store.pem")
        assert _refused(without).reason == "the private key is encrypted; set ssl.key.password"
        wrong = _settings(keystore_type="PEM", keystore_location=tmp_path / "store.pem", key_password=SECRET)
        assert _refused(wrong).reason.startswith("the password in ssl.key.password is wrong")


def test_edwards_key(authority: Identity) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    issued = authority.issue("ed", key=key)  # type: ignore[arg-type]
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    material = load_keystore(
        _settings(keystore_type="PEM", keystore_key=pem, keystore_certificate_chain=issued.chain_pem())
    )
    assert material is not None
    assert material.chain == (_der(issued.certificate),)


def _block(label: str, body: str, end: str = "") -> str:
    return f"-----BEGIN {label}-----\n{body}\n-----END {end or label}-----\n"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ("", "the file is empty"),
        (["no blocks"], "the file has no PEM block (-----BEGIN ...)"),
        (["KEY"], "there is no certificate in it (-----BEGIN CERTIFICATE-----)"),
        (["CHAIN"], "there is no private key in it (-----BEGIN PRIVATE KEY-----)"),
        (["KEY", "KEY", "CHAIN"], "there are 2 private keys in it; a store has one"),
        (["KEY", "FOREIGN"], "the private key does not fit the certificate of CN=foreign"),
        (["EXPIRED"], "the certificate of CN=expired expired at "),
        (["EARLY"], "the certificate of CN=early is not valid before "),
        ([_block("PRIVATE KEY", "M!")], "the block PRIVATE KEY is not base64"),
        ([_block("PRIVATE KEY", "M===")], "the block PRIVATE KEY is not base64"),
        ([_block("PRIVATE KEY", "MAA=", "CERTIFICATE")], "the block PRIVATE KEY does not end with its name"),
        (["CHAIN", _block("PRIVATE KEY", "MAA=")], "the private key is damaged, or of an unknown kind"),
        (["KEY", _block("CERTIFICATE", "MAA=")], "a certificate is damaged: "),
    ],
)
def test_wrong_pem_file_is_refused_with_file_and_reason(
    tmp_path: Path, identity: Identity, authority: Identity, parts: list[str], reason: str
) -> None:
    expired = authority.issue("expired", days=5, starts_in_days=-10)
    early = authority.issue("early", days=5, starts_in_days=3)
    texts = {
        "KEY": identity.key_pem(),
        "CHAIN": identity.chain_pem(),
        "FOREIGN": authority.issue("foreign").chain_pem(),
        "EXPIRED": expired.key_pem() + expired.chain_pem(),
        "EARLY": early.key_pem() + early.chain_pem(),
    }
    path = tmp_path / "store.pem"
    path.write_text("".join(texts.get(part, part) for part in parts))
    error = _refused(_settings(keystore_type="PEM", keystore_location=path))
    assert (error.key, error.value) == ("ssl.keystore.location", str(path))
    assert error.reason.startswith(reason)


# --- PKCS12 -----------------------------------------------------------------------------------------------------------


def test_pkcs12_of_cryptography(tmp_path: Path, under_intermediate: Identity, authority: Identity) -> None:
    (tmp_path / "key.p12").write_bytes(under_intermediate.pkcs12(SECRET))
    (tmp_path / "trust.p12").write_bytes(truststore([authority.certificate, *under_intermediate.issuers], SECRET))
    for kind in ("PKCS12", "JKS", "pkcs12"):
        settings = _settings(
            keystore_type=kind, keystore_location=tmp_path / "key.p12", keystore_password=SECRET,
            truststore_type=kind, truststore_location=tmp_path / "trust.p12", truststore_password=SECRET,
        )  # fmt: skip
        assert _same_key(load_keystore(settings), under_intermediate)
        trusted = load_truststore(settings)
        assert trusted is not None
        assert set(trusted) == {_der(authority.certificate), *map(_der, under_intermediate.issuers)}


@pytest.mark.parametrize(("kind", "legacy"), [("PKCS12", False), ("PKCS12", True), ("JKS", False)])
def test_stores_of_keytool(tmp_path: Path, keytool: Any, openssl: Any, kind: str, legacy: bool) -> None:
    """A broker's certificate signed by an authority, as Kafka's own documentation makes them."""
    java = ["-J-Dkeystore.pkcs12.legacy"] if legacy else []
    store = ["-storetype", kind, "-storepass", OTHER, *java]
    key_password = SECRET if kind == "JKS" else OTHER
    openssl("req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca-key", "-out", "ca-cert",
            "-days", "365", "-subj", "/CN=Authority")  # fmt: skip
    keytool("-genkeypair", "-keystore", "server.keystore.jks", "-alias", "localhost", "-validity", "30", "-keyalg",
            "RSA", "-dname", "CN=server, O=Example", "-keypass", key_password, *store)  # fmt: skip
    keytool("-keystore", "server.keystore.jks", "-alias", "localhost", "-certreq", "-file", "request", "-keypass",
            key_password, *store)  # fmt: skip
    openssl("x509", "-req", "-CA", "ca-cert", "-CAkey", "ca-key", "-in", "request", "-out", "signed", "-days", "30",
            "-CAcreateserial")  # fmt: skip
    keytool("-keystore", "server.keystore.jks", "-alias", "CARoot", "-importcert", "-file", "ca-cert", "-noprompt",
            *store)  # fmt: skip
    keytool("-keystore", "server.keystore.jks", "-alias", "localhost", "-importcert", "-file", "signed", "-noprompt",
            "-keypass", key_password, *store)  # fmt: skip
    keytool("-keystore", "server.truststore.jks", "-alias", "CARoot", "-importcert", "-file", "ca-cert", "-noprompt",
            *store)  # fmt: skip
    signed = x509.load_pem_x509_certificate((tmp_path / "signed").read_bytes())
    root = x509.load_pem_x509_certificate((tmp_path / "ca-cert").read_bytes())
    keystore = tmp_path / "server.keystore.jks"
    trust = {"truststore_location": tmp_path / "server.truststore.jks", "truststore_type": kind}
    settings = _settings(
        keystore_type=kind, keystore_location=keystore, keystore_password=OTHER, key_password=key_password,
        truststore_password=OTHER, **trust,
    )  # fmt: skip
    material = load_keystore(settings)
    assert material is not None
    assert material.chain == (_der(signed), _der(root))
    assert load_truststore(settings) == (_der(root),)
    # The key store serves as a trust store too: Java trusts its entries, the leaf and the authority's own.
    both = _settings(truststore_type=kind, truststore_location=keystore, truststore_password=OTHER)
    trusted = load_truststore(both)
    assert trusted is not None
    assert set(trusted) == {_der(signed), _der(root)}

    wrong = _settings(keystore_type=kind, keystore_location=keystore, keystore_password="wr0ng-guess")
    assert _refused(wrong).reason.startswith("the password in ssl.keystore.password is wrong")
    wrong = _settings(truststore_password="wr0ng-guess", **trust)
    assert _refused(wrong, trust=True).reason.startswith("the password in ssl.truststore.password is wrong")
    if kind == "JKS":
        # Without a password of the trust store, Java only leaves out the check that it is unchanged.
        assert load_truststore(_settings(**trust)) == (_der(root),)
        unnamed = _settings(keystore_location=keystore, keystore_password=OTHER)
        assert _refused(unnamed).reason == "the private key has a password of its own; set ssl.key.password"
        wrong = _settings(keystore_location=keystore, keystore_password=OTHER, key_password="wr0ng-guess")
        assert _refused(wrong).reason == "the password in ssl.key.password is wrong"
    else:
        assert "set ssl.truststore.password" in _refused(_settings(**trust), trust=True).reason


def test_key_store_as_trust_store_does_not_trust_the_issuers_of_its_key(
    tmp_path: Path, keytool: Any, under_intermediate: Identity
) -> None:
    (tmp_path / "python.p12").write_bytes(under_intermediate.pkcs12(OTHER))
    for kind in ("PKCS12", "JKS"):
        keytool("-importkeystore", "-srckeystore", "python.p12", "-srcstorepass", OTHER, "-destkeystore", kind,
                "-deststoretype", kind, "-deststorepass", OTHER, "-noprompt")  # fmt: skip
    for name in ("python.p12", "PKCS12", "JKS"):
        settings = _settings(truststore_location=tmp_path / name, truststore_password=OTHER)
        assert load_truststore(settings) == (_der(under_intermediate.certificate),), name
        assert _same_key(
            load_keystore(_settings(keystore_location=tmp_path / name, keystore_password=OTHER)), under_intermediate
        )


@pytest.mark.parametrize("more", [[], ["-legacy"], ["-certpbe", "NONE", "-keypbe", "NONE", "-nomac"]])
def test_pkcs12_of_openssl(tmp_path: Path, openssl: Any, under_intermediate: Identity, more: list[str]) -> None:
    (tmp_path / "all.pem").write_text(under_intermediate.key_pem() + under_intermediate.chain_pem())
    openssl("pkcs12", "-export", "-in", "all.pem", "-out", "store.p12", "-passout", f"pass:{OTHER}", *more)
    settings = _settings(keystore_type="PKCS12", keystore_location=tmp_path / "store.p12", keystore_password=OTHER)
    assert _same_key(load_keystore(settings), under_intermediate)


def test_java_reads_the_stores_that_we_write(tmp_path: Path, keytool: Any, under_intermediate: Identity) -> None:
    (tmp_path / "key.p12").write_bytes(under_intermediate.pkcs12(OTHER))
    (tmp_path / "trust.p12").write_bytes(truststore(under_intermediate.issuers, OTHER))
    keytool("-exportcert", "-keystore", "key.p12", "-storepass", OTHER, "-alias", "kafka", "-file", "leaf.der")
    keytool("-exportcert", "-keystore", "trust.p12", "-storepass", OTHER, "-alias", "ca0", "-file", "ca.der")
    assert (tmp_path / "leaf.der").read_bytes() == _der(under_intermediate.certificate)
    assert (tmp_path / "ca.der").read_bytes() == _der(under_intermediate.issuers[0])


# --- damage -----------------------------------------------------------------------------------------------------------


def test_store_that_is_cut_off_anywhere_is_refused(tmp_path: Path, keytool: Any, identity: Identity) -> None:
    whole = identity.pkcs12(OTHER)
    (tmp_path / "pkcs12").write_bytes(whole)
    keytool("-importkeystore", "-srckeystore", "pkcs12", "-srcstorepass", OTHER, "-destkeystore", "jks",
            "-deststoretype", "JKS", "-deststorepass", OTHER)  # fmt: skip
    for name, reason in (("pkcs12", "PKCS12 store is damaged"), ("jks", "JKS store is damaged")):
        data = (tmp_path / name).read_bytes()
        path = tmp_path / f"cut.{name}"
        settings = _settings(keystore_location=path, keystore_password=OTHER)
        for length in range(4, len(data)):
            path.write_bytes(data[:length])
            assert reason in _refused(settings).reason
        for length in (1, 2, 3):
            path.write_bytes(data[:length])
            assert "store" in _refused(settings).reason


def test_jks_store_with_any_changed_bit_is_refused(tmp_path: Path, keytool: Any, identity: Identity) -> None:
    (tmp_path / "pkcs12").write_bytes(identity.pkcs12(OTHER))
    keytool("-importkeystore", "-srckeystore", "pkcs12", "-srcstorepass", OTHER, "-destkeystore", "jks",
            "-deststoretype", "JKS", "-deststorepass", OTHER)  # fmt: skip
    data = (tmp_path / "jks").read_bytes()
    path = tmp_path / "changed"
    settings = _settings(keystore_location=path, keystore_password=OTHER)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        assert _refused(settings).reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xce\xce\xce\xce\0\0\0\2", "stores of type JCEKS are not supported"),
        (b"garbage", "the file is neither a PKCS12 nor a JKS store"),
        (b"-----BEGIN CERTIFICATE-----\n", "the file is PEM; set the type to PEM"),
        (b"0\x80garbage", "wrong, or the PKCS12 store is damaged"),
        (b"\xfe\xed\xfe\xed\0\0\0\3", "version 3 is not known"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\xff\xff\xff\xff\0\0\0\1\0\1a" + bytes(8) + b"\xff\xff\xff\xff", "ends after"),
    ],
)
def test_file_of_another_format_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    for trust in (False, True):
        side = "truststore" if trust else "keystore"
        settings = _settings(**{f"{side}_location": path, f"{side}_password": OTHER})
        error = _refused(settings, trust=trust)
        assert reason in error.reason
        assert str(error).startswith(f"Invalid value {str(path)!r} for configuration ssl.{side}.location: ")


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, reason in (
        (tmp_path / "missing", "the file does not exist"),
        (tmp_path, "this is a directory, not a file"),
        (tmp_path / "fifo", "this is not a regular file"),
        ("/dev/zero", "this is not a regular file"),
        ("a\0b", "the file cannot be read: embedded null byte"),
    ):
        assert _refused(_settings(keystore_location=path, keystore_password=OTHER)).reason == reason


def test_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    assert "no store needs" in _refused(_settings(truststore_location=tmp_path / "large"), trust=True).reason


def test_trust_store_without_a_certificate_is_refused(tmp_path: Path, keytool: Any, identity: Identity) -> None:
    keytool("-genkeypair", "-keystore", "empty", "-alias", "x", "-keyalg", "EC", "-dname", "CN=x", "-storepass", OTHER)
    keytool("-delete", "-keystore", "empty", "-alias", "x", "-storepass", OTHER)
    settings = _settings(truststore_location=tmp_path / "empty", truststore_password=OTHER)
    assert _refused(settings, trust=True).reason == "the store has no trusted certificate"
    settings = _settings(keystore_location=tmp_path / "empty", keystore_password=OTHER)
    assert _refused(settings).reason == "the store has no private key"


def test_trust_store_with_only_expired_certificates_is_refused(
    authority: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    expired = create_authority("Old CA", days=1, starts_in_days=-3)
    pem = expired.chain_pem()
    settings = _settings(truststore_type="PEM", truststore_certificates=pem)
    assert _refused(settings, trust=True).reason.startswith("the certificate of CN=Old CA expired at ")
    settings = _settings(truststore_type="PEM", truststore_certificates=pem + authority.chain_pem())
    assert load_truststore(settings) == (_der(expired.certificate), _der(authority.certificate))
    assert "CN=Old CA expired at" in caplog.text


# --- keys that contradict each other ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({"keystore_type": "BKS"}, "ssl.keystore.type", "must be one of PEM, PKCS12, JKS"),
        ({"keystore_key": "x"}, "ssl.keystore.key", "needs ssl.keystore.type=PEM"),
        ({"keystore_type": "PEM", "keystore_key": "x"}, "ssl.keystore.key", "needs ssl.keystore.certificate.chain"),
        ({"keystore_type": "PEM", "keystore_certificate_chain": "x"}, "ssl.keystore.certificate.chain",
         "needs ssl.keystore.key as well"),
        ({"keystore_type": "PEM", "keystore_key": "x", "keystore_certificate_chain": "x", "keystore_location": "/x"},
         "ssl.keystore.key", "contradicts ssl.keystore.location"),
        ({"keystore_type": "PEM", "keystore_location": "/x", "keystore_password": "x"}, "ssl.keystore.password",
         "a PEM store has no password"),
        ({"keystore_password": "x"}, "ssl.keystore.password", "needs ssl.keystore.location"),
        ({"keystore_location": "/x"}, "ssl.keystore.location", "needs ssl.keystore.password"),
        ({"key_location": "/x"}, "ssl.key.location", "needs ssl.certificate.location"),
    ],
)  # fmt: skip
def test_keystore_keys_that_contradict_each_other(values: dict[str, str], key: str, reason: str) -> None:
    error = _refused(_settings(**values))
    assert (error.key, reason in error.reason) == (key, True)


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({"truststore_type": "BKS"}, "ssl.truststore.type", "must be one of PEM, PKCS12, JKS"),
        ({"truststore_certificates": "x"}, "ssl.truststore.certificates", "needs ssl.truststore.type=PEM"),
        ({"truststore_type": "PEM", "truststore_certificates": "x", "truststore_location": "/x"},
         "ssl.truststore.certificates", "contradicts ssl.truststore.location"),
        ({"truststore_type": "PEM", "truststore_location": "/x", "truststore_password": "x"},
         "ssl.truststore.password", "a PEM store has no password"),
        ({"truststore_password": "x"}, "ssl.truststore.password", "needs ssl.truststore.location"),
    ],
)  # fmt: skip
def test_truststore_keys_that_contradict_each_other(values: dict[str, str], key: str, reason: str) -> None:
    error = _refused(_settings(**values), trust=True)
    assert (error.key, reason in error.reason) == (key, True)


def test_without_stores_there_is_nothing() -> None:
    assert load_keystore(SslSettings()) is None
    assert load_truststore(SslSettings()) is None


def test_error_names_the_key_as_the_user_wrote_it_and_its_line() -> None:
    origin = KeyOrigin("listener.name.external.ssl.keystore.location", 7, "server.properties")
    settings = SslSettings(
        keystore_location="/missing", keystore_password=Password(OTHER), origins={"ssl.keystore.location": origin}
    )
    assert str(_refused(settings)) == (
        "Invalid value '/missing' for configuration listener.name.external.ssl.keystore.location: the file does not "
        "exist (server.properties, line 7)"
    )


# --- librdkafka's keys ------------------------------------------------------------------------------------------------


def test_files_of_librdkafka(tmp_path: Path, identity: Identity, authority: Identity) -> None:
    (tmp_path / "chain.pem").write_text(identity.chain_pem())
    (tmp_path / "key.pem").write_text(identity.key_pem(SECRET))
    (tmp_path / "both.pem").write_text(identity.chain_pem() + identity.key_pem())
    (tmp_path / "ca.pem").write_text(authority.chain_pem())
    apart = _settings(
        certificate_location=tmp_path / "chain.pem", key_location=tmp_path / "key.pem", key_password=SECRET,
        ca_location=tmp_path / "ca.pem",
    )  # fmt: skip
    assert _same_key(load_keystore(apart), identity)
    assert load_truststore(apart) == (_der(authority.certificate),)
    assert _same_key(load_keystore(_settings(certificate_location=tmp_path / "both.pem")), identity)
    error = _refused(_settings(certificate_location=tmp_path / "chain.pem", key_location=tmp_path / "key.pem"))
    assert (error.key, error.value) == ("ssl.key.location", str(tmp_path / "key.pem"))
    assert error.reason == "the private key is encrypted; set ssl.key.password"
    assert load_truststore(_settings(ca_location="probe")) is None


def test_directory_of_authorities(tmp_path: Path, authority: Identity) -> None:
    other = create_authority("Other CA")
    directory = tmp_path / "authorities"
    directory.mkdir()
    settings = _settings(ca_location=directory)
    assert _refused(settings, trust=True).reason == "no file of the directory has a certificate in PEM"
    (directory / "a.crt").write_text(authority.chain_pem())
    (directory / "b.pem").write_text(other.chain_pem() + authority.chain_pem())
    (directory / "README").write_text("not one")
    (directory / "below").mkdir()
    assert load_truststore(settings) == (_der(authority.certificate), _der(other.certificate))
    (directory / "c.pem").write_text("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
    assert _refused(settings, trust=True).value == str(directory / "c.pem")


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_secrets_are_not_shown(identity: Identity) -> None:
    settings = _settings(
        keystore_type="PEM", keystore_key=identity.key_pem(SECRET), key_password=SECRET,
        keystore_certificate_chain=identity.chain_pem(),
    )  # fmt: skip
    material = load_keystore(settings)
    assert material is not None
    for shown in (repr(settings), str(settings), f"{settings}", repr(material), repr(identity)):
        assert SECRET not in shown
        assert "PRIVATE KEY" not in shown
        assert repr(material.private_key) not in shown


def test_java_trust_store_may_hold_several_certificates(tmp_path: Path) -> None:
    several = [create_authority(f"CA {index}").certificate for index in range(3)]
    (tmp_path / "trust.p12").write_bytes(truststore(several, OTHER))
    settings = _settings(truststore_location=tmp_path / "trust.p12", truststore_password=OTHER)
    trusted = load_truststore(settings)
    assert trusted is not None
    assert sorted(trusted) == sorted(map(_der, several))


def test_days_of_a_certificate_end_with_those_of_its_authority() -> None:
    authority = create_authority(days=10)
    issued = authority.issue("x", days=1000).certificate
    assert issued.not_valid_after_utc == authority.certificate.not_valid_after_utc
    assert issued.not_valid_before_utc < datetime.datetime.now(datetime.UTC)
    assert isinstance(issued.public_key(), ec.EllipticCurvePublicKey)
    with pytest.raises(ValueError, match="neither a host name nor an address"):
        authority.issue("x", hosts=["\udcff"])
    with pytest.raises(ValueError, match="no distinguished name"):
        authority.issue("CN=x,FOO=y")
    assert pkcs12.load_pkcs12(authority.issue("x").pkcs12(SECRET), SECRET.encode()).cert is not None
