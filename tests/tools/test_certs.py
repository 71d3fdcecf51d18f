"""kafkapy certs: its files work for both sides, only their owner reads them, and mistakes are one sentence."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import load_properties
from kafkapy.errors import KafkaError
from kafkapy.security.ssl.certificates import load_identity
from kafkapy.security.ssl.chains import alternative_names
from kafkapy.tools.cli import main

Run = Callable[..., click.testing.Result]


def run(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["certs", *map(str, arguments)])


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.startswith("Error: ")
    return " ".join(result.stderr.removeprefix("Error: ").split())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "certs"
    done("create", made, "--client", "alice", "--client", "bob")
    return made


def broker(directory: Path, data: Path) -> KafkaServer:
    given = ["listeners=SSL://127.0.0.1:0", f"log.dirs={data}", "broker.id=1"]
    return KafkaServer(BrokerConfig.load(str(directory / "broker.properties"), given))


def client(directory: Path, server: KafkaServer, **keys: str) -> KafkaAdminClient:
    settings = dict(load_properties(directory / "alice.properties"))
    settings |= {"bootstrap.servers": f"127.0.0.1:{server.endpoints[0].port}"}
    return KafkaAdminClient(settings | {name.replace("_", "."): value for name, value in keys.items()})


def test_lines_for_both_sides_make_a_secured_cluster(directory: Path, tmp_path: Path) -> None:
    with broker(directory, tmp_path / "data") as server:
        with client(directory, server) as admin:
            admin.create_topics({"t": {}})
            assert "t" in admin.list_topics()
        assert server.endpoints[0].security_protocol.name == "SSL"
        without = {"ssl.keystore.location", "ssl.keystore.type"}
        settings = {key: value for key, value in load_properties(directory / "alice.properties").items()
                    if key not in without}  # fmt: skip
        settings |= {"bootstrap.servers": f"127.0.0.1:{server.endpoints[0].port}", "bootstrap.timeout.ms": "2000"}
        with pytest.raises(KafkaError):
            KafkaAdminClient(settings)


def test_stores_for_older_java_clients_work_with_the_lines_in_the_comment(directory: Path, tmp_path: Path) -> None:
    text = (directory / "alice.properties").read_text()
    commented = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#   ")]
    kept = [line for line in text.splitlines() if line.startswith(("bootstrap", "security"))]
    (directory / "alice.properties").write_text("\n".join([*kept, *commented]) + "\n")
    with broker(directory, tmp_path / "data") as server, client(directory, server) as admin:
        assert admin.list_topics() == []


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        done("create", tmp_path / "certs")
        done("issue", tmp_path / "certs", "carol")
        done("renew", tmp_path / "certs")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700
    files = sorted((tmp_path / "certs").iterdir())
    assert {file.name for file in files} == {
        "ca.pem", "ca-key.pem", "broker.pem", "broker.p12", "client.pem", "client.p12", "carol.pem", "carol.p12",
        "truststore.p12", "passwords.properties", "broker.properties", "client.properties",
        "carol.properties",
    }  # fmt: skip
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_no_secret_is_printed(directory: Path) -> None:
    password = load_properties(directory / "passwords.properties")["store.password"]
    printed = done("issue", directory, "carol") + done("renew", directory) + done("show", directory)
    printed += done("create", directory.parent / "other")
    assert len(password) > 20
    assert password not in printed
    assert load_properties(directory.parent / "other" / "passwords.properties")["store.password"] not in printed
    assert "PRIVATE" not in printed


def test_java_reads_the_pkcs12_stores(directory: Path) -> None:
    if shutil.which("keytool") is None:
        pytest.skip("keytool of Java is not installed")
    password = load_properties(directory / "passwords.properties")["store.password"]
    for store, kind in (("alice.p12", "PrivateKeyEntry"), ("truststore.p12", "trustedCertEntry")):
        command = ["keytool", "-list", "-keystore", str(directory / store), "-storepass:env", "KP_PASSWORD"]
        environment = os.environ | {"KP_PASSWORD": password}
        shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
        assert kind in shown


def test_hosts_of_the_broker(tmp_path: Path) -> None:
    done("create", tmp_path / "one", "--host", "broker.example", "--host", "10.1.2.3", "--host", "fe80::1")
    pem = (tmp_path / "one" / "broker.pem").read_bytes()
    names = {str(each.value) for each in alternative_names(load_identity(pem, pem).certificate)}
    assert names == {"broker.example", "10.1.2.3", "fe80::1"}
    done("create", tmp_path / "two")
    pem = (tmp_path / "two" / "broker.pem").read_bytes()
    assert {"localhost", "127.0.0.1", "::1"} <= {
        str(each.value) for each in alternative_names(load_identity(pem, pem).certificate)
    }
    assert "neither a host name nor an address" in refused("create", tmp_path / "three", "--host", "a b\u2028")


def test_renewed_certificate_keeps_its_names_and_its_authority(directory: Path, tmp_path: Path) -> None:
    pem = (directory / "broker.pem").read_bytes()
    old = load_identity(pem, pem)
    untouched = (directory / "alice.pem").read_bytes()
    with broker(directory, tmp_path / "data") as server:
        done("renew", directory, "broker", "--days", "30")
        pem = (directory / "broker.pem").read_bytes()
        new = load_identity(pem, pem)
        assert (directory / "alice.pem").read_bytes() == untouched
        assert new.certificate.subject == old.certificate.subject
        assert alternative_names(new.certificate) == alternative_names(old.certificate)
        assert new.certificate.issuer == old.certificate.issuer
        assert new.key.public_key() != old.key.public_key()
        assert (new.certificate.not_valid_after_utc - new.certificate.not_valid_before_utc).days == 30
        with client(directory, server) as admin:
            assert admin.list_topics() == []
    done("renew", directory, "broker")
    pem = (directory / "broker.pem").read_bytes()
    again = load_identity(pem, pem).certificate
    assert (again.not_valid_after_utc - again.not_valid_before_utc).days == 30


def test_show_lists_every_certificate(directory: Path) -> None:
    done("issue", directory, "second", "--host", "second.example", "--days", "10")
    rows = {row["file"]: row for row in json.loads(done("show", directory, "--json"))}
    assert set(rows) == {"ca.pem", "broker.pem", "alice.pem", "bob.pem", "second.pem"}
    assert rows["second.pem"]["subject"] == "CN=second"
    assert rows["second.pem"]["issuer"] == "CN=kafkapy development CA"
    assert rows["second.pem"]["alternative_names"] == ["second.example"]
    assert rows["second.pem"]["days_left"] in (9, 10)
    lines = done("show", directory / "alice.pem").splitlines()
    assert lines[0].split("\t") == ["file", "subject", "alternative_names", "expires", "days_left", "issuer"]
    assert lines[1].split("\t")[:3] == ["alice.pem", "CN=alice", "-"]


def test_mistakes_are_one_sentence(directory: Path, tmp_path: Path) -> None:
    assert "has an authority already: kafkapy certs issue adds" in refused("create", directory)
    assert "alice.pem exists: kafkapy certs renew renews it." in refused("issue", directory, "alice")
    assert "need different names" in refused("create", tmp_path / "x", "--client", "broker")
    for name in ("ca", "truststore", "passwords", "../x", "a/b", ".hidden", ""):
        assert "cannot be the name of a certificate" in refused("issue", directory, name)
        assert "cannot be the name of a certificate" in refused("create", tmp_path / "x", "--client", name)
    assert not (tmp_path / "x").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no authority: kafkapy certs create makes one." in refused("issue", empty, "x")
    assert "has no certificate in PEM." in refused("show", empty)
    assert "missing.pem: No such file or directory." in refused("renew", directory, "missing")
    (directory / "alice.pem").write_text("nothing")
    assert "PEM" in refused("renew", directory, "alice")
    (directory / "passwords.properties").write_text("other=1\n")
    assert "has no key store.password." in refused("issue", directory, "dora")
    shutil.copy(directory / "bob.pem", directory / "ca-key.pem")
    assert "does not fit" in refused("issue", directory, "dora")
