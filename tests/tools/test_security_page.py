"""The commands, files and programs of docs/security.md, run by a shell as they stand there.

Only ports, the data directory and /run/secrets differ.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import load_properties, parse_properties
from kafkapy.security.jaas import parse_jaas

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FOUND = [match.groupdict() for match in BLOCK.finditer(PAGE)]
BLOCKS = {block["name"]: block["text"] for block in FOUND if block["name"]}
LISTENING = re.compile(r"listening on ([A-Z_]+)://\S*?:(\d+)")
RUN = {"open.properties", "certificates", "mtls.properties", "mtls-start", "mtls-commands", "mtls.py", "renewal",
       "scram.properties", "scram-start", "admin.properties", "scram-commands", "scram.py", "scram-changes", "tokens",
       "both.properties", "providers.properties"}  # fmt: skip


class Shell:
    """A directory in which the page is followed, with a broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports: dict[str, str] = {}
        self._broker: subprocess.Popen[bytes] | None = None
        self._log = directory / "broker.log"
        programs = directory / "bin"
        programs.mkdir()
        for name, module in (("kafkapy", "kafkapy.tools.cli"), ("kafkapy-server", "kafkapy.tools.server")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            (programs / name).chmod(0o755)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        self.environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "KAFKAPY_BOOTSTRAP_SERVER": "",
                                         "XDG_CONFIG_HOME": str(directory)}  # fmt: skip
        del self.environment["KAFKAPY_BOOTSTRAP_SERVER"]

    def text(self, name: str) -> str:
        """A block with this directory and the ports of the broker that runs."""
        text = BLOCKS[name].replace("/tmp/kafkapy-logs", str(self.directory / "data"))
        return self._with_ports(text)

    def _with_ports(self, text: str) -> str:
        for port in ("9092", "9093"):
            text = text.replace(port, self.ports.get(port, "0"))
        return text

    def write(self, name: str, more: str = "") -> None:
        (self.directory / name).write_text(self.text(name) + more)

    def fill_in_ports(self, pattern: str) -> None:
        for path in self.directory.glob(pattern):
            path.write_text(self._with_ports(path.read_text()))

    def run(self, name: str) -> str:
        """Run a block; its output. It must succeed."""
        program = [sys.executable, "-c"] if name.endswith(".py") else ["bash", "-eo", "pipefail", "-c"]
        done = subprocess.run([*program, self.text(name)], cwd=self.directory, env=self.environment,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def command(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", line], cwd=self.directory, env=self.environment, capture_output=True,
                              text=True, check=False)  # fmt: skip

    def start(self, script: str, listeners: dict[str, str]) -> None:
        """Start a broker by a script; `listeners` gives the port in the page of each listener."""
        self.ports = {}
        with self._log.open("wb") as log:
            self._broker = subprocess.Popen(["bash", "-ec", self._with_ports(script)], cwd=self.directory,
                                            env=self.environment, stdout=log, stderr=log,
                                            start_new_session=True)  # fmt: skip

        def listens() -> bool:
            assert self._broker is not None
            said = self._log.read_text()
            assert self._broker.poll() is None, said
            return len(LISTENING.findall(said)) == len(listeners)

        wait_until(listens, "the broker listens")
        found = dict(LISTENING.findall(self._log.read_text()))
        self.ports = {port: found[name] for name, port in listeners.items()}

    def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None and broker.poll() is None:
            os.killpg(broker.pid, signal.SIGTERM)
            broker.wait(60)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.stop()


def begin_with_an_open_broker(shell: Shell) -> None:
    shell.write("open.properties")
    shell.start("kafkapy-server open.properties", {"PLAINTEXT": "9092"})
    there = f"-b 127.0.0.1:{shell.ports['9092']}"
    sent = shell.command(f"kafkapy topics create before {there} && echo 'from before' | kafkapy produce before {there}")
    assert sent.returncode == 0, sent.stderr
    shell.stop()
    shell.ports = {}


def test_open_broker_becomes_one_with_client_certificates(shell: Shell) -> None:
    begin_with_an_open_broker(shell)
    assert "Lines for the broker" in shell.run("certificates")
    shell.write("mtls.properties")
    shell.fill_in_ports("certs/broker.properties")
    shell.start(shell.text("mtls-start"), {"SSL": "9093"})
    shell.ports["9092"] = "9092"
    for path in ("admin", "alice"):
        file = shell.directory / "certs" / f"{path}.properties"
        file.write_text(file.read_text().replace("9093", shell.ports["9093"]))
    output = shell.run("mtls-commands")
    assert "two coffees" in output
    assert "User:alice" in output
    shell.run("mtls.py")
    consumed = shell.command("kafkapy consume orders --command-config certs/alice.properties")
    assert consumed.stdout.splitlines() == ["two coffees", "one tea"]
    kept = shell.command("kafkapy consume before --command-config certs/admin.properties")
    assert kept.stdout.splitlines() == ["from before"]
    for mistake in ("topics create more", "consume before"):
        refused = shell.command(f"kafkapy {mistake} --command-config certs/alice.properties")
        assert refused.returncode == 1, mistake
    without = (shell.directory / "certs" / "alice.properties").read_text().replace("ssl.keystore", "#ssl.keystore")
    (shell.directory / "nobody.properties").write_text(without)
    refused = shell.command("kafkapy topics list --command-config nobody.properties -X bootstrap.timeout.ms=3000")
    assert refused.returncode == 1, refused.stdout
    before = ssl.get_server_certificate(("localhost", int(shell.ports["9093"])))
    shell.run("renewal")
    after = ssl.get_server_certificate(("localhost", int(shell.ports["9093"])))
    assert after != before
    assert after.strip() in (shell.directory / "certs" / "broker.pem").read_text()


def test_open_broker_becomes_one_with_users_access_control_and_tokens(shell: Shell) -> None:
    begin_with_an_open_broker(shell)
    shell.run("certificates")
    shell.write("scram.properties", "delegation.token.secret.key=secret of the tokens\n")
    shell.start(shell.text("scram-start"), {"SASL_SSL": "9093"})
    shell.write("admin.properties")
    output = shell.run("scram-commands")
    assert re.search(r"alice\tSCRAM-SHA-512", output), output
    assert "User:alice" in output
    assert shell.run("scram.py") == "b'two coffees: 7.00'\n"
    kept = shell.command("kafkapy consume before --command-config admin.properties")
    assert kept.stdout.splitlines() == ["from before"]
    created, listed = shell.run("tokens").split("\n", 2)[1:]
    assert created.split("\t")[0] in listed
    shell.run("scram-changes")
    refused = subprocess.run([sys.executable, "-c", shell.text("scram.py")],
                             cwd=shell.directory, env=shell.environment, capture_output=True, text=True,
                             check=False)  # fmt: skip
    assert refused.returncode == 1
    assert "invalid credentials" in refused.stderr


def test_both_listeners_serve_while_clients_move(shell: Shell) -> None:
    begin_with_an_open_broker(shell)
    shell.run("certificates")
    shell.write("both.properties")
    shell.start("kafkapy-server both.properties", {"PLAINTEXT": "9092", "SSL": "9093"})
    shell.fill_in_ports("certs/admin.properties")
    for options in (f"-b 127.0.0.1:{shell.ports['9092']}", "--command-config certs/admin.properties"):
        listed = shell.command(f"kafkapy topics list {options}")
        assert "before" in listed.stdout, listed.stderr


def test_values_come_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka.properties").write_text("keystore=one\n")
    (tmp_path / "token.key").write_text("three\n")
    monkeypatch.setenv("KAFKA_TRUSTSTORE", "two")
    text = BLOCKS["providers.properties"].replace("/run/secrets", str(tmp_path))
    config = BrokerConfig.from_properties(parse_properties(text))
    names = ("ssl.keystore.password", "ssl.truststore.password", "delegation.token.secret.key")
    found = [password.value for name in names if (password := config.get_password(name)) is not None]
    assert found == ["one", "two", "three"]


def test_every_named_block_is_run() -> None:
    logins = {f"{kind}-{role}.properties" for kind in ("oauthbearer", "kerberos") for role in ("server", "client")}
    assert set(BLOCKS) == RUN | logins, "tests/interop/test_security_page_logins.py runs those of logins"


def test_other_properties_are_keys_with_valid_values() -> None:
    others = [block["text"] for block in FOUND if block["language"] == "properties" and not block["name"]]
    assert len(others) == 5
    for text in others:
        BrokerConfig(parse_properties(text))
        for name, value in parse_properties(text).items():
            assert name.endswith("sasl.jaas.config") or name in BrokerConfig({}).definition
            if name.endswith("sasl.jaas.config"):
                assert len(parse_jaas(value)) == 1


def test_files_that_the_page_names_exist_in_the_certificates_directory(shell: Shell) -> None:
    shell.run("certificates")
    named = set(re.findall(r"certs/([\w.-]+\.(?:pem|properties))", PAGE))
    assert named
    assert named <= {path.name for path in (shell.directory / "certs").iterdir()}
    assert load_properties(shell.directory / "certs" / "broker.properties")["ssl.client.auth"] == "required"
